"""Files as sources: one that grows, a folder of Parquet, and a file or standard input with its rows counted."""

import io
import os
import random
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from typer.testing import CliRunner

from shoal_service.cli.connectors import BadMessages, Connector, Progress, SourceAwayError, Step
from shoal_service.cli.connectors import follow as follow_module
from shoal_service.cli.connectors.follow import FileFollower
from shoal_service.cli.connectors.lines import LineDecoder
from shoal_service.cli.connectors.parquet_folder import ParquetFolderReader
from shoal_service.cli.connectors.whole_file import WholeFileReader
from shoal_service.cli.embedding import TextFile
from shoal_service.cli.exits import CommandError, ExitCode
from shoal_service.cli.readers import BadRows, Categories, ReadOptions, open_points
from shoal_service.cli.root import app
from shoal_service.client import Client
from shoal_service.logs import make_log

LOG = make_log("error")


def bad_rows(*, stops: bool = True) -> BadMessages:
    return BadMessages("file", stops=stops, takes_holes=lambda: False, log=LOG)


class Follower:
    """A follower that is killed and begun again at will; what it gave is what a log would hold."""

    def __init__(self, path: Path, options: ReadOptions | None = None, *, count: int = 10, stops: bool = True) -> None:
        self._path, self._options, self._count, self._stops = path, options or ReadOptions(), count, stops
        self.positions: dict[str, str] = {}
        self.points: list[list[float]] = []
        self.reader: FileFollower | None = None
        self.start()

    def close(self) -> None:
        if self.reader is not None:
            self.reader.close()

    def start(self) -> None:
        self.close()
        decoder = LineDecoder(self._path.name, self._options, bad_rows(stops=self._stops))
        self.reader = FileFollower(self._path, decoder, LOG, count=self._count)
        self.reader.begin(self.positions)

    def take(self) -> int:
        """Read and store one step. Returns the number of its records."""
        assert self.reader is not None
        step = self.reader.read()
        if step is None:
            return 0
        self.positions[step.partition] = step.after
        self.points += [] if step.points is None else step.points.points.tolist()
        return step.n_records

    def drain(self) -> None:
        """Read until nothing comes for a while, also over a change of files."""
        for _ in range(30):
            while self.take():
                pass


Begin = Callable[..., Follower]


@pytest.fixture
def following() -> Iterator[Begin]:
    made: list[Follower] = []

    def begin(*arguments: Any, **options: Any) -> Follower:
        made.append(Follower(*arguments, **options))
        return made[-1]

    yield begin
    for follower in made:
        follower.close()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow_module, "POLL_S", 0.002)
    monkeypatch.setattr(follow_module, "QUIET_S", 0.004)


def write(path: Path, first: int, n: int, end: str = "\n") -> None:
    with path.open("a") as file:
        file.write("".join(f"[{i},{-i}]\n" for i in range(first, first + n))[:-1] + end)


def numbers(n: int, first: int = 0) -> list[list[float]]:
    return [[float(i), float(-i)] for i in range(first, first + n)]


def test_lines_are_taken_once_they_are_whole(tmp_path: Path, following: Begin) -> None:
    path = tmp_path / "a.ndjson"
    follower = following(path)
    assert follower.take() == 0  # it is not there yet
    write(path, 0, 25, end="")
    follower.drain()
    assert follower.points == numbers(24)
    write(path, 25, 1, end="\n")  # the line before has no end: "[24,-24][25,-25]"
    with pytest.raises(CommandError, match="at byte"):
        follower.drain()


