"""Pages of records: written by the newest writer alone, in order, read by anybody, and gone with their stream."""

from typing import Any

import pytest

from shoal_service.errors import StaleWriterError, StreamGoneError
from shoal_service.store import PageRun
from shoal_service.store.redis import record_pages as redis_pages
from shoal_service.store.sqlite import record_pages as sqlite_pages

MANY = {(run, page): b"%d of %d" % (page, run) * 7 for run in range(1, 4) for page in range(60)}


def test_pages_are_read_as_they_were_written_in_the_order_asked_for(line: Any) -> None:
    pages = {**MANY, (0, 0): b"head", (9, 0): b"", (1 << 40, 1 << 20): bytes(range(256)) * 4_000}
    line.store.write_pages(*line.key, line.epoch, pages).result()
    places = [*reversed(pages), (5, 5), (1, 60)]
    assert line.store.read_pages(*line.key, places) == [*reversed(pages.values()), None, None]
    assert line.store.read_pages(*line.key, [(0, 0)]) == [b"head"]
    assert line.store.read_pages(*line.key, []) == []


def test_a_page_replaces_the_one_in_its_place_and_a_run_is_deleted_whole(line: Any) -> None:
    line.store.write_pages(*line.key, line.epoch, {**MANY, (0, 0): b"one"}).result()
    line.store.write_pages(
        *line.key, line.epoch, {(2, 7): b"new", (0, 0): b"two"}, [PageRun(1, 60), PageRun(3, 60)]
    ).result()
    found = line.store.read_pages(*line.key, [(0, 0), (2, 7), (2, 8), (1, 0), (1, 59), (3, 30)])
    assert found == [b"two", b"new", MANY[2, 8], None, None, None]
    line.store.write_pages(*line.key, line.epoch, {}, [PageRun(2, 60)]).result()
    assert line.store.read_pages(*line.key, [(2, 7), (0, 0)]) == [None, b"two"]


def test_an_old_writer_changes_nothing(line: Any) -> None:
    line.store.write_pages(*line.key, line.epoch, {(0, 0): b"old"}).result()
    line.store.acquire_writer(*line.key)
    with pytest.raises(StaleWriterError):
        line.store.write_pages(*line.key, line.epoch, {(1, 0): b"x", (0, 0): b"new"}, [PageRun(1, 1)]).result()
    assert line.store.read_pages(*line.key, [(0, 0), (1, 0)]) == [b"old", None]


def test_pages_end_with_their_stream_and_belong_to_it_alone(store: Any, new_line: Any) -> None:
    one, two = new_line(store, "one"), new_line(store, "two")
    one.store.write_pages(*one.key, one.epoch, {(0, 0): b"one"}).result()
    assert two.store.read_pages(*two.key, [(0, 0)]) == [None]
    store.delete_stream("one")
    with pytest.raises(StreamGoneError):
        store.read_pages(*one.key, [(0, 0)])
    again = new_line(store, "one", "another life")
    assert again.store.read_pages(*again.key, [(0, 0)]) == [None]


def test_the_last_page_and_the_deletion_come_after_all_other_pages(line: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut off after any step, the head and the runs that it names are there."""
    monkeypatch.setattr(sqlite_pages, "STEP_BYTES", 200)
    monkeypatch.setattr(redis_pages, "_AT_ONCE", 9)
    line.store.write_pages(*line.key, line.epoch, {(1, 0): b"run", (0, 0): b"one"}).result()
    writer, seen = line.store._writer, []
    submit = writer.submit

    def stepwise(*arguments: Any) -> Any:
        seen.append(line.store.read_pages(*line.key, [(0, 0), (1, 0), (2, 59)]))
        return submit(*arguments)

    monkeypatch.setattr(writer, "submit", stepwise)
    pages = {place: page for place, page in MANY.items() if place[0] == 2}
    line.store.write_pages(*line.key, line.epoch, {**pages, (0, 0): b"two"}, [PageRun(1, 1)]).result()
    assert len(seen) > 3
    assert all(step[:2] == [b"one", b"run"] for step in seen)
    assert seen[-1][2] == MANY[2, 59]
    assert line.store.read_pages(*line.key, [(0, 0), (1, 0), (2, 59)]) == [b"two", None, MANY[2, 59]]


def test_pages_are_there_after_the_store_is_opened_again(open_durable_store: Any, new_line: Any) -> None:
    line = new_line(open_durable_store())
    line.store.write_pages(*line.key, line.epoch, {**MANY, (0, 0): b"head"}).result()
    line.store.close()
    store = open_durable_store()
    assert store.read_pages(*line.key, list(MANY)) == list(MANY.values())
    store.close()
