"""Bad priors are refused at construction, with a message that says what was wrong, what was given and what to do."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shoal.errors import SettingError
from shoal.families import KnownCovariance, NormalInverseGamma, NormalInverseWishart

EYE = np.eye(2)
INDEFINITE = [[1.0, 2.0], [2.0, 1.0]]

BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "mean of no features": (lambda: NormalInverseGamma([], 1, 1, 1), r"mean has shape \(0,\); give a vector"),
    "mean a number": (lambda: NormalInverseGamma(0.0, 1, 1, 1), r"mean has shape \(\)"),
    "mean a table": (lambda: NormalInverseWishart(EYE, 1, 3, EYE), r"mean has shape \(2, 2\)"),
    "mean NaN": (lambda: NormalInverseWishart([0, np.nan], 1, 3, EYE), "mean holds NaN"),
    "mean infinite": (lambda: KnownCovariance([np.inf], 1, 1), "mean holds NaN or an infinity"),
    "mean too large": (lambda: KnownCovariance([1e151], 1, 1), "1e[+]151; the limit is 1e[+]150"),
    "mean of words": (lambda: KnownCovariance(["a"], 1, 1), "mean has dtype <U1; give real numbers"),
    "mean of booleans": (lambda: KnownCovariance([True], 1, 1), "mean has dtype bool"),
    "mean ragged": (lambda: KnownCovariance([[1.0], [1.0, 2.0]], 1, 1), "mean is ragged"),
    "strength 0": (lambda: NormalInverseGamma([0], 0, 1, 1), "mean_strength is 0.0; it must be greater than 0"),
    "strength negative": (lambda: NormalInverseWishart([0], -1, 2, [[1]]), "mean_strength is -1.0"),
    "strength a vector": (lambda: NormalInverseGamma([0], [1, 1], 1, 1), r"mean_strength has shape \(2,\); give one"),
    "strength NaN": (lambda: NormalInverseGamma([0], np.nan, 1, 1), "mean_strength holds NaN"),
    "strength tiny": (lambda: NormalInverseGamma([0], 1e-200, 1, 1), r"mean_strength .*; keep it in \[1e-100, 1e100\]"),
    "dof D - 1": (lambda: NormalInverseWishart([0, 0], 1, 1, EYE), "dof is 1.0; it must be greater than 1"),
    "scale not square": (lambda: NormalInverseWishart([0, 0], 1, 3, [[1, 0]]), r"scale has shape \(1, 2\).*2 squared"),
    "scale a number": (lambda: NormalInverseWishart([0, 0], 1, 3, 1.0), r"scale has shape \(\)"),
    "scale asymmetric": (lambda: NormalInverseWishart([0, 0], 1, 3, [[1, 0.5], [0, 1]]), "scale is not symmetric"),
    "scale indefinite": (
        lambda: NormalInverseWishart([0, 0], 1, 3, INDEFINITE),
        "not positive definite.*eigenvalue -1",
    ),
    "scale of zeros": (lambda: NormalInverseWishart([0, 0], 1, 3, 0 * EYE), "scale has 0.0 on its diagonal"),
    "shape 0": (lambda: NormalInverseGamma([0], 1, 0, 1), "shape is 0.0"),
    "rate of another length": (lambda: NormalInverseGamma([0, 0], 1, 1, [1, 1, 1]), r"rate has shape \(3,\); give 2"),
    "rate negative": (lambda: NormalInverseGamma([0, 0], 1, 1, [1, -2]), "rate holds -2.0"),
    "covariance 0": (lambda: KnownCovariance([0], 1, 0), "covariance is 0.0"),
    "covariance a vector": (lambda: KnownCovariance([0, 0], 1, [1, 1]), r"covariance has shape \(2,\)"),
    "prior indefinite": (lambda: KnownCovariance([0, 0], INDEFINITE, 1), "prior_covariance is not positive definite"),
    "missing argument": (lambda: NormalInverseGamma.from_arrays({"mean": np.zeros(1)}), "give exactly"),
}


@pytest.mark.parametrize("what", BAD)
def test_refused(what: str) -> None:
    make, message = BAD[what]
    with pytest.raises(SettingError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_badly_scaled_but_good_covariances_are_taken() -> None:
    scale = np.diag([1e-6, 1.0, 1e6]) @ (np.eye(3) + 0.5) @ np.diag([1e-6, 1.0, 1e6])
    assert NormalInverseWishart(np.zeros(3), 1, 5, scale).n_features == 3
    assert KnownCovariance(np.zeros(3), scale, scale).prior_precision == pytest.approx(1.0)


def test_covariances_that_differ_beyond_rounding_are_refused() -> None:
    with pytest.raises(SettingError, match=r"1e[+]16 times covariance in one direction and 1 times.*closer"):
        KnownCovariance([0, 0], np.diag([1e16, 1.0]), EYE)
    assert KnownCovariance([0, 0], np.diag([1e13, 1.0]), EYE).n_features == 2


def test_slight_asymmetry_is_averaged_away() -> None:
    family = NormalInverseWishart([0, 0], 1, 3, [[1, 0.5], [0.5 + 1e-12, 1]])
    assert np.array_equal(family.scale_matrix, family.scale_matrix.T)


def test_the_caller_s_arrays_stay_the_caller_s() -> None:
    mean, scale = np.zeros(2), np.eye(2)
    family = NormalInverseWishart(mean, 1, 3, scale)
    mean += 1
    scale *= 2
    assert family == NormalInverseWishart([0, 0], 1, 3, np.eye(2))


def test_negative_zero_is_zero() -> None:
    family, twin = NormalInverseGamma([-0.0], 1, 1, 1), NormalInverseGamma([0.0], 1, 1, 1)
    assert family == twin
    assert hash(family) == hash(twin)


def test_a_number_and_its_matrix_are_different_priors() -> None:
    """They say the same, by different arithmetic: a snapshot must give back the one that was saved."""
    assert KnownCovariance([0, 0], 1, 1) != KnownCovariance([0, 0], 1, EYE)
    assert KnownCovariance([0, 0], 1, 1) != NormalInverseGamma([0, 0], 1, 1, 1)


def test_a_family_has_no_attribute_to_delete() -> None:
    with pytest.raises(AttributeError, match="cannot be deleted"):
        del NormalInverseGamma([0.0], 1, 1, 1).rate


@pytest.mark.parametrize("family", [NormalInverseWishart, NormalInverseGamma])
@pytest.mark.parametrize("dof", [0.5, 1.0, 8.0])
def test_weak_prior_expects_the_precision_that_was_asked(family: Any, dof: float) -> None:
    prior = family.weak(3, within_variance=0.2, mean_strength=0.03, dof=dof)
    params = prior.posterior(prior.empty_stats(1))
    expected_precision = -2.0 * prior.mean_params(params)[0, -1]  # the last statistic of both is -precision / 2
    assert expected_precision == pytest.approx(1 / 0.2)
    assert params.mean_strength == pytest.approx(0.03)
    assert np.all(np.isfinite(prior.predictive_mean(params)))


def test_weak_known_covariance_is_worth_its_mean_strength() -> None:
    prior = KnownCovariance.weak(3, within_variance=0.2, mean_strength=0.05)
    assert prior.spherical
    assert prior.prior_precision == pytest.approx(0.05)
    assert prior.covariance == 0.2
