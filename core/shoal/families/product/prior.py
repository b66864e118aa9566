"""A product of families: each block of columns has a family, and a component's blocks are independent.

p(x | k) = prod_j p_j(x_j | theta_kj) with independent priors on the theta_kj. So statistics are those of the blocks
beside one another, and log densities, evidences, divergences and bounds are sums over the blocks. There is one class
for each canonical text of columns and families (`columns`), made when it is first asked for.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, ClassVar, Self, cast

import numpy as np

from shoal.errors import SettingError
from shoal.families.base import AnyFamily
from shoal.families.derived import collapsed_log_marginal
from shoal.families.feature_contrast import FeatureValues, HasFeatureValues, contrast
from shoal.families.holes import TakesHoles, takes_holes
from shoal.families.hyperparameters import Hyperparameters
from shoal.families.natural_statistics import Origin, Statistics, has_location, stats_at
from shoal.families.natural_statistics import statistics as statistics_of
from shoal.families.predictive_cache import HasPredictiveCache, NoCache, cache_type, kernel_points
from shoal.families.prior_choices import Choice, choices, restated
from shoal.families.product.columns import Columns, blocks_of
from shoal.families.product.domain import ProductDomain
from shoal.families.product.types import BlockCaches, BlockConstants, BlockRows, BlockStats, joined, joined_type, parted
from shoal.kernels.moments import centre_of
from shoal.points.arrays import Array, IntArray

_FAR_DEVIATIONS = 1e4
"""Deviations from zero at which squares lose half of the digits. Nearer, the origin is zero, as in earlier versions."""

KindNamed = Callable[[str], type[AnyFamily]]


class ProductPrior(Hyperparameters):
    """Priors of the blocks, in the order of their first columns. Made by `product`, or by the class of a text.

    Raises SettingError for a prior of another family or of another number of features than its block.
    """

    name: ClassVar[str]
    domain: ClassVar[ProductDomain]
    description: ClassVar[str] = "columns of several families"
    columns: ClassVar[tuple[IntArray, ...]]
    """Columns of each block."""
    kinds: ClassVar[tuple[type[AnyFamily], ...]]
    """Family of each block."""
    blocks: tuple[AnyFamily, ...]
    version: int
    """Of the one pass: 2 by the steps of the blocks' kernels; 1 in NumPy, as earlier versions learnt. The last bits
    differ."""

    def __init__(self, *blocks: AnyFamily, version: int = 2) -> None:
        if len(blocks) != len(self.kinds):
            raise SettingError(
                f"{len(blocks)} priors are given for {len(self.kinds)} blocks of {self.name}; give one each"
            )
        for block, kind, columns in zip(blocks, self.kinds, self.columns, strict=True):
            if type(block) is not kind or block.n_features != len(columns):
                raise SettingError(
                    f"a block of {len(columns)} columns has a prior {block!r:.80}; give one of family {kind.name!r} "
                    f"with {len(columns)} features"
                )
        self._freeze(blocks=tuple(blocks), version=version)

    @classmethod
    def weak(cls, n_features: int) -> Self:
        """Weak priors of the blocks. Raises SettingError where the columns are not as many."""
        cls.check_features(n_features)
        return cls(*(kind.weak(len(columns)) for kind, columns in zip(cls.kinds, cls.columns, strict=True)))

    @classmethod
    def examples(cls) -> list[Self]:
        """A weak prior of each version: its kernels are those of every prior of these blocks."""
        weak = cls.weak(sum(len(columns) for columns in cls.columns))
        return [weak, cls(*weak.blocks, version=1)]

    @classmethod
    def check_features(cls, n_features: int) -> None:
        """Raise SettingError unless the columns of the blocks are `n_features`."""
        named = sum(len(columns) for columns in cls.columns)
        if named != n_features:
            raise SettingError(f"family {cls.name} names {named} columns, points have {n_features}; name every column")

    @property
    def n_features(self) -> int:
        """D, of all blocks."""
        return sum(len(columns) for columns in self.columns)

    @property
    def n_free_parameters(self) -> int:
        """Of all blocks."""
        return sum(block.n_free_parameters for block in self.blocks)

    def to_arrays(self) -> dict[str, Array]:
        """Hyperparameter h of block j under the name `b<j>_h`; and the version, unless it is that of states of earlier
        versions, which hold none."""
        arrays = [block.to_arrays() for block in self.blocks]
        found = {f"b{j}_{name}": value for j, own in enumerate(arrays) for name, value in own.items()}
        return found if self.version == 1 else found | {"version": np.asarray(float(self.version))}

    @classmethod
    def from_arrays(cls, arrays: dict[str, Array]) -> Self:
        """Inverse of `to_arrays`. Raises SettingError."""
        own: list[dict[str, Array]] = [{} for _ in cls.kinds]
        version = float(arrays.get("version", 1.0))
        if version not in (1.0, 2.0):
            raise SettingError(f"version of the prior is {version!r}; give 2, or 1 for the pass of earlier versions")
        for key, value in arrays.items():
            if key == "version":
                continue
            place, _, name = key[1:].partition("_")
            if not (key.startswith("b") and place.isdigit() and int(place) < len(own) and name):
                raise SettingError(f"prior was given {key!r}; give exactly the priors of {len(own)} blocks, as b0_...")
            own[int(place)][name] = value
        blocks = (kind.from_arrays(given) for kind, given in zip(cls.kinds, own, strict=True))
        return cls(*blocks, version=int(version))

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.name, self.to_arrays())

    # Statistics

    def empty_stats(self, n_components: int) -> Any:
        """Statistics of components that have seen nothing."""
        return joined([block.empty_stats(n_components) for block in self.blocks])

    def suffstats(self, x: Array, resp: Array) -> Any:
        """Statistics of points x (N, D) under resp (N, K)."""
        return joined([block.suffstats(part, resp) for block, part in self._parts(x)])

    def add(self, a: Any, b: Any) -> Any:
        """Both together, row by row."""
        return self._each("add", a, b)

    def subtract(self, a: Any, b: Any) -> Any:
        """`a` without `b`."""
        return self._each("subtract", a, b)

    def scale(self, stats: Any, factor: float | Array) -> Any:
        """Every point's weight times `factor`."""
        return joined([block.scale(own, factor) for block, own in zip(self.blocks, parted(stats), strict=True)])

    def posterior(self, stats: Any) -> Any:
        """Parameters of the blocks' posteriors."""
        return self._each("posterior", stats)

    def relative(self, values: Any, to: Any) -> Any:
        """In coordinates whose origin is the location of `to`, for blocks that have one."""
        return self._each("relative", values, to)

    # The exponential family

    def natural(self, params: Any) -> Array:
        """(K, P) those of the blocks beside one another."""
        return np.hstack(self._results("natural", params))

    def from_natural(self, natural: Array) -> Any:
        """Inverse of `natural`."""
        widths = [block.natural(block.posterior(block.empty_stats(1))).shape[1] for block in self.blocks]
        parts = np.split(natural, np.cumsum(widths)[:-1], axis=1)
        return joined([block.from_natural(part) for block, part in zip(self.blocks, parts, strict=True)])

    def log_partition(self, params: Any) -> Array:
        """A (K,)."""
        return self._sum("log_partition", params)

    def mean_params(self, params: Any) -> Array:
        """(K, P)."""
        return np.hstack(self._results("mean_params", params))

    def log_carrier(self, stats: Any) -> Array:
        """(K,)."""
        return self._sum("log_carrier", stats)

    def collapsed_evidence(self, stats: Any) -> Array:
        """(K,)."""
        own = zip(self.blocks, parted(stats), strict=True)
        return np.asarray(sum(collapsed_log_marginal(block, part) for block, part in own))

    # Points

    def expected_log_likelihood(self, params: Any, x: Array) -> Array:
        """E_q[log p(x | parameter)] (N, K)."""
        return self._scores("expected_log_likelihood", params, x)

    def predictive(self, params: Any) -> Any:
        """The predictives of the blocks."""
        return self._each("predictive", params)

    def log_predictive_from(self, predictive: Any, x: Array) -> Array:
        """log p(x | posterior) (N, K)."""
        return self._scores("log_predictive_from", predictive, x)

    def log_predictive(self, params: Any, x: Array) -> Array:
        """log p(x | posterior) (N, K)."""
        return self._scores("log_predictive", params, x)

    def log_likelihood(self, parameters: Any, x: Array) -> Array:
        """log p(x | parameter) (N, K)."""
        return self._scores("log_likelihood", parameters, x)

    @property
    def n_feature_values(self) -> int:
        """Values by which the features of all blocks are told apart."""
        return sum(self._value_counts())

    def feature_values(self, params: Any, means: Array) -> FeatureValues:
        """Those of the blocks beside one another."""
        found = []
        for block, columns, own in zip(self.blocks, self.columns, parted(params), strict=True):
            values = FeatureValues(means[:, columns], np.arange(len(columns)))
            if hasattr(block, "feature_values"):
                values = cast(HasFeatureValues, block).feature_values(own, values.value)
            level = np.full(values.feature.size, -1) if values.level is None else values.level
            found.append((values.value, columns[values.feature], level))
        value, feature, level = zip(*found, strict=True)
        return FeatureValues(np.hstack(value), np.concatenate(feature), np.concatenate(level))

    def contrast(self, value: Array, rest: Array, deviation: Array) -> Array:
        """Each block by its own measure."""
        ends = np.cumsum(self._value_counts())[:-1]
        parts = zip(self.blocks, *(np.split(array, ends, axis=-1) for array in (value, rest, deviation)), strict=True)
        return np.hstack([contrast(block, *part) for block, *part in parts])

    def _value_counts(self) -> list[int]:
        return [int(getattr(block, "n_feature_values", block.n_features)) for block in self.blocks]

    def predictive_mean(self, params: Any) -> Array:
        """(K, D)."""
        return self._in_columns(self._results("predictive_mean", params))

    def predictive_variance(self, params: Any) -> Array:
        """(K, D)."""
        return self._in_columns(self._results("predictive_variance", params))

    def predictive_covariance(self, params: Any) -> Array:
        """(K, D, D), zero between blocks."""
        parts = self._results("predictive_covariance", params)
        whole = np.zeros((len(parts[0]), self.n_features, self.n_features))
        for columns, part in zip(self.columns, parts, strict=True):
            whole[:, columns[:, None], columns] = part
        return whole

    def sample_parameters(self, params: Any, rng: np.random.Generator) -> Any:
        """One draw of each component's parameters."""
        own = zip(self.blocks, parted(params), strict=True)
        return joined([block.sample_parameters(part, rng) for block, part in own])

    def sample_points(self, parameters: Any, n: int, rng: np.random.Generator) -> Array:
        """n points of each component (K, n, D)."""
        own = zip(self.blocks, parted(parameters), strict=True)
        return self._in_columns([block.sample_points(part, n, rng) for block, part in own])

    def positions(self, stats: Any) -> Array:
        """(K, E) those of the blocks beside one another."""
        return np.hstack(self._results("positions", stats))

    def coordinates(self, x: Array) -> Array:
        """(N, E) those of the blocks beside one another."""
        return np.hstack([_table(block.coordinates(part)) for block, part in self._parts(x)])

    # Kernels

    @property
    def cache_kind(self) -> type[Any]:
        """The caches of the blocks beside one another; none where a block has no steps that a product can use."""
        compiled = self.version == 2 and all(getattr(block, "serves_products", False) for block in self.blocks)
        return joined_type([cache_type(block) for block in self.blocks]) if compiled else NoCache

    def cache_of(self, stats: Any) -> Any:
        """Those of the blocks beside one another."""
        return self._each("cache_of", stats)

    def kernel_constants(self) -> BlockConstants:
        """Those of the blocks."""
        return BlockConstants(tuple(cast(HasPredictiveCache, block).kernel_constants() for block in self.blocks))

    def kernel_rows(self, x: Any) -> BlockRows:
        """The columns of each block as its family reads them."""
        parts = tuple(kernel_points(block, part) for block, part in self._parts(x))
        return BlockRows(parts, (int(x.shape[0]), self.n_features))

    def kernel_views(self, stats: Any, cache: Any, empty: Any) -> tuple[BlockStats, BlockCaches, BlockCaches]:
        """The same arrays by blocks. All blocks but the first get a mass of their own, a copy of the first one's."""
        first, *others = parted(stats)
        parts = (first, *(other._replace(mass=other.mass.copy()) for other in others))
        score = np.empty(len(first.mass))
        own, new = (BlockCaches(tuple(parted(arrays)), score) for arrays in (cache, empty))
        return BlockStats(first.mass, parts), own, new

    def cache_parts(self, stats: Any, cache: Any) -> list[tuple[AnyFamily, Any, Any]]:
        """Those of the blocks; none where there are no kernels."""
        if self.cache_kind is NoCache:
            return []
        return list(zip(self.blocks, parted(stats), parted(cache), strict=True))

    # Abilities that engines ask for

    def origin_of(self, x: Any) -> Origin:
        """Zero, and the middle of x (N, D) in features with a location that are so far from zero that their squares
        would lose the differences between points."""
        table = _table(x)
        located = np.zeros(self.n_features, dtype=np.bool_)
        for block, columns in zip(self.blocks, self.columns, strict=True):
            located[columns] = _has_origin(block)
        middle = centre_of(table)
        far = located & (np.abs(middle) > _FAR_DEVIATIONS * table.std(axis=0))
        return Origin(np.where(far, middle, 0.0), bool(far.any()))

    def stats_at(self, point: Array) -> Any:
        """Empty statistics of one component, the locations of the blocks being at the point (D,)."""
        own = zip(self.blocks, self.columns, strict=True)
        return joined([stats_at(b, point[columns]) if _has_origin(b) else b.empty_stats(1) for b, columns in own])

    def natural_statistics(self, x: Array, origin: Origin) -> Statistics:
        """Those of the blocks."""
        found = []
        for (block, part), columns in zip(self._parts(x), self.columns, strict=True):
            own = Origin(origin.point[columns], True) if origin.located and _has_origin(block) else None
            found.append(statistics_of(block, part, own or Origin(np.zeros(len(columns)), False)))
        carrier = np.asarray(sum(own.log_carrier for own in found))
        return Statistics(np.hstack([_table(own.rows) for own in found]), carrier)

    def prior_choices(self, stats: Any, n_components: int) -> Choice | None:
        """The choices of the blocks, all together."""
        found = [choices(block, own, n_components) for block, own in zip(self.blocks, parted(stats), strict=True)]
        if all(choice is None for choice in found):
            return None

        def build(*values: float) -> AnyFamily:
            left = list(values)
            blocks = []
            for block, choice in zip(self.blocks, found, strict=True):
                own = [left.pop(0) for _ in choice.values] if choice is not None else []
                blocks.append(block if choice is None else choice.build(*own))
            return cast(AnyFamily, type(self)(*blocks, version=self.version))

        lists = tuple(values for choice in found if choice is not None for values in choice.values)
        start = tuple(value for choice in found if choice is not None for value in choice.start)
        return Choice(build, lists, start)

    def restated(self, stats: Any, before: "ProductPrior") -> Any:
        """Those of the blocks, which were made under the blocks of `before`."""
        own = zip(self.blocks, parted(stats), before.blocks, strict=True)
        return joined([restated(block, part, old) for block, part, old in own])

    # The blocks

    def _parts(self, x: Array) -> list[tuple[AnyFamily, Array]]:
        """Each block with its columns of points x (N, D)."""
        table = _table(x)
        return [(block, table[:, columns]) for block, columns in zip(self.blocks, self.columns, strict=True)]

    def _results(self, method: str, *values: Any) -> list[Any]:
        """The result of a method of each block, given its parts of `values`."""
        own = zip(self.blocks, *map(parted, values), strict=True)
        return [getattr(block, method)(*parts) for block, *parts in own]

    def _each(self, method: str, *values: Any) -> Any:
        """These results, joined."""
        return joined(self._results(method, *values))

    def _sum(self, method: str, values: Any) -> Array:
        """The sum of these results."""
        return np.asarray(sum(self._results(method, values)))

    def _scores(self, method: str, values: Any, x: Array) -> Array:
        """The sum over the blocks of a method that takes a part of `values` and points."""
        own = zip(self._parts(x), parted(values), strict=True)
        return np.asarray(sum(getattr(block, method)(part, points) for (block, points), part in own))

    def _in_columns(self, parts: list[Array]) -> Array:
        """Values (..., columns of the block) of each block, put into their columns (..., D)."""
        whole = np.empty((*parts[0].shape[:-1], self.n_features))
        for columns, part in zip(self.columns, parts, strict=True):
            whole[..., columns] = part
        return whole


