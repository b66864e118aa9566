"""Bytes: equal to the bit both ways, the same every time, and refused when anything at all is wrong with them."""

import contextlib
import hashlib
import json
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shoal.errors import SnapshotDamagedError, SnapshotVersionError
from shoal.families import KnownCovariance
from shoal.families.predictive_cache import refresh
from shoal.mixture import MixtureState, StreamSettings, empty_lineage, from_bytes, grow, prune_inplace, to_bytes
from shoal.mixture.container import FORMAT_VERSION, MAGIC, pack_arrays, unpack_arrays

MakeState = Callable[..., MixtureState]


@pytest.fixture
def state(family_name: str, make_state: MakeState) -> MixtureState:
    """A state with a past, numbers of every kind, and room to spare."""
    rng = np.random.default_rng(0)
    resp = rng.dirichlet(np.ones(6), size=50) / 3
    made = make_state(family_name, rng.normal(size=(50, 3)), resp, half_life=1e4 / 3, concentration=0.1 + 0.2)
    made = made._replace(location=rng.normal(size=3), at_capacity=True)
    return prune_inplace(made, np.array([False, True, False, False, True, False]))[0]


@pytest.fixture
def small(make_state: MakeState) -> MixtureState:
    return make_state("diagonal", np.arange(6.0).reshape(6, 1), np.eye(2)[[0, 1, 0, 1, 0, 1]])


def warming(prior: Any = None, n: int = 7) -> MixtureState:
    settings = StreamSettings(n_features=2, family="known_covariance", warmup_points=100)
    stats = None if prior is None else prior.suffstats(np.ones((1, 2)), np.ones((1, 1)))
    rows = np.zeros(0 if prior is None else 1, dtype=np.int64)
    return MixtureState(
        settings=settings,
        prior=prior,
        frozen=False,
        location=np.zeros(2),
        scale=np.ones(2),
        jitter=np.zeros(2),
        stats=stats,
        cache=None if prior is None else refresh(prior, stats),
        ids=rows,
        born_at=rows,
        last_seen_at=rows,
        pairs=np.zeros((rows.size, rows.size)),
        n_components=rows.size,
        next_id=rows.size,
        points_seen=n,
        decayed_count=float(n),
        pruned_mass=float(n - rows.size),
        at_capacity=False,
        births_refused=0,
        next_check=8,
        next_decay=-1,
        next_refit=1 << n.bit_length(),
        buffer=np.random.default_rng(0).normal(size=(100, 2)),
        lineage=empty_lineage(),
    )


def same(a: Any, b: Any) -> bool:
    """Equal to the bit, types included."""
    if isinstance(a, np.ndarray):
        return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())
    if isinstance(a, tuple):
        return type(a) is type(b) and len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and a == b


def test_a_state_reads_back_equal_to_the_bit(state: MixtureState) -> None:
    back, window = from_bytes(to_bytes(state))
    assert window is None
    assert back.capacity == back.n_components == 4
    assert same(grow(back, state.capacity), state)
    assert same(from_bytes(to_bytes(state), is_valid=True)[0], back)
    for array in (*back.stats, *back.cache, back.pairs, back.ids, back.location):
        assert array.flags.writeable
        assert array.flags.owndata or array.base.flags.owndata


@pytest.mark.parametrize(
    ("prior", "n"),
    [(None, 0), (KnownCovariance(np.zeros(2), 1.0, 2.0), 7), (KnownCovariance([0.0, 1.0], 1.0, [[2.0, 1], [1, 2]]), 7)],
)
def test_a_stream_that_is_warming_up_keeps_the_rows_in_use(prior: Any, n: int) -> None:
    state = warming(prior, n)
    back, _ = from_bytes(to_bytes(state))
    assert back.buffer.tobytes() == state.buffer[:n].tobytes()
    assert same(back, state._replace(buffer=state.buffer[:n]))