def test_a_file_is_followed_over_rotations_while_it_runs_and_while_it_does_not(
    tmp_path: Path, following: Begin
) -> None:
    rng = random.Random(4)
    path = tmp_path / "a.ndjson"
    follower, written = following(path), 0
    for round_ in range(24):
        n = rng.randrange(1, 30)
        write(path, written, n)
        written += n
        if rng.random() < 0.5:
            follower.take()
        if rng.random() < 0.3:
            follower.start()
        if round_ % 3 == 2:
            for number in range(9, 0, -1):
                if (older := tmp_path / f"a.ndjson.{number}").exists():
                    older.rename(tmp_path / f"a.ndjson.{number + 1}")
            path.rename(tmp_path / "a.ndjson.1")
            os.utime(tmp_path / "a.ndjson.1", ns=(0, round_ * 10**9))
    write(path, written, 3)
    follower.drain()
    assert follower.points == numbers(written + 3)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_file_that_is_copied_and_truncated_is_followed(tmp_path: Path, following: Begin, restarted: bool) -> None:
    path = tmp_path / "a.ndjson"
    write(path, 0, 25)
    follower = following(path)
    follower.take()
    shutil.copy(path, tmp_path / "a.ndjson.1")
    os.truncate(path, 0)
    if restarted:
        follower.start()
    write(path, 25, 400)  # longer than before
    follower.drain()
    assert follower.points == numbers(425)


def test_a_file_that_is_truncated_is_read_from_its_beginning(tmp_path: Path, following: Begin) -> None:
    path = tmp_path / "a.ndjson"
    write(path, 0, 25)
    follower = following(path)
    follower.drain()
    path.write_text("")
    write(path, 25, 400)
    follower.drain()
    assert follower.points == numbers(425)


def test_columns_of_csv_have_their_names_after_a_restart(tmp_path: Path, following: Begin) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x,y,host\n" + "".join(f"{i},{-i},h\n" for i in range(15)))
    follower = following(path, ReadOptions(columns="y,x"))
    follower.take()
    follower.start()
    follower.drain()
    assert follower.points == [[-x, x] for x, _ in numbers(15)]


