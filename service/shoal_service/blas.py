"""One thread for linear algebra in a process that serves.

Sums in another order give other last bits, and a replay of the log must give the same state to the bit. One thread is
also faster here, because BLAS threads that wait for each other spin. Importing this module loads no numerical library,
so that the environment can still be set before they load.
"""

import os

from shoal_service.child_processes import ONE_THREAD


def pin_blas_by_environment() -> None:
    """Make every numerical library that is loaded later, here or in a child process, use one thread.

    The environment is overwritten: with another number of threads, two runs of one log may differ.
    """
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))


def pin_blas() -> None:
    """Make every numerical library use one thread, whether it is loaded already or later."""
    from threadpoolctl import threadpool_limits

    from shoal.runtime import blas

    pin_blas_by_environment()
    threadpool_limits(1, user_api="blas")
    blas.pin_blas()  # for all threads: threadpoolctl only reaches the first thread that set a limit
