"""The automatic prior of a warm-up with absurd values, with constant rows, or within one cluster."""

import numpy as np
import pytest

from harness.short_form import longer
from shoal import StreamingDPMixture
from shoal.mixture import StreamSettings, from_bytes, to_bytes
from shoal.sequential import assimilate_inplace, initial_state

D, K, N = 3, 4, 2_400


def clusters(scale=1.0):
    """Rows (N, D) of K clusters of deviation `scale`, some twenty deviations apart, and their labels."""
    rng = np.random.default_rng(7)
    labels = rng.integers(K, size=N)
    return scale * (rng.normal(0.0, 20.0, (K, D))[labels] + rng.normal(size=(N, D))), labels


def purity(model, x, labels):
    """Share of rows that are of their component's main cluster and in that cluster's main component."""
    found = model.predict(x)
    table = np.zeros((found.max() + 1, K))
    np.add.at(table, (found, labels), 1.0)
    return min(table.max(axis=0).sum(), table.max(axis=1).sum()) / len(x)


def reasons(model):
    return [event.reason for event in model.events_ if event.kind == "prior"]


def spoilt(x, how, rng):
    """The rows with absurd values, and which rows are still whole."""
    bad = np.zeros(x.shape, dtype=bool)
    if how == "one value":
        bad[500, 0] = True
    elif how == "rows":
        bad[rng.random(len(x)) < 0.05] = True
    else:
        bad[rng.random(x.shape) < 0.05] = True
    return np.where(bad, 1e6 * rng.standard_normal(x.shape), x), ~bad.any(axis=1)


@pytest.mark.parametrize(
    ("how", "refinement"), [("one value", None), ("rows", None), ("rows", "auto"), ("values", "auto")]
)
def test_absurd_values_do_not_hide_the_clusters(how, refinement):
    x, labels = clusters()
    x, whole = spoilt(x, how, np.random.default_rng(8))
    model = StreamingDPMixture(refinement=refinement).fit(x)
    assert purity(model, x[whole], labels[whole]) > 0.99
    n_spoilt = np.count_nonzero(~whole[:1_000])
    (reason,) = reasons(model)
    assert reason.startswith(f"{n_spoilt} of 1000 rows hold extreme values")


@pytest.mark.parametrize(
    ("how", "refinement"),
    [(how, None) for how in ("one value", "rows")] + [longer("one value", "auto"), longer("rows", "auto")],
)
def test_absurd_values_leave_the_subspace_where_the_clusters_are(how, refinement):
    """Directions and noise were those of the absurd values: all clusters were one component, for ever."""
    rng = np.random.default_rng(3)
    labels = rng.integers(K, size=2_000)
    basis = np.linalg.qr(rng.normal(size=(40, 5)))[0]
    x = (rng.normal(0.0, 6.0, (K, 5))[labels] + rng.normal(size=(2_000, 5))) @ basis.T + 0.2 * rng.normal(
        size=(2_000, 40)
    )
    x, whole = spoilt(x, how, np.random.default_rng(8))
    model = StreamingDPMixture("subspace", refinement=refinement).fit(x)
    assert purity(model, x[whole], labels[whole]) > 0.99
    assert model._fitted.state.prior.noise_variance < 0.2
    (reason,) = reasons(model)
    assert reason.startswith(f"{np.count_nonzero(~whole[:1_000])} of 1000 rows hold extreme values")


def test_value_beside_which_rounding_leaves_nothing_of_the_prior_does_not_stop_a_fit():
    """The search for divisions raised LinAlgError."""
    x, labels = clusters()
    x[150], whole = 1e50, np.arange(N) != 150
    model = StreamingDPMixture("student", warmup_points=200).fit(x[:200])
    assert purity(model, x[whole], labels[whole]) > 0.95


