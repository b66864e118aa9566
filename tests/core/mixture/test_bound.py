"""The bound against enumeration: hard labels give log p(x, z), soft ones never exceed the evidence."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp

from shoal.families import log_marginal
from shoal.families.capabilities import has_latent_variables
from shoal.mixture import bound_of_responsibilities
from shoal.process import log_eppf

Array = np.ndarray


def partitions(n: int) -> Iterator[list[int]]:
    def extend(labels: list[int]) -> Iterator[list[int]]:
        if len(labels) == n:
            yield labels
            return
        for label in range(max(labels, default=-1) + 2):
            yield from extend([*labels, label])

    yield from extend([])


def one_hot(labels: Any, k: int) -> Array:
    return np.eye(k)[np.asarray(labels)]


def log_evidence(prior: Any, x: Array, concentration: float) -> float:
    """log p(x) of the Dirichlet process mixture: every partition, each block's marginal."""
    terms = []
    for labels in partitions(len(x)):
        resp = one_hot(labels, max(labels) + 1)
        terms.append(log_eppf(resp.sum(axis=0), concentration) + log_marginal(prior, prior.suffstats(x, resp)).sum())
    return float(logsumexp(terms))


def log_stick_label_probability(labels: list[int], concentration: float) -> float:
    """log p(z) by the Polya-urn form of the sticks: one point after another, each walking along the sticks."""
    log_p = 0.0
    passed = np.zeros(max(labels) + 1)
    stopped = np.zeros(max(labels) + 1)
    for label in labels:
        for stick in range(label + 1):
            stop = (1 + stopped[stick]) / (1 + concentration + stopped[stick] + passed[stick])
            log_p += np.log(stop if stick == label else 1 - stop)
        stopped[label] += 1
        passed[:label] += 1
    return log_p


@pytest.mark.parametrize("concentration", [0.4, 3.0])
def test_hard_labels_give_the_joint_of_points_and_labels(
    family_name: str, concentration: float, make_prior: Callable[..., Any]
) -> None:
    x = np.random.default_rng(0).normal(size=(9, 2)) * 2
    prior = make_prior(family_name, 2)
    labels = [0, 1, 0, 0, 2, 1, 0, 1, 2]  # sizes 4, 3, 2: in descending order
    joint = log_stick_label_probability(labels, concentration)
    for block in range(3):  # chain rule of predictives, one point after another
        for position in np.flatnonzero(np.array(labels) == block):
            before = [i for i in range(position) if labels[i] == block]
            stats = prior.suffstats(x[before], np.ones((len(before), 1))) if before else prior.empty_stats(1)
            joint += prior.log_predictive(prior.posterior(stats), x[position : position + 1])[0, 0]
    bound = bound_of_responsibilities(prior, x, one_hot(labels, 3), concentration)
    if has_latent_variables(prior):
        assert bound < joint  # whose evidence is a lower bound
    else:
        assert bound == pytest.approx(joint, abs=1e-9)


@pytest.mark.parametrize("concentration", [0.4, 3.0])
@pytest.mark.short_form("gaussian-3.0", "student-0.4", "diagonal-3.0", "known_covariance-0.4")
def test_no_assignment_exceeds_the_evidence(
    family_name: str, concentration: float, make_prior: Callable[..., Any]
) -> None:
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.normal(-2, 0.5, size=(3, 1)), rng.normal(2, 0.5, size=(3, 1))])
    prior = make_prior(family_name, 1)
    evidence = log_evidence(prior, x, concentration)
    hard = [bound_of_responsibilities(prior, x, one_hot(labels, 6), concentration) for labels in partitions(len(x))]
    soft = [
        bound_of_responsibilities(prior, x, rng.dirichlet(np.full(k, a), size=len(x)), concentration)
        for k in (1, 2, 4)
        for a in (0.1, 1.0, 10.0)
        for _ in range(20)
    ]
    assert max(hard) < evidence
    assert max(soft) < evidence
    assert max(hard) > evidence - 5  # and the bound is no empty one
