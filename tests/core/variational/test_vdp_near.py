"""Rounds among a few components: the bound that comes back is that of the responsibilities, and never lower."""

import numpy as np
import pytest

from shoal.families.natural_statistics import origin_for
from shoal.mixture.batch import Past
from shoal.variational import vdp_regroup
from shoal.variational.splits import best_start
from shoal.variational.vdp_cells import cells_of_points
from shoal.variational.vdp_moves import pair_entropy
from shoal.variational.vdp_near import held, join_held, settle_near, split_held, with_neighbours
from shoal.variational.vdp_past import tied_of
from shoal.variational.vdp_run import Run
from shoal.variational.vdp_state import m_step, model_of, totals_of, untied
from shoal.variational.vdp_sticks import StickPrior

from .vdp_cases import FAMILIES, grid_points

T = 6


def begun(name, past):
    """Six components after a round from random responsibilities, with or without a past of thirty points."""
    family = FAMILIES[name]
    x, _ = grid_points(400, 3)
    origin, rng = origin_for(family, x), np.random.default_rng(1)
    cells = cells_of_points(family, x, origin)
    tied = untied(T, cells.reach.size)
    if past:
        old, _ = grid_points(30, 5)
        tied = tied_of(family, Past(family.suffstats(old, rng.dirichlet(np.ones(T), size=30)), None), origin)
    run = Run(model_of(family, StickPrior(1.5, 2.0), origin), 1e-5 * len(x), 10_000, rng, 100)
    resp = rng.dirichlet(np.full(T + 1, 0.3), size=len(x)).T
    state, _ = m_step(run.model, cells.log_carrier, totals_of(cells, resp), tied, np.arange(T))
    run.note(state, "starting")
    return run, cells, held(run, cells, state)


def bound_of(run, cells, found):
    """By the other road: from the responsibilities of all cells."""
    resp = np.stack(found.resp)
    np.testing.assert_allclose(resp.sum(axis=0), 1.0, atol=1e-12)
    state = found.state
    return m_step(run.model, cells.log_carrier, totals_of(cells, resp), state.tied, state.tags)[0].elbo


@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize("name", FAMILIES)
def test_the_bound_is_that_of_the_responsibilities(name, past):
    run, cells, start = begun(name, past)
    for rows in ([0], [1, 4], [0, 2, 5], list(range(T))):
        found = settle_near(run, cells, start, np.array(rows))
        assert found.state.elbo == pytest.approx(bound_of(run, cells, found), abs=1e-7)
        assert found.state.elbo >= start.state.elbo - 1e-8
        others = set(start.state.tags.tolist()) - set(start.state.tags[rows].tolist())
        for tag in others:
            old, new = (held.resp[int(np.flatnonzero(held.state.tags == tag)[0])] for held in (start, found))
            np.testing.assert_array_equal(old, new)
    assert settle_near(run, cells, start, np.arange(T)).state.elbo > start.state.elbo + 1.0


@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize("name", FAMILIES)
def test_splits_and_joins_keep_the_bound_exact(name, past):
    run, cells, start = begun(name, past)
    for row in range(T):
        split = best_start(run, cells, start.state, start.resp[row], row, -np.inf)
        assert split is not None
        found, rows = split_held(run, cells, start, split)
        assert found.state.n_components == T + 1
        assert rows.size == 2
        assert found.state.elbo == pytest.approx(bound_of(run, cells, found), abs=1e-7)
        near = with_neighbours(run.model, cells, found, rows)
        assert set(rows) <= set(near)
        settled = settle_near(run, cells, found, near)
        assert settled.state.elbo == pytest.approx(bound_of(run, cells, settled), abs=1e-7)
        assert settled.state.elbo >= found.state.elbo - 1e-8
    entropy = pair_entropy(start.resp[1], start.resp[3], cells.mass)
    found, row = join_held(run, cells, start, 1, 3, entropy)
    assert row.size == 1
    np.testing.assert_array_equal(found.resp[row[0]], start.resp[1] + start.resp[3])
    assert found.state.elbo == pytest.approx(bound_of(run, cells, found), abs=1e-7)


@pytest.mark.parametrize("name", FAMILIES)
def test_turns_of_splits_and_joins_raise_the_bound(name, monkeypatch):
    """From six random components about nine groups; a second call finds nothing to add."""
    monkeypatch.setattr(vdp_regroup, "_FEWEST", 1)
    run, cells, start = begun(name, past=False)
    refused: dict[int, float] = {}
    ended = vdp_regroup.regroup(run, cells, start.state, refused)
    assert ended.elbo > start.state.elbo
    assert set(ended.tags.tolist()) <= set(refused)
    assert vdp_regroup.regroup(run, cells, ended, refused).elbo == pytest.approx(ended.elbo, abs=1e-2)


def test_few_components_are_only_settled():
    run, cells, start = begun("gaussian", past=False)
    settled = vdp_regroup.regroup(run, cells, start.state, {})
    assert settled.n_components == T
    assert settled.elbo > start.state.elbo
