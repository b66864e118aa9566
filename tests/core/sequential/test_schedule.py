"""Offsets of checks, decays and warm-up fits."""

from types import SimpleNamespace

import pytest

from shoal.mixture import decay_step, next_decay, next_refit
from shoal.sequential.schedule import block_rows, next_check, next_regular, points_until_due, points_until_refit


def _walk(following: object, last: int) -> list[int]:
    offsets = [0]
    while offsets[-1] < last:
        offsets.append(following(offsets[-1]))  # type: ignore[operator]
    return offsets[1:]


def test_regular_offsets_double_and_then_keep_step() -> None:
    assert _walk(next_regular, 20_000) == [1024, 2048, 4096, 8192, 12288, 16384, 20480]


def test_the_next_offset_does_not_depend_on_where_one_asks() -> None:
    for offset in (1024, 2048, 4096, 8192):
        assert all(next_regular(i) == offset for i in range(offset - 900, offset))


def test_the_papers_intervals_grow_by_one_plus_k() -> None:
    assert next_check(0, 0, "paper") == 1
    assert next_check(10, 4, "paper") == 50
    assert next_check(10, 0, "paper") == 11


@pytest.mark.parametrize(("half_life", "step"), [(1.0, 1), (31.0, 1), (64.0, 2), (1000.0, 31), (3200.5, 100)])
def test_decays_fall_on_multiples_of_a_32nd_of_the_half_life(half_life: float, step: int) -> None:
    assert decay_step(half_life) == step
    assert _walk(lambda i: next_decay(i, half_life), 5 * step) == [step * j for j in range(1, 6)]
    assert next_decay(step - 1, half_life) == step


def test_nothing_is_forgotten_without_a_half_life() -> None:
    assert next_decay(12345, None) == -1


@pytest.mark.parametrize("warmup", [1, 2, 97, 128, 1000])
def test_fits_double_and_end_with_the_warmup(warmup: int) -> None:
    offsets = _walk(lambda i: next_refit(i, warmup), warmup)
    assert offsets == [*[1 << j for j in range(20) if 1 << j < warmup], warmup]
    assert next_refit(warmup, warmup) == -1


@pytest.mark.parametrize("due", [{"next_decay": 3}, {"next_check": 7}])
def test_what_was_due_in_the_past_is_an_error_and_no_endless_loop(stream: SimpleNamespace, due: dict[str, int]) -> None:
    settings = stream.settings(n_features=2, prior=stream.prior("diagonal", 2), family="diagonal", half_life=64.0)
    state = stream.feed(settings, stream.nine(7)[0]).state
    with pytest.raises(ValueError, match="due at offset"):
        points_until_due(state._replace(**due))


def test_a_fit_that_was_due_in_the_past_is_an_error_and_no_endless_loop(stream: SimpleNamespace) -> None:
    state = stream.feed(stream.settings(n_features=2), stream.nine(7)[0]).state
    with pytest.raises(ValueError, match="due at offset"):
        points_until_refit(state._replace(next_refit=5))


def test_blocks_are_bounded_in_rows_and_in_bytes() -> None:
    assert block_rows(1) == 8192
    assert block_rows(512) * 512 * 8 <= 8 << 20
    assert block_rows(1 << 24) == 1
