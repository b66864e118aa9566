"""Where settings come from, and what they refuse."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from shoal.errors import SettingError
from shoal_service.errors import HostNotAllowedError
from shoal_service.settings import Settings, is_exposed, is_loopback, load_settings, unknown_variables
from shoal_service.wire import WireLimits, check_host


@pytest.fixture(autouse=True)
def _no_settings_around(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.upper().startswith("SHOAL_"):
            monkeypatch.delenv(name)


def toml(folder: Path, text: str) -> Path:
    path = folder / "shoal.toml"
    path.write_text(text)
    return path


def test_defaults_are_closed_and_documented() -> None:
    settings = load_settings()
    assert (settings.host, settings.port, settings.insecure, settings.store) == ("127.0.0.1", 8000, False, "sqlite")
    assert settings.max_body_bytes == 64 * 2**20
    undocumented = [name for name, field in Settings.model_fields.items() if not field.description]
    assert undocumented == []


def test_flags_over_environment_over_file_over_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = toml(
        tmp_path, 'port = 1\nmax_rows = 11\nmax_streams = 12\nmax_body_bytes = "2MiB"\nallowed_hosts = ["a", "B"]'
    )
    monkeypatch.setenv("SHOAL_PORT", "2")
    monkeypatch.setenv("SHOAL_MAX_ROWS", "22")
    settings = load_settings(path, port=3, max_rows=None)
    assert (settings.port, settings.max_rows, settings.max_streams, settings.max_features) == (3, 22, 12, 4096)
    assert settings.max_body_bytes == 2 * 2**20
    assert settings.allowed_hosts == ("a", "b")


def test_the_file_may_be_named_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_CONFIG", str(toml(tmp_path, "port = 77")))
    assert load_settings().port == 77


def test_variables_of_others_are_let_be(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SHOAL_DATA", "SHOAL_REQUIRE_REDIS", "SHOAL_KERNEL_CACHE", "SHOAL_SOMETHING"):
        monkeypatch.setenv(name, "/data")
    assert load_settings() == Settings()
    assert load_settings().data_dir == Path("shoal-data")


def test_variables_that_are_no_settings_are_pointed_out_with_the_nearest_that_is_one() -> None:
    given = {
        "SHOAL_PORT": "1",
        "SHOAL_MAX_ROW": "1",
        "SHOAL_QQQQ": "1",
        "SHOAL_URL": "u",
        "SHOAL_DATA": "d",
        "HOME": "h",
    }
    assert unknown_variables(given) == [
        "SHOAL_MAX_ROW is not a setting; did you mean SHOAL_MAX_ROWS?",
        "SHOAL_QQQQ is not a setting",
    ]


def test_the_address_of_redis_is_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "redis://user:hunter2@127.0.0.1:6379/0"
    monkeypatch.setenv("SHOAL_REDIS_URL", secret)
    settings = load_settings(store="redis", role="api")
    assert settings.redis_url.get_secret_value() == secret
    for shown in (repr(settings), str(settings), str(settings.model_dump()), settings.model_dump_json()):
        assert "hunter2" not in shown
    with pytest.raises(SettingError) as caught:
        load_settings(redis_url=["hunter2"], role="nobody", store="redis")
    assert "hunter2" not in str(caught.value)
    assert "redis_url (flag) is (not shown)" in str(caught.value)


def test_the_bootstrap_key_is_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_ADMIN_KEY", "hunter2-hunter2-hunter2")
    settings = load_settings()
    assert settings.admin_key is not None
    for shown in (repr(settings), str(settings), str(settings.model_dump()), settings.model_dump_json()):
        assert "hunter2" not in shown
    with pytest.raises(SettingError) as caught:
        load_settings(admin_key=["hunter2"])
    assert "hunter2" not in str(caught.value)


def test_empty_variables_count_as_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_PORT", "")
    assert load_settings().port == 8000


def test_lists_in_the_environment_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_ALLOWED_HOSTS", "shoal.example, ::1,LOCALHOST")
    assert load_settings().allowed_hosts == ("shoal.example", "[::1]", "localhost")


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        load_settings().port = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.8.9.1", "localhost", "LOCALHOST", "::1", "[::1]", "::ffff:127.0.0.1"]
)
def test_loopback_is_open(host: str) -> None:
    assert not is_exposed(load_settings(host=host))


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
def test_everything_else_is_exposed_unless_said_aloud(host: str) -> None:
    assert is_exposed(load_settings(host=host))
    assert not is_exposed(load_settings(host=host, insecure=True))


def test_exposed_also_by_environment_and_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_exposed(load_settings(toml(tmp_path, 'host = "0.0.0.0"')))
    monkeypatch.setenv("SHOAL_HOST", "0.0.0.0")
    assert is_exposed(load_settings())
    monkeypatch.setenv("SHOAL_INSECURE", "1")
    assert not is_exposed(load_settings())


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"port": 70_000}, r"port \(flag\) is 70000"),
        ({"port": "many"}, "port"),
        ({"store": "mysql"}, "'sqlite', 'redis' or 'memory'"),
        ({"role": "learner"}, "Use --store redis --redis-url"),
        ({"role": "api", "store": "memory"}, "only one process can use"),
        ({"role": "observer", "store": "redis"}, "'all', 'api'"),
        ({"redis_prefix": "a{b}"}, "redis_prefix"),
        ({"redis_durability": "never"}, "redis_durability"),
        ({"max_body_bytes": "64 parsecs"}, "max_body_bytes"),
        ({"max_rows": 0}, "max_rows"),
        ({"shutdown_s": 0}, "shutdown_s"),
        ({"allowed_hosts": "a:8000"}, "without|alone"),
        ({"max_row": 1}, "did you mean 'max_rows'"),
    ],
)
def test_refusals_name_the_setting(flags: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingError, match=says):
        load_settings(**flags)


def test_all_faults_are_told_at_once_and_where_they_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_MAX_ROWS", "none")
    with pytest.raises(SettingError) as caught:
        load_settings(toml(tmp_path, "max_streams = 0\nprot = 5"), port=-1)
    told = str(caught.value)
    for part in ("port (flag)", "max_rows (SHOAL_MAX_ROWS)", "max_streams (settings file)", "did you mean 'port'"):
        assert part in told


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="does not exist"):
        load_settings(tmp_path / "absent.toml")
    with pytest.raises(SettingError, match="not TOML"):
        load_settings(toml(tmp_path, "port ="))


@pytest.mark.parametrize(
    ("host", "header"),
    [
        ("127.0.0.1", "localhost:8000"),
        ("10.0.0.7", "10.0.0.7:8000"),
        ("::1", "[::1]"),
        ("box.lan", "BOX.lan:1"),
        ("0.0.0.0", "127.0.0.1"),
    ],
)
def test_the_address_listened_on_is_a_host_allowed(host: str, header: str) -> None:
    check_host(header, load_settings(host=host, insecure=True).hosts_allowed)


def test_a_wildcard_address_allows_no_host_by_itself() -> None:
    with pytest.raises(HostNotAllowedError):
        check_host("0.0.0.0:8000", load_settings(host="0.0.0.0", insecure=True).hosts_allowed)


def test_limits_of_the_wire() -> None:
    limits = WireLimits.of(load_settings(max_body_bytes=4096, max_rows=5, max_features=6))
    assert limits == WireLimits(4096, 5, 6)
    assert limits.max_values == 1024


def test_loopback_looks_no_name_up() -> None:
    assert not is_loopback("a-name-that-nobody-has.invalid")
