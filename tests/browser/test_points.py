"""Points that are pasted or dropped: read as other programs wrote them, scored, and stored once."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from browser.conftest import put
from harness.browser import DESK, PHONE, Tab, Visit
from harness.running_service import RunningService
from harness.web import WEB

pytestmark = pytest.mark.system

READ = """async bytes => {
    const {readFile} = await import("/static/dashboard/readers.js");
    try {
        const table = await readFile(new File([new Uint8Array(bytes)], "x"));
        return {...table, data: [...table.data].map(x => Number.isNaN(x) ? null : x)};
    } catch (error) { return {error: error.message}; }
}"""


@pytest.fixture(scope="module")
def page(context: Any, service: RunningService) -> Any:
    visit = Visit(Tab(context), service.url)
    yield visit.open("/s/gauge/try")
    visit.close()


def npy(array: np.ndarray, folder: Path) -> bytes:
    np.save(folder / "x.npy", array)
    return (folder / "x.npy").read_bytes()


@pytest.mark.parametrize("dtype", ["<f8", ">f8", "<f4", "<i8", ">i4", "<i2", "|i1", "<u8", "|u1", "|b1"])
def test_arrays_of_numpy_are_read_as_numpy_reads_them(page: Any, tmp_path: Path, dtype: str) -> None:
    x = np.random.default_rng(1).integers(0, 100, size=(7, 3)).astype(dtype)
    for array in (x, np.asfortranarray(x)):
        found = page.evaluate(READ, list(npy(array, tmp_path)))
        assert (found["n"], found["d"]) == (7, 3)
        assert found["data"] == x.astype(float).ravel().tolist()


@pytest.mark.parametrize("codec", ["NONE", "SNAPPY"])
def test_parquet_is_read_as_arrow_wrote_it(page: Any, tmp_path: Path, codec: str) -> None:
    rng = np.random.default_rng(2)
    columns = {
        "a": rng.normal(size=500),
        "b": rng.integers(9, size=500).astype("i4"),
        "key": [f"k{i}" for i in range(500)],
    }
    table = pa.table({**columns, "words": ["x"] * 500})
    pa.parquet.write_table(table, tmp_path / "x.parquet", compression=codec, row_group_size=200)
    found = page.evaluate(READ, list((tmp_path / "x.parquet").read_bytes()))
    assert (found["names"], found["skipped"]) == (["a", "b"], ["words"])
    assert found["keys"] == columns["key"]
    np.testing.assert_array_equal(np.reshape(found["data"], (500, 2)), np.column_stack([columns["a"], columns["b"]]))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,2\n3,4\n", {"n": 2, "d": 2, "data": [1, 2, 3, 4], "names": None}),
        ("x;y\r\n1;2\r\n3;-4e-1", {"n": 2, "d": 2, "data": [1, 2, 3, -0.4], "names": ["x", "y"]}),
        ("1 2  3", {"n": 1, "d": 3, "data": [1, 2, 3]}),
        ('key,a,note\n"k, 1",1,"says ""x"""\nk2,2,b', {"keys": ["k, 1", "k2"], "data": [1, 2], "skipped": ["note"]}),
        ("a,b\n1,\n3,4", {"data": [1, None, 3, 4]}),
        ("[[1, 2], [3, 4]]", {"n": 2, "d": 2, "data": [1, 2, 3, 4]}),
        ('{"points": [[1, 2]], "keys": ["a"]}', {"keys": ["a"], "data": [1, 2]}),
        ("[1, 2]\n[3, 4]", {"n": 2, "data": [1, 2, 3, 4]}),
        ('{"cpu": 1, "mem": 2}\n{"cpu": 3, "mem": 4}', {"names": ["cpu", "mem"], "data": [1, 2, 3, 4]}),
        ("1,2\n3", {"error": "Line 2 has 1 values, the first line has 2."}),
        ("hello", {"error": "“hello” is not a number. Paste one point a line."}),
        ("[[1, 2], [3]]", {"error": "Point 2 has not 2 numbers as the first one."}),
        ("\n", {"error": "There is nothing to read. Paste one point a line."}),
        ("\x93NUMPY\x01\x00", {"error": True}),
    ],
)  # fmt: skip
def test_text_is_read_or_refused_in_words(page: Any, text: str, expected: dict[str, Any]) -> None:
    raw = text.encode("latin-1") if text.startswith("\x93") else text.encode()
    found = page.evaluate(READ, list(raw))
    for name, value in expected.items():
        assert bool(found[name]) if value is True else found[name] == value, found


