"""The batch engines by name: the function of each method and the settings that it reads."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from shoal.errors import SettingError, did_you_mean
from shoal.families import FAMILIES, AnyFamily, family_exists, is_conjugate
from shoal.families.capabilities import has_latent_variables, working_rows
from shoal.families.predictive_cache import example_priors, predicts_by_kernel
from shoal.mixture import BatchFit, ProgressCallback, predict_call
from shoal.points.arrays import Array
from shoal.sequential.stream_kernels import call_all

_ROUNDS = ("max_iter", "tol")
_TRUNCATED = (*_ROUNDS, "truncation", "resp_init")
_SAMPLER = ("n_samples", "burn_in", "thinning", "n_chains", "resp_init")


class Engine(NamedTuple):
    """A method: its function, by module and name (loaded at the first fit), and the settings that it reads."""

    module: str
    function: str
    reads: tuple[str, ...]
    fits_latent: bool = False
    """Whether it fits latent variables of points."""

    @property
    def is_sampler(self) -> bool:
        """Whether its result is samples, not a rising bound."""
        return "n_samples" in self.reads


ENGINES: dict[str, Engine] = {
    "vdp": Engine("variational.vdp", "fit_vdp", (*_ROUNDS, "moves", "sticks", "resp_init"), True),
    "fast-vdp": Engine(
        "variational.fast_vdp", "fit_fast_vdp", (*_ROUNDS, "moves", "sticks", "leaf_points", "point_rounds")
    ),
    "tsb": Engine("variational.truncated", "fit_tsb", _TRUNCATED, True),
    "o-tsb": Engine("variational.truncated", "fit_o_tsb", _TRUNCATED, True),
    "fsd": Engine("variational.truncated", "fit_fsd", _TRUNCATED, True),
    "ctsb": Engine("variational.collapsed", "fit_ctsb", (*_TRUNCATED, "expectations"), True),
    "o-ctsb": Engine("variational.collapsed", "fit_o_ctsb", (*_TRUNCATED, "expectations"), True),
    "cfsd": Engine("variational.collapsed", "fit_cfsd", (*_TRUNCATED, "expectations"), True),
    "tfv": Engine("variational.tfv", "fit_tfv", ("max_iter", "batch_size", "resp_init")),
    "gibbs": Engine("sampling.gibbs", "fit_gibbs", _SAMPLER),
    "blocked-gibbs": Engine("sampling.blocked", "fit_blocked_gibbs", (*_SAMPLER, "truncation")),
    "split-merge": Engine(
        "sampling.split_merge", "fit_split_merge", (*_SAMPLER, "allocation", "restricted_scans", "proposals")
    ),
    "search": Engine("search.engine", "fit_search", ("search_score", "beam", "search_order", "max_iter")),
}
"""Every method by its name."""

OWN_CHOICE: dict[str, Any] = {
    "truncation": None,
    "max_iter": None,
    "tol": None,
    "moves": "default",
    "sticks": None,
    "leaf_points": None,
    "point_rounds": 0,
    "expectations": "taylor",
    "n_samples": 100,
    "burn_in": 100,
    "thinning": 1,
    "n_chains": 1,
    "allocation": "restricted",
    "restricted_scans": 5,
    "proposals": 1,
    "batch_size": 256,
    "search_score": "inadmissible",
    "search_order": "ascending",
    "beam": None,
    "resp_init": None,
}
"""Settings that only some methods read, with the value that leaves them to the method."""

_LEAST = {
    "truncation": 1,
    "max_iter": 0,
    "point_rounds": 0,
    "n_samples": 1,
    "burn_in": 0,
    "thinning": 1,
    "n_chains": 1,
    "restricted_scans": 0,
    "proposals": 1,
    "batch_size": 1,
}
_WORDS = {
    "moves": ("default", "paper"),
    "expectations": ("taylor", "exact"),
    "allocation": ("restricted", "sequential"),
    "search_score": ("inadmissible", "admissible", "trivial"),
    "search_order": ("ascending", "descending", "given", "random"),
}


def engine_of(method: Any) -> Engine:
    """The engine of a method. Raises SettingError for an unknown name."""
    if not isinstance(method, str) or method not in ENGINES:
        raise SettingError(f"method is {method!r}; {did_you_mean(method, ENGINES)}choose one of {', '.join(ENGINES)}")
    return ENGINES[method]


def checked_settings(method: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that the method reads and that are set. Raises SettingError.

    A setting that the method does not read must keep its default: otherwise it would have no effect without a warning.
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


def check_family(method: str, family: Any) -> None:
    """Raise SettingError for a family (a name or a prior) that the engine cannot fit.

    Every engine needs a conjugate family, and most of them one without latent variables.
    """
    named = isinstance(family, str)
    if named and not family_exists(family):
        return  # refused later, with the names that there are
    kind: Any = FAMILIES[family] if named else type(family)
    if not is_conjugate(kind):
        raise SettingError(
            f"method {method!r} needs a conjugate family, which {kind.name!r} is not; StreamingDPMixture learns it in "
            "one pass (methods default, sva, sva-pm)"
        )
    if has_latent_variables(kind) and not engine_of(method).fits_latent:
        able = ", ".join(name for name, engine in ENGINES.items() if engine.fits_latent)
        raise SettingError(
            f"method {method!r} needs the evidence of components; family {kind.name!r} has only a lower bound on it. "
            f"Use StreamingDPMixture, or one of {able}"
        )


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


def check_starts(method: str, n_init: Any) -> int:
    """The number of starts, at least one; for a sampler exactly one. Raises SettingError."""
    starts = check_whole("n_init", n_init, 1)
    if starts > 1 and engine_of(method).is_sampler:
        raise SettingError(f"n_init is {starts}, but {method!r} is a sampler; set n_chains, which keeps all chains")
    return starts


def _check(name: str, value: Any) -> None:
    if name in _LEAST:
        check_whole(name, value, _LEAST[name])
    elif name in _WORDS and value not in _WORDS[name]:
        raise SettingError(f"{name} is {value!r}; choose {' or '.join(map(repr, _WORDS[name]))}")
    elif name == "tol" and not (_is_number(value) and 0.0 <= float(value) < float("inf")):
        raise SettingError(f"tol is {value!r}; it must be a number of nats a point, not negative")
    elif name == "leaf_points" and not (_is_number(value) and 1.0 <= float(value) < float("inf")):
        raise SettingError(f"leaf_points is {value!r}; it must be a number of points, at least 1")
    elif name == "sticks" and not _is_pair(value):
        raise SettingError(f"sticks is {value!r}; give the two positive parameters of a Beta distribution")
    elif name == "beam" and value != float("inf"):
        check_whole(name, value, 1)


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple | list) and len(value) == 2 and all(_is_number(v) and v > 0.0 for v in value)


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
    given = None if "sticks" in settings else concentration  # one of the two
    return fit(family, working_rows(family, x), concentration=given, rng=rng, progress=progress, **settings)


def warm_batch_kernels() -> None:
    """Compile, or load from the disk cache, the kernels of the batch methods for the Gaussian families.

    They are the kernels of fast-vdp, the collapsed methods, gibbs, split-merge and search, which a stream does not use,
    and that of predictions, which NumPy replaces until it is compiled. `shoal.sequential.warm_kernels` compiles those
    of a stream. A cold start takes about a minute, mostly for samplers and search, which have a form for every family.
    From the cache it takes some seconds.
    """
    rng = np.random.default_rng(0)
    forms = [prior for kind in FAMILIES.values() if predicts_by_kernel(kind) for prior in example_priors(kind)]
    variational, sampling, search = (import_module(f"shoal.{room}") for room in ("variational", "sampling", "search"))
    x = np.eye(2, forms[0].n_features)
    variational.fit_fast_vdp(forms[0], x, concentration=1.0, max_iter=1, rng=rng)
    variational.fit_ctsb(forms[0], x, concentration=1.0, truncation=2, max_iter=1, rng=rng)
    call_all([call for call in map(predict_call, forms) if call is not None])
    for family in (form for form in forms if not has_latent_variables(form)):
        x = np.eye(2, family.n_features)  # in the domain of every family
        sampling.fit_gibbs(family, x, concentration=1.0, n_samples=1, burn_in=0, rng=rng)
        sampling.fit_split_merge(family, x, concentration=1.0, n_samples=1, burn_in=0, rng=rng)
        search.fit_search(family, x, concentration=1.0, rng=rng)
