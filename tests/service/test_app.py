"""The application as a whole: what it is built from, and what running it for real adds."""

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import structlog
from fastapi import FastAPI

from harness.ports import free_port
from harness.running_service import RunningService
from harness.waiting import LONGEST_WAIT_S
from shoal.errors import SettingError
from shoal_service.access import AccessControl, Grant, Scope
from shoal_service.app import create_app, open_store, serve
from shoal_service.errors import StoreInUseError
from shoal_service.server import check_exposure, warn_if_open
from shoal_service.settings import Settings, load_settings
from shoal_service.store import SqliteStore

SERVE = "from shoal_service.app import serve; from shoal_service.settings import load_settings; serve(load_settings())"


def test_importing_the_application_starts_nothing_and_loads_no_compiler() -> None:
    code = (
        "import sys, threading, shoal_service.app;"
        "print(threading.active_count(), 'numba' in sys.modules, 'scipy' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment())
    assert found.stdout.split() == ["1", "False", "False"]


def environment(**settings: object) -> dict[str, str]:
    import os

    paths = [path for path in sys.path if path]
    named = {f"SHOAL_{name.upper()}": str(value) for name, value in settings.items()}
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **named}


def test_the_store_is_the_one_that_settings_name(tmp_path: Path) -> None:
    memory = open_store(Settings(store="memory"))
    assert memory.describe().startswith("memory")
    sqlite = open_store(Settings(data_dir=tmp_path))
    assert isinstance(sqlite, SqliteStore)
    sqlite.close()


def test_two_applications_over_one_folder_are_one_too_many(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    app = create_app(settings)
    with pytest.raises(StoreInUseError):
        create_app(settings)
    app.state.service.store.close()


@pytest.mark.parametrize(
    "host",
    [
        "0.0.0.0",
        "::",
        "[::]",
        "",
        "192.168.1.7",
        "fe80::1",
        "example.org",
        "localhost.example.org",
        "127.1",
        "::ffff:10.0.0.1",
    ],
)
def test_an_address_beyond_loopback_needs_a_key_or_to_be_said_aloud(host: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with pytest.raises(SettingError, match=r"SHOAL_ADMIN_KEY_FILE.*--insecure"):
        serve(load_settings(host=host, data_dir=folder))
    assert not folder.exists(), "a refused start creates nothing"
    check_exposure(load_settings(host=host, insecure=True), has_keys=False)
    check_exposure(load_settings(host=host), has_keys=True)
    check_exposure(load_settings(host=host), has_keys=None)  # not known yet: requests need a key
    with pytest.raises(SettingError, match="shoal keys create"):
        check_exposure(load_settings(host=host), has_keys=False)


def test_a_service_with_a_key_may_be_reached_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[Settings, tuple[str, ...]]] = []

    def run(app: FastAPI, settings: Settings, store: str, *lines: str, on_stop: object) -> None:
        assert app.state.service.access.required
        app.state.service.store.close()
        begun.append((settings, lines))

    monkeypatch.setattr("shoal_service.app.run", run)
    store = SqliteStore(tmp_path / "made")
    AccessControl(store).create("admin", Grant(Scope.ADMIN))
    store.close()
    serve(load_settings(host="0.0.0.0", data_dir=tmp_path / "made"))
    assert begun[-1][1] == ("access keys are needed",)

    path = tmp_path / "admin.key"
    for _ in range(2):  # the first start makes the key, the second finds it
        serve(load_settings(host="0.0.0.0", data_dir=tmp_path / "new", admin_key_file=path))
        assert begun[-1][1] == (f"access keys are needed; to read the admin key: cat {path}",)
    assert path.read_text().startswith("shoal_")
    assert path.read_text().strip() not in str(begun)
    with pytest.raises(SettingError, match="20 to 512"):
        serve(load_settings(host="0.0.0.0", data_dir=tmp_path / "new", admin_key="short"))


def test_a_refused_start_gives_its_folder_back(tmp_path: Path) -> None:
    SqliteStore(tmp_path).close()
    with pytest.raises(SettingError, match="no access key"):
        serve(load_settings(host="0.0.0.0", data_dir=tmp_path))
    SqliteStore(tmp_path).close()


@pytest.mark.parametrize(("host", "lines"), [("0.0.0.0", 1), ("127.0.0.1", 0)])
def test_an_open_address_is_said_aloud(host: str, lines: int) -> None:
    log = structlog.testing.CapturingLogger()
    warn_if_open(load_settings(host=host, insecure=True), log)
    assert len(log.calls) == lines
    assert all("delete every stream" in call.kwargs["message"] for call in log.calls)


@pytest.fixture
def port() -> int:
    return free_port()


def test_a_real_process_says_where_it_listens_serves_and_ends_with_0(tmp_path: Path, port: int) -> None:
    settings = environment(port=port, data_dir=tmp_path / "data", shutdown_s=600)
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE], env=settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        said = process.stdout.readline() + process.stdout.readline()
        assert f"http://127.0.0.1:{port}" in said
        assert str(tmp_path / "data") in said
        url = f"http://127.0.0.1:{port}"
        assert httpx.get(f"{url}/healthz", timeout=LONGEST_WAIT_S).status_code == 200
        for n in range(3):
            assert (
                httpx.post(f"{url}/ingest", json={"points": [[float(n), 1.0]]}, timeout=LONGEST_WAIT_S).status_code
                == 202
            )
        large = b'{"points": [' + b"[1.0, 2.0]," * 20_000 + b"[1.0, 2.0]]}"
        assert (
            httpx.post(
                f"{url}/ingest", content=large, headers={"Content-Type": "application/json"}, timeout=LONGEST_WAIT_S
            ).status_code
            == 202
        )
        cut_off(port)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=LONGEST_WAIT_S)
        assert process.returncode == 0, errors
        lines = [json.loads(line) for line in errors.splitlines()]
        assert [line["event"] for line in lines].count("request_cut_off") == 1
        assert "Traceback" not in errors
    finally:
        process.kill()
        process.communicate()


