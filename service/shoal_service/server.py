"""HTTP server: one process, a socket that is bound before anything starts, and an orderly end after a signal."""

import asyncio
import contextlib
import gc
import os
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.server import ServerState

from shoal.errors import SettingError
from shoal_service.connections import connection_class, most_connections
from shoal_service.settings import Settings, is_exposed, is_loopback
from shoal_service.temporary_folder import TemporaryFolder
from shoal_service.tls import tls_options

NOT_STARTED = 6
"""Exit status if the port is in use, as the command line documents it."""
GRACE_SHARE = 0.25
"""Share of `shutdown_s` in which running requests may end by themselves."""
CHILD_CONNECTIONS = 1024
"""Largest number of connections of child processes."""
SOCKET = "children.sock"
"""Name of the socket of the children."""
LONGEST_SOCKET_PATH = 100
"""Bytes of the path of a Unix socket; Linux allows 107, other systems 103."""
SWITCH_INTERVAL_S = 0.001
"""Longest time that a thread which computes in Python may block the event loop; the default of Python is 0.005."""


class _Server(uvicorn.Server):
    """uvicorn, which says where it listens, and ends in order after a signal."""

    def __init__(self, config: uvicorn.Config, announcement: str, on_stop: Callable[[], None]) -> None:
        super().__init__(config)
        self._announcement = announcement
        self._on_stop = on_stop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then print the address."""
        await super().startup(sockets)
        sys.stdout.write(self._announcement + "\n")
        sys.stdout.flush()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Refuse new work and end when the running work is done. A second signal does not wait for running requests."""
        self._on_stop()
        self.force_exit = self.should_exit
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the connections, then the application, which uvicorn would cancel after a second signal."""
        await super().shutdown(sockets)
        if self.force_exit:
            await self.lifespan.shutdown()


def run(app: ASGIApp, settings: Settings, store: str, *more_lines: str, on_stop: Callable[[], None]) -> None:
    """Serve `app` until a signal. Exits with 6 if the port is in use. Raises SettingError, as `tls_options`."""
    tls = tls_options(settings)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with _listening(settings) as listener:
        host, port = listener.getsockname()[:2]
        address = f"[{host}]" if ":" in host else host
        config = _config(
            app,
            most_connections(settings.max_connections),
            loop="uvloop",
            lifespan="on",
            timeout_graceful_shutdown=max(1, round(GRACE_SHARE * settings.shutdown_s)),
            **tls,
        )
        gc.collect()
        scheme = "https" if tls else "http"
        lines = [f"shoal listens on {scheme}://{address}:{port}", f"data: {store}", *more_lines]
        _Server(config, "\n".join(lines), on_stop).run([listener])


def _config(app: ASGIApp, connections: int, **options: Any) -> uvicorn.Config:
    """What both servers have in common: at most so many connections, and no logs and headers of uvicorn."""
    return uvicorn.Config(
        app,
        http=connection_class(connections),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=30,
        **options,
    )


class ChildServer:
    """HTTP over a Unix socket, for child processes of this one. Its place is open to the user of this process alone."""

    def __init__(self, folder: Path | None) -> None:
        """The socket is made in `folder`, which no other process uses, or among the temporary files of the system."""
        self._folder = folder
        self._made: TemporaryFolder | None = None
        self._server: asyncio.Server | None = None
        self._state = ServerState()
        self.address = ""
        """Path of the socket, from the start on."""

    async def start(self, app: ASGIApp) -> None:
        """Begin to answer. Raises OSError."""
        listener = self._listen()
        config = _config(app, CHILD_CONNECTIONS, lifespan="off")
        config.load()
        kind: Any = config.http_protocol_class
        make = partial(kind, config=config, server_state=self._state, app_state={})
        self._server = await asyncio.get_running_loop().create_unix_server(make, sock=listener)

    def _listen(self) -> socket.socket:
        if self._folder is not None:
            path = self._folder.absolute() / SOCKET
            if len(os.fsencode(path)) <= LONGEST_SOCKET_PATH:
                with contextlib.suppress(OSError):  # a file system without sockets
                    return self._bound(path)
        self._made = TemporaryFolder("children")
        return self._bound(self._made.path / SOCKET)

    def _bound(self, path: Path) -> socket.socket:
        path.unlink(missing_ok=True)  # left behind by a process that was killed
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(str(path))
            path.chmod(0o600)
        except OSError:
            listener.close()
            raise
        self.address = str(path)
        return listener

    async def close(self) -> None:
        """Accept nothing more, and close the connections."""
        if self._server is None:
            return
        self._server.close()
        for connection in list(self._state.connections):
            connection.shutdown()
        Path(self.address).unlink(missing_ok=True)
        if self._made is not None:
            self._made.remove()


def check_exposure(settings: Settings, has_keys: bool | None) -> None:
    """Raise SettingError for a service that other machines can reach without a key.

    `has_keys`: whether there is an access key. None if the store has not said so yet; requests then need one.
    """
    if is_exposed(settings) and has_keys is False:
        raise SettingError(
            f"host {settings.host!r} can be reached from other machines, and the service has no access key. Create one"
            " with `shoal keys create --name admin --scope admin --data DIR`, or give one in SHOAL_ADMIN_KEY_FILE. Or"
            " add --insecure (SHOAL_INSECURE=1): then anyone who can reach the port can read, write and delete every"
            " stream"
        )


def warn_if_open(settings: Settings, log: Any) -> None:
    """Log a warning if the address is not loopback: who may do what, and under which names."""
    if not is_loopback(settings.host):
        message = "anyone who can reach this port can read, write and delete every stream"
        log.warning("insecure", host=settings.host, allowed_hosts=sorted(settings.hosts_allowed), message=message)


def _listening(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else error  # its own text repeats the address
        sys.stderr.write(
            f"error: cannot listen on {settings.host} port {settings.port} ({why}); "
            "stop the program that uses this port, or choose another --port\n"
        )
        raise SystemExit(NOT_STARTED) from None