class ProductWithHoles(ProductPrior):
    """A product of families that all take points with missing values, also where a whole block is missing."""

    def marginal_log_predictive(self, params: Any, x: Array) -> Array:
        """log p(x_O | posterior k) (N, K): the sum over the blocks, as they are independent given the component."""
        parts = parted(params)
        found = np.zeros((len(x), len(parts[0][0])))
        for (block, points), own in zip(self._parts(x), parts, strict=True):
            seen = ~np.isnan(points).all(axis=1)
            found[seen] += cast(TakesHoles, block).marginal_log_predictive(own, points[seen])
        return found

    def expected_stats(self, params: Any, x: Array, resp: Array) -> Any:
        """Those of the blocks."""
        own = zip(self._parts(x[None]), parted(params), strict=True)
        return joined([cast(TakesHoles, block).expected_stats(part, points[0], resp) for (block, points), part in own])

    def drawn_missing(self, params: Any, x: Array, rng: np.random.Generator) -> Array:
        """The point (D,) with each hole drawn by its block."""
        own = zip(self._parts(x[None]), parted(params), strict=True)
        drawn = [cast(TakesHoles, block).drawn_missing(part, points[0], rng) for (block, points), part in own]
        return self._in_columns(drawn)


def _has_origin(block: AnyFamily) -> bool:
    """Whether statistics of a block can be seen from another origin in its columns."""
    return has_location(block) and not hasattr(block, "working_rows")