def test_the_window_comes_along(state: MixtureState) -> None:
    rows = np.random.default_rng(1).normal(size=(31, 3))
    back, window = from_bytes(to_bytes(state, rows))
    assert window is not None
    assert same(window, rows)
    assert same(grow(back, state.capacity), state)


def test_bytes_are_the_same_every_time_and_do_not_depend_on_the_room(state: MixtureState) -> None:
    blob = to_bytes(state)
    assert to_bytes(state) == blob
    assert to_bytes(grow(state, 40)) == blob
    assert to_bytes(from_bytes(blob)[0]) == blob


def test_every_altered_byte_is_refused(small: MixtureState) -> None:
    blob = to_bytes(small)
    rng = np.random.default_rng(2)
    positions = [*range(120), *rng.choice(len(blob), size=300).tolist(), len(blob) - 1]
    for position in positions:
        altered = bytearray(blob)
        altered[position] ^= int(rng.integers(1, 256))
        for is_valid in (False, True):
            with pytest.raises(SnapshotDamagedError):
                from_bytes(bytes(altered), is_valid=is_valid)


def test_every_truncation_and_every_addition_is_refused(small: MixtureState) -> None:
    blob = to_bytes(small)
    for length in [*range(64), *np.random.default_rng(3).choice(len(blob), size=100).tolist()]:
        with pytest.raises(SnapshotDamagedError):
            from_bytes(blob[:length])
    with pytest.raises(SnapshotDamagedError):
        from_bytes(blob + b"\0")
    with pytest.raises(SnapshotDamagedError):
        from_bytes(blob + blob)


def sealed(version: int, body: bytes) -> bytes:
    """A file with a right checksum, written from the description in `container`."""
    sizes = struct.pack("<IQ", version, len(body))
    return MAGIC + sizes + hashlib.sha256(sizes + body).digest() + body


def test_a_newer_file_is_told_from_a_damaged_one(small: MixtureState) -> None:
    body = to_bytes(small)[52:]
    assert same(from_bytes(sealed(FORMAT_VERSION, body))[0].stats, from_bytes(to_bytes(small))[0].stats)
    with pytest.raises(SnapshotVersionError, match="upgrade shoal"):
        from_bytes(sealed(FORMAT_VERSION + 1, b"whatever a later format holds"))
    with pytest.raises(SnapshotDamagedError):
        from_bytes(sealed(FORMAT_VERSION + 1, b"abc")[:-1])


def of_format_1(state: MixtureState, window: np.ndarray | None = None) -> bytes:
    """The file that was written before there were refinements: without marks, monitor, course and their settings."""
    header, arrays = unpack_arrays(to_bytes(state, window))
    for name in ("course", "marks"):
        del header[name]
    for name in ("refinement", "seed"):
        del header["settings"][name]
    arrays = {name: a for name, a in arrays.items() if name.split(".")[0] not in ("mark", "monitor")}
    blob = pack_arrays(header, arrays)
    return sealed(1, blob[52:])


def test_a_file_of_format_1_is_read_and_its_rows_are_past(state: MixtureState) -> None:
    rows = np.random.default_rng(1).normal(size=(31, 3))
    back, window = from_bytes(of_format_1(state, rows))
    assert same(window, rows)
    n = back.n_components
    for mark in (back.past, back.mid):
        assert mark is not None
        assert mark.offset == back.schedule.window_from == back.points_seen
        assert same(mark.stats, back.stats)
        assert same(mark.pairs, back.pairs)
        assert (mark.pruned_mass, mark.decayed_count) == (back.pruned_mass, back.decayed_count)
    assert back.monitor is not None
    assert not any(field.any() for field in back.monitor)
    assert same(grow(back._replace(past=None, mid=None), 9).stats, grow(state._replace(past=None, mid=None), 9).stats)
    assert to_bytes(from_bytes(to_bytes(back))[0]) == to_bytes(back)
    assert n == state.n_components


