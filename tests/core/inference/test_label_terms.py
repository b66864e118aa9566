"""Label terms against the sticks' own integrals, and the changes by moves against two bounds."""

import numpy as np
import pytest
from scipy.special import betaln, psi

from shoal.inference.label_terms import (
    StickPrior,
    join_gains,
    label_bound,
    log_weights,
    mass_behind,
    split_gain,
    split_log_odds,
)

MASSES = [[5.0], [0.0, 0.0], [3.0, 3.0, 7.5, 0.0, 3.0], [1e-9, 4e6, 12.25], [0.4] * 40]
PRIORS = [StickPrior(1.0, 0.03), StickPrior(1.0, 17.0), StickPrior(1.5, 2.0)]


@pytest.mark.parametrize("mass", MASSES)
@pytest.mark.parametrize("prior", PRIORS)
def test_weights_and_labels_are_those_of_free_sticks(mass: list[float], prior: StickPrior) -> None:
    """E log pi_i = E log v_i + sum_{j<i} E log(1 - v_j); L = sum_i lB(a1 + n_i, a2 + n_{>i}) - lB(a1, a2)."""
    n = np.array(mass)
    order = np.argsort(-n, kind="stable")
    own = n[order]
    after = np.append(np.cumsum(own[:0:-1])[::-1], 0.0)
    total = psi(prior.a1 + own + prior.a2 + after)
    passed = np.cumsum(psi(prior.a2 + after) - total)
    wanted = psi(prior.a1 + own) - total + np.append(0.0, passed[:-1])
    np.testing.assert_allclose(log_weights(prior, n)[order], wanted, rtol=1e-12, atol=1e-11)
    labels = (betaln(prior.a1 + own, prior.a2 + after) - betaln(*prior)).sum()
    assert label_bound(prior, n) == pytest.approx(labels, rel=1e-9, abs=1e-9)
    np.testing.assert_allclose(mass_behind(n, order), after, atol=1e-6)


@pytest.mark.parametrize("prior", PRIORS)
def test_a_split_changes_the_label_term_by_its_gain_where_the_order_stays(prior: StickPrior) -> None:
    mass = np.array([50.0, 20.0, 3.0, 1.5])
    behind = float(mass_behind(mass, np.array([1]))[0])
    for first in (11.0, 9.0, 3.5, 16.5):
        after = np.append(np.delete(mass, 1), [first, 20.0 - first])
        gain = float(split_gain(prior, first, 20.0 - first, behind))
        assert gain == pytest.approx(label_bound(prior, after) - label_bound(prior, mass), abs=1e-9)
    moved = float(split_gain(prior, 19.0, 1.0, behind))  # the light child would stand further behind
    assert moved <= label_bound(prior, np.array([50.0, 19.0, 3.0, 1.5, 1.0])) - label_bound(prior, mass) + 1e-9


@pytest.mark.parametrize("prior", PRIORS)
def test_the_odds_of_two_children_are_the_difference_of_their_weights(prior: StickPrior) -> None:
    mass = np.array([50.0, 12.0, 8.0, 3.0])
    weights = log_weights(prior, mass)
    assert float(split_log_odds(prior, 12.0, 8.0, 3.0)) == pytest.approx(weights[1] - weights[2], abs=1e-10)
    assert float(split_log_odds(prior, 8.0, 12.0, 3.0)) == pytest.approx(weights[2] - weights[1], abs=1e-10)


@pytest.mark.parametrize("prior", PRIORS)
def test_joins_change_the_label_term_by_their_gains(prior: StickPrior) -> None:
    mass = np.array([3.0, 40.0, 0.2, 11.0, 0.0])
    first, second = np.triu_indices(5, 1)
    gains = join_gains(prior, mass, first, second)
    for i, j, gain in zip(first, second, gains, strict=True):
        joined = np.append(np.delete(mass, [i, j]), mass[i] + mass[j])
        assert gain == pytest.approx(label_bound(prior, joined) - label_bound(prior, mass), abs=1e-9)
