"""One thread for linear algebra in a process that serves: sums in another order give other last bits, and a replay of
the log is to give the same state to the bit. (BLAS threads that wait for each other also spin; one is faster here.)

Importing this loads no numerical library: what is in the environment before they load holds for them.
"""

import os

ONE_THREAD = (
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


def pin_blas_by_environment() -> None:
    """Have every numerical library that is loaded from here on, in this process or a child, use one thread.

    Whatever the environment says: with another number two runs of one log may differ.
    """
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))


def pin_blas() -> None:
    """The same for those that are loaded already: on return no library has more than one thread, nor will have."""
    from threadpoolctl import threadpool_limits

    from shoal.runtime import blas

    pin_blas_by_environment()
    threadpool_limits(1, user_api="blas")
    blas.pin_blas()  # for any thread: threadpoolctl heeds the first alone that has ever set one
