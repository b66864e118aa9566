"""uvicorn around the application: one process, a socket bound before anything starts, signals that drain and end with
0.
"""

import gc
import socket
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from shoal.errors import SettingError
from shoal_service.settings import Settings, is_loopback

NOT_STARTED = 6
"""Exit status when the port is taken, as the command line documents it."""
GRACE_SHARE = 0.25
"""Share of `shutdown_s` that requests under way get to end by themselves."""
SWITCH_INTERVAL_S = 0.001
"""How long a thread that computes in Python may keep the event loop waiting; the interpreter's own default is 0.005."""


class _Server(uvicorn.Server):
    """Says where it listens once it does, and takes a signal as a request to finish, not as a death to pass on."""

    def __init__(self, config: uvicorn.Config, announcement: str, on_stop: Callable[[], None]) -> None:
        super().__init__(config)
        self._announcement = announcement
        self._on_stop = on_stop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then say so."""
        await super().startup(sockets)
        sys.stdout.write(self._announcement + "\n")
        sys.stdout.flush()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop taking; end once what was begun is done. A second signal does not wait for requests under way."""
        self._on_stop()
        self.force_exit = self.should_exit
        self.should_exit = True


def run(app: ASGIApp, settings: Settings, store: str, *, on_stop: Callable[[], None]) -> None:
    """Serve `app` until a signal. SettingError for an address beyond loopback without `insecure`; exit 6 if it is
    taken.
    """
    if not settings.insecure and not is_loopback(settings.host):
        raise SettingError(
            f"host {settings.host!r} is not loopback; say --insecure if whoever reaches it may do everything"
        )
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with _listening(settings) as listener:
        host, port = listener.getsockname()[:2]
        address = f"[{host}]" if ":" in host else host
        config = uvicorn.Config(
            app,
            loop="uvloop",
            http="httptools",
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=max(1, round(GRACE_SHARE * settings.shutdown_s)),
        )
        gc.collect()
        _Server(config, f"shoal listens on http://{address}:{port} and keeps its data in {store}", on_stop).run(
            [listener]
        )


def warn_if_open(settings: Settings, log: Any) -> None:
    """One line when the address is beyond loopback: who may do what, and under which names."""
    if not is_loopback(settings.host):
        message = "whoever reaches this port may read, write and delete every stream"
        log.warning("insecure", host=settings.host, allowed_hosts=sorted(settings.hosts_allowed), message=message)


def _listening(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except OSError as error:
        sys.stderr.write(
            f"error: cannot listen on {settings.host} port {settings.port} ({error.strerror}); "
            "end what listens there, or choose another --port\n"
        )
        raise SystemExit(NOT_STARTED) from None
