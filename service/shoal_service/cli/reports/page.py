"""The page of a report: HTML with its style and its pictures, and a policy that forbids every request."""

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from shoal_service.cli.output import count
from shoal_service.cli.reports.pictures import Picture, palette
from shoal_service.cli.reports.words import bound_words, family_words, method_words, rule_words, stability_words

if TYPE_CHECKING:
    from shoal.mixture import TellingFeature
    from shoal_service.cli.reports.facts import Facts

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
MOST_COMPONENTS = 200
OPEN_COMPONENTS = 12


def page_of(facts: "Facts", pictures: Sequence[Picture], command: str, versions: str) -> str:
    """The whole document. Equal facts give equal text."""
    by_name = {one.name: one for one in pictures}
    sections = [
        ("fit", "What was fitted", _fit(facts)),
        ("clusters", "Clusters", _clusters(facts)),
        ("map", by_name["map"].title, _figure(by_name["map"], _map_words(facts))),
        *_optional(by_name, "tree", _tree_words(facts)),
        *_optional(by_name, "course", _course_words(facts)),
        *_optional(by_name, "lives", "A dot is a birth, a cross a retirement, a triangle a return. Thin lines join."),
        ("stability", "Stability", f"<p>{escape(stability_words(facts))}</p>"),
        ("anomalies", "Least probable points", _anomalies(facts)),
        ("components", "Components", _components(facts)),
        ("reproduce", "How to reproduce", _reproduce(facts, command, versions)),
    ]
    title = f"{facts.source.name}: {count(facts.clustering.n_clusters, 'cluster')}"
    lead = f"{count(facts.n_points, 'point')} of {count(len(facts.mixture.location), 'feature')}, "
    lead += f"{count(facts.mixture.n_components, 'component')}"
    links = "".join(f'<a href="#{name}">{escape(heading)}</a>' for name, heading, _ in sections)
    body = "".join(
        f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{escape(heading)}</h2>{text}'
        "</section>"
        for name, heading, text in sections
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{_style()}</style></head><body>"
        f'<header><h1>{escape(title)}</h1><p class="lead">{escape(lead)}</p><nav aria-label="Sections">{links}</nav>'
        f"</header><main>{body}</main></body></html>\n"
    )


def _style() -> str:
    light = "".join(f"{name}:{pair[0]};" for name, pair in palette().items())
    dark = "".join(f"{name}:{pair[1]};" for name, pair in palette().items())
    text = files("shoal_service.cli.reports").joinpath("style.css").read_text(encoding="utf-8")
    return f":root{{{light}}}@media (prefers-color-scheme: dark){{:root{{{dark}}}}}{text}"


def _fit(facts: "Facts") -> str:
    rows = [
        ("File", f"{facts.source.name}, {count(facts.source.n_bytes, 'byte')}"),
        ("Points", f"{facts.n_points:,}"),
        ("Features", _features(facts)),
        ("Family", family_words(facts)),
        ("Method", method_words(facts)),
        ("Result", bound_words(facts)),
        ("Clusters", rule_words(facts.clustering)),
    ]
    return "<dl>" + "".join(f"<dt>{name}</dt><dd>{escape(value)}</dd>" for name, value in rows) + "</dl>"


def _features(facts: "Facts") -> str:
    names, d = facts.scan.names, len(facts.mixture.location)
    if names is None:
        return f"{d:,}, without names"
    more = f" and {d - 12:,} more" if d > 12 else ""
    return f"{d:,}: {', '.join(names[:12])}{more}"


def _clusters(facts: "Facts") -> str:
    total = float(facts.mixture.masses.sum()) or 1.0
    rows = []
    for cluster in facts.clustering.clusters:
        points = sum(facts.scan.counts[one] for one in cluster.components)
        rows.append([
            _named(cluster.id, cluster.id),
            f"{100.0 * cluster.mass / total:.1f} %",
            f"{points:,}",
            escape(", ".join(map(str, cluster.components[:12])) + (" …" if len(cluster.components) > 12 else "")),
            _telling(facts, facts.cluster_telling.get(cluster.id, ())),
        ])  # fmt: skip
    note = "Each value is the mean in the cluster; in parentheses the mean of all other points."
    return _table(("cluster", "share", "points", "components", "telling features"), rows, (1, 2)) + _note(note)


def _components(facts: "Facts") -> str:
    mixture = facts.mixture
    rows = []
    for row in mixture.largest_first[:MOST_COMPONENTS].tolist():
        component = int(mixture.ids[row])
        group = int(facts.clustering.of_components(mixture.ids[row]))
        rows.append([
            _named(component, group),
            f"{100.0 * float(mixture.weights[row]):.1f} %",
            f"{facts.scan.counts[component]:,}",
            str(group),
            _telling(facts, facts.telling.get(component, ())),
        ])  # fmt: skip
    text = _table(("component", "share", "points", "cluster", "telling features"), rows, (1, 2))
    more = mixture.n_components - len(rows)
    text += _note(f"{more:,} smaller components are not shown.") if more > 0 else ""
    opened = " open" if mixture.n_components <= OPEN_COMPONENTS else ""
    return f"<details{opened}><summary>{count(mixture.n_components, 'component')}</summary>{text}</details>"