def test_a_warm_up_of_format_1_goes_on(stream: Any) -> None:
    x, _ = stream.nine(1_400)
    settings = stream.settings(n_features=2, family="diagonal", window=100)  # too short for a search after a fit
    old, _ = from_bytes(of_format_1(stream.feed(settings, x[:300]).state))
    found, expected = stream.feed(old, x[300:]).state, stream.feed(settings, x).state
    assert same(found.stats, expected.stats)
    assert same(found.ids, expected.ids)


def test_a_warm_up_of_format_1_ends_with_the_same_components_where_fits_are_searched(stream: Any) -> None:
    """Only ids may differ: no fit is searched after rows that cannot be read again."""
    x, _ = stream.nine(600)
    settings = stream.settings(n_features=2, family="diagonal", warmup_points=500)
    old, _ = from_bytes(of_format_1(stream.feed(settings, x[:300]).state))
    found, expected = stream.feed(old, x[300:]).state, stream.feed(settings, x).state
    assert same(found.stats, expected.stats)
    assert len(set(found.live_ids.tolist())) == found.n_components
    assert found.live_ids.max() < found.next_id
    assert set(found.live_ids.tolist()) & set(old.live_ids.tolist())
    assert found.schedule.window_from == 300  # rows that the file held cannot be read again


@pytest.mark.parametrize(
    "body", [b"", b"\x05\0\0\0", b"\x02\0\0\0{}", b"\x02\0\0\0[]", b"\xff\xff\xff\xff{}", b"\x04\0\0\0null"]
)
def test_a_sealed_body_that_is_nothing_is_refused(body: bytes) -> None:
    with pytest.raises(SnapshotDamagedError):
        from_bytes(sealed(FORMAT_VERSION, body))


@pytest.mark.parametrize(
    "listed",
    [
        ["x", "|O", [1]],
        ["x", "<f4", [2]],
        ["x", "<f8", [-1]],
        ["x", "<f8", [2]],
        ["x", "<f8", [1.0]],
        ["x", "<f8", [True]],
        ["x", "<f8", [1 << 60, 1 << 60]],
        ["x", "<f8", [0] * 40],
        ["x", "<f8"],
        [3, "<f8", [1]],
        ["x", ["<f8"], [1]],
        "x",
        None,
    ],
)
def test_arrays_of_objects_or_of_lying_shapes_are_refused(listed: Any) -> None:
    text = json.dumps({"arrays": [listed]}).encode()
    with pytest.raises(SnapshotDamagedError):
        unpack_arrays(sealed(FORMAT_VERSION, struct.pack("<I", len(text)) + text + bytes(8)))


def test_no_array_of_objects_is_written() -> None:
    with pytest.raises(AssertionError, match="dtype"):
        pack_arrays({}, {"x": np.array([object()])})


def tampered(state: MixtureState, change: Callable[[dict[str, Any], dict[str, np.ndarray]], None]) -> bytes:
    header, arrays = unpack_arrays(to_bytes(state))
    change(header, arrays)
    return pack_arrays(header, arrays)


