"""Who comes in: secrets, scopes, patterns of streams, expiry, and keys that come and go while requests run."""

import hashlib
import itertools
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from harness.redis_server import RedisServer, running_redis
from harness.waiting import eventually
from shoal.errors import SettingError
from shoal_service.access import (
    ADMIN,
    ADMIN_SERVICE,
    BOOTSTRAP_ID,
    OPEN,
    READ,
    READ_LISTED,
    READ_SERVICE,
    WRITE,
    AccessControl,
    Caller,
    Grant,
    Limits,
    Requirement,
    Scope,
    admin_key_of,
    control,
)
from shoal_service.access.requirements import ANYONE
from shoal_service.errors import (
    ForbiddenError,
    ParameterError,
    StoreUnavailableError,
    UnauthenticatedError,
    UnknownKeyError,
)
from shoal_service.settings import load_settings
from shoal_service.store import AccessKey, SqliteStore, Store
from shoal_service.store.redis import RedisStore

NOW = 1_764_000_000.0
BOOTSTRAP = "a-bootstrap-key-of-the-tests"


class Clock:
    now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store() -> Iterator[Store]:
    store = SqliteStore(None)
    yield store
    store.close()


@pytest.fixture
def opened(store: Store, clock: Clock) -> Callable[..., AccessControl]:
    def opened(**options: Any) -> AccessControl:
        access = AccessControl(store, clock=clock, **options)
        access.load()
        return access

    return opened


# -- secrets


def test_a_secret_has_256_random_bits_and_the_store_never_sees_it(opened: Any, store: Store) -> None:
    access = opened()
    secrets = [access.create(f"key {i}", Grant(Scope.READ)).secret for i in range(20)]
    assert len(set(secrets)) == 20
    for secret in secrets:
        assert re.fullmatch(r"shoal_[A-Za-z0-9_-]{43}", secret)  # 43 characters of 6 bits: 256 bits
    kept = store.access_keys()
    assert {key.digest for key in kept} == {hashlib.sha256(secret.encode()).digest() for secret in secrets}
    assert not any(secret.encode() in repr(key).encode() for key in kept for secret in secrets)


def test_a_wrong_secret_opens_nothing(opened: Any) -> None:
    access = opened()
    made = access.create("one", Grant(Scope.WRITE))
    assert access.caller(made.secret) == Caller(made.record.id, "one", Grant(Scope.WRITE))
    wrong = ["", " ", made.secret[:-1], made.secret + "A", made.secret.upper(), made.record.id, "x" * 100_000, "\udcff"]
    for secret in [None, *wrong]:
        with pytest.raises(UnauthenticatedError) as caught:
            access.caller(secret)
        assert not secret or len(secret) < 5 or secret not in str(caught.value)


def test_an_entry_whose_digest_differs_opens_nothing(opened: Any) -> None:
    """Should the table ever find a wrong entry, the comparison still refuses it."""
    access = opened()
    secret = access.create("one", Grant(Scope.ADMIN)).secret
    ((digest, opening),) = access._table.items()
    access._table = {digest: opening._replace(digest=b"\0" * 32)}
    with pytest.raises(UnauthenticatedError):
        access.caller(secret)


# -- scopes and streams


def allowed(scope: Scope, streams: tuple[str, ...], needs: Requirement, stream: str = "sea-1") -> bool:
    try:
        Caller("id", "name", Grant(scope, streams)).check(needs, stream)
    except ForbiddenError:
        return False
    return True


def test_each_scope_includes_those_before_it_and_no_other() -> None:
    needs = {OPEN: "open", READ: "read", WRITE: "write", ADMIN: "admin", READ_LISTED: "read", ADMIN_SERVICE: "admin"}
    order = ["open", "read", "write", "admin"]
    for scope, need in itertools.product(Scope, needs):
        assert allowed(scope, (), need) == (order.index(needs[need]) <= order.index(scope.value)), (scope, need)


