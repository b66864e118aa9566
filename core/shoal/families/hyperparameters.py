"""A prior's hyperparameters as a value: checked at the door, frozen, compared and hashed by what they hold."""

import hashlib
from functools import cached_property
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike

from shoal.errors import SettingError
from shoal.points.arrays import MAX_MAGNITUDE, Array, read_only

SMALLEST, LARGEST = 1e-100, 1e100
"""Range of every positive hyperparameter: squares and quotients of any two stay finite."""
SYMMETRY_TOLERANCE = 1e-8
"""Largest asymmetry accepted in a covariance, relative to sqrt(diagonal product); what is left is averaged away."""


class Hyperparameters:
    """Mixin: an immutable object whose identity is its class and its hyperparameters.

    `FIELDS` maps each argument of the constructor, in order, to the attribute that holds it (the same name, unless a
    method has it already). `__init__` sets attributes through `_freeze`.
    """

    FIELDS: ClassVar[dict[str, str]]
    name: ClassVar[str]

    def _freeze(self, **values: Any) -> None:
        for key, value in values.items():
            object.__setattr__(self, key, read_only(value) if isinstance(value, np.ndarray) else value)

    def __setattr__(self, key: str, value: Any) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable; make a new one instead of setting {key!r}")

    def __delattr__(self, key: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable; {key!r} cannot be deleted")

    def to_arrays(self) -> dict[str, Array]:
        """The hyperparameters by name, as arrays (numbers are 0-dimensional); see `from_arrays`."""
        return {key: np.asarray(getattr(self, attribute), dtype=np.float64) for key, attribute in self.FIELDS.items()}

    @classmethod
    def from_arrays(cls, arrays: dict[str, Array]) -> Self:
        """Inverse of `to_arrays`. Raises SettingError when a name is missing or unknown, or a value out of range."""
        if set(arrays) != set(cls.FIELDS):
            raise SettingError(f"{cls.name} prior was given {sorted(arrays)}; give exactly {sorted(cls.FIELDS)}")
        return cls(*(arrays[key] for key in cls.FIELDS))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Hyperparameters) or type(other) is not type(self):
            return NotImplemented
        return self is other or self._digest == other._digest

    def __hash__(self) -> int:
        return hash(self._digest)

    @cached_property
    def _digest(self) -> bytes:
        """SHA-256 of what it holds: caches ask for it at every batch of points, so it is worked out once."""
        digest = hashlib.sha256(self.name.encode())
        for value in self.to_arrays().values():
            digest.update(repr(value.shape).encode() + value.tobytes())
        return digest.digest()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_arrays, (self.to_arrays(),)

    def __repr__(self) -> str:
        fields = (f"{key}={np.array2string(value, threshold=8)}" for key, value in self.to_arrays().items())
        return f"{type(self).__name__}({', '.join(fields)})"


def as_real(what: str, value: ArrayLike) -> Array:
    """A float64 copy of numbers of any shape, -0.0 made 0.0 so that equal values have equal bytes."""
    try:
        raw = np.asarray(value)
    except ValueError as error:
        raise SettingError(f"{what} is ragged: {error}; give rows of equal length") from error
    if raw.dtype.kind not in "fiu":
        raise SettingError(f"{what} has dtype {raw.dtype}; give real numbers")
    array: Array = raw.astype(np.float64) + 0.0
    if not np.all(np.isfinite(array)):
        raise SettingError(f"{what} holds NaN or an infinity; give finite numbers")
    return array


def as_mean(value: ArrayLike) -> Array:
    """A prior mean (D,), one finite number a feature."""
    mean = as_real("mean", value)
    if mean.ndim != 1 or mean.size == 0:
        raise SettingError(f"mean has shape {mean.shape}; give a vector with one number a feature")
    if np.max(np.abs(mean)) > MAX_MAGNITUDE:
        raise SettingError(f"mean holds a number of magnitude {np.max(np.abs(mean)):g}; the limit is {MAX_MAGNITUDE:g}")
    return mean


