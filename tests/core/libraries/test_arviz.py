"""The samples of the samplers in ArviZ."""

import numpy as np
import pytest

from shoal import DPMixture
from shoal.errors import SettingError
from shoal.export import to_inference_data

X = np.array([[0.0], [2.5]])[np.arange(60) % 2] + np.random.default_rng(0).normal(size=(60, 1))


def test_a_fit_without_samples_is_refused() -> None:
    with pytest.raises(SettingError, match="draws no samples"):
        to_inference_data(DPMixture().fit(X))


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of its next version
@pytest.mark.parametrize("method", ["gibbs", "blocked-gibbs", "split-merge"])
def test_chains_and_draws_are_those_of_the_sampler(method: str) -> None:
    arviz = pytest.importorskip("arviz", reason="needs the extra arviz: pip install 'shoal[arviz]'")
    model = DPMixture(method=method, n_chains=2, n_samples=40, burn_in=20, random_state=0).fit(X)
    data = to_inference_data(model)
    labels = np.asarray(data["posterior"]["label"])
    assert labels.shape == (2, 40, 60)
    np.testing.assert_array_equal(labels[1], model.samples_[40:])
    np.testing.assert_array_equal(np.asarray(data["sample_stats"]["lp"]).ravel(), model.sample_log_joint_)
    n_components = np.array([[len(np.unique(draw)) for draw in chain] for chain in labels])
    np.testing.assert_array_equal(data["posterior"]["n_components"], n_components)
    summary = arviz.summary(data, var_names=["n_components", "largest"])
    assert float(summary.loc["n_components", "mean"]) == pytest.approx(n_components.mean(), abs=0.051)  # it rounds
