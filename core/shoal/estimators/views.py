"""The mixture of a fitted estimator as a snapshot, which is the same for streams and for batch fits."""

from typing import Any

from sklearn.utils.validation import check_is_fitted

from shoal.errors import SettingError
from shoal.estimators.batch import DPMixture
from shoal.estimators.streaming import StreamingDPMixture
from shoal.mixture import MixtureSnapshot


def mixture_of(estimator: Any) -> MixtureSnapshot:
    """The mixture of a fitted estimator of this library, in the units of the data.

    Of a `DPMixture`: the components with an assigned training point. Their ids are their numbers, and all are equally
    old. Raises SettingError for another object, NotFittedError.
    """
    if not isinstance(estimator, DPMixture | StreamingDPMixture):
        raise SettingError(
            f"{type(estimator).__name__} has no mixture of this library; give a fitted StreamingDPMixture or DPMixture"
        )
    check_is_fitted(estimator)
    return estimator._snapshot()
