"""The same bits however the stream is cut, however the arrays grow, whatever the layout of the points."""

import numpy as np
import pytest

from shoal.families.predictive_cache import refresh

N = 2_300


@pytest.mark.parametrize("d", [1, 3, 17])
@pytest.mark.parametrize("step", [1, 7, 1000])
def test_cuts(sva, form, d, step):
    prior, x, rules = sva.prior(form, d), sva.clusters(N, d, seed=2), sva.rules()
    whole = sva.drive(prior, rules, x)
    assert whole.calls == 1
    cut = sva.drive(prior, rules, x, cuts=range(step, N, step))
    assert cut.calls == -(-N // step)
    assert sva.same_bits(whole, cut)


@pytest.mark.parametrize("pair_rule", ["none", "entropy", "overlap"])
def test_growth(sva, form, pair_rule):
    """Arrays that begin with one row and grow by one at a time, new rows full of NaN."""
    prior, x = sva.prior(form, 2), sva.clusters(600, 2, seed=8, n_clusters=20, spread=5.0)
    rules = sva.rules(pair_rule)
    roomy, tight = sva.drive(prior, rules, x), sva.drive(prior, rules, x, rows=1)
    assert tight.calls == roomy.n_components + 1 > 6
    assert sva.same_bits(roomy, tight)


def test_continuing_from_a_copy(sva, form):
    prior, x, rules = sva.prior(form, 4), sva.clusters(N, 4, seed=9), sva.rules()
    whole = sva.drive(prior, rules, x)
    half = sva.drive(prior, rules, x[: N // 2])
    rest = sva.drive(prior, rules, x[N // 2 :], start=half.components, seen=N // 2)
    joined = rest._replace(
        labels=np.concatenate([half.labels, rest.labels]),
        log_density=np.concatenate([half.log_density, rest.log_density]),
    )
    assert sva.same_bits(whole, joined)


def test_layouts_of_the_points(sva, form):
    """Read-only, column-major, strided and unaligned points are the same points, and compile nothing more."""
    prior, x, rules = sva.prior(form, 3), sva.clusters(200, 3, seed=4), sva.rules()
    plain = sva.drive(prior, rules, x)
    frozen = x.copy()
    frozen.flags.writeable = False
    unaligned = np.frombuffer(b"!" + x.tobytes(), dtype=np.uint8)[1:].view(np.float64).reshape(x.shape)
    for points in (frozen, np.asfortranarray(x), np.repeat(x, 2, axis=0)[::2], unaligned):
        assert sva.same_bits(plain, sva.drive(prior, rules, points))


def test_no_points(sva, form):
    result = sva.drive(sva.prior(form, 2), sva.rules(), np.zeros((0, 2)))
    assert (result.n_components, result.calls) == (0, 0)


def test_work_made_again_is_the_work_carried_along(sva, form):
    """To rounding: thousands of rank-one updates against one factorisation of the statistics."""
    prior, x = sva.prior(form, 16), sva.clusters(4_000, 16, seed=6)
    components = sva.drive(prior, sva.rules(), x).components
    fresh = refresh(prior, components.stats)
    for name, carried, rebuilt in zip(fresh._fields, components.cache, fresh, strict=True):
        np.testing.assert_allclose(carried, rebuilt, rtol=1e-10, atol=1e-10 * np.abs(rebuilt).max(), err_msg=name)