@pytest.mark.parametrize(
    ("patterns", "covered", "not_covered"),
    [
        ((), ["a", "sea-1", "default"], []),
        (("sea-*",), ["sea-1", "sea-"], ["sea", "a-sea-1", "seat", "default"]),
        (("a", "b?", "c[0-9]"), ["a", "b1", "c7"], ["aa", "b", "b12", "cx"]),
        (("*",), ["anything"], []),
        (("[!x]*",), ["y", "a1"], ["x", "x1"]),
    ],
)
def test_a_key_covers_the_streams_of_its_patterns(
    patterns: tuple[str, ...], covered: list[str], not_covered: list[str]
) -> None:
    caller = Caller("id", "name", Grant(Scope.WRITE, patterns))
    assert [s for s in covered + not_covered if caller.covers(s)] == covered
    assert [s for s in covered + not_covered if allowed(Scope.WRITE, patterns, WRITE, s)] == covered


def test_a_key_of_some_streams_does_not_reach_the_whole_service() -> None:
    """Else an admin key of one stream could make itself a key of all."""
    assert not allowed(Scope.ADMIN, ("*",), ADMIN_SERVICE)
    assert not allowed(Scope.ADMIN, ("a",), READ_SERVICE)
    assert allowed(Scope.READ, ("a",), READ_LISTED, "default")
    assert allowed(Scope.ADMIN, (), ADMIN_SERVICE)


def test_a_refusal_names_what_the_key_lacks() -> None:
    with pytest.raises(ForbiddenError, match=r"needs the scope 'write'.*'gauge' has 'read'") as caught:
        Caller("id", "gauge", Grant(Scope.READ)).check(WRITE, "a")
    assert caught.value.scope == "write"
    with pytest.raises(ForbiddenError, match=r"'gauge' does not cover the stream 'a'; it covers b\*, c") as caught:
        Caller("id", "gauge", Grant(Scope.READ, ("b*", "c"))).check(READ, "a")
    assert caught.value.scope is None


@pytest.mark.parametrize("pattern", ["", "A*", "a b", "a/b", "{a}", "x" * 129, "\N{SNOWMAN}", "[", "a[]", "!a"])
def test_patterns_that_match_no_name_are_refused(opened: Any, pattern: str) -> None:
    with pytest.raises(ParameterError, match="matches no stream"):
        opened().create("one", Grant(Scope.READ, ("fine", pattern)))


@pytest.mark.parametrize("name", ["", "  ", "x" * 101, "a\nb", "\x1b[31m"])
def test_names_that_would_spoil_a_list_are_refused(opened: Any, name: str) -> None:
    with pytest.raises(ParameterError, match="printable"):
        opened().create(name, Grant(Scope.READ))


# -- time


def test_a_key_expires_at_its_time(opened: Any, clock: Clock) -> None:
    access = opened()
    secret = access.create("one", Grant(Scope.READ, expires_at=NOW + 10.0)).secret
    clock.now = NOW + 9.999
    assert access.caller(secret).name == "one"
    clock.now = NOW + 10.0
    with pytest.raises(UnauthenticatedError, match="'one' has expired"):
        access.caller(secret)
    with pytest.raises(UnauthenticatedError):
        access.caller(None)  # a key that has expired does not open the service
    with pytest.raises(ParameterError, match="expired already"):
        access.create("late", Grant(Scope.READ, expires_at=NOW + 10.0))


def test_the_last_use_is_shown_at_once_and_recorded_at_the_end(opened: Any, store: Store, clock: Clock) -> None:
    access = opened()
    used, unused = access.create("used", Grant(Scope.READ)), access.create("unused", Grant(Scope.READ))
    access.start()
    clock.now = NOW + 3.0
    access.caller(used.secret)
    assert {key.name: key.last_used_at for key in access.all_keys()} == {"used": NOW + 3.0, "unused": None}
    access.close()
    access.close()
    assert {key.id: key.last_used_at for key in store.access_keys()} == {
        used.record.id: NOW + 3.0,
        unused.record.id: None,
    }
    assert store.access_version() == 2, "a use is no change"


# -- keys that come and go


def test_without_keys_anyone_may_do_everything_until_there_is_one(opened: Any) -> None:
    access = opened()
    assert not access.required
    assert access.caller(None) is access.caller("whatever") is ANYONE
    assert ANYONE.covers("any")
    ANYONE.check(ADMIN_SERVICE, "default")
    made = access.create("first", Grant(Scope.READ))
    with pytest.raises(UnauthenticatedError):
        access.caller(None)
    access.revoke(made.record.id)
    for secret in (None, made.secret):  # the last revocation does not open the service
        with pytest.raises(UnauthenticatedError):
            access.caller(secret)
    assert opened().caller(None) is ANYONE, "the next start finds no keys"