def _table(x: Any) -> Array:
    return x.toarray() if hasattr(x, "toarray") else np.asarray(x)


def product_class(text: str, kind_named: KindNamed) -> type[ProductPrior]:
    """The class of a canonical text; `kind_named` gives a family's class by its name. Raises SettingError."""
    blocks = blocks_of(text)
    return _made(text, blocks, tuple(kind_named(block.family) for block in blocks))


@lru_cache(maxsize=256)
def _made(text: str, blocks: tuple[Columns, ...], kinds: tuple[type[AnyFamily], ...]) -> type[ProductPrior]:
    parts = tuple((kind.domain, block.columns) for kind, block in zip(kinds, blocks, strict=True))
    allowed = "; ".join(dict.fromkeys(f"{domain.name}: {domain.values}" for domain, _ in parts))
    domain = ProductDomain("mixed columns", allowed, parts=parts)
    columns = tuple(np.array(block.columns) for block in blocks)
    fields = {"name": text, "domain": domain, "columns": columns, "kinds": kinds, "FIELDS": {}}
    base = ProductWithHoles if all(map(takes_holes, kinds)) else ProductPrior
    return cast(type[ProductPrior], type("ProductPrior", (base,), fields))


def _again(text: str, arrays: dict[str, Array]) -> Any:
    """The prior of a text and its arrays, for pickles."""
    from shoal.families.registry import FAMILIES

    return FAMILIES[text].from_arrays(arrays)