def _anomalies(facts: "Facts") -> str:
    found = facts.scan.anomalies
    if not found:
        return "<p>None were asked for.</p>"
    keyed = any(one.key is not None for one in found)
    rows = []
    for one in found:
        group = int(facts.clustering.of_components(_id(one.component)))
        unusual = "; ".join(
            f"{facts.feature_name(each.feature)} = {_number(each.value)} ({each.deviations:.1f} deviations off)"
            for each in one.unusual
        )
        key = [_place(one.key or "")] if keyed else []
        rows.append([
            *key, _place(one.place), f"{one.log_density:.2f}", f"{one.novelty:.3f}", _named(one.component, group),
            escape(unusual or "–"),
        ])  # fmt: skip
    names = [
        *(["key"] if keyed else []),
        "place",
        "log density, nats",
        "novelty",
        "nearest component",
        "unusual features",
    ]
    first = 2 if keyed else 1
    note = (
        f"The mean of all points is {facts.scan.mean_log_density:.2f} nats. Novelty is the probability that the point "
        "belongs to no component."
    )
    return _table(names, rows, (first, first + 1)) + _note(note)


def _reproduce(facts: "Facts", command: str, versions: str) -> str:
    from shoal.families import shown_family

    kind = type(facts.model).__name__
    settings = dict(facts.settings)
    if settings.get("family") not in (None, "auto"):
        settings["family"] = shown_family(facts.mixture.settings.family)  # an array has no names of columns
    given = ", ".join(f"{name}={value!r}" for name, value in settings.items() if value is not None)
    comment = "# points: the rows of the file, in their order"
    code = f"from shoal import {kind}\n\n{comment}\nmodel = {kind}({given}).fit(points)"
    return (
        f"<pre><code>{escape(command)}</code></pre><p>The same in Python:</p><pre><code>{escape(code)}</code></pre>"
        f"<dl><dt>Versions</dt><dd>{escape(versions)}</dd><dt>SHA-256 of the file</dt><dd><code>{facts.source.sha256}"
        "</code></dd></dl>"
    )


def _map_words(facts: "Facts") -> str:
    from shoal.families import shown_family

    if facts.scan.drawn is None:
        mixed = isinstance(shown_family(facts.mixture.settings.family), dict)
        scales = " Each bar has a scale of its own." if mixed else ""
        return f"A bar is the mean in the component, a line that of the rest.{scales}"
    if len(facts.mixture.location) == 1:
        return "The density of each component, times its share, over a histogram of the points."
    shown = "" if len(facts.scan.drawn) == facts.n_points else f" {len(facts.scan.drawn):,} of the points are shown."
    return f"An ellipse is two standard deviations of a component. Colours are clusters.{shown}"


def _tree_words(facts: "Facts") -> str:
    if facts.clustering.n_clusters == facts.mixture.n_components:
        return "Each component is a cluster."
    if facts.clustering.n_clusters == 1:
        return "All components are one cluster."
    return "Joins above the dashed line are undone. Below it, a colour is a cluster."


def _course_words(facts: "Facts") -> str:
    if facts.streamed:
        return "The mean log density of new points. A fall means that the stream brought something new."
    return "Dots are rounds in which the bound rose."


def _optional(pictures: dict[str, Picture], name: str, words: str) -> Iterable[tuple[str, str, str]]:
    return [(name, pictures[name].title, _figure(pictures[name], words))] if name in pictures else []


def _figure(picture: Picture, words: str) -> str:
    label = f'<svg role="img" aria-label="{escape(picture.words)}"'
    svg = picture.svg.replace("<svg", label, 1)
    return f'<figure tabindex="0">{svg}<figcaption>{escape(words)}</figcaption></figure>'


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int]) -> str:
    """A table of cells that are HTML already; `numbers` are the columns that stand at the right."""

    def cells(tag: str, row: Sequence[str]) -> str:
        kinds = [' class="number"' if i in numbers else "" for i in range(len(row))]
        return "".join(f"<{tag}{kind}>{cell}</{tag.split()[0]}>" for kind, cell in zip(kinds, row, strict=True))

    head = cells('th scope="col"', columns)
    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide" tabindex="0" role="group" aria-label="table">{table}</div>'


def _telling(facts: "Facts", features: "Sequence[TellingFeature]") -> str:
    told = "".join(
        f"<span>{escape(facts.feature_name(one.feature))}{'' if one.level is None else f' = {one.level}'} "
        f"{_number(one.value)} <small>({_number(one.rest)})</small></span>"
        for one in features[:4]
    )
    return f'<div class="telling">{told or "–"}</div>'


def _named(name: int, group: int) -> str:
    slot = group % (len(palette()) - 1)
    return f'<span class="swatch" style="background:var(--c{slot})"></span>{name}'


def _place(text: str) -> str:
    return f'<span class="place">{escape(text)}</span>'


def _note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'


def _number(value: float) -> str:
    return f"{value:,.4g}" if abs(value) < 1e6 else f"{value:.3e}"


def _id(component: int) -> Any:
    import numpy as np

    return np.array(component)


def summary_of(facts: "Facts", output: str) -> dict[str, Any]:
    """The summary that the command prints as JSON."""
    return {
        "report": output,
        "points": facts.n_points,
        "family": facts.mixture.settings.family,
        "components": facts.mixture.n_components,
        "clusters": [
            {"id": one.id, "mass": one.mass, "components": list(one.components)} for one in facts.clustering.clusters
        ],
        "mean_log_density": facts.scan.mean_log_density,
        "stability": None if facts.agreement is None else facts.agreement.clusters,
        "anomalies": [
            {"key": one.key, "place": one.place, "log_density": one.log_density, "novelty": one.novelty}
            for one in facts.scan.anomalies
        ],
    }
