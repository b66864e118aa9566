"""Sentences of a report about a fit."""

from typing import TYPE_CHECKING

from shoal_service.cli.fit_batch import bound_of_fit, rounds_of_fit
from shoal_service.cli.output import count

if TYPE_CHECKING:
    from shoal.clusters import Clustering
    from shoal_service.cli.reports.facts import Facts

_RULES = {
    "number": "as many as were asked for",
    "resolution": "by the resolution that was asked for",
    "connected": "groups of components between which the density hardly falls",
    "penalty": "the cut of the tree with the least misfit plus penalty",
    "components": "each component is one, as the family has no rule for a coarser cut",
}


def family_words(facts: "Facts") -> str:
    """The family, what it is, and why it was used."""
    from shoal.families import FAMILIES

    settings = facts.mixture.settings
    family = FAMILIES[settings.family]
    what = getattr(family, "description", None) or (family.__doc__ or "").partition("\n")[0]
    asked = facts.settings.get("family")
    why = "It is the default." if asked is None else "It was asked for."
    if asked == "auto":
        why = settings.family_reason or (
            f"It is provisional, as a family is chosen after {settings.warmup_points:,} points, and the file has fewer."
        )
    prior = next((event.reason for event in getattr(facts.model, "events_", ()) if event.kind == "prior"), None)
    sentences = [f"{_named(facts)}: {what.rstrip('.')}.", why, prior]
    return " ".join(f"{one[:1].upper()}{one[1:].rstrip('.')}." if i else one for i, one in enumerate(sentences) if one)


def _named(facts: "Facts") -> str:
    """The family; of columns of several kinds, each family with its columns."""
    from shoal.families import shown_family

    shown = shown_family(facts.mixture.settings.family, facts.scan.names)
    if isinstance(shown, str):
        return shown
    columns: dict[str, list[str]] = {}
    for column, family in shown.items():
        columns.setdefault(family, []).append(column)
    prefix = "columns " if facts.scan.names is None else ""
    return "; ".join(f"{family} for {prefix}{', '.join(names)}" for family, names in columns.items())


def method_words(facts: "Facts") -> str:
    """Words for the method that learnt the file."""
    if not facts.streamed:
        return f"{facts.model.method}, with all points at once: {rounds_of_fit(facts.model)}"
    words = "in one pass, like a stream"
    if facts.settings["method"] != "default":
        return f"{words}, by {facts.settings['method']}"
    adopted = len({event.offset for event in facts.model.events_ if event.kind in ("refined", "split")})
    words += ", without refinements" if facts.settings["refinement"] is None else (
        f", with refinements, {adopted:,} of which changed components"
    )  # fmt: skip
    half_life = facts.settings["half_life"]
    if half_life is None:
        return words
    after = half_life if isinstance(half_life, str) else f"{half_life:,g} more"
    return f"{words}; a point counts half after {after}"


def bound_words(facts: "Facts") -> str:
    """Words for the quality of the fit."""
    density = f"mean log density of the points: {facts.scan.mean_log_density:.3f} nats"
    if not facts.streamed:
        return f"{bound_of_fit(facts.model)}; {density}"
    before = ""
    if facts.course:
        newest = facts.course[-1][1]
        before = f"; of the newest points before they were learnt: {newest:.3f} nats"
    return density + before


def rule_words(clustering: "Clustering") -> str:
    """Words for the choice of the number of clusters."""
    return f"{clustering.n_clusters:,}: {_RULES[clustering.rule]}"


def stability_words(facts: "Facts") -> str:
    """Whether the groups would come back."""
    found = facts.agreement
    if not facts.stability_wanted:
        return "It was not measured, as the option --no-stability asks."
    if found is None:
        return "It was not measured. It needs twenty points or more that the fit keeps."
    a, b = found.n_clusters
    verdict = "the groups come back" if found.clusters >= 0.9 else "the groups come back in part"
    if found.clusters < 0.5:
        verdict = "much of the grouping is chance, or one component was divided in two ways"
    return (
        f"Two fits of every second point found {count(a, 'cluster')} and {count(b, 'cluster')}. Their groups agree by "
        f"{found.clusters:.3f} (adjusted Rand index; 1: equal, 0: chance), their components by {found.components:.3f}: "
        f"{verdict}."
    )