def test_a_closed_service_needs_a_key_even_if_there_is_none(opened: Any) -> None:
    with pytest.raises(UnauthenticatedError):
        opened(closed=True).caller(None)


def test_a_damaged_key_and_one_of_a_later_version_open_nothing_and_still_count(opened: Any, store: Store) -> None:
    secret = "shoal_of-a-later-version"
    digest = hashlib.sha256(secret.encode()).digest()
    later = b'{"scope":"read","streams":[],"expires_at":null,"limits":[],"only_on_sundays":true}'
    store.put_access_key(AccessKey("later", "later", digest, later, NOW))
    access = opened()
    assert access.required
    with pytest.raises(UnauthenticatedError):
        access.caller(secret)
    assert [(key.id, key.grant) for key in access.all_keys()] == [("later", None)]


def test_a_grant_comes_back_from_the_store_as_it_was(opened: Any, store: Store) -> None:
    full = Grant(Scope.WRITE, ("a*", "b"), NOW + 0.125, Limits(2.5, 1e6, 1 << 40, 3))
    for grant in (full, Grant(Scope.READ)):
        assert Grant.from_body(grant.to_body()) == grant
    access = opened()
    made = access.create("full", full)
    assert opened().caller(made.secret).grant == full
    for cut in range(len(full.to_body())):
        assert Grant.from_body(full.to_body()[:cut]) is None


@pytest.mark.parametrize("limits", [Limits(requests_per_s=0.0), Limits(streams=-1), Limits(points_per_s=float("nan"))])
def test_limits_that_are_no_limits_are_refused(opened: Any, limits: Limits) -> None:
    with pytest.raises(ParameterError, match="positive"):
        opened().create("one", Grant(Scope.READ, limits=limits))


# -- the bootstrap key


def test_the_bootstrap_key_is_an_admin_and_stays(opened: Any) -> None:
    access = opened(admin_key=BOOTSTRAP)
    assert access.has_keys
    caller = access.caller(BOOTSTRAP)
    caller.check(ADMIN_SERVICE, "default")
    with pytest.raises(UnauthenticatedError):
        access.caller(None)
    made = access.create("another", Grant(Scope.READ))
    assert [key.id for key in access.all_keys()] == [BOOTSTRAP_ID, made.record.id]
    assert access.caller(BOOTSTRAP) == caller
    with pytest.raises(ParameterError, match="settings"):
        access.revoke(BOOTSTRAP_ID)
    with pytest.raises(UnknownKeyError, match="'nobody'"):
        access.revoke("nobody")


def test_the_bootstrap_key_comes_from_the_environment_or_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert admin_key_of(load_settings()) is None
    monkeypatch.setenv("SHOAL_ADMIN_KEY", BOOTSTRAP)
    assert admin_key_of(load_settings()) == BOOTSTRAP
    path = tmp_path / "key"
    path.write_text(f"  {BOOTSTRAP}-2\n")
    monkeypatch.setenv("SHOAL_ADMIN_KEY_FILE", str(path))
    with pytest.raises(SettingError, match="one of them"):
        admin_key_of(load_settings())
    monkeypatch.delenv("SHOAL_ADMIN_KEY")
    assert admin_key_of(load_settings()) == f"{BOOTSTRAP}-2"
    for unusable in (tmp_path / "no folder" / "key", tmp_path):
        monkeypatch.setenv("SHOAL_ADMIN_KEY_FILE", str(unusable))
        with pytest.raises(SettingError, match="cannot be read or created"):
            admin_key_of(load_settings())


def test_a_missing_key_file_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "admin.key"
    settings = load_settings(admin_key_file=path)
    with ThreadPoolExecutor(8) as pool:  # as several processes that start together
        found = set(pool.map(lambda _: admin_key_of(settings), range(64)))
    (key,) = found
    assert re.fullmatch(r"shoal_[A-Za-z0-9_-]{43}", str(key))
    assert path.read_text() == f"{key}\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("key", ["hunter2", "hunter2 hunter2 hunter2", "x" * 513, "hunter2\N{SNOWMAN}" * 3])
