"""Names of features in files, data frames, and what `shoal components` shows, against the real service."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_shoal import Deliver, FaultyTransport
from typer.testing import Result

from shoal_service.client import BadPointsError, Client, InvalidRequestError, Records

Shoal = Callable[..., Result]
X = np.array([[0.0, 1.0], [50.0, 2.0], [0.5, 1.5], [50.5, 2.5]])


@pytest.fixture
def asked(shoal: Shoal, serve_on_loopback: Callable[[Deliver], str], real_shoal: Deliver) -> Shoal:
    url = serve_on_loopback(real_shoal)
    return lambda *arguments, **more: shoal(*arguments, "--url", url, **more)


def written(folder: Path, kind: str, names: list[str], x: np.ndarray = X) -> Path:
    """The points in a file of a kind that has names."""
    path = folder / f"{'-'.join(names)}.{kind}"
    if kind == "csv":
        lines = [",".join(names), *(",".join(map(str, row)) for row in x.tolist())]
        path.write_text("\n".join(lines))
    elif kind == "ndjson":
        path.write_text("\n".join(json.dumps(dict(zip(names, row, strict=True))) for row in x.tolist()))
    else:
        pa = pytest.importorskip("pyarrow")
        import pyarrow.parquet

        table = pa.table({name: x[:, i] for i, name in enumerate(names)})
        if kind == "parquet":
            pyarrow.parquet.write_table(table, path)
        else:
            with pa.ipc.new_file(str(path), table.schema) as out:
                out.write_table(table)
    return path


def names_of(asked: Shoal, stream: str) -> Any:
    return json.loads(asked("streams", "show", stream, "--json").stdout)["settings"]["feature_names"]


@pytest.mark.parametrize("kind", ["csv", "ndjson", "parquet", "arrow"])
def test_a_file_gives_its_names_and_another_order_is_put_right(asked: Shoal, tmp_path: Path, kind: str) -> None:
    stream = f"file-{kind}"
    sent = asked("ingest", written(tmp_path, kind, ["cpu", "mem"]), "--stream", stream, "--create", "--wait")
    assert sent.exit_code == 0, sent.output
    assert names_of(asked, stream) == ["cpu", "mem"]
    other = written(tmp_path, kind, ["mem", "cpu"], X[:, ::-1])
    assert asked("ingest", other, "--stream", stream, "--wait").exit_code == 0
    found = json.loads(asked("components", "--stream", stream, "--json").stdout)
    assert found["feature_names"] == ["cpu", "mem"]
    assert max(c["mean"][0] for c in found["components"]) > 20 > max(c["mean"][1] for c in found["components"])
    one, two = (asked("predict", f, "--stream", stream) for f in (written(tmp_path, kind, ["cpu", "mem"]), other))
    assert one.exit_code == 0, one.output
    assert one.stdout == two.stdout
    wrong = asked("ingest", written(tmp_path, kind, ["cpu", "mme"]), "--stream", stream)
    assert wrong.exit_code == 4
    assert "no feature 'mem'" in wrong.stderr
    assert "did you mean 'mem'?" in wrong.stderr


def test_records_with_named_points_are_read_from_a_file(asked: Shoal, tmp_path: Path) -> None:
    path = tmp_path / "named.ndjson"
    lines = [{"point": {"cpu": 1.0, "mem": 2.0}, "key": "a"}, {"point": {"mem": 4.0, "cpu": 3.0}, "key": "b"}]
    path.write_text("\n".join(map(json.dumps, lines)))
    sent = asked("ingest", path, "--stream", "named-points", "--create", "--wait")
    assert sent.exit_code == 0, sent.output
    assert names_of(asked, "named-points") == ["cpu", "mem"]
    assert json.loads(asked("records", "get", "b", "--stream", "named-points", "--json").stdout)["log_offset"] == 2


def test_columns_that_share_a_name_and_files_without_names_have_none(asked: Shoal, tmp_path: Path) -> None:
    same = tmp_path / "same.csv"
    same.write_text("a,a\n1,2\n3,4\n")
    bare = tmp_path / "bare.csv"
    bare.write_text("1,2\n3,4\n")
    for path in (same, bare):
        assert asked("ingest", path, "--stream", path.stem, "--create", "--wait").exit_code == 0
        assert names_of(asked, path.stem) is None


def test_objects_with_text_ask_for_the_columns(asked: Shoal, tmp_path: Path) -> None:
    path = tmp_path / "mixed.ndjson"
    path.write_text('{"host": "a", "cpu": 1, "mem": 2}\n')
    said = asked("ingest", path, "--stream", "mixed", "--create")
    assert said.exit_code == 2
    assert "field 'host' is no number" in said.stderr
    assert "--columns cpu,mem" in said.stderr


def test_components_show_names_and_labels(asked: Shoal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked("ingest", written(tmp_path, "csv", ["cpu", "mem"]), "--stream", "shown", "--create", "--wait")
    header, *lines = [line.split("\t") for line in asked("components", "--stream", "shown").stdout.splitlines()]
    assert header[-1] == "mean[cpu,mem]"
    first = lines[0][0]
    said = asked("label", first, "idle [bold] hosts", "--note", "since May", "--stream", "shown")
    assert (said.exit_code, said.stdout) == (0, f"component {first}: idle [bold] hosts (since May)\n")
    header, *lines = [line.split("\t") for line in asked("components", "--stream", "shown").stdout.splitlines()]
    assert header[-2:] == ["mean[cpu,mem]", "label"]
    assert {line[0]: line[-1] for line in lines}[first] == "idle [bold] hosts"
    monkeypatch.setenv("COLUMNS", "80")
    for module in ("components", "clusters"):
        monkeypatch.setattr(f"shoal_service.cli.{module}.for_people", lambda: True)
        table = asked(module, "--stream", "shown").stdout
        assert {"idle", "[bold]", "hosts"} <= set(table.split())
        assert max(map(len, table.splitlines())) <= 80
    assert {"cpu", "mem"} <= set(asked("components", "--stream", "shown").stdout.split())
    assert json.loads(asked("label", first, "--remove", "--json", "--stream", "shown").stdout)["label"] is None
    for wrong in (("--remove", "--note", "x"), ()):
        assert asked("label", first, *wrong, "--stream", "shown").exit_code == 2
    assert asked("label", 999, "x", "--stream", "shown").exit_code == 4


@pytest.mark.parametrize("kind", ["msgpack", "ndjson", "arrow"])
def test_a_data_frame_gives_its_names(real_shoal: Deliver, kind: Any) -> None:
    pa = pytest.importorskip("pyarrow")
    with Client("http://127.0.0.1", f"frame-{kind}", transport=FaultyTransport(real_shoal)) as client:
        frame = pa.table({"cpu": X[:, 0], "mem": X[:, 1]})
        turned = pa.table({"mem": X[:, 1], "cpu": X[:, 0]})
        done = client.ingest(iter([frame, turned, X]), batch_size=3, wait="applied", format=kind, create=True)
        assert done.accepted == 12
        assert client.stream_info(f"frame-{kind}").settings["feature_names"] == ["cpu", "mem"]
        found = client.components()
        assert found.feature_names == ("cpu", "mem")
        assert max(found.means[:, 0]) > 20 > max(found.means[:, 1])
        plain = client.predict(X)
        np.testing.assert_array_equal(client.predict(turned, format=kind).log_density, plain.log_density)
        np.testing.assert_array_equal(client.predict(Records(turned)).components, plain.components)
        with pytest.raises(InvalidRequestError, match="unknown feature 'disk'"):
            client.ingest(pa.table({"cpu": X[:, 0], "disk": X[:, 1]}), format=kind)
        with pytest.raises(BadPointsError, match="'disk' is in one only"):
            client.ingest([frame, pa.table({"cpu": X[:, 0], "disk": X[:, 1]})])