def test_a_body_that_is_half_received_delays_no_end_and_leaves_no_traceback(tmp_path: Path) -> None:
    service = RunningService(tmp_path / "data", {"shutdown_s": 60})
    service.start()
    try:
        assert (
            httpx.post(f"{service.url}/ingest", json={"points": [[0.0, 1.0]]}, timeout=LONGEST_WAIT_S).status_code
            == 202
        )
        with socket.create_connection(("127.0.0.1", service.port)) as connection:
            connection.sendall(HALF_A_REQUEST)
            has_read(service.port)
            assert service.process is not None
            service.process.send_signal(signal.SIGTERM)
            connection.settimeout(LONGEST_WAIT_S)
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
        code, said = service.terminate(), service.log.read_text()
        assert answer.startswith(b"HTTP/1.1 503 "), answer
        assert b"/problems/not-ready" in answer
        assert code == 0, said
        assert "Traceback" not in said
        events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
        (stopped,) = [line for line in events if line["event"] == "service_stopped"]
        assert stopped["drained"] is True
    finally:
        service.kill()


HALF_A_REQUEST = (
    b"POST /ingest HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n"
    b'{"points": [['
)


def cut_off(port: int) -> None:
    """Announce a body, send half of it, and go."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(HALF_A_REQUEST)
        has_read(port)
    has_read(port)


def has_read(port: int) -> None:
    """The server has read all that other connections sent before: it answers two requests that came later."""
    for _ in range(2):
        assert httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=LONGEST_WAIT_S).status_code == 200


def test_a_port_that_is_taken_is_said_in_one_line(tmp_path: Path) -> None:
    service = RunningService(tmp_path / "data")
    with socket.create_server(("127.0.0.1", service.port)):
        service.launch()
        assert service.process is not None
        assert service.process.wait(LONGEST_WAIT_S) == 6
    said = service.log.read_text()
    last = said.strip().splitlines()[-1]
    assert last.startswith("error: cannot listen on 127.0.0.1")
    assert last.count("127.0.0.1") == 1
    assert "Traceback" not in said
