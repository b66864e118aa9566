"""Compiling what the batch methods run, before the first fit asks for it."""

from importlib import import_module

import numpy as np

from shoal.families import FAMILIES
from shoal.families.predictive_cache import example_priors, predicts_by_kernel
from shoal.mixture.predictor import predict_call
from shoal.sequential.ready import call_all


def warm_batch_kernels() -> None:
    """Compile, or load from the disk cache, the kernels of the batch methods for the Gaussian families.

    They are those of fast-vdp, the collapsed methods, gibbs, split-merge and search, which a stream runs none of, and
    that of predictions, which NumPy makes until there is a kernel. A stream's own are those of
    `shoal.sequential.warm_kernels`. Cold: about a minute, nearly all of it for samplers and search, which have a form
    for every family; from the cache some seconds.
    """
    x = np.array([[0.0], [1.0]])
    rng = np.random.default_rng(0)
    forms = [prior for kind in FAMILIES.values() if predicts_by_kernel(kind) for prior in example_priors(kind)]
    variational, sampling, search = (import_module(f"shoal.{room}") for room in ("variational", "sampling", "search"))
    variational.fit_fast_vdp(forms[0], x, concentration=1.0, max_iter=1, rng=rng)
    variational.fit_ctsb(forms[0], x, concentration=1.0, truncation=2, max_iter=1, rng=rng)
    call_all([call for call in map(predict_call, forms) if call is not None])
    for family in forms:
        sampling.fit_gibbs(family, x, concentration=1.0, n_samples=1, burn_in=0, rng=rng)
        sampling.fit_split_merge(family, x, concentration=1.0, n_samples=1, burn_in=0, rng=rng)
        search.fit_search(family, x, concentration=1.0, rng=rng)
