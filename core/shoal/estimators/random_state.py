"""The `random_state` of scikit-learn: as the seed of a stream, and as a generator for a batch fit."""

from typing import Any

import numpy as np

from shoal.errors import SettingError

MOST_SEED = 1 << 53


def seed_of(random_state: Any, live_seed: int | None) -> int:
    """The seed, 0..2^53, from a `random_state` of scikit-learn; None is 0.

    `live_seed` is the seed of a stream in progress. Where it is None, a generator draws a new one. Raises SettingError.
    """
    if random_state is None:
        return 0
    if isinstance(random_state, np.random.RandomState | np.random.Generator):
        if live_seed is not None:
            return live_seed
        return int.from_bytes(random_state.bytes(6))
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool) and random_state >= 0:
        return int(random_state) % MOST_SEED
    raise SettingError(f"random_state is {random_state!r}; give an integer from 0, a generator or None")


def generator_of(random_state: Any) -> np.random.Generator:
    """A generator from a `random_state` of scikit-learn. Raises SettingError."""
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(0, 2**32, size=4, dtype=np.uint32))
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise SettingError(f"random_state is {random_state!r}; give an int, a Generator or None") from error
