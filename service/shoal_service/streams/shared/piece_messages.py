"""Messages between processes about pieces of rounds, and what a process counts of them. `pieces` has the protocol."""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from shoal_service.errors import StoreError
from shoal_service.store import ProcessMessages

Buffer = bytes | memoryview


@dataclass
class PieceCounters:
    """Counters of the pieces of a process since it started."""

    sent: int = 0
    """Pieces that it offered to other processes."""
    answered: int = 0
    """Of those, the ones whose results came from another process."""
    taken_back: int = 0
    """Of those, the ones that nobody claimed."""
    lost: int = 0
    """Of those, the ones that were claimed, and whose result did not come in time."""
    computed_for_others: int = 0
    """Pieces that it computed for other processes."""


Handler = Callable[[str, str, Buffer], None]
"""Receives the id of a piece, the process that sent the message, and the bytes behind its first line."""


class PieceMessages:
    """Messages of this process about pieces. The first line names the kind, the piece and the sender."""

    def __init__(self, messages: ProcessMessages, log: Any) -> None:
        self.everyone = ""
        """The channel of all processes of the same version, from `listen` on."""
        self._messages = messages
        self._log = log
        self._me = uuid.uuid4().hex
        self._handlers: Mapping[str, Handler] = {}
        self._on_missed: Callable[[], None] = lambda: None

    def listen(self, version: str, handlers: Mapping[str, Handler], on_missed: Callable[[], None]) -> None:
        """Call the handler of each kind of message, in one thread, and `on_missed` when some may have been lost."""
        self._handlers, self._on_missed = handlers, on_missed
        self.everyone = f"pieces:{version}"
        self._messages.listen((self.everyone, channel_of(self._me)), self._on_message)

    def send(self, channel: str, kind: str, piece: str, *parts: Buffer) -> int:
        """The number of processes that got a message. 0 when the store does not answer."""
        try:
            return self._messages.send(channel, f"{kind} {piece} {self._me}\n".encode(), *parts)
        except StoreError as error:
            self._log.warning("piece_message_not_sent", kind=kind, reason=str(error))
            return 0

    def _on_message(self, message: bytes | None) -> None:
        if message is None:
            self._on_missed()
            return
        try:
            end = message.index(b"\n")
            kind, piece, process = message[:end].decode().split(" ")
            if process != self._me:
                self._handlers[kind](piece, process, memoryview(message)[end + 1 :])
        except Exception:  # noqa: BLE001 - without this thread the process neither helps nor is helped: it goes on
            self._log.error("piece_message_failed", exc_info=True)


def channel_of(process: str) -> str:
    """The channel that one process listens to."""
    return f"pieces:{process}"
