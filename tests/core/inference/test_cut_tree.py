"""The tree that divides a component into many parts: its cuts, the best of its prunings, and what is found by it."""

from itertools import product

import numpy as np
import pytest

from shoal import DPMixture
from shoal.families import NormalInverseGamma, NormalInverseWishart, log_marginal
from shoal.inference import Model, Search, StickPrior, WindowData, past_of
from shoal.inference.cut_tree import CutTree, best_parts, cut_tree, shares_of_parts
from shoal.inference.label_terms import split_gain
from shoal.inference.split import propose_parts
from shoal.inference.start_points import Cloud
from shoal.mixture import Past, bound_of_responsibilities


def row_of_clusters(n_clusters, n_each, d, distance, seed):
    """Normal clusters of deviation one along the first axis, and their labels, in random order."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat(np.arange(n_clusters), n_each))
    x = rng.normal(size=(len(y), d))
    x[:, 0] += distance * y
    return x, y


def test_children_divide_the_rows_of_their_node_and_come_after_it():
    x, _ = row_of_clusters(5, 40, 3, 8.0, 0)
    tree = cut_tree(Cloud(x, None, np.ones(len(x))))
    assert tree.rows[0].size == len(x)
    for node, children in enumerate(tree.children):
        if children is None:
            assert tree.rows[node].size >= 4
            continue
        assert node < min(children)
        assert np.array_equal(
            np.sort(np.concatenate([tree.rows[child] for child in children])), np.sort(tree.rows[node])
        )


def test_the_first_cut_is_that_of_two_means_along_a_line():
    """In one dimension, by trying every cut; weights count."""
    rng = np.random.default_rng(1)
    x, weight = np.sort(rng.uniform(size=60) ** 2), rng.uniform(0.2, 2.0, size=60)
    tree = cut_tree(Cloud(x[:, None], None, weight))

    def within(rows):
        return weight[rows] @ (x[rows] - np.average(x[rows], weights=weight[rows])) ** 2

    cuts = [within(np.arange(n)) + within(np.arange(n, 60)) for n in range(4, 57)]
    first, second = tree.children[0]
    assert {tree.rows[first].size, tree.rows[second].size} == {4 + int(np.argmin(cuts)), 56 - int(np.argmin(cuts))}


def test_equal_rows_and_a_normal_group_are_not_cut():
    """Nor is a group cut that a cut would leave as wide as it leaves a normal one."""
    assert len(cut_tree(Cloud(np.zeros((20, 2)), None, np.ones(20))).rows) == 1
    assert len(cut_tree(Cloud(np.random.default_rng(4).normal(size=(2_000, 3)), None, np.ones(2_000))).rows) == 1


def test_rows_that_weigh_next_to_nothing_are_cut_without_a_fault():
    x, weight = np.arange(60.0)[:, None], np.ones(60)
    weight[40:] = 1e-20
    tree = cut_tree(Cloud(x, None, weight))
    assert max(tree.rows[child].size for child in tree.children[0]) == 40


@pytest.mark.parametrize("correction", [0.0, 4.0])
def test_the_parts_are_the_best_of_all_prunings(correction):
    """By enumeration of the cuts that are made or not, on a tree of eight leaves."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(48, 2)) + np.repeat([0.0, 2.0, 9.0, 18.0], 12)[:, None]
    weight, sticks, behind = rng.uniform(0.5, 1.5, size=48), StickPrior(1.0, 0.7), 3.0
    family = NormalInverseGamma([0.0, 0.0], 0.1, 2.0, [1.0, 1.0])
    rows, children = [np.arange(48)], [None]
    for node in range(7):
        half = rows[node].size // 2
        children[node] = (len(rows), len(rows) + 1)
        rows += [rows[node][:half], rows[node][half:]]
        children += [None, None]

    def stats(node):
        return family.suffstats(x[rows[node]], weight[rows[node]][:, None])

    def evidence(node):
        return float(log_marginal(family, stats(node))[0])

    def gain(node, made):
        if not made.get(node):
            return 0.0, (node,)
        a, b = children[node]
        mass = [weight[rows[child]].sum() for child in (a, b)]
        own = evidence(a) + evidence(b) - evidence(node) + float(split_gain(sticks, *mass, behind)) - correction
        (left, first), (right, second) = gain(a, made), gain(b, made)
        return own + left + right, first + second

    best = max(gain(0, dict(enumerate(made))) for made in product([False, True], repeat=7))
    found = best_parts(family, sticks, CutTree(rows, children), x, weight, behind, correction)
    assert best[0] > 0.0
    assert len(best[1]) > 2
    assert np.sort(found[0]) == pytest.approx(np.sort([weight[rows[node]].sum() for node in best[1]]))


