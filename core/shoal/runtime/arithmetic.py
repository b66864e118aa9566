"""What the last bits of a result depend on beside sources and versions: the processor, and the routines chosen for it.

Numba compiles for the processor that it runs on. BLAS, NumPy and the C library choose among their routines by it, and
some of these round differently: a product of matrices by AVX-512 differs in the last bit from one by AVX2. Another
build of BLAS, or a variable of the environment, may choose others still, which show in the bits of a few results.
"""

import hashlib
import platform
from functools import cache
from typing import Any

import numpy as np
import scipy.linalg

from shoal.runtime.blas import one_blas_thread


@cache
def arithmetic() -> str:
    """Name of the processor, and a digest of what is known of it and of a few results. Processes that differ in it may
    differ in last bits. Some milliseconds, once."""
    import llvmlite.binding as llvm
    import numba

    chosen: Any = numba.config
    name = str(chosen.CPU_NAME or llvm.get_host_cpu_name())
    try:
        features = llvm.get_host_cpu_features().flatten()
    except RuntimeError:  # not known of this processor
        features = ""
    known = [features, str(chosen.CPU_FEATURES), *platform.libc_ver()]
    digest = hashlib.sha256(" ".join(known).encode() + _some_results()).hexdigest()
    return f"{platform.machine()}-{name}-{digest[:8]}"


@one_blas_thread
def _some_results() -> bytes:
    """Bytes of products, a factor and elementary functions of fixed numbers."""
    x = (np.arange(96.0 * 96.0) * 0.6180339887498949 % 1.0).reshape(96, 96)
    gram = x @ x.T + 96.0 * np.eye(96)
    factor = scipy.linalg.cholesky(gram, lower=True)
    solved = scipy.linalg.solve_triangular(factor, x, lower=True)
    results = (x @ x, x @ x[0], gram, np.linalg.cholesky(gram), factor, solved, np.exp(x), np.log1p(x), np.sum(x))
    return b"".join(np.asarray(result).tobytes() for result in results)
