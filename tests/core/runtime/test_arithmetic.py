"""Processes whose last bits may differ tell one another so."""

import os
import platform
import subprocess
import sys
from functools import cache

import pytest

from shoal.partitions import pieces_version
from shoal.runtime.arithmetic import arithmetic

_PRINT = """
import sys
import numpy as np
from shoal.runtime.arithmetic import arithmetic
x = np.random.default_rng(0).normal(size=(64, 64))
print(arithmetic(), (x @ x).tobytes().hex())
"""


@cache
def of_process(**environment: str) -> tuple[str, str]:
    """The name, and the bits of a product of matrices, in a process of its own."""
    process = subprocess.run(
        [sys.executable, "-c", _PRINT], env=os.environ | environment, capture_output=True, text=True, check=True
    )
    name, product = process.stdout.split()
    return name, product


def test_the_same_processor_has_the_same_name() -> None:
    assert of_process()[0] == arithmetic()
    assert pieces_version().endswith(arithmetic())


def test_numba_for_another_processor_has_another_name() -> None:
    assert of_process(NUMBA_CPU_NAME="generic")[0] != arithmetic()


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="OpenBLAS has these names on x86")
def test_products_that_differ_in_bits_come_with_another_name() -> None:
    """`pieces_version` was the same on all processors of an architecture: a stream took other bits from a helper."""
    (old, product), (new, other) = of_process(OPENBLAS_CORETYPE="Nehalem"), of_process()
    assert old != new or product == other
