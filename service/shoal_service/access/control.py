"""Control of access: the keys in force, the caller of a request, and changes of the keys.

The keys are read from the store into a table by digest. A request costs one SHA-256 and one look into that table. A
change takes effect at once in the process that makes it. Over a shared store, all other processes look at the version
of the keys twice a second.
"""

import hmac
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

from shoal_service.access.expiry import rfc3339
from shoal_service.access.grants import Grant, Limits, Scope, check_key_name
from shoal_service.access.meter import Meter
from shoal_service.access.requirements import ANYONE, Caller
from shoal_service.access.secret_keys import LONGEST_SECRET, digest_of, new_secret
from shoal_service.errors import (
    LimitError,
    ParameterError,
    StoreError,
    StoreUnavailableError,
    UnauthenticatedError,
    UnknownKeyError,
)
from shoal_service.store import AccessKey, Store

POLL_S = 0.5
"""Time between two looks at the version of the keys in a shared store."""
FLUSH_S = 60.0
"""Time between two records of the last uses of keys."""
BOOTSTRAP_ID = "bootstrap"
"""Id of the key that the settings give."""


class KeyRecord(NamedTuple):
    """Key as its owner may see it."""

    id: str
    name: str
    grant: Grant | None
    """None for a key that is damaged in the store. It opens nothing."""
    created_at: float | None
    """Unix time. None for the bootstrap key."""
    last_used_at: float | None

    def as_plain(self) -> dict[str, Any]:
        """The record as answers show it. Times are texts of RFC 3339."""
        grant = self.grant
        return {
            "id": self.id,
            "name": self.name,
            "scope": None if grant is None else grant.scope.value,
            "streams": [] if grant is None else list(grant.streams),
            "created_at": rfc3339(self.created_at),
            "expires_at": None if grant is None else rfc3339(grant.expires_at),
            "last_used_at": rfc3339(self.last_used_at),
            "limits": (Limits() if grant is None else grant.limits)._asdict(),
        }


class CreatedKey(NamedTuple):
    """New key with its secret, which is shown only now."""

    record: KeyRecord
    secret: str


class _Opening(NamedTuple):
    """Entry of the table: a digest, and who comes in with its secret."""

    digest: bytes
    caller: Caller


