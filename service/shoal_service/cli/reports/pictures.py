"""Pictures of a report: vector graphics whose colours follow the scheme of the page."""

import io
import re
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from shoal_service.cli.reports.facts import Facts

INK, PAGE = "#010203", "#fefdfc"
"""Colours that stand for those of the page until the picture is drawn."""
_COLOUR = re.compile(r"#[0-9a-f]{6}\b")


class Picture(NamedTuple):
    """A picture, and what it shows."""

    name: str
    title: str
    words: str
    """For readers who do not see it."""
    svg: str


def palette() -> dict[str, tuple[str, str]]:
    """Names of the variables of the page's style for the colours of clusters, with the light and the dark value."""
    from shoal.plotting import N_COLOURS, colour_of

    slots = {f"--c{i}": (colour_of(i), colour_of(i, dark=True)) for i in range(N_COLOURS)}
    return slots | {"--none": (colour_of(None), colour_of(None, dark=True))}


def pictures_of(facts: "Facts") -> list[Picture]:
    """The map, the tree, the course of the fit, and of a stream the lives of its components."""
    from shoal.plotting import BoundDisplay, HierarchyDisplay, LifelineDisplay, MixtureDisplay, lives_of

    mixture, clustering = facts.mixture, facts.clustering
    asked: dict[str, Any] = {} if clustering.rule == "components" else {"n_clusters": clustering.n_clusters}
    k, drawn = mixture.n_components, facts.scan.drawn
    shown = "the telling features of each component" if drawn is None else "points and components in two coordinates"
    bars = drawn is None
    size = (9.0, 2.0 * -(-min(k, 12) // 3) + 0.4) if bars else (9.0, 5.6)

    def draw_map(ax: Any) -> None:
        MixtureDisplay.from_estimator(facts.model, drawn, feature_names=facts.scan.names, ax=ax, **asked)

    found = [_drawn("map", "Map" if not bars else "Components by their features", shown, draw_map, size)]
    if k > 1:
        size = (9.0, 3.8)
        words = f"tree of {k} components, cut into {clustering.n_clusters} clusters"
        found.append(_drawn("tree", "Hierarchy", words, HierarchyDisplay(facts.hierarchy, clustering).plot, size))
    if facts.course:
        at, value = (np.array(column) for column in zip(*facts.course, strict=True))
        display = BoundDisplay(
            at, value, at_name="points of the stream", value_name="log density before learning, nats"
        )
        words = "mean log density of new points, before they were learnt, over the stream"
        found.append(_drawn("course", "Running score", words, display.plot, (9.0, 3.2)))
    if not facts.streamed:
        words = "bound on the log evidence after each round"
        found.append(
            _drawn("course", "Bound", words, lambda ax: BoundDisplay.from_estimator(facts.model, ax=ax), (9.0, 3.2))
        )
    else:
        lanes = lives_of(facts.model.events_, dict.fromkeys(mixture.ids.tolist(), 0), mixture.points_seen).lanes
        height = min(max(0.2 * lanes + 1.2, 2.2), 12.0)
        words = "each component as a line over the stream, from its birth to its end"
        found.append(
            _drawn("lives", "Lives of the components", words,
                   lambda ax: LifelineDisplay.from_estimator(facts.model, ax=ax, **asked), (9.0, height))
        )  # fmt: skip
    return found


def _drawn(name: str, title: str, words: str, draw: Callable[[Any], Any], size: tuple[float, float]) -> Picture:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "font.size": 9.5,
        "figure.facecolor": PAGE,
        "axes.facecolor": PAGE,
    } | dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK)
    target = io.StringIO()
    with mpl.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # the browser has the glyphs of all languages
        mpl.rcdefaults()
        mpl.rcParams.update(style)
        figure = Figure(figsize=size, layout="constrained")
        draw(figure.subplots())
        figure.savefig(target, format="svg", metadata={"Date": None}, facecolor="none")
    return Picture(name, title, words, _inline(target.getvalue(), name))


def _inline(svg: str, name: str) -> str:
    """The `svg` element alone, with ids of its own and colours that are variables of the page's style."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = (
        re.sub(r' (?:xmlns(?::\w+)?|version|width|height)="[^"]*"', "", svg[: svg.index(">") + 1])
        + svg[svg.index(">") + 1 :]
    )
    svg = re.sub(r'(\bid="|xlink:href="#|url\(#)', rf"\g<1>{name}-", svg).replace("xlink:href", "href")
    known = {light: f"var({variable})" for variable, (light, _) in palette().items()}
    known |= {INK: "var(--ink)", PAGE: "var(--page)"}
    return _COLOUR.sub(lambda found: known.get(found[0], found[0]), svg)
