"""What is compiled, and when. That a second process compiles nothing: tests/system/test_compiled_or_loaded.py."""

import numpy as np

from shoal.families.predictive_cache import NoCache, cache_type, kernel_prior
from shoal.sequential.kernel import sva_pass
from shoal.sequential.stream_kernels import warm_family


def test_every_stream_uses_the_warmed_kernels(sva, form):
    """No other size, rule, layout or call compiles a kernel again."""
    warm_family(sva.prior(form, 1))
    before = len(sva_pass.signatures)
    x = sva.clusters(50, 3, seed=0)
    sva.drive(sva.prior(form, 3), sva.rules("overlap"), np.asfortranarray(x), cuts=(1, 20), rows=1)
    sva.drive(sva.prior(form, 3), sva.rules("none"), x.astype(np.float32))
    assert len(sva_pass.signatures) == before


def test_what_the_prior_gives_the_kernel_is_read_only(sva, form):
    family = sva.prior(form, 2)
    prior = kernel_prior(family)
    assert prior is kernel_prior(family)
    constants = prior.constants if isinstance(prior.constants, tuple) else [prior.constants]
    for array in [*prior.empty, *(value for value in constants if isinstance(value, np.ndarray))]:
        assert not array.flags.writeable


def test_a_family_without_a_kernel_has_no_predictive_cache():
    class Strange:
        name = "strange"

    assert cache_type(Strange()) is NoCache