def test_one_absurd_value_changes_the_scale_little():
    x, _ = clusters()
    plain = StreamingDPMixture(refinement=None).fit(x)
    x[500, 0] = 1e6
    model = StreamingDPMixture(refinement=None).fit(x)
    assert reasons(plain) == []
    state, before = model._fitted.state, plain._fitted.state
    np.testing.assert_allclose(state.scale, before.scale, rtol=0.2)  # 30,000 times as large, by plain moments
    np.testing.assert_allclose(state.location, before.location, atol=2.0)  # moved by 1,000


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_warm_up_of_equal_rows_waits_for_others(scale):
    x, labels = clusters(scale)
    rows = np.concatenate([np.zeros((1_300, D)), x])
    model = StreamingDPMixture(refinement=None).fit(rows)
    assert purity(model, x, labels) > 0.99
    assert model._fitted.state.frozen
    waiting = StreamingDPMixture(refinement=None).fit(rows[:1_200])
    assert waiting._fitted.state.status == "warming_up"
    again = waiting.partial_fit(rows[1_200:])
    assert again._fitted.to_bytes() == model._fitted.to_bytes()


def test_prolonged_warm_up_is_saved_and_ends():
    state = initial_state(StreamSettings(n_features=2, warmup_points=64))
    state, _ = assimilate_inplace(state, np.ones((200, 2)))
    assert not state.frozen
    assert state.next_refit == 256
    restored, _ = from_bytes(to_bytes(state))
    assert to_bytes(restored) == to_bytes(state)
    state, info = assimilate_inplace(restored, np.ones((400, 2)))
    assert state.frozen
    (event,) = (event for event in info.events if event.kind == "prior")
    assert event.offset == 512
    prolonged, unvarying = event.reason.split("; ")[:2]
    assert prolonged == "the real numbers of the first 64 rows did not vary, so the warm-up was prolonged to 512 rows"
    assert unvarying.startswith("2 features of 2 did not vary")


def test_prolonged_warm_up_is_told_where_its_last_rows_vary():
    """Rows that are all equal were waited out without an event, if the prior needed no further care."""
    rng = np.random.default_rng(0)
    x = np.concatenate([np.ones((80, 2)), 20.0 * rng.integers(2, size=(100, 1)) + rng.normal(size=(100, 2))])
    assert reasons(StreamingDPMixture(warmup_points=64).fit(x)) == [
        "the real numbers of the first 64 rows did not vary, so the warm-up was prolonged to 128 rows"
    ]


@pytest.mark.parametrize("d", [3, 12])
def test_start_within_one_cluster_leaves_room_for_others(d):
    """One pass alone ended with two components, however far apart the clusters were."""
    rng = np.random.default_rng(9)
    centres, labels = rng.normal(0.0, 20.0, (K, d)), np.repeat(np.arange(K), 1_200)
    x = centres[labels] + rng.normal(size=(len(labels), d))
    model = StreamingDPMixture(refinement=None).fit(x)
    assert purity(model, x, labels) > 0.99
    assert reasons(model) == ["nearly all rows are of one component; others may lie far from it"]


def test_one_cluster_for_ever_is_one_component():
    model = StreamingDPMixture(refinement=None).fit(np.random.default_rng(10).normal(size=(4_000, 3)))
    assert model.masses_.max() > 3_990


def test_an_id_among_the_features_is_told():
    x, _ = clusters()
    model = StreamingDPMixture(refinement=None).fit(np.column_stack([x[:1_100], np.arange(1_100)]))
    assert reasons(model) == [
        "1 feature of 4 rose with every row, as ids and times do; leave these out, and shuffle sorted rows"
    ]


def test_a_family_that_finds_no_groups_is_told():
    """Words of long texts come in bursts, and almost every text is a Poisson component of its own."""
    rng = np.random.default_rng(0)
    texts = rng.poisson(rng.gamma(0.2, 20.0, size=(120, 60)))
    (reason,) = reasons(StreamingDPMixture("poisson", warmup_points=120, refinement=None).fit(texts))
    assert reason.startswith("120 rows became ")
    assert (
        reasons(StreamingDPMixture("poisson", warmup_points=120, refinement=None).fit(rng.poisson(5.0, size=(120, 60))))
        == []
    )
