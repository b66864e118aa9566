"""Methods of density estimators that follow from a mixture's snapshot."""

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from shoal.errors import SettingError
from shoal.mixture import MixtureSnapshot, draw_points
from shoal.points.arrays import Array, IntArray
from shoal.runtime.blas import one_blas_thread


class DensityMethods(TransformerMixin):
    """Draws and information criteria, as those of `sklearn.mixture.GaussianMixture`; responsibilities as features."""

    def score_samples(self, X: Any) -> Array:
        """(N,): log predictive density of each row in nats."""
        raise NotImplementedError

    def predict_proba(self, X: Any) -> Array:
        """(N, K): probability that each row belongs to each component."""
        raise NotImplementedError

    def _snapshot(self) -> MixtureSnapshot:
        raise NotImplementedError

    def transform(self, X: Any) -> Array:
        """(N, K): `predict_proba`, as the features of a later step of a pipeline."""
        return self.predict_proba(X)

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[np.object_]:
        """(K,) names of the columns of `transform`: "component_" and the id. `input_features` is ignored."""
        check_is_fitted(self)
        return np.array([f"component_{component}" for component in self._snapshot().ids.tolist()], dtype=object)

    @one_blas_thread
    def sample(self, n_samples: int = 1, random_state: Any = None) -> tuple[Array, IntArray]:
        """Points (n_samples, D) drawn from the posterior predictives of the components, and the component of each.

        Components are drawn by their weights. Documents of `multinomial` have one word. Raises SettingError for a
        number below 1, and for families that cannot draw.
        """
        check_is_fitted(self)
        if n_samples < 1:
            raise SettingError(f"n_samples is {n_samples}; give at least 1")
        seed = check_random_state(random_state).randint(0, 2**32, size=4, dtype=np.uint32)
        return draw_points(self._snapshot(), n_samples, np.random.default_rng(seed))

    def bic(self, X: Any) -> float:
        """Bayesian information criterion of the components on rows X (N, D), in nats; lower is better.

        -2 log p(X) + P log N, P the free parameters of all components and of their weights.
        """
        scores = self.score_samples(X)
        return float(-2.0 * scores.sum() + self._n_parameters() * np.log(len(scores)))

    def aic(self, X: Any) -> float:
        """Akaike information criterion of the components on rows X (N, D), in nats: -2 log p(X) + 2 P."""
        return float(-2.0 * self.score_samples(X).sum() + 2.0 * self._n_parameters())

    def _n_parameters(self) -> int:
        snapshot = self._snapshot()
        assert snapshot.prior is not None, "a fitted mixture has a prior"
        return int(snapshot.n_components * (snapshot.prior.n_free_parameters + 1))
