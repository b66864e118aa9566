"""A refinement as bytes: equal to the bit both ways, and nothing else is let through."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness.short_form import longer
from shoal import refinement as refinements
from shoal.errors import SnapshotDamagedError, SnapshotVersionError
from shoal.mixture import from_bytes as state_from_bytes
from shoal.mixture import pack_arrays, unpack_arrays
from shoal.mixture import to_bytes as state_to_bytes
from shoal.refinement import Refinement, adopt_inplace, from_bytes, refine, to_bytes


@pytest.fixture(scope="module")
def found(stream: SimpleNamespace, refining: SimpleNamespace) -> Refinement:
    x, _ = stream.nine(1_300, seed=1)
    state = stream.feed(stream.settings(n_features=2, family="diagonal", window=800, half_life=600.0), x).state
    return refine(state, refining.window_of(state, x))


@pytest.mark.parametrize("family", [longer("gaussian"), "diagonal", longer("known_covariance")])
def test_it_reads_back_equal_to_the_bit_and_adopts_to_the_same(
    stream: SimpleNamespace, refining: SimpleNamespace, family: str
) -> None:
    x, _ = stream.nine(1_200, seed=1)
    settings = stream.settings(n_features=2, family=family, window=500, warmup_points=200)
    state = stream.feed(settings, x[:900]).state
    made = refine(state, refining.window_of(state, x))
    blob = to_bytes(made)
    back = from_bytes(blob)
    assert to_bytes(back) == blob
    assert (back.report, back.reason, back.base_offset) == (made.report, made.reason, 900)
    assert (back.worthwhile, back.changed) == (made.worthwhile, made.changed)
    later = state_to_bytes(stream.feed(settings, x).state)
    ends = [adopt_inplace(state_from_bytes(later)[0], each, x[900:])[0] for each in (made, back, from_bytes(blob))]
    assert len({state_to_bytes(end) for end in ends}) == 1


def test_it_holds_no_rows(found: Refinement) -> None:
    assert len(to_bytes(found)) < 16_384


def test_damage_is_refused(found: Refinement) -> None:
    blob = to_bytes(found)
    for position in np.random.default_rng(0).choice(len(blob), size=60).tolist():
        altered = bytearray(blob)
        altered[position] ^= 1
        with pytest.raises(SnapshotDamagedError):
            from_bytes(bytes(altered))
    for part in (blob[:-1], blob + b"\0", b"", b"refined"):
        with pytest.raises(SnapshotDamagedError):
            from_bytes(part)
    with pytest.raises(SnapshotDamagedError):
        from_bytes(state_to_bytes(found.refined))
    with pytest.raises(SnapshotDamagedError):
        refinements.codec.from_bytes(pack_arrays({}, {}))


def tampered(found: Refinement, change: Callable[[dict[str, Any], dict[str, Any]], Any]) -> bytes:
    header, arrays = unpack_arrays(to_bytes(found))
    change(header, arrays)
    return pack_arrays(header, arrays)


CHANGES: dict[str, Callable[[dict[str, Any], dict[str, Any]], Any]] = {
    "of another format": lambda h, a: h.update(refinement=0),
    "unknown entry": lambda h, a: h.update(more=1),
    "no report": lambda h, a: h["words"].pop("report"),
    "reason that is none": lambda h, a: h["words"].update(reason=3),
    "worth as a number": lambda h, a: h["words"].update(worthwhile=1),
    "ids twice": lambda h, a: a["refinement.live_ids"].fill(0),
    "ids below zero": lambda h, a: a["refinement.live_ids"].__isub__(5),
    "mass beyond the components": lambda h, a: a["refinement.shared_new"].__iadd__(1),
    "mass below zero": lambda h, a: a["refinement.shared_mass"].fill(-1.0),
    "mass that is none": lambda h, a: a["refinement.shared_mass"].fill(np.nan),
    "mass of uneven length": lambda h, a: a.update({"refinement.shared_mass": np.zeros(1)}),
    "no ids": lambda h, a: a.pop("refinement.live_ids"),
    "ids that are not provisional": lambda h, a: a["ids"].__iadd__(1),
    "more points than there were": lambda h, a: a["stats.mass"].__iadd__(5.0),
    "a mark beyond the points": lambda h, a: h["refined"]["marks"]["mid"].update(offset=2_000),
    "a mark heavier than the mixture": lambda h, a: a["mark.past.mass"].__iadd__(1e4),
    "no marks": lambda h, a: h["refined"].update(marks={}),
    "an unknown array": lambda h, a: a.update(more=np.zeros(1)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_what_no_refinement_can_be_is_refused(found: Refinement, change: Any) -> None:
    assert from_bytes(tampered(found, lambda h, a: None)).base_offset == 1_300
    with pytest.raises(SnapshotDamagedError):
        from_bytes(tampered(found, change))


def test_a_newer_one_is_told_from_a_damaged_one(found: Refinement) -> None:
    with pytest.raises(SnapshotVersionError, match="upgrade shoal"):
        from_bytes(tampered(found, lambda h, a: h.update(refinement=2)))