CHANGES: dict[str, Callable[[dict[str, Any], dict[str, np.ndarray]], Any]] = {
    "missing number": lambda h, a: h.pop("next_id"),
    "number of another type": lambda h, a: h.update(points_seen=6.0),
    "flag as number": lambda h, a: h.update(frozen=1),
    "unknown entry": lambda h, a: h.update(colour="blue"),
    "bad setting": lambda h, a: h["settings"].update(concentration=-1),
    "unknown setting": lambda h, a: h["settings"].update(colour=1),
    "settings of another width": lambda h, a: h["settings"].update(n_features=1 << 20),
    "settings gone": lambda h, a: h.update(settings=None),
    "missing array": lambda h, a: a.pop("ids"),
    "unknown array": lambda h, a: a.update(extra=np.zeros(1)),
    "prior gone": lambda h, a: [a.pop(n) for n in list(a) if n.startswith("prior.")],
    "prior out of range": lambda h, a: a["prior.rate"].fill(-1.0),
    "rows missing": lambda h, a: a.update({"stats.mean": a["stats.mean"][:1]}),
    "rows of another width": lambda h, a: a.update({"stats.mean": np.zeros((2, 3))}),
    "integers for floats": lambda h, a: a.update({"stats.mass": np.ones(2, dtype=np.int64)}),
    "floats for integers": lambda h, a: a.update(ids=np.zeros(2)),
    "not a number": lambda h, a: a["work.log_norm"].fill(np.nan),
    "negative mass": lambda h, a: a["stats.mass"].fill(-1.0),
    "scatter that no points have": lambda h, a: a["stats.scatter"].fill(-1e6),
    "negative count": lambda h, a: h.update(points_seen=-1),
    "negative amount": lambda h, a: h.update(pruned_mass=-1.0),
    "scale of zero": lambda h, a: a["scale"].fill(0.0),
    "negative jitter": lambda h, a: a["jitter"].fill(-1.0),
    "id twice": lambda h, a: a["ids"].fill(10),
    "id never given out": lambda h, a: a["ids"].fill(99),
    "pairs of another size": lambda h, a: a.update(pairs=np.zeros((3, 3))),
    "links that run backwards": lambda h, a: a.update({"past.links": np.array([1])}),
    "past of uneven length": lambda h, a: a.update({"past.ids": np.array([1])}),
    "buffer of a frozen stream": lambda h, a: a.update(buffer=np.zeros((2, 1))),
    "window of another width": lambda h, a: a.update(window=np.zeros((2, 4))),
    "window without rows": lambda h, a: a.update(window=np.zeros(())),
}

CHANGES |= {
    "decay that is past": lambda h, a: (h["settings"].update(half_life=64.0), h.update(next_decay=3)),
    "decay off its step": lambda h, a: (h["settings"].update(half_life=64.0), h.update(next_decay=9)),
    "decay without a half-life": lambda h, a: h.update(next_decay=8),
    "fit of a frozen stream": lambda h, a: h.update(next_refit=8),
    "warm-up with a prior of its own": lambda h, a: (h.update(frozen=False), a.update(buffer=np.zeros((6, 1)))),
    "check that is past": lambda h, a: h.update(next_check=6),
    "check beyond int64": lambda h, a: h.update(next_check=1 << 62),
    "points that can be counted no further": lambda h, a: h.update(points_seen=(1 << 53) - 1, next_check=1 << 54),
    "ids that can be counted no further": lambda h, a: h.update(next_id=(1 << 53) - 1),
    "count of more than the points": lambda h, a: h.update(decayed_count=1e9),
    "pruned mass from nowhere": lambda h, a: h.update(pruned_mass=1e300),
    "count and pruned mass from nowhere": lambda h, a: h.update(pruned_mass=1e300, decayed_count=1e300),
    "mass of zero": lambda h, a: a["stats.mass"].__setitem__(0, 0.0),
    "birth in the future": lambda h, a: a["born_at"].fill(10**15),
    "seen before birth": lambda h, a: a["last_seen_at"].fill(0),
    "negative pair sums": lambda h, a: a.update(pairs=np.array([[0.0, -1.0], [-1.0, 0.0]])),
    "pair sums that are not symmetric": lambda h, a: a.update(pairs=np.array([[0.0, 1.0], [0.5, 0.0]])),
    "pair sums on the diagonal": lambda h, a: a.update(pairs=np.eye(2)),
    "pair sums beyond the masses": lambda h, a: a.update(pairs=1e300 * (1 - np.eye(2))),
    "predictive cache of negative strength": lambda h, a: a["work.mean_strength"].fill(-5.0),
    "predictive cache that scores without bound": lambda h, a: a["work.log_norm"].fill(1e300),
    "predictive cache of other points": lambda h, a: a["work.mean"].__iadd__(0.01),
}

