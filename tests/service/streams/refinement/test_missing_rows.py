"""The window of a state counts exactly the rows that the log can give; where it does not, that is said at once."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal_service.streams.refinement import worker

pytestmark = pytest.mark.anyio


async def refined(works: Any) -> Any:
    asked = (await works.refinements.request("s", method="vdp", window=None, key=None)).refinement
    (done,) = await works.settled(asked.id)
    return done


async def test_a_stream_restored_from_a_snapshot_of_a_warm_up_can_be_refined(
    works: Any, inside: Any, grid: np.ndarray, small: Any
) -> None:
    """The rows in the snapshot's buffer are not in the log: "26 rows are asked for, the log holds 22"."""
    works.begin()
    await works.registry.create("other", {**small, "refinement": None})
    await works.feed(grid[:70], name="other")
    await works.registry.restore("s", await works.state("other"))
    await works.feed(grid[70:1000])
    done = await refined(works)
    assert (done.state, done.attempts, done.report["window_rows"]) == ("adopted", 1, 930)


async def test_a_window_set_during_the_warm_up_begins_there(
    works: Any, inside: Any, grid: np.ndarray, small: Any
) -> None:
    """Rows that came while the stream kept no window may be trimmed, and are no part of it."""
    works.begin(checkpoint_points=1)
    stream, _ = await works.registry.create("s", {**small, "refinement": None, "window": 0})
    await works.feed(grid[:70], cut=10)
    await stream.change({"window": 2000})
    await works.feed(grid[70:1000])
    assert works.entries()[0].seq > 1, "the first rows are trimmed"
    done = await refined(works)
    assert (done.state, done.attempts, done.report["window_rows"]) == ("adopted", 1, 930)


async def test_a_window_with_too_few_rows_is_refused_with_its_reason_and_not_tried_again(
    works: Any, inside: Any, grid: np.ndarray, small: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = worker.write_window

    def shortened(path: Path, batches: Any) -> None:
        write(path, list(batches)[1:])

    monkeypatch.setattr(worker, "write_window", shortened)
    works.begin()
    await works.registry.create("s", {**small, "refinement": None})
    await works.feed(grid[:1000])
    done = await refined(works)
    assert (done.state, done.attempts) == ("not-adopted", 1)
    assert done.reason == "the window has 1,000 rows, but the log holds only 900 of them"
