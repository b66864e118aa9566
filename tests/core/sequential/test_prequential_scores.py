"""What the mixture says of a point just before it is learnt: the same as a prediction asked for at that moment."""

from typing import Any

import numpy as np
import pytest

from shoal.families.diagonal import NormalInverseGamma
from shoal.mixture import MixtureState, StreamSettings, snapshot_of
from shoal.sequential import PrequentialScores, assimilate_inplace, initial_state

FEW = 180


def points(family: str, rng: np.random.Generator) -> Any:
    if family == "gaussian":
        centres = np.array([[0.0, 0.0, 0.0], [30.0, 0.0, 5.0], [0.0, 400.0, -5.0]])
        return centres[rng.integers(3, size=FEW)] + rng.normal(size=(FEW, 3)) * [1.0, 20.0, 0.1]
    rates = np.array([[20.0, 1.0, 1.0, 2.0], [1.0, 20.0, 8.0, 2.0]])
    return rng.poisson(rates[rng.integers(2, size=FEW)]).astype(np.float64)


def one_by_one(settings: StreamSettings, x: Any) -> tuple[MixtureState, PrequentialScores]:
    """Learn each point in a call of its own, and ask the snapshot for a prediction before each."""
    state, asked, born = initial_state(settings), [], []
    for i in range(len(x)):
        snapshot = snapshot_of(state)
        if snapshot.n_components:
            found = snapshot.predict(x[i : i + 1])
            asked.append((float(found.log_density[0]), float(found.novelty[0])))
        else:
            asked.append((np.nan, 1.0))
        before = {int(k) for k in state.live_ids}
        state, info = assimilate_inplace(state, x[i : i + 1])
        founded = [e.children[0] for e in info.events if e.kind == "born" and e.offset == i + 1]
        born.append(bool(founded) and founded[0] not in before)
    density, novelty = np.array(asked).T
    return state, PrequentialScores(density, novelty, np.array(born))


CASES = {
    "gaussian": {"family": "gaussian", "warmup_points": 64},
    "counts": {"family": "multinomial", "warmup_points": 64},
    "forgetting": {"family": "gaussian", "warmup_points": 64, "half_life": 100.0},
    "pruning": {"family": "gaussian", "warmup_points": 64, "method": "sva-pm", "check_schedule": "paper"},
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_batch_tells_of_its_points_is_what_a_reader_would_have_been_told(case: str) -> None:
    values = CASES[case]
    x = points(str(values["family"]), np.random.default_rng(3))
    settings = StreamSettings(n_features=x.shape[1], **values)
    _, asked = one_by_one(settings, x)
    _, info = assimilate_inplace(initial_state(settings), x)
    assert len(info.scores.log_density) == FEW
    # The pass leaves out components that are 5 nats below the floor of 1e-3: each misses at most 7e-6 of the density.
    missing = 7e-6 * 10
    np.testing.assert_allclose(info.scores.log_density, asked.log_density, rtol=1e-9, atol=missing)
    np.testing.assert_allclose(info.scores.novelty, asked.novelty, rtol=missing, atol=1e-12)
    later = slice(64, None)  # a fit of the warm-up founds components of its own
    np.testing.assert_array_equal(info.scores.born[later], asked.born[later])
    assert info.scores.born[0]
    assert np.isnan(info.scores.log_density[0])
    assert info.scores.novelty[0] == 1.0


def test_the_cut_of_a_stream_changes_no_bit_of_it() -> None:
    x = points("gaussian", np.random.default_rng(5))
    settings = StreamSettings(n_features=3, warmup_points=50, half_life=90.0)
    _, whole = assimilate_inplace(initial_state(settings), x)
    state, parts = initial_state(settings), []
    for part in np.split(x, [1, 2, 40, 55, 171]):
        state, info = assimilate_inplace(state, part)
        parts.append(info.scores)
    for together, pieces in zip(whole.scores, zip(*parts, strict=True), strict=True):
        np.testing.assert_array_equal(together, np.concatenate(pieces))


def test_a_point_far_from_all_others_is_new_founds_a_component_and_has_a_low_density() -> None:
    rng = np.random.default_rng(7)
    prior = NormalInverseGamma(np.zeros(2), mean_strength=0.01, shape=2.0, rate=np.ones(2))
    settings = StreamSettings(n_features=2, family=prior.name, prior=prior)
    x = np.concatenate([rng.normal(size=(200, 2)), [[300.0, -300.0]], rng.normal(size=(5, 2))])
    _, info = assimilate_inplace(initial_state(settings), x)
    assert info.scores.born[200]
    assert info.scores.novelty[200] > 0.999
    assert info.scores.log_density[200] < info.scores.log_density[50:200].min()
    assert not info.scores.born[201:].any()