CHANGES |= {
    "a mark alone": lambda h, a: [h["marks"].pop("mid"), *(a.pop(n) for n in list(a) if n.startswith("mark.mid"))],
    "a third mark": lambda h, a: h["marks"].update(end=h["marks"]["mid"]),
    "a mark in the future": lambda h, a: h["marks"]["mid"].update(offset=7),
    "marks in the wrong order": lambda h, a: (h["marks"]["mid"].update(offset=5), h["course"].update(window_from=5)),
    "a mark of more points than there were": lambda h, a: h["marks"]["past"].update(decayed_count=9.0, pruned_mass=3.0),
    "a mark whose masses are not its count": lambda h, a: a["mark.past.mass"].__iadd__(0.1),
    "a mark that holds more than its component": lambda h, a: a.update(
        {f"mark.{m}.mass": a[f"mark.{m}.mass"][::-1] + np.array([0.5, -0.5]) for m in ("past", "mid")}
    ),
    "a mark of negative mass": lambda h, a: a["mark.mid.mass"].__imul__(-1.0),
    "a mark's scatter that no points have": lambda h, a: a["mark.past.scatter"].fill(-1e6),
    "a mark's pair sums beyond its masses": lambda h, a: a.update({"mark.past.pairs": 1e3 * (1 - np.eye(2))}),
    "a mark of another size": lambda h, a: a.update({"mark.past.mass": np.ones(3)}),
    "marks without a window": lambda h, a: h["settings"].update(window=0),
    "marks without a monitor": lambda h, a: a.pop("monitor.base"),
    "a monitor of another size": lambda h, a: a.update({"monitor.level": np.zeros(3)}),
    "a monitor that is not a number": lambda h, a: a["monitor.level"].fill(np.nan),
    "a spread below zero": lambda h, a: a["monitor.spread"].fill(-1.0),
    "settled in the future": lambda h, a: a["monitor.settled_at"].fill(3),
    "settled as a float": lambda h, a: a.update({"monitor.settled_at": np.zeros(2)}),
    "refined in the future": lambda h, a: h["course"].update(refined_at=7),
    "more refinements than offsets": lambda h, a: h["course"].update(adopted=1),
    "a wait of nothing": lambda h, a: h["course"].update(periods=0),
    "an alarm in the future": lambda h, a: h["course"].update(alarm=7),
    "a course without an entry": lambda h, a: h["course"].pop("alarm"),
    "a course in words": lambda h, a: h["course"].update(alarm="none"),
    "no course": lambda h, a: h.pop("course"),
    "refinement as often as it likes": lambda h, a: h["settings"].update(refinement="often"),
}
"""What such states did: hang or crash the learner, turn it to NaN, or refuse its own bytes later."""


def test_an_intact_file_with_an_impossible_state_is_refused(small: MixtureState) -> None:
    assert from_bytes(tampered(small, lambda h, a: None))[0].n_components == 2
    accepted = []
    for name, change in CHANGES.items():
        with contextlib.suppress(SnapshotDamagedError):
            from_bytes(tampered(small, change))
            accepted.append(name)
    assert accepted == []


@pytest.mark.parametrize("number", [{"next_refit": 1000}, {"next_refit": 5}, {"next_refit": -1}, {"points_seen": 100}])
def test_a_warm_up_whose_next_fit_never_comes_is_refused(number: dict[str, int]) -> None:
    state = warming(KnownCovariance(np.zeros(2), 1.0, 2.0))
    with pytest.raises(SnapshotDamagedError):
        from_bytes(tampered(state, lambda h, a: h.update(number)))


def test_an_id_counter_that_was_raised_is_valid(small: MixtureState) -> None:
    """A service that restores a snapshot over a stream raises it, so that no id comes twice."""
    assert from_bytes(to_bytes(small._replace(next_id=10**9)))[0].next_id == 10**9


def test_any_buffer_of_bytes_is_read(small: MixtureState) -> None:
    blob = to_bytes(small)
    for kind in (bytearray, memoryview):
        assert same(from_bytes(kind(blob))[0], from_bytes(blob)[0])
