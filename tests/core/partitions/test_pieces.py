"""Pieces that were computed from their bytes: the same bits as in this process, for every family."""

import struct
from collections.abc import Iterator, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from harness.short_form import longer, short_form
from shoal import StreamingDPMixture
from shoal.errors import SettingError, SnapshotDamagedError, SnapshotVersionError
from shoal.families import FAMILIES
from shoal.mixture import MixtureState, StreamSettings, from_bytes, pack_arrays, to_bytes, unpack_arrays
from shoal.partitions import (
    PieceResult,
    PieceTask,
    assimilate_inplace,
    in_turn,
    learnt_piece,
    result_from_bytes,
    result_to_bytes,
    task_from_bytes,
    task_to_bytes,
)
from shoal.points.weighted_rows import WeightedRows
from shoal.sequential import initial_state, timed

ROUND, START = 1_024, 1_767_225_600.0
WARMUP = 300
"""Points before the first round, which are no part of a piece: few, as each fit of them takes long."""


@pytest.fixture(autouse=True)
def _short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.mixture.round.ROUND_ROWS", ROUND)
    monkeypatch.setattr("shoal.mixture.round.LEAST_ROUND_ROWS", 64)


class Elsewhere:
    """Computes every piece as another process would: from the bytes of its task, and gives back bytes."""

    def __init__(self) -> None:
        self.tasks: list[bytes] = []
        self.results: list[bytes] = []

    def __call__(self, tasks: Sequence[PieceTask]) -> list[PieceResult]:
        sent = [task_to_bytes(task) for task in tasks]
        came = [result_to_bytes(learnt_piece(task_from_bytes(blob))) for blob in sent]
        self.tasks += sent
        self.results += came
        return [result_from_bytes(blob, task) for blob, task in zip(came, tasks, strict=True)]


def partitioned() -> list[str]:
    """Families that partitions can learn."""
    found = []
    for family in sorted(FAMILIES):
        try:
            StreamSettings(n_features=4, family=family, partitions=2)
        except SettingError:
            continue
        found.append(family)
    return found


def rows_of(family: str, n: int, seed: int = 0) -> Any:
    """Rows of three clusters, in the domain of a family; None where there are no such rows of four features."""
    rng = np.random.default_rng(seed)
    z, real = rng.integers(3, size=n), rng.normal(size=(n, 4))
    centres = np.array([[6.0, 0.0, 0.0, 1.0], [0.0, 6.0, 0.0, 2.0], [0.0, 0.0, 6.0, 3.0]])
    shares = rng.gamma(1.0 + centres[z])
    candidates = (
        real + 2.0 * centres[z],
        np.exp(0.3 * real + 0.2 * centres[z]),
        shares / shares.sum(axis=1, keepdims=True),
        (real + centres[z]) / np.linalg.norm(real + centres[z], axis=1, keepdims=True),
        rng.poisson(0.5 + centres[z]).astype(float),
        (rng.random((n, 4)) < 0.1 + 0.13 * centres[z]).astype(float),
    )
    domain = StreamSettings(n_features=4, family=family).domain
    for x in candidates:
        try:
            domain.check(x)
        except Exception:  # noqa: BLE001 - of another domain
            continue
        return x
    return None


def learnt(
    state: MixtureState, x: Any, ends: Sequence[int], run: Any, times: Any = None
) -> tuple[bytes, list[Any], list[Any]]:
    """Bytes of the stream after further rows in calls that end there, its events, and what was said of the rows."""
    events, said = [], []
    start = state.points_seen
    for stop in ends:
        rows = x[start:stop]
        if times is not None:
            state, rows = timed(state, rows, times[start:stop])
        state, info = assimilate_inplace(state, rows, run)
        events += info.events
        said.append((info.labels, *info.scores))
        start = stop
    return to_bytes(state), events, said


