"""Contents of an exported mixture: weights, standardisation, and predictive distributions in portable form."""

from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from shoal.errors import NoPointsError, SettingError
from shoal.estimators import DPMixture, StreamingDPMixture
from shoal.families import FAMILIES
from shoal.families.portable import Portable, portable
from shoal.mixture import MixtureSnapshot, with_empty
from shoal.points.arrays import Array, IntArray


class Contents(NamedTuple):
    """A mixture of K components and, as the last row, a new one."""

    family: str
    feature_names: tuple[str, ...] | None
    location: Array  # (D,)
    scale: Array  # (D,)
    ids: IntArray  # (K,)
    masses: Array  # (K,)
    weights: Array  # (K + 1,) they sum to one
    predictive: Portable  # (K + 1)


def contents_of(model: StreamingDPMixture | DPMixture | MixtureSnapshot) -> Contents:
    """Contents of an export of a fitted estimator.

    Raises SettingError for a family without a portable form and for samplers, whose densities average many mixtures;
    NoPointsError where there are no components.
    """
    snapshot = _snapshot(model)
    if snapshot.prior is None or snapshot.n_components == 0:
        raise NoPointsError("there are no components yet; learn points first")
    found = portable(snapshot.prior, with_empty(snapshot.prior, snapshot.stats))
    if found is None:
        able = ", ".join(name for name, family in FAMILIES.items() if hasattr(family, "portable"))
        raise SettingError(f"family {snapshot.settings.family!r} cannot be exported; these can: {able}")
    return Contents(
        snapshot.settings.family,
        snapshot.settings.feature_names,
        snapshot.location,
        snapshot.scale,
        snapshot.ids,
        snapshot.masses,
        np.append(snapshot.weights, snapshot.new_weight),
        found,
    )


def _snapshot(model: Any) -> MixtureSnapshot:
    if isinstance(model, MixtureSnapshot):
        return model
    if not isinstance(model, StreamingDPMixture | DPMixture):
        raise SettingError(f"model is {model!r}; give a fitted StreamingDPMixture or DPMixture")
    check_is_fitted(model)
    if hasattr(model, "samples_"):
        raise SettingError(f"the densities of method {model.method!r} average many mixtures; export a fit by 'vdp'")
    return model._snapshot(with_unused=True) if isinstance(model, DPMixture) else model._snapshot()
