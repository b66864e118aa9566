"""The batch engines by name: which function runs a method, and which settings it reads."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from shoal.arrays import Array
from shoal.errors import SettingError
from shoal.families import AnyFamily
from shoal.mixture.batch import BatchFit, ProgressCallback

_ROUNDS = ("max_iter", "tol")
_TRUNCATED = (*_ROUNDS, "truncation", "resp_init")


class Engine(NamedTuple):
    """A method: its function, by module and name (loaded at the first fit), and the settings that it reads."""

    module: str
    function: str
    reads: tuple[str, ...]

    @property
    def is_sampler(self) -> bool:
        """Whether it gives samples, not a bound that rises."""
        return "n_samples" in self.reads


ENGINES: dict[str, Engine] = {
    "vdp": Engine("variational.vdp", "fit_vdp", (*_ROUNDS, "moves", "resp_init")),
    "fast-vdp": Engine("variational.fast_vdp", "fit_fast_vdp", (*_ROUNDS, "moves")),
    "tsb": Engine("variational.truncated", "fit_tsb", _TRUNCATED),
    "o-tsb": Engine("variational.truncated", "fit_o_tsb", _TRUNCATED),
    "fsd": Engine("variational.truncated", "fit_fsd", _TRUNCATED),
    "ctsb": Engine("variational.collapsed", "fit_ctsb", (*_TRUNCATED, "expectations")),
    "o-ctsb": Engine("variational.collapsed", "fit_o_ctsb", (*_TRUNCATED, "expectations")),
    "cfsd": Engine("variational.collapsed", "fit_cfsd", (*_TRUNCATED, "expectations")),
    "gibbs": Engine("sampling.gibbs", "fit_gibbs", ("n_samples", "burn_in", "thinning", "n_chains", "resp_init")),
}
"""Every method by its name."""

OWN_CHOICE: dict[str, Any] = {
    "truncation": None,
    "max_iter": None,
    "tol": None,
    "moves": "default",
    "expectations": "taylor",
    "n_samples": 100,
    "burn_in": 100,
    "thinning": 1,
    "n_chains": 1,
    "resp_init": None,
}
"""Settings that only some methods read, with the value that leaves them to the method."""

_LEAST = {"truncation": 1, "max_iter": 0, "n_samples": 1, "burn_in": 0, "thinning": 1, "n_chains": 1}
_WORDS = {"moves": ("default", "paper"), "expectations": ("taylor", "exact")}


def engine_of(method: Any) -> Engine:
    """The engine of a method. Raises SettingError for a name that is none."""
    if not isinstance(method, str) or method not in ENGINES:
        raise SettingError(f"method is {method!r}; choose one of {', '.join(ENGINES)}")
    return ENGINES[method]


def checked_settings(method: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Those settings that the method reads and that are not left to it. Raises SettingError.

    A setting that the method does not read must be left as it is: it would do nothing, and say nothing.
    """
    engine = engine_of(method)
    for name, value in settings.items():
        if value is None and OWN_CHOICE[name] is None:
            continue
        if name not in engine.reads:
            if OWN_CHOICE[name] is None or value != OWN_CHOICE[name]:
                readers = ", ".join(other for other, row in ENGINES.items() if name in row.reads)
                raise SettingError(f"{name} is set, but method {method!r} does not read it; it is for {readers}")
            continue
        _check(name, value)
    return {name: value for name, value in settings.items() if name in engine.reads and value is not None}


def check_positive(name: str, value: Any) -> float:
    """`value` as a float > 0. Raises SettingError."""
    if not _is_number(value) or not 0.0 < float(value) < float("inf"):
        raise SettingError(f"{name} is {value!r}; it must be a positive number")
    return float(value)


def check_whole(name: str, value: Any, least: int) -> int:
    """`value` as an int of at least `least`. Raises SettingError."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise SettingError(f"{name} is {value!r}; it must be a whole number of at least {least}")
    return int(value)


def _check(name: str, value: Any) -> None:
    if name in _LEAST:
        check_whole(name, value, _LEAST[name])
    elif name in _WORDS and value not in _WORDS[name]:
        raise SettingError(f"{name} is {value!r}; choose {' or '.join(map(repr, _WORDS[name]))}")
    elif name == "tol" and not (_is_number(value) and 0.0 <= float(value) < float("inf")):
        raise SettingError(f"tol is {value!r}; it must be a number of nats a point, not negative")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def run_engine(
    method: str,
    family: AnyFamily,
    x: Array,
    concentration: float,
    settings: dict[str, Any],
    rng: np.random.Generator,
    progress: ProgressCallback,
) -> BatchFit:
    """One fit of points x (N, D) with settings from `checked_settings`."""
    engine = engine_of(method)
    fit: Callable[..., BatchFit] = getattr(import_module(f"shoal.{engine.module}"), engine.function)
    return fit(family, x, concentration=concentration, rng=rng, progress=progress, **settings)