def test_scores_are_those_of_the_service(page: Any, service: RunningService) -> None:
    points = np.random.default_rng(3).normal(size=(5, 6)).round(3)
    page.locator("#points").fill("\n".join(", ".join(map(str, row)) for row in points))
    page.get_by_role("button", name="Score").click()
    page.locator(".scores tbody tr").nth(4).wait_for()
    told = WEB.post(f"{service.url}/streams/gauge/score", json={"points": points.tolist()}).json()
    rows = [row.split("\t") for row in page.locator(".scores tbody tr").all_inner_texts()]
    assert [row[1].strip() for row in rows] == [str(one) for one in told["components"]]
    np.testing.assert_allclose([float(row[3]) for row in rows], told["log_density"], rtol=5e-3)
    page.set_viewport_size(PHONE)
    try:
        sizes = page.locator(".scroll", has=page.locator(".scores")).evaluate(
            "(one) => [one.scrollWidth, one.clientWidth]"
        )
        assert sizes[0] <= sizes[1], "the table of scores scrolls sideways on a phone"
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    finally:
        page.set_viewport_size(DESK)


def test_columns_are_put_in_the_order_of_the_features(visit: Callable[..., Visit], service: RunningService) -> None:
    put(service, "named", feature_names=["cpu", "mem"])
    opened = visit(walk=True)
    page = opened.open("/s/named/try")
    page.locator(".state.live").wait_for()
    page.locator("#points").fill("mem,note,cpu\n10,a,1\n20,b,2\n")
    page.get_by_role("button", name="Learn").click()
    page.locator("p", has_text="2 points stored and learned.").wait_for()
    assert WEB.get(f"{service.url}/streams/named/sample").json()["points"] == [[1.0, 10.0], [2.0, 20.0]]


def test_what_the_service_refuses_is_told(visit: Callable[..., Visit], service: RunningService) -> None:
    opened = visit()
    opened.expected = ("400", "422")
    page = opened.open("/s/gauge/try")
    page.locator("#points").fill("1, 2")
    page.get_by_role("button", name="Score").click()
    page.locator(".error", has_text="6").wait_for()
    assert "features" in page.locator(".error").inner_text()


def test_a_file_is_stored_in_batches_each_of_them_once(
    visit: Callable[..., Visit], service: RunningService, tmp_path: Path
) -> None:
    """Two of the answers are lost on the way, after the service has stored the batch."""
    put(service, "dropped", n_features=2)
    x = np.random.default_rng(5).normal(size=(25_000, 2))
    np.save(tmp_path / "x.npy", x)
    opened = visit()
    opened.expected = ("Failed to load resource", "net::ERR")
    page = opened.open("/s/dropped/try")
    lost = iter([1, 2])

    def lose(route: Any) -> None:
        if next(lost, None) is None:
            route.continue_()
        else:
            route.fetch()
            route.abort()

    page.route("**/streams/dropped/ingest", lose)
    page.set_input_files("#file", tmp_path / "x.npy")
    page.locator(".caption", has_text="25,000 points of 2 features").wait_for()
    page.get_by_role("button", name="Learn").click()
    page.locator("p", has_text="25,000 points stored and learned.").wait_for(timeout=60_000)
    assert WEB.get(f"{service.url}/streams/dropped").json()["log_offset"] == 25_000
    newest = WEB.get(f"{service.url}/streams/dropped/sample?n=3").json()["points"]
    assert newest == x[-3:].tolist()


def test_a_file_can_be_dropped_with_its_keys(page: Any, service: RunningService) -> None:
    put(service, "keyed", n_features=2)
    page.goto(f"{service.url}/#/s/keyed/try")
    text = "key,x,y\nfirst,1,2\nsecond,3,4\n"
    handle = page.evaluate_handle(
        "text => { const d = new DataTransfer(); d.items.add(new File([text], 'keys.csv')); return d; }", text
    )
    page.dispatch_event(".drop", "drop", {"dataTransfer": handle})
    page.locator(".caption", has_text="2 points of 2 features, with keys").wait_for()
    page.get_by_role("button", name="Learn").click()
    page.locator("p", has_text="2 points stored and learned.").wait_for()
    record = WEB.get(f"{service.url}/streams/keyed/records/second").json()
    assert (record["key"], record["log_offset"]) == ("second", 2)
    assert json.dumps(record["payload"]) == "null"


def test_points_of_a_file_are_scored_when_the_file_is_read(
    visit: Callable[..., Visit], service: RunningService, tmp_path: Path
) -> None:
    """Until then nothing can be pressed: the answer was that there is nothing to read."""
    x = np.random.default_rng(6).normal(size=(40, 6))
    pa.parquet.write_table(pa.table({f"feature {j}": x[:, j] for j in range(6)}), tmp_path / "x.parquet")
    opened = visit()
    page = opened.open("/s/gauge/try")
    reader: list[Any] = []
    page.route("**/hyparquet/index.js", lambda route: reader.append(route))
    page.set_input_files("#file", tmp_path / "x.parquet")
    page.locator("button:disabled", has_text="Score").wait_for(timeout=10_000)
    for _ in range(1000):
        if reader:
            break
        page.wait_for_timeout(20)
    reader[0].continue_()
    page.get_by_role("button", name="Score").click()
    page.locator("p", has_text="Mean log density").wait_for()