def test_a_weak_bootstrap_key_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(SettingError, match=f"has {len(key)} characters") as caught:
        admin_key_of(load_settings(admin_key=key))
    assert "hunter2" not in str(caught.value)


# -- several processes

REVOKE = """
import sys
from shoal_service.store.redis import RedisStore
store = RedisStore(sys.argv[1], prefix=sys.argv[2])
assert store.delete_access_key(sys.argv[3])
store.close()
print("revoked", flush=True)
"""


@pytest.fixture(scope="module")
def redis_server(redis_binary: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with running_redis(redis_binary, tmp_path_factory.mktemp("redis")) as server:
        yield server


def refused(access: AccessControl, secret: str) -> bool:
    try:
        access.caller(secret)
    except UnauthenticatedError:
        return True
    return False


def test_an_unexpected_fault_does_not_end_the_look_for_revoked_keys(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread used to end, and every key that another process revoked from then on stayed in force."""
    monkeypatch.setattr(control, "POLL_S", 0.01)
    here, there = (AccessControl(store, shared=True) for _ in range(2))
    made = there.create("one", Grant(Scope.READ))
    here.load()
    version, faults = store.access_version, [1, 1]

    def damaged() -> int:
        if faults:
            faults.pop()
            raise ValueError("invalid literal for int()")
        return version()

    monkeypatch.setattr(store, "access_version", damaged)
    here.start()
    try:
        assert eventually(lambda: not faults)
        there.revoke(made.record.id)
        assert eventually(lambda: refused(here, made.secret))
    finally:
        here.close()


@pytest.mark.redis
def test_a_change_by_another_process_is_in_force_soon(redis_server: RedisServer) -> None:
    prefix = f"test-{uuid.uuid4().hex}"
    stores = [RedisStore(redis_server.url, prefix=prefix) for _ in range(2)]
    here, there = (AccessControl(store, shared=True) for store in stores)
    try:
        for access in (here, there):
            access.load()
            access.start()
        assert not here.required
        made = there.create("one", Grant(Scope.READ))
        assert eventually(lambda: here.required and not refused(here, made.secret))
        done = subprocess.run(
            [sys.executable, "-c", REVOKE, redis_server.url, prefix, made.record.id],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.stdout == "revoked\n", done.stderr
        assert eventually(lambda: refused(here, made.secret) and refused(there, made.secret))
        assert refused(here, ""), "revoking the last key opens nothing"
    finally:
        for access, store in zip((here, there), stores, strict=True):
            access.close()
            store.close()


@pytest.mark.redis
def test_a_store_that_is_away_opens_nothing_and_takes_no_known_key_away(redis_binary: str, tmp_path: Path) -> None:
    with running_redis(redis_binary, tmp_path) as server:
        server.kill()
        store = RedisStore(server.url, timeout_s=1.0)
        access = AccessControl(store, admin_key=BOOTSTRAP, shared=True)
        unkeyed = AccessControl(store, shared=True)
        try:
            with pytest.raises(StoreUnavailableError):
                access.load()
            assert access.caller(BOOTSTRAP).key_id == BOOTSTRAP_ID
            for one in (access, unkeyed):  # whether there are keys is not known
                with pytest.raises(StoreUnavailableError, match="not been read"):
                    one.caller("shoal_some-key")
            assert unkeyed.has_keys is None
            server.start()
            access.start()
            unkeyed.start()
            assert eventually(lambda: unkeyed.has_keys is False)
            assert eventually(lambda: _created(access))
            secret = access.create("one", Grant(Scope.READ)).secret
            assert eventually(lambda: unkeyed.required and not refused(unkeyed, secret))
            server.kill()
            time.sleep(0.7)
            assert unkeyed.caller(secret).name == "one"
        finally:
            access.close()
            unkeyed.close()
            store.close()


def _created(access: AccessControl) -> bool:
    try:
        access.create("early", Grant(Scope.READ))
    except StoreUnavailableError:  # the server rewrites its file first
        return False
    return True
