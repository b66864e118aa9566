"""What is compiled, when, and where it is kept."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

import shoal
from shoal.families.predictive_cache import NoCache, cache_type, kernel_prior
from shoal.sequential.kernel import sva_pass
from shoal.sequential.ready import warm_family

CORE = Path(shoal.__file__).parents[1]

SCRIPT = """
import json
from shoal.families import FAMILIES
from shoal.sequential.ready import warm_family
from shoal.sequential.kernel import sva_pass
warm_family(FAMILIES["bernoulli"].weak(1))
stats = sva_pass.stats
print(json.dumps([sum(stats.cache_hits.values()), sum(stats.cache_misses.values()), str(stats.cache_path)]))
"""


def test_a_second_process_compiles_nothing(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(CORE), "SHOAL_KERNEL_CACHE": str(tmp_path)}
    counts = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True, timeout=300
        )
        hits, misses, folder = json.loads(done.stdout)
        counts.append((hits, misses))
        assert Path(folder).is_relative_to(tmp_path)
    assert counts == [(0, 1), (1, 0)]


def test_every_stream_uses_the_warmed_kernels(sva, form):
    """No other size, rule, layout or call compiles a kernel again."""
    warm_family(sva.prior(form, 1))
    before = len(sva_pass.signatures)
    x = sva.clusters(50, 3, seed=0)
    sva.drive(sva.prior(form, 3), sva.rules("overlap"), np.asfortranarray(x), cuts=(1, 20), rows=1)
    sva.drive(sva.prior(form, 3), sva.rules("none"), x.astype(np.float32))
    assert len(sva_pass.signatures) == before


def test_what_the_prior_gives_the_kernel_is_read_only(sva, form):
    prior = kernel_prior(sva.prior(form, 2))
    assert prior is kernel_prior(sva.prior(form, 2))  # equal priors share it
    constants = prior.constants if isinstance(prior.constants, tuple) else [prior.constants]
    for array in [*prior.empty, *(value for value in constants if isinstance(value, np.ndarray))]:
        assert not array.flags.writeable


def test_a_family_without_a_kernel_has_no_predictive_cache():
    class Strange:
        name = "strange"

    assert cache_type(Strange()) is NoCache
