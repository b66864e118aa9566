"""The kernel of a product, made of the steps of its blocks: the same as the pass in NumPy, and as itself in pieces."""

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from shoal.errors import SettingError
from shoal.families import FAMILIES
from shoal.families.counts.rows import kernel_rows
from shoal.families.predictive_cache import NoCache, cache_type, has_kernels
from shoal.families.product import canonical_text
from shoal.mixture import StreamSettings, from_bytes, to_bytes
from shoal.points.rows import SparseRows
from shoal.sequential import assimilate_inplace, initial_state, stream_kernels
from shoal.sequential.one_pass import one_pass_inplace
from shoal.sequential.passes import PassRules, Piece, new_components

RULES = PassRules(1.0, 0.5, 1e-3, "entropy", 40)
REALS = {"0-1": "gaussian", "2-3": "poisson", "4": "categorical"}
COUNTS = {"0,3": "diagonal", "1": "negative_binomial", "2,4-5": "multinomial", "6": "bernoulli"}


def drawn(family: dict[str, str], n: int, seed: int = 3) -> Any:
    """Points of five groups, standardised where they are real."""
    rng = np.random.default_rng(seed)
    group = rng.integers(5, size=n)
    columns: list[Any] = [None] * sum(len(part) for part in FAMILIES[canonical_text(family)].columns)  # type: ignore[attr-defined]
    kind = FAMILIES[canonical_text(family)]
    for own, of_block in zip(kind.kinds, kind.columns, strict=True):  # type: ignore[attr-defined]
        for column in of_block:
            centre = rng.permutation(5)[group]
            if own.domain.located:
                columns[column] = 0.4 * (centre - 2.0) + 0.1 * rng.normal(size=n)
            elif own.name == "bernoulli":
                columns[column] = rng.random(n) < (centre + 0.5) / 5.5
            elif own.name == "categorical":
                columns[column] = np.where(rng.random(n) < 0.9, centre, rng.integers(5, size=n))
            else:
                columns[column] = rng.poisson(1.0 + 6.0 * centre)
    return np.column_stack(columns).astype(np.float64)


def passed(prior: Any, x: Any, step: int | None = None, weights: Any = None) -> tuple[Any, ...]:
    components = new_components(prior, 41, "entropy")
    labels, log_density, novelty = np.zeros(len(x), np.int64), np.empty(len(x)), np.empty(len(x))
    n, step = 0, step or len(x)
    for start in range(0, len(x), step):
        rows = slice(start, start + step)
        out = labels[rows], log_density[rows], novelty[rows]
        own = None if weights is None else weights[rows]
        result = one_pass_inplace(prior, RULES, components, n, start, Piece(x[rows], *out, own))
        n = result.n_components
    return n, components, labels, log_density, novelty


@pytest.mark.parametrize("family", [REALS, COUNTS], ids=["reals", "counts"])
def test_the_kernel_does_what_numpy_does(family: dict[str, str]) -> None:
    kind, x = FAMILIES[canonical_text(family)], drawn(family, 60)
    prior: Any = kind.weak(x.shape[1])
    plain: Any = type(prior)(*prior.blocks, version=1)
    assert has_kernels(prior)
    assert not has_kernels(plain)
    weights = np.random.default_rng(1).uniform(0.5, 2.0, len(x))
    for own in (None, weights):
        (n, ours, *answers), (n_plain, theirs, *expected) = passed(prior, x, weights=own), passed(plain, x, weights=own)
        assert n == n_plain > 1
        np.testing.assert_array_equal(answers[0], expected[0])
        for answer, due in zip(answers[1:], expected[1:], strict=True):
            np.testing.assert_allclose(answer, due, rtol=0, atol=1e-10)
        for answer, due in zip(ours.stats, theirs.stats, strict=True):
            np.testing.assert_allclose(answer[:n], due[:n], rtol=1e-11, atol=1e-10)
        np.testing.assert_allclose(ours.pairs[:n, :n], theirs.pairs[:n, :n], rtol=1e-8, atol=1e-12)


def test_the_result_is_the_same_to_the_bit_however_points_are_cut() -> None:
    x = drawn(REALS, 300)
    prior: Any = FAMILIES[canonical_text(REALS)].weak(5)
    n, whole, *answers = passed(prior, x)
    for step in (1, 7):
        again, parts, *others = passed(prior, x, step)
        assert again == n
        for one, other in zip(
            [*answers, *whole.stats, *whole.cache], [*others, *parts.stats, *parts.cache], strict=True
        ):
            np.testing.assert_array_equal(
                one[: n if one.shape[0] == 41 else None], other[: n if other.shape[0] == 41 else None]
            )


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (1, 40), (60, 5)])
def test_a_table_of_counts_is_read_as_compressed_rows_are(shape: tuple[int, int]) -> None:
    x = np.random.default_rng(2).poisson(0.6, shape).astype(np.float64)
    for one, other in zip(kernel_rows(x), kernel_rows(SparseRows.of(csr_array(x))), strict=True):
        np.testing.assert_array_equal(one, other)
        assert getattr(one, "dtype", None) == getattr(other, "dtype", None)


def test_a_state_of_an_earlier_version_goes_on_in_numpy() -> None:
    x = drawn(REALS, 120)
    weak: Any = FAMILIES[canonical_text(REALS)].weak(5)
    earlier = type(weak)(*weak.blocks, version=1)
    assert "version" not in earlier.to_arrays(), "as earlier versions stored it"
    blobs = []
    for prior in (earlier, weak):
        settings = StreamSettings(n_features=5, family=canonical_text(REALS), prior=prior)
        state, _ = assimilate_inplace(initial_state(settings), x[:60])
        restored, _ = from_bytes(to_bytes(state))
        assert (restored.prior, restored.prior.version) == (prior, prior.version)
        assert StreamSettings.from_json(settings.to_json()) == settings
        continued, _ = assimilate_inplace(restored, x[60:])
        whole, _ = assimilate_inplace(state, x[60:])
        blobs.append(to_bytes(continued))
        assert blobs[-1] == to_bytes(whole)
        assert isinstance(continued.cache, NoCache) == (prior is earlier)
    assert blobs[0] != blobs[1]


def test_a_block_without_steps_for_products_leaves_the_product_to_numpy() -> None:
    prior = FAMILIES[canonical_text({"0": "gaussian", "1-3": "dirichlet"})].weak(4)
    assert cache_type(prior) is NoCache
    with pytest.raises(SettingError, match=r"version of the prior is 3\.0"):
        type(prior).from_arrays({**prior.to_arrays(), "version": np.asarray(3.0)})


@pytest.mark.parametrize("version", [1, 2])
def test_the_child_that_compiles_finds_the_kernels_of_each_version(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a stream of an earlier version it ended with StopIteration, and the learner compiled."""
    weak: Any = FAMILIES[canonical_text(REALS)].weak(5)
    prior = type(weak)(*weak.blocks, version=version)
    kernels: list[Any] = []
    monkeypatch.setattr(stream_kernels, "yield_to_others", lambda: None)
    monkeypatch.setattr(stream_kernels, "warm_search", lambda family: None)
    monkeypatch.setattr(stream_kernels, "call_all", lambda calls: kernels.extend(kernel for kernel, _ in calls))
    stream_kernels.compile_for([(prior.name, cache_type(prior).__name__)], [])
    assert (stream_kernels.sva_pass in kernels) == (version == 2)
    assert stream_kernels.standardise_into in kernels
