"""Division of a component into many parts at once, where no division into halves gains.

Many clusters in a row or on a grid gain much by being apart, but no division of them into halves gains: the halves'
entropies, with that of the choice between them, sum to the entropy of the whole.

A tree over a sample of the rows is made from the root. A node is cut by a plane across its first principal axis (Boley
1998), at the place that leaves the least variance along the axis, as two means do. It stays whole if the cut would
leave nearly as much as it leaves of a normal group. Then the cuts to keep are found from the leaves: a cut is kept if
the evidence of the parts below it exceeds that of the node (as in Heller and Ghahramani 2005).
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from shoal.families import AnyFamily, concatenated, take
from shoal.families.capabilities import fast_log_marginal, fitted_suffstats
from shoal.inference.label_terms import StickPrior, split_gain
from shoal.inference.start_points import Cloud, about_mean, power_steps, weighted_axis
from shoal.points.arrays import Array, BoolArray, IntArray
from shoal.points.rows import Points

_DEPTH = 7
"""Most cuts above a leaf; so a component becomes at most 128 parts."""
_FEWEST = 4
"""Fewest rows of a part."""
_MOST_WITHIN = 0.33
"""Part of the variance along the axis that a cut may leave within its sides. A cut through the middle of a normal group
leaves 1 - 2 / pi = .36, through a uniform one .25: so what looks like one component is not cut."""
_LEAST_MASS = 0.5
"""Fewest points of a part, over all rows."""


class CutTree(NamedTuple):
    """A binary tree over rows. Node 0 is the root, and children come after their node."""

    rows: list[IntArray]
    """Of each node."""
    children: list[tuple[int, int] | None]
    """The two nodes that a node is cut into. None: a leaf."""


def cut_tree(cloud: Cloud) -> CutTree:
    """The tree over the rows of a cloud without spread. It is a function of the cloud."""
    tree, waiting = CutTree([np.arange(cloud.weight.size)], [None]), [(0, 0)]
    while waiting:
        node, depth = waiting.pop()
        rows = tree.rows[node]
        if depth == _DEPTH or rows.size < 2 * _FEWEST:
            continue
        share, difference = about_mean(Cloud(cloud.location[rows], None, cloud.weight[rows]))
        side, within = _cut(share, difference)
        if within > _MOST_WITHIN:
            continue
        n = len(tree.rows)
        tree.rows.extend((rows[side], rows[~side]))
        tree.children.extend((None, None))
        tree.children[node] = (n, n + 1)
        waiting.extend(((n, depth + 1), (n + 1, depth + 1)))
    return tree


def _cut(share: Array, difference: Array) -> tuple[BoolArray, float]:
    """Which rows are on the first side of the cut, and the part of the variance along the axis that is left within.

    Each side has `_FEWEST` rows at least. `share` (m,) are weights that sum to one, `difference` (m, E) locations less
    the mean under them.
    """
    along = difference @ weighted_axis(None, share, difference, power_steps(difference.shape[1]))
    order = np.argsort(along, kind="stable")
    weight, total = np.cumsum(share[order]), np.cumsum((share * along)[order])
    places = slice(_FEWEST - 1, share.size - _FEWEST)
    shares = weight[places] * (1.0 - weight[places])  # 0 by rounding where the rows of a side weigh next to nothing
    between = np.divide(total[places] ** 2, shares, out=np.zeros_like(shares), where=shares > 0.0)  # the mean is zero
    side = np.zeros(share.size, dtype=np.bool_)
    best = int(np.argmax(between))
    side[order[: _FEWEST + best]] = True
    whole = float(share @ (along * along))
    return side, 1.0 - float(between[best]) / whole if whole > 0.0 else 1.0


def best_parts(
    family: AnyFamily, sticks: StickPrior, tree: CutTree, x: Points, weight: Array, behind: float, correction: float
) -> Any | None:
    """Statistics of the parts with the greatest evidence, one row each; None where no cut of the tree gains.

    x (m, D) are the rows of the tree with weights (m,), `behind` the mass behind the component on the stick,
    `correction` the nats that a cut must gain on the sample to be likely to gain on all rows.
    """
    stats = _stats_of_nodes(family, tree, x, weight)
    evidence, mass = fast_log_marginal(family, stats), stats[0]
    gain, is_cut = np.zeros(len(mass)), np.zeros(len(mass), dtype=np.bool_)
    for node in range(len(mass) - 1, -1, -1):
        if (children := tree.children[node]) is None:
            continue
        a, b = children
        labels = float(split_gain(sticks, mass[a], mass[b], behind))
        found = evidence[a] + evidence[b] - evidence[node] + labels - correction + gain[a] + gain[b]
        if found > 0.0:
            gain[node], is_cut[node] = found, True
    if not is_cut[0]:
        return None
    parts, waiting = [], [0]
    while waiting:
        node = waiting.pop()
        children = tree.children[node]
        if is_cut[node] and children is not None:
            waiting.extend(children)
        else:
            parts.append(node)
    return take(stats, parts)


def _stats_of_nodes(family: AnyFamily, tree: CutTree, x: Points, weight: Array) -> Any:
    """Statistics of all nodes, one row each."""
    leaves = [node for node, children in enumerate(tree.children) if children is None]
    resp = np.zeros((weight.size, len(leaves)))
    for column, leaf in enumerate(leaves):
        resp[tree.rows[leaf], column] = weight[tree.rows[leaf]]
    of_leaves = fitted_suffstats(family, x, resp)
    place = {leaf: row for row, leaf in enumerate(leaves)}
    found: list[Any] = [None] * len(tree.rows)
    for node in range(len(found) - 1, -1, -1):
        children = tree.children[node]
        found[node] = (
            take(of_leaves, [place[node]]) if children is None else family.add(*(found[child] for child in children))
        )
    return concatenated(*found)


def shares_of_parts(family: AnyFamily, parts: Any, x: Points, weight: Array) -> Array:
    """(m, L) of each part in each row of x (m, D) with weights (m,); parts with next to no points are left out."""
    score = family.expected_log_likelihood(family.posterior(parts), x) + np.log(parts[0])
    while True:
        share: Array = np.exp(score - logsumexp(score, axis=1, keepdims=True))
        keep = weight @ share > _LEAST_MASS
        if keep.all() or not keep.any():
            return share
        score = score[:, keep]