def test_a_file_that_cannot_be_read_or_goes_between_two_looks_is_away(
    tmp_path: Path, following: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connector used to end, for example where a rotation deleted an old file at the wrong moment."""
    path = tmp_path / "grows.ndjson"
    write(path, 0, 5)
    one = following(path)
    one.drain()
    path.rename(tmp_path / "grows.ndjson.1")
    write(path, 5, 5)
    rotated = FileFollower._rotated
    with monkeypatch.context() as patched:
        patched.setattr(FileFollower, "_rotated", lambda self: [*rotated(self), tmp_path / "grows.ndjson.2"])
        with pytest.raises(SourceAwayError, match=r"grows\.ndjson\.2 cannot be read: No such file"):
            one.drain()
    assert one.reader is not None
    one.reader.begin(one.positions)
    one.drain()
    assert one.points == numbers(10)
    path.unlink()
    path.symlink_to(path)
    with pytest.raises(SourceAwayError, match=r"grows\.ndjson cannot be read: Too many levels of symbolic links"):
        following(path)


def test_a_line_without_an_end_is_refused_and_does_not_fill_the_memory(
    tmp_path: Path, following: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow_module, "READ_BYTES", 100)
    monkeypatch.setattr(follow_module, "LONGEST_LINE_BYTES", 1000)
    path = tmp_path / "grows.ndjson"
    write(path, 0, 2)
    n_bytes = path.stat().st_size
    with path.open("ab") as file:
        file.write(b"x" * 5000)
    one = following(path)
    with pytest.raises(CommandError, match=f"a line of more than 1000 bytes at byte {n_bytes}"):
        one.drain()
    assert one.points == numbers(2)


def test_bad_lines_are_skipped_and_a_position_of_another_kind_is_refused(tmp_path: Path, following: Begin) -> None:
    path = tmp_path / "a.ndjson"
    path.write_bytes(b"[0,0]\nno\n\xff\n\n[1,-1]\n")
    follower = following(path, stops=False)
    follower.drain()
    assert follower.points == numbers(2)
    follower.positions = {"a.ndjson": "row:5"}
    with pytest.raises(CommandError, match="no place in a file"):
        follower.start()


# -- Parquet


def all_points(reader: Any, positions: dict[str, str], most: int = 10**6) -> list[list[float]]:
    """The points of up to `most` steps, whose positions are kept."""
    reader.begin(positions)
    found: list[list[float]] = []
    for _ in range(most):
        step: Step | None = reader.read()
        if step is None:
            break
        positions[step.partition] = step.after
        found += [] if step.points is None else step.points.points.tolist()
    return found


def test_parquet_files_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

    def save(name: str, first: int, n: int) -> None:
        x = np.array(numbers(n, first))
        parquet.write_table(pa.table({"x": x[:, 0], "y": x[:, 1]}), tmp_path / name, row_group_size=7)

    save("2026-01.parquet", 0, 20)
    save("2026-02 b%.parquet", 20, 3)
    (tmp_path / ".part.parquet").write_bytes(b"not whole")
    positions: dict[str, str] = {}
    found: list[list[float]] = []
    for count in (5, 3, 100, 4):  # begun again, with batches of another size
        reader = ParquetFolderReader(tmp_path, bad_rows(), LOG, count=count, once=True)
        found += all_points(reader, positions, most=2)
    found += all_points(ParquetFolderReader(tmp_path, bad_rows(), LOG, once=True), positions)
    assert found == numbers(23)
    assert positions["files"].startswith("2026-02%20b%25.parquet:1:0:")
    save("2026-01b.parquet", 99, 1)  # too late
    save("2026-03.parquet", 23, 9)
    reader = ParquetFolderReader(tmp_path, bad_rows(), LOG, once=True)
    assert all_points(reader, positions) == numbers(9, 23)
    assert reader.ended


@pytest.mark.parametrize("position", ["1.parquet:1:3", "1.parquet:2:0", "1.parquet:0:3"])
def test_a_position_that_a_parquet_file_does_not_have_is_refused(tmp_path: Path, position: str) -> None:
    """A file in the place of another one would be skipped without a word."""
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table({"a": [1.0, 2.0], "b": [2.0, 3.0]}), tmp_path / "1.parquet")
    reader = ParquetFolderReader(tmp_path, bad_rows(), LOG, once=True)
    reader.begin({"files": position})
    with pytest.raises(CommandError, match="another file than the one that was read"):
        reader.read()


@pytest.mark.parametrize("position", ["1.parquet:0", "1.parquet:a:0", "1.parquet:-1:0", "1.parquet:0:-1"])
def test_a_position_that_is_none_of_a_parquet_file_is_refused(tmp_path: Path, position: str) -> None:
    pytest.importorskip("pyarrow")
    with pytest.raises(CommandError, match="no row of a Parquet file"):
        ParquetFolderReader(tmp_path, bad_rows(), LOG, once=True).begin({"files": position})


def test_a_parquet_file_that_was_read_to_its_end_is_not_read_again(tmp_path: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table({"a": [1.0, 2.0], "b": [2.0, 3.0]}), tmp_path / "1.parquet")
    for position in ("1.parquet:1:0", "1.parquet:0:2"):
        reader = ParquetFolderReader(tmp_path, bad_rows(), LOG, once=True)
        reader.begin({"files": position})
        assert reader.read() is None


def test_a_folder_of_parquet_that_is_away_is_tried_again(tmp_path: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    folder = tmp_path / "in"
    folder.mkdir()
    parquet.write_table(pa.table({"a": [1.0], "b": [2.0]}), folder / "1.parquet")
    reader = ParquetFolderReader(folder, bad_rows(), LOG, once=True)
    folder.rename(tmp_path / "away")
    with pytest.raises(SourceAwayError, match="cannot be read: No such file or directory"):
        reader.read()
    with pytest.raises(SourceAwayError):
        reader.begin({"files": "0.parquet:1:0"})
    (tmp_path / "away").rename(folder)
    reader.begin({"files": "0.parquet:1:0"})
    step = reader.read()
    assert step is not None
    assert step.after.startswith("1.parquet:1:0:")


def test_files_of_the_same_names_in_another_folder_are_not_mistaken_for_those_that_were_read(
    tmp_path: Path,
) -> None:
    """They were skipped without a word: all folders have one --source by default."""
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    a, b = tmp_path / "a", tmp_path / "b"
    for folder, first in ((a, 0), (b, 40)):
        folder.mkdir()
        x = np.array(numbers(20, first))
        parquet.write_table(pa.table({"x": x[:, 0], "y": x[:, 1]}), folder / "1.parquet", row_group_size=7)
    positions: dict[str, str] = {}
    assert all_points(ParquetFolderReader(a, bad_rows(), LOG, count=5, once=True), positions, most=2) == numbers(7)
    for moved in (False, True):
        with pytest.raises(CommandError, match=r"1\.parquet of another folder than .*; choose another --source"):
            ParquetFolderReader(b, bad_rows(), LOG, once=True).begin(positions)
        if not moved:
            a = a.rename(tmp_path / "moved")  # with its files it goes on
    assert all_points(ParquetFolderReader(a, bad_rows(), LOG, once=True), positions) == numbers(13, 7)
    (a / "1.parquet").unlink()  # read, and then removed
    assert all_points(ParquetFolderReader(a, bad_rows(), LOG, once=True), positions) == []


def test_a_parquet_file_that_is_replaced_in_the_middle_is_refused(tmp_path: Path) -> None:
    """Rows of another file of as many rows followed on those of the first."""
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

    def save(first: int) -> None:
        x = np.array(numbers(20, first))
        parquet.write_table(pa.table({"x": x[:, 0], "y": x[:, 1]}), tmp_path / "1.parquet", row_group_size=7)

    positions: dict[str, str] = {}
    save(0)
    all_points(ParquetFolderReader(tmp_path, bad_rows(), LOG, count=5, once=True), positions, most=2)
    save(40)
    with pytest.raises(CommandError, match="up to row 0 of row group 1, and is another file"):
        all_points(ParquetFolderReader(tmp_path, bad_rows(), LOG, once=True), positions)


# -- a whole file


@pytest.mark.parametrize("name", ["a.npy", "a.csv", "a.ndjson"])
def test_a_file_with_a_source_goes_on_behind_its_stored_rows(
    tmp_path: Path, name: str, real_shoal: Callable[[httpx.Request], httpx.Response]
) -> None:
    x, path = np.array(numbers(50)), tmp_path / name
    if name == "a.npy":
        np.save(path, x)
    elif name == "a.csv":
        np.savetxt(path, x, delimiter=",")
    else:
        write(path, 0, 50)
    stream = f"s{uuid.uuid4().hex}"
    client = Client(stream=stream, transport=httpx.MockTransport(real_shoal), retries=0)

    def run(stop_after: int) -> None:
        reader = WholeFileReader(
            str(path), lambda: open_points(str(path), ReadOptions(chunk_rows=9), BadRows(str(path))), count=8
        )
        connector = Connector(client, reader, "file", Progress(), LOG, create=True, may_be_missing=True)
        steps, read = [0], reader.read

        def read_some() -> Step | None:
            steps[0] += 1
            if steps[0] > stop_after:
                connector.stop()
                return None
            return read()

        reader.read = read_some  # type: ignore[method-assign]
        connector.run()
        reader.close()

    for stop_after in (2, 3, 100, 100):
        run(stop_after)
    (held,) = client.sources()
    assert (held.partition, held.log_offset) == (name, 50)
    client.wait(50)
    assert client.stream_info(stream).log_offset == 50


def test_standard_input_is_read_behind_the_stored_rows_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def reader() -> WholeFileReader:
        text = "".join(f"[{i},{-i}]\n" for i in range(12)).encode()
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
        return WholeFileReader("-", lambda: open_points("-", ReadOptions(chunk_rows=5), BadRows("stdin")), count=5)

    positions: dict[str, str] = {}
    first = reader()
    assert all_points(first, positions, most=1) == numbers(5)
    with pytest.raises(CommandError, match="cannot be read again"):
        first.begin(positions)
    second = reader()
    assert all_points(second, positions) == numbers(7, 5)
    first.close()
    second.close()
    assert positions["stdin"].startswith("line:12:")


def all_rows(path: Path, positions: dict[str, str]) -> list[list[float]]:
    name = str(path)
    reader = WholeFileReader(name, lambda: open_points(name, ReadOptions(), BadRows(name)), count=5)
    try:
        return all_points(reader, positions)
    finally:
        reader.close()


def test_another_file_of_the_same_name_is_not_skipped(tmp_path: Path) -> None:
    """Its rows up to the stored number were, without a word."""
    for folder, first in (("monday", 0), ("tuesday", 500)):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder / "day.ndjson", first, 12)
    positions: dict[str, str] = {}
    assert all_rows(tmp_path / "monday" / "day.ndjson", positions) == numbers(12)
    with pytest.raises(CommandError, match=r"another row than the one that was read up to line 12: .*another --source"):
        all_rows(tmp_path / "tuesday" / "day.ndjson", positions)
    write(tmp_path / "monday" / "day.ndjson", 12, 2)
    for stored in (positions["day.ndjson"], "line:12"):  # and one that an earlier version stored
        assert all_rows(tmp_path / "monday" / "day.ndjson", {"day.ndjson": stored}) == numbers(2, 12)


def test_a_file_of_categories_has_a_position(tmp_path: Path) -> None:
    """The command ended with an error of the format of a number."""
    path = tmp_path / "a.ndjson"
    positions: dict[str, str] = {}
    path.write_text('["red","x"]\n["blue","y"]\n')
    bad = BadRows("a.ndjson", categories=lambda: Categories("categorical"))
    rows: list[Any] = [["red", "x"], ["blue", "y"]]
    for found in (rows, []):
        reader = WholeFileReader(str(path), lambda: open_points(str(path), ReadOptions(), bad), count=5)
        try:
            assert all_points(reader, positions) == found
        finally:
            reader.close()
    assert positions["a.ndjson"].startswith("line:2:")


def test_a_file_of_texts_is_known_by_its_first_text(tmp_path: Path) -> None:
    """Embedders of texts in batches give a text other last bits beside other texts."""
    path, rng = tmp_path / "a.txt", np.random.default_rng(0)
    positions: dict[str, str] = {}

    class Noisy:
        def embed(self, texts: list[str]) -> Any:
            return rng.normal(size=(len(texts), 2))

    def n_read() -> int:
        reader = WholeFileReader(str(path), lambda: TextFile(str(path), Noisy(), BadRows("a.txt")), count=5)  # type: ignore[arg-type]
        try:
            return len(all_points(reader, positions))
        finally:
            reader.close()

    for text, n in (("one\ntwo\n", 2), ("one\ntwo\nthree\n", 1)):
        path.write_text(text)
        assert n_read() == n
    path.write_text("two\n")
    with pytest.raises(CommandError, match="begins with another row"):
        n_read()


def test_a_file_of_the_same_name_in_another_folder_is_not_followed_in_its_place(
    tmp_path: Path, following: Begin
) -> None:
    """Each of two connectors read its file again from the beginning when the other one had stored a position."""
    for folder, first in (("a", 0), ("b", 500)):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder / "log.ndjson", first, 3)
    follower = following(tmp_path / "a" / "log.ndjson")
    follower.drain()
    other = following(tmp_path / "b" / "log.ndjson")
    other.positions = dict(follower.positions)
    with pytest.raises(CommandError, match="of a file in another folder; choose another --source"):
        other.start()
    (tmp_path / "a").rename(tmp_path / "c")  # the file itself may move
    write(tmp_path / "c" / "log.ndjson", 3, 2)
    moved = following(tmp_path / "c" / "log.ndjson")
    moved.positions = {name: place.rpartition(":")[0] for name, place in follower.positions.items()}
    for _ in range(2):  # from a position of an earlier version, and from its own
        moved.start()
        moved.drain()
    assert moved.points[-2:] == numbers(2, 3)


@pytest.mark.parametrize(("name", "said"), [("a.ndjson.gz", "is compressed"), ("folder", "is a folder; give a file")])
def test_what_cannot_be_followed_is_refused(tmp_path: Path, following: Begin, name: str, said: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(CommandError, match=said):
        following(tmp_path / name).take()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-", "--follow"], "--follow needs the path of a file"),
        (["a.csv", "--follow", "--wait"], "do not go with --wait"),
        (["a.txt", "--text"], "--text needs --embed"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["ingest", *arguments])
    assert result.exit_code == ExitCode.USAGE
    assert said in " ".join(result.stderr.split())