def test_one_cluster_has_no_parts():
    x = np.random.default_rng(3).normal(size=(300, 2))
    family = NormalInverseWishart([0.0, 0.0], 0.01, 4.0, np.eye(2))
    tree = cut_tree(Cloud(x, None, np.ones(300)))
    assert best_parts(family, StickPrior(1.0, 1.0), tree, x, np.ones(300), 0.0, 0.0) is None


def test_parts_without_points_are_left_out_of_the_shares():
    x = np.array([[0.0], [0.1], [0.2], [10.0], [10.1], [10.2]])
    family = NormalInverseGamma([5.0], 0.01, 2.0, [0.1])
    resp = np.array([[1, 0, 0], [1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 1, 0]], dtype=float)
    resp[0, 2] = 1e-9
    share = shares_of_parts(family, family.suffstats(x, resp), x, np.ones(6))
    assert share.shape == (6, 2)
    assert share.sum(axis=1) == pytest.approx(np.ones(6))


@pytest.mark.parametrize(("n_clusters", "d", "distance"), [(9, 2, 12.0), (16, 2, 12.0)])
def test_all_clusters_of_a_row_are_found(n_clusters, d, distance):
    """Halves of a row have the entropy of the whole. Without the tree, 2 and 9 components were found."""
    x, y = row_of_clusters(n_clusters, 30, d, distance, 0)
    labels = DPMixture("gaussian").fit(x).labels_
    assert len(set(labels)) == len(set(zip(labels, y, strict=True))) == n_clusters


@pytest.mark.parametrize("past_at", [None, 0.0, 4.0])
def test_the_gain_of_parts_is_that_of_the_bound_for_all_rows(past_at):
    """By the bound of responsibilities, in which the rows of the past are the heaviest part's. They lie at one cluster,
    or at all."""
    rng = np.random.default_rng(5)
    x, _ = row_of_clusters(5, 40, 2, 9.0, 5)
    gone = {
        None: np.zeros((0, 2)),
        0.0: rng.normal(size=(30, 2)),
        4.0: row_of_clusters(5, 200, 2, 9.0, 6)[0],
    }[past_at]
    family, sticks = NormalInverseWishart([18.0, 0.0], 0.002, 40.0, 40.0 * np.eye(2)), StickPrior(1.0, 0.8)
    model, data = Model(family, sticks), WindowData(x, np.ones(len(x)))
    search = Search(data, model, np.random.default_rng(0))
    everything, past = np.vstack([x, gone]), family.suffstats(gone, np.ones((len(gone), 1)))
    state = search.live_start(family.suffstats(everything, np.ones((len(everything), 1))), past_of(Past(past, None)))
    splits = propose_parts(data, model, state, [0], np.random.default_rng(0))
    assert len(splits) == 4

    mass = np.array([splits[-1].window[0][0], *(split.window[0][1] for split in splits)])
    tree = cut_tree(Cloud(x, None, np.ones(len(x))))
    found = best_parts(family, sticks, tree, x, np.ones(len(x)), 0.0, 0.0)
    share = shares_of_parts(family, found, x, np.ones(len(x)))
    own = share[:, [int(np.argmin(abs(share.sum(axis=0) - one))) for one in mass]]
    assert own.sum(axis=1) == pytest.approx(np.ones(len(x)))
    assert [split.past_share for split in splits] == [1.0] * 4
    resp = np.vstack([own, np.tile(np.eye(5)[0], (len(gone), 1))])
    before = bound_of_responsibilities(family, everything, np.ones((len(everything), 1)), 0.8)
    after = bound_of_responsibilities(family, everything, resp, 0.8)
    assert splits[0].gain == pytest.approx(after - before, rel=1e-9)
    assert (splits[0].gain > 100.0) == (past_at != 4.0)
