"""TLS with a certificate of its own: what is refused before the service listens, and what a real server speaks."""

import shutil
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from harness.ports import free_port
from harness.server_log import listening_at
from harness.shoal_command import started
from harness.waiting import LONGEST_WAIT_S
from shoal.errors import SettingError
from shoal_service.app import serve
from shoal_service.client import Client, UnreachableError
from shoal_service.settings import load_settings
from shoal_service.tls import tls_options

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes certificates with openssl")

Pair = tuple[Path, Path]


def make_pair(folder: Path, name: str, *more: str) -> Pair:
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-days", "2"]
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", *subject]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command, *(more or ("-nodes",)), *files], check=True, capture_output=True)
    return certificate, key


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_pair(tmp_path_factory.mktemp("tls"), "good")


def test_without_files_there_is_no_tls() -> None:
    assert tls_options(load_settings()) == {}


def test_files_that_do_not_fit_are_refused_before_anything_is_created(pair: Pair, tmp_path: Path) -> None:
    certificate, key = pair
    other, _ = make_pair(tmp_path, "other")
    _, locked = make_pair(tmp_path, "locked", "-passout", "pass:hunter2")
    (tmp_path / "text").write_text("this is no PEM")
    wrong: list[tuple[Path | None, Path | None, str]] = [
        (certificate, None, "tls_cert is given without tls_key"),
        (None, key, "tls_key is given without tls_cert"),
        (tmp_path / "none", key, "tls_cert .* cannot be read"),
        (certificate, tmp_path / "none", "tls_key .* cannot be read"),
        (other, key, "cannot be used together"),
        (certificate, locked, "without password"),
        (tmp_path / "text", key, "PEM"),
        (certificate, certificate, "PEM"),
    ]
    for given_certificate, given_key, words in wrong:
        data = tmp_path / "data"
        settings = load_settings(tls_cert=given_certificate, tls_key=given_key, data_dir=data, port=free_port())
        with pytest.raises(SettingError, match=words):
            serve(settings)
        assert not data.exists()


@pytest.fixture
def served(pair: Pair, tmp_path: Path) -> Iterator[str]:
    files = ["--tls-cert", str(pair[0]), "--tls-key", str(pair[1])]
    process = started(["serve", "--port", "0", *files, "--data", str(tmp_path / "data")], tmp_path / "log")
    try:
        address = listening_at(tmp_path / "log")
        assert address.startswith("https://127.0.0.1:")
        yield address
        process.send_signal(signal.SIGTERM)
        assert process.wait(LONGEST_WAIT_S) == 0
    finally:
        process.kill()


@pytest.mark.system
def test_a_server_with_a_certificate_speaks_tls_and_nothing_else(
    served: str, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusting = ssl.create_default_context(cafile=str(pair[0]))
    assert httpx.get(f"{served}/healthz", verify=trusting, timeout=LONGEST_WAIT_S).json()["status"] == "ok"
    with pytest.raises(httpx.ConnectError, match="certificate verify failed"):
        httpx.get(f"{served}/healthz")
    with pytest.raises(httpx.TransportError):
        httpx.get(served.replace("https", "http") + "/healthz")
    host, _, port = served.removeprefix("https://").partition(":")
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    with (
        socket.create_connection((host, int(port)), timeout=60) as plain,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        old.wrap_socket(plain)
    monkeypatch.setenv("SSL_CERT_FILE", str(pair[0]))
    with Client(served) as client:
        assert client.streams() == []
    monkeypatch.delenv("SSL_CERT_FILE")
    with Client(served, retries=0) as client, pytest.raises(UnreachableError, match="certificate"):
        client.streams()


def test_a_wrong_file_of_certificates_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none"))
    with pytest.raises(UnreachableError, match="SSL_CERT_FILE"):
        Client("https://127.0.0.1:1")