class AccessControl:
    """Keys of one process. Methods block, except `caller`, `required` and `has_keys`."""

    def __init__(
        self,
        store: Store,
        *,
        admin_key: str | None = None,
        closed: bool = False,
        shared: bool = False,
        log: Any = None,
        clock: Callable[[], float] = time.time,
        steady_clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keys of the store, and the bootstrap key `admin_key`.

        `closed`: a key is needed even if there is none. Otherwise a key is needed as soon as this process has seen one.
        `shared`: other processes may change the keys of the store. `steady_clock`: seconds that never go back.
        """
        self._store = store
        self._shared = shared
        self._log = log
        self._clock = clock
        self._steady_clock = steady_clock
        self._bootstrap = {} if admin_key is None else _bootstrap(admin_key)
        self._required = closed or admin_key is not None
        self._version: int | None = None
        """Version of the keys in the table. None until they have been read."""
        self._table = self._bootstrap
        self._kept: list[AccessKey] = []
        self._meters: dict[str, Meter | None] = {}
        self._loading = threading.Lock()
        self._used: dict[str, float] = {}
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    # -- requests

    @property
    def required(self) -> bool:
        """Whether a request needs a key."""
        return self._required

    @property
    def has_keys(self) -> bool | None:
        """Whether there is any key. None if the store has not answered yet."""
        if self._bootstrap:
            return True
        return None if self._version is None else bool(self._kept)

    def caller(self, secret: str | None) -> Caller:
        """Return who sends a request with this secret.

        Raises UnauthenticatedError without a secret, for an unknown and for an expired one, where a key is needed.
        Raises StoreUnavailableError if the keys have not been read yet, except for the bootstrap key.
        """
        if not self._required:
            if self._version is None:
                raise _unread()
            return ANYONE
        if secret is None:
            raise UnauthenticatedError("a key is needed; send it as `Authorization: Bearer KEY` or as `api-key: KEY`")
        digest = digest_of(secret) if len(secret) <= LONGEST_SECRET else b""
        found = self._table.get(digest)
        if found is None or not hmac.compare_digest(found.digest, digest):
            if self._version is None:
                raise _unread()
            raise UnauthenticatedError("this key is not known here; it may be mistyped or revoked")
        now = self._clock()
        expires_at = found.caller.grant.expires_at
        if expires_at is not None and expires_at <= now:
            raise UnauthenticatedError(f"the key {found.caller.name!r} has expired; use another one")
        self._used[str(found.caller.key_id)] = now
        return found.caller

    # -- keys

    def all_keys(self) -> list[KeyRecord]:
        """Return all keys, the bootstrap key first, then the oldest first."""
        self.load()
        listed = []
        for _, key in self._bootstrap.values():
            listed.append(KeyRecord(BOOTSTRAP_ID, key.name, key.grant, None, self._used.get(BOOTSTRAP_ID)))
        return listed + [self._record(key) for key in self._kept]

    def create(self, name: str, grant: Grant, *, only: bool = False) -> CreatedKey:
        """Create a key. Its secret is returned here and never again.

        `only`: it must be the first one, as nobody but the owner of a key may create further ones. Raises
        ParameterError, UnauthenticatedError (for an `only` one where another was made just before), LimitError,
        StoreError.
        """
        check_key_name(name)
        now = self._clock()
        grant = grant.checked()
        if grant.expires_at is not None and grant.expires_at <= now:
            raise ParameterError("the key would have expired already; give a time in the future")
        secret = new_secret()
        key = AccessKey(uuid.uuid4().hex[:16], name, digest_of(secret), grant.to_body(), now)
        try:
            self._store.put_access_key(key, only=only)
        except LimitError:
            if not only:
                raise
            raise UnauthenticatedError(
                "another client has created the first key at the same time, and every request needs a key from then "
                "on; send that one, or ask its owner for one"
            ) from None
        finally:
            self.load()  # also of another process, which made the first one just before
        return CreatedKey(self._record(key), secret)

    def revoke(self, key_id: str) -> None:
        """Revoke a key. Raises UnknownKeyError, ParameterError for the bootstrap key, StoreError."""
        if key_id == BOOTSTRAP_ID and self._bootstrap:
            raise ParameterError(
                "the bootstrap key is a setting and cannot be revoked here; remove it from the settings and restart"
            )
        if not self._store.delete_access_key(key_id):
            raise UnknownKeyError(f"there is no key {key_id[:80]!r}; list the keys for their ids")
        self.load()

    def _record(self, key: AccessKey) -> KeyRecord:
        used = [at for at in (key.last_used_at, self._used.get(key.id)) if at is not None]
        return KeyRecord(key.id, key.name, Grant.from_body(key.body), key.created_at, max(used, default=None))

    # -- the table

    def load(self) -> None:
        """Read the keys from the store. Raises StoreError, and the table stays as it was."""
        with self._loading:
            version = self._store.access_version()  # first: a change in between is read once more
            kept = self._store.access_keys()
            table, meters = dict(self._bootstrap), dict[str, Meter | None]()
            for key in kept:
                grant = Grant.from_body(key.body)
                if grant is not None and key.digest:
                    meters[key.id] = self._meter(key, grant)
                    table[key.digest] = _Opening(key.digest, Caller(key.id, key.name, grant, meters[key.id]))
            # In this order, so that no request finds the service open in between.
            self._required = self._required or bool(kept)
            self._kept, self._table, self._meters = kept, table, meters
            self._version = version

    def _meter(self, key: AccessKey, grant: Grant) -> Meter | None:
        """Meter of a key: the one that it has, unless its limits have changed."""
        if grant.limits == Limits():
            return None
        known = self._meters.get(key.id)
        unchanged = known is not None and known.limits == grant.limits
        return known if unchanged else Meter(key.name, grant.limits, self._steady_clock)

    def start(self) -> None:
        """Start to follow changes by other processes, and to record uses."""
        self._thread = threading.Thread(target=self._follow, name="shoal-access", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Record the last uses, and end. May be called again."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _follow(self) -> None:
        flush_at = time.monotonic() + FLUSH_S
        while not self._closing.wait(POLL_S if self._shared or self._version is None else FLUSH_S):
            try:
                if self._version is None or (self._shared and self._store.access_version() != self._version):
                    self.load()
                if time.monotonic() >= flush_at:
                    flush_at = time.monotonic() + FLUSH_S
                    self._flush()
            except StoreError as error:  # the keys stay as they are known; /readyz says that the store is down
                if self._log is not None:
                    self._log.debug("access_keys_not_read", reason=str(error))
            except Exception:  # noqa: BLE001 - without this thread, keys that others revoke would stay in force
                if self._log is not None:
                    self._log.error("access_keys_failed", exc_info=True)
        try:
            self._flush()
        except StoreError as error:
            if self._log is not None:
                self._log.debug("access_keys_not_marked", reason=str(error))

    def _flush(self) -> None:
        used = {key_id: at for key_id, at in dict(self._used).items() if key_id != BOOTSTRAP_ID}
        newer = {key.id: key.last_used_at or 0.0 for key in self._kept}
        changed = {key_id: at for key_id, at in used.items() if at > newer.get(key_id, at)}
        if changed:
            self._store.mark_access_keys_used(changed)
            self._kept = [key._replace(last_used_at=changed.get(key.id, key.last_used_at)) for key in self._kept]


def _bootstrap(secret: str) -> dict[bytes, _Opening]:
    digest = digest_of(secret)
    return {digest: _Opening(digest, Caller(BOOTSTRAP_ID, "bootstrap key of the settings", Grant(Scope.ADMIN)))}


def _unread() -> StoreUnavailableError:
    return StoreUnavailableError("the access keys have not been read from the store yet; try again in a moment")