def as_positive(what: str, value: ArrayLike, above: float = 0.0) -> float:
    """One number in [1e-100, 1e100], and greater than `above`."""
    if type(value) is float and max(above, SMALLEST) < value < LARGEST:
        return value
    array = as_real(what, value)
    if array.ndim != 0:
        raise SettingError(f"{what} has shape {array.shape}; give one number")
    number = float(array)
    if not number > above:
        raise SettingError(f"{what} is {number!r}; it must be greater than {above:g}")
    _check_range(what, array)
    return number


def as_positive_vector(what: str, value: ArrayLike, n_features: int) -> Array:
    """A vector (D,) of numbers in [1e-100, 1e100]; one number stands for D equal ones."""
    array = as_real(what, value)
    if array.shape not in ((), (n_features,)):
        raise SettingError(f"{what} has shape {array.shape}; give {n_features} numbers, one a feature, or a single one")
    if not np.all(array > 0):
        raise SettingError(f"{what} holds {float(np.min(array))!r}; every element must be positive")
    _check_range(what, array)
    return np.array(np.broadcast_to(array, (n_features,)))


def as_pseudo_counts(value: ArrayLike) -> Array:
    """Pseudo-counts (D,) of the parts of a proportion, D >= 2, in [1e-100, 1e100]."""
    counts = as_real("pseudo_counts", value)
    if counts.ndim != 1 or counts.size < 2:
        raise SettingError(f"pseudo_counts has shape {counts.shape}; give a vector of at least two numbers")
    return as_positive_vector("pseudo_counts", counts, counts.size)


def as_positive_features(**values: ArrayLike) -> list[Array]:
    """Vectors (D,) of numbers in [1e-100, 1e100], by name; single numbers take the length of the others, of which there
    must be one."""
    arrays = {what: as_real(what, value) for what, value in values.items()}
    sizes = [array.size for array in arrays.values() if array.ndim == 1]
    if not sizes or sizes[0] == 0:
        raise SettingError(
            f"give {' or '.join(arrays)} as a vector with one number a feature, to say how many there are"
        )
    return [as_positive_vector(what, array, sizes[0]) for what, array in arrays.items()]


def as_covariance(what: str, value: ArrayLike, n_features: int) -> Array:
    """A symmetric positive definite matrix (D, D), made exactly symmetric."""
    array = as_real(what, value)
    if array.shape != (n_features, n_features):
        raise SettingError(
            f"{what} has shape {array.shape}; the mean has {n_features} features, give {n_features} squared"
        )
    diagonal = np.diag(array)
    if not np.all(diagonal > 0):
        raise SettingError(f"{what} has {float(diagonal.min())!r} on its diagonal; variances must be positive")
    _check_range(f"the diagonal of {what}", diagonal)
    if np.count_nonzero(array) == n_features:
        return array  # diagonal: nothing else can be wrong with it, and a search makes hundreds
    deviation = np.sqrt(diagonal)
    correlation = array / deviation[:, None] / deviation
    asymmetry = float(np.max(np.abs(correlation - correlation.T)))
    if asymmetry > SYMMETRY_TOLERANCE:
        raise SettingError(f"{what} is not symmetric (by {asymmetry:.3g} of the deviations); give a symmetric matrix")
    try:
        np.linalg.cholesky((correlation + correlation.T) / 2)
    except np.linalg.LinAlgError as error:
        smallest = float(np.linalg.eigvalsh((correlation + correlation.T) / 2)[0])
        raise SettingError(
            f"{what} is not positive definite: its correlations have the eigenvalue {smallest:.3g}; add to its diagonal"
        ) from error
    return (array + array.T) / 2


def _check_range(what: str, array: Array) -> None:
    if not (np.all(array >= SMALLEST) and np.all(array <= LARGEST)):
        raise SettingError(
            f"{what} ranges over [{float(np.min(array)):g}, {float(np.max(array)):g}]; keep it in [1e-100, 1e100]"
        )
