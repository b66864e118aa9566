"""Samples of a sampler as ArviZ reads them."""

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

import shoal
from shoal.errors import SettingError
from shoal.estimators import DPMixture


def to_inference_data(model: Any) -> Any:
    """The samples of a `DPMixture` fitted by a sampler, for ArviZ's diagnostics and plots, by chain and draw.

    Group `posterior`: `n_components`; `largest`, the size of the largest component; `label`, also by point, numbered by
    decreasing size in each draw. Group `sample_stats`: `lp`, the log joint density of points and partition in nats.

    An `InferenceData`, or with ArviZ from 1.0 a `DataTree`. Raises SettingError for a fit without samples, and without
    the package arviz.
    """
    if not isinstance(model, DPMixture):
        raise SettingError(f"model is {model!r}; give a DPMixture fitted by a sampler")
    check_is_fitted(model)
    if not hasattr(model, "samples_"):
        raise SettingError(
            f"method {model.method!r} draws no samples; fit with 'gibbs', 'blocked-gibbs' or 'split-merge'"
        )
    try:
        import arviz
    except ImportError:
        raise SettingError("samples for ArviZ need the package arviz; run pip install 'shoal[arviz]'") from None
    labels = model.samples_
    chains = (int(model._of_fit().fit.extra["chain"].max()) + 1, -1)
    sizes = np.array([np.bincount(row).max() for row in labels])
    groups = {
        "posterior": {
            "n_components": (labels.max(axis=1) + 1).reshape(chains),
            "largest": sizes.reshape(chains),
            "label": labels.reshape(*chains, labels.shape[1]),
        },
        "sample_stats": {"lp": model.sample_log_joint_.reshape(chains)},
    }
    about = {"inference_library": "shoal", "inference_library_version": shoal.__version__, "method": model.method}
    named = {"dims": {"label": ["point"]}}
    if arviz.__version__.startswith("0."):
        return arviz.from_dict(**groups, **named, attrs=about)
    return arviz.from_dict(groups, **named, attrs={"/": about})