def assert_same(settings: StreamSettings, x: Any, times: Any = None) -> Elsewhere:
    """Of all rows after the warm-up, in calls of uneven length. Both begin with its state, which is made once."""
    elsewhere, n = Elsewhere(), x.shape[0]
    warm, *_ = learnt(initial_state(settings), x, [settings.warmup_points], in_turn, times)
    ends = [700, 3 * n // 8, 3 * n // 8 + 1, 7 * n // 8, n]
    here, there = (learnt(from_bytes(warm)[0], x, ends, run, times) for run in (in_turn, elsewhere))
    assert there[0] == here[0]
    assert there[1] == here[1]
    for own, found in zip(here[2], there[2], strict=True):
        for a, b in zip(own, found, strict=True):
            assert_array_equal(a, b)
    assert elsewhere.tasks, "no piece was sent"
    return elsewhere


UNLIKE = ("gaussian", "diagonal", "student", "poisson", "categorical", "dirichlet")
"""Families whose statistics have unlike shapes, or that take other paths."""


@pytest.mark.parametrize("family", short_form(partitioned(), UNLIKE))
def test_every_family_gives_the_same_bits(family: str) -> None:
    x = rows_of(family, 3_000)
    assert x is not None, f"no rows of family {family}"
    assert_same(StreamSettings(n_features=4, family=family, partitions=3, warmup_points=WARMUP), x)


@pytest.mark.parametrize(
    ("family", "others"),
    [
        longer("gaussian", {"half_life": 2_500.0}),
        ("gaussian", {"half_life": "2h", "max_archived": 5}),
        longer("diagonal", {"half_life": "2h", "window": 0}),
        ("student", {"window_age": "3h", "window": 1_500, "warmup_points": WARMUP}),
        longer("gaussian", {"max_components": 4}),
        ("diagonal", {"refinement": None}),
    ],
)
def test_forgetting_times_and_limits_give_the_same_bits(family: str, others: dict[str, Any]) -> None:
    n = 4_000
    x, rng = rows_of("gaussian", n, 1), np.random.default_rng(2)
    x[n // 2 :, 0] += 30.0
    gaps = rng.exponential(4.0, n)
    gaps[n // 2] = 20_000.0
    settings = StreamSettings(**{"n_features": 4, "family": family, "partitions": 3, "warmup_points": WARMUP, **others})
    assert_same(settings, x, START + np.cumsum(gaps))


def test_weights_and_missing_values_give_the_same_bits() -> None:
    rng = np.random.default_rng(3)
    x = rows_of("gaussian", 2_300)
    weighted = WeightedRows(x, rng.gamma(1.0, size=len(x)) + 1e-3)
    assert_same(StreamSettings(n_features=4, partitions=3, warmup_points=WARMUP), weighted)
    x[rng.random(x.shape) < 0.02] = np.nan
    some = StreamSettings(n_features=4, partitions=3, missing="marginal", half_life=3_000.0, warmup_points=WARMUP)
    assert_same(some, x)


def test_text_categories_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    n = 2 * ROUND + 600
    number = 2 * rng.integers(3, size=(n, 1)) + (rng.random((n, 4)) < 0.2)
    rows = np.array([f"level {i}" for i in range(6)], dtype=object)[number]
    family = "categorical"
    here = StreamingDPMixture(family, partitions=3, window=0).fit(rows)
    elsewhere = Elsewhere()
    monkeypatch.setattr("shoal.partitions.workers.in_threads", elsewhere)
    there = StreamingDPMixture(family, partitions=3, window=0).fit(rows)
    assert elsewhere.tasks
    assert there._fitted.to_bytes() == here._fitted.to_bytes()


@cache
def some_piece() -> tuple[PieceTask, bytes, bytes]:
    """A task, its bytes, and those of its result."""
    kept: list[tuple[PieceTask, bytes, bytes]] = []

    def run(tasks: Sequence[PieceTask]) -> list[PieceResult]:
        sent = [task_to_bytes(task) for task in tasks]
        results = [learnt_piece(task) for task in tasks]
        kept.extend(zip(tasks, sent, map(result_to_bytes, results), strict=True))
        return results

    settings = StreamSettings(n_features=4, partitions=2, warmup_points=WARMUP)
    assimilate_inplace(initial_state(settings), rows_of("gaussian", 2_048), run)
    return kept[-1]


def test_what_is_not_read_is_not_sent() -> None:
    """Neither the window's statistics nor retired components: the bytes are those of rows and one mixture."""
    task, sent, _ = some_piece()
    part, k = task.partition, task.partition.n_components
    needed = task.rows.nbytes + sum(8 * field[:k].size for field in (*part.stats, *(part.monitor or ())))
    assert len(sent) < needed + 8 * k * k + 6_000


def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    task, sent, came = some_piece()
    monkeypatch.setattr("shoal.partitions.piece_bytes.pieces_version", lambda: "another")
    with pytest.raises(SnapshotVersionError, match="the same version"):
        task_from_bytes(sent)
    with pytest.raises(SnapshotVersionError, match="the same version"):
        result_from_bytes(came, task)


def test_bytes_that_are_no_piece_are_refused() -> None:
    task, sent, came = some_piece()
    for damaged in (sent[:-1], sent[:200] + b"\0" + sent[201:], sent[:-9] + b"\0" + sent[-8:], b""):
        with pytest.raises(SnapshotDamagedError):
            task_from_bytes(damaged)
    front = struct.Struct("<QI")
    length, checksum = front.unpack_from(sent)
    header, arrays = unpack_arrays(sent[front.size : front.size + length])
    del arrays["part.stats.mass"]
    container = pack_arrays(header, arrays)
    with pytest.raises(SnapshotDamagedError, match="no piece"):
        task_from_bytes(front.pack(len(container), checksum) + container + sent[front.size + length :])
    header, arrays = unpack_arrays(came)
    arrays["labels"] = arrays["labels"][:-1]
    with pytest.raises(SnapshotDamagedError, match="another piece"):
        result_from_bytes(pack_arrays(header, arrays), task)


def altered_arrays(blob: bytes) -> Iterator[tuple[str, bytes]]:
    """Intact bytes whose arrays differ, one at a time, in a length, a number of axes, a type, or a number."""
    header, arrays = unpack_arrays(blob)
    for name, array in arrays.items():
        if array.ndim == 0 or array.size == 0 or name.startswith("prior."):  # a prior checks its own
            continue
        strange = np.full_like(array, np.nan if array.dtype == np.float64 else -(1 << 62))
        swapped = array.astype(np.int64 if array.dtype == np.float64 else np.float64)
        for other in (array[:-1], array[None], swapped, strange):
            yield name, pack_arrays(header, arrays | {name: np.ascontiguousarray(other)})


def test_intact_bytes_of_other_shapes_and_ranges_are_refused() -> None:
    """Kernels would read and write beside the arrays: some of these ended the process that computed them."""
    task, sent, came = some_piece()
    front = struct.Struct("<QI")
    length, checksum = front.unpack_from(sent)
    container, dense = sent[front.size : front.size + length], sent[front.size + length :]
    header, arrays = unpack_arrays(container)
    altered = list(altered_arrays(container))
    for name, value in {"low": 1 << 60, "limit": -1, "base_at": 0.5, "from_base": 1, "shape": [2, 1 << 70]}.items():
        altered.append((name, pack_arrays(header | {name: value}, arrays)))
    for _, other in altered:
        with pytest.raises(SnapshotDamagedError):
            task_from_bytes(front.pack(len(other), checksum) + other + dense)
    for _, other in altered_arrays(came):
        with pytest.raises(SnapshotDamagedError):
            result_from_bytes(other, task)
    header, arrays = unpack_arrays(came)
    for event in ([1 << 60, "born", [], [7], None], [task.low + 1, "born", [], ["7"], None]):
        with pytest.raises(SnapshotDamagedError, match="an event"):
            result_from_bytes(pack_arrays(header | {"events": [event]}, arrays), task)


def test_a_piece_that_was_sent_and_lost_is_computed_here(stream: SimpleNamespace) -> None:
    """Nothing of the task was written here, so that its result is the same."""
    x, _ = stream.far(4 * ROUND, 2, 4, seed=1)

    def lost(tasks: Sequence[PieceTask]) -> list[PieceResult]:
        for task in tasks:
            learnt_piece(task_from_bytes(task_to_bytes(task)))
        return in_turn(tasks)

    states = []
    for run in (in_turn, lost):
        state, _ = assimilate_inplace(initial_state(StreamSettings(n_features=2, partitions=3)), x, run)
        states.append(to_bytes(state))
    assert states[0] == states[1]
