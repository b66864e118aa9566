"""A stream of the service that starts as a mixture of scikit-learn."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from fake_shoal import Deliver
from sklearn.mixture import GaussianMixture

from shoal import StreamingDPMixture
from shoal_service.client import Client

RNG = np.random.default_rng(5)
X = np.repeat([[0.0, 0.0], [40.0, 3.0]], 100, axis=0) + RNG.normal(size=(200, 2))


def test_the_service_answers_as_the_mixture_and_learns_on(
    real_shoal: Deliver, client_of: Callable[..., Client], tmp_path: Path
) -> None:
    mixture = GaussianMixture(2, random_state=0).fit(X)
    StreamingDPMixture.from_gaussian_mixture(mixture, 10**8).save(tmp_path / "start.shoal")
    client = client_of(real_shoal, "from-a-mixture")
    client.snapshot_restore(tmp_path / "start.shoal")
    predicted = client.predict(X)
    np.testing.assert_allclose(predicted.log_density, mixture.score_samples(X), atol=1e-5)
    np.testing.assert_array_equal(predicted.components, mixture.predict(X))
    later = client.ingest(X + np.array([0.0, 50.0]), wait="applied")
    assert later.components is not None
    assert not set(later.components.tolist()) & {0, 1}
