"""Machines of a network: Linux network namespaces, each on a bridge by a cable that can be cut, in one way or in both.

The bridge is in a namespace of its own, too. So nothing here is reachable from outside, and nothing of the machine that
runs the tests changes. Whoever is inside a namespace has its addresses: a thread for as long as it has entered, and the
threads and processes that it starts, for ever.
"""

import contextlib
import os
import re
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from harness.preforked import enter_network
from harness.running_service import RunningService

Cut = Literal["cable", "switch", "sending", "receiving"]

_NAMES = Path("/run/netns")
_NOWHERE = "02:00:00:00:00:99"
"""A hardware address that no machine has: the bridge sends what is for it to all, and all drop it."""


class Network:
    """A bridge, and machines on it: `10.77.0.1` and so on."""

    def __init__(self) -> None:
        """Raises OSError where this process may not make namespaces."""
        _remove_leftovers()
        self._name = f"shoal-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._switch = f"{self._name}-switch"
        self._made: list[str] = []
        self.machines: list[Machine] = []
        try:
            self._add(self._switch)
            _ip("-n", self._switch, "link", "add", "bridge", "type", "bridge")
            _ip("-n", self._switch, "link", "set", "bridge", "up")
        except OSError:
            self.close()
            raise

    def _add(self, namespace: str) -> None:
        _ip("netns", "add", namespace)
        self._made.append(namespace)

    def machine(self) -> "Machine":
        """One more."""
        number = len(self.machines) + 1
        machine = Machine(f"{self._name}-{number}", f"10.77.0.{number}", self._switch, f"port{number}")
        self._add(machine.namespace)
        _ip("-n", self._switch, "link", "add", machine.port, "type", "veth", "peer", "eth0", "netns", machine.namespace)
        _ip("-n", self._switch, "link", "set", machine.port, "master", "bridge", "up")
        _ip("-n", machine.namespace, "address", "add", f"{machine.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip("-n", machine.namespace, "link", "set", device, "up")
        self.machines.append(machine)
        return machine

    def close(self) -> None:
        """Remove it all. What still runs in it has no network from then on."""
        while self._made:
            _ip("netns", "delete", self._made.pop())


class Machine:
    """One machine. Inside `with machine.entered():` this thread is on it."""

    def __init__(self, namespace: str, address: str, switch: str, port: str) -> None:
        self.namespace = namespace
        self.file = _NAMES / namespace
        self.address = address
        self.port = port
        """The end of its cable at the bridge."""
        self._switch = switch

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """For this thread, and for what it starts meanwhile."""
        before = Path(f"/proc/self/task/{threading.get_native_id()}/ns/net")
        with before.open() as kept:
            enter_network(self.file)
            try:
                yield
            finally:
                enter_network(Path(f"/proc/self/fd/{kept.fileno()}"))

    def thread(self, work: Callable[[], None]) -> threading.Thread:
        """A thread that does `work` on this machine. It is not started."""

        def run() -> None:
            with self.entered():
                work()

        return threading.Thread(target=run, daemon=True)

    def cut_off(self, how: Cut, other: "Machine") -> None:
        """Lose packets without a word, until `heal`.

        "cable": its own end of the cable has no carrier. "switch": the bridge passes nothing to it and from it.
        "sending": nothing that it sends arrives at `other`; "receiving": nothing that `other` sends arrives here.
        """
        if how == "cable":
            _ip("-n", self._switch, "link", "set", self.port, "down")
        elif how == "switch":
            _ip("-n", self._switch, "link", "set", self.port, "nomaster")
        elif how == "sending":
            self._lose_way_to(other)
        else:
            other._lose_way_to(self)

    def heal(self, other: "Machine") -> None:
        """Undo all cuts between this machine and `other`."""
        _ip("-n", self._switch, "link", "set", self.port, "master", "bridge", "up")
        for one, to in ((self, other), (other, self)):
            with contextlib.suppress(OSError):  # it has none
                _ip("-n", one.namespace, "neighbour", "delete", to.address, "dev", "eth0")

    def forget_connections(self, other: "Machine") -> None:
        """Let this machine know nothing of its connections with a machine that is cut off, as after a restart."""
        with self.entered():
            for word in ("-K", "-H"):
                found = subprocess.run(["ss", word, "-tn", "dst", other.address], capture_output=True, text=True)
        if found.stdout:
            raise OSError(f"ss -K: connections are left, as where the kernel lacks INET_DIAG_DESTROY: {found.stdout}")

    def _lose_way_to(self, other: "Machine") -> None:
        way = ("to", other.address, "lladdr", _NOWHERE, "dev", "eth0", "nud", "permanent")
        _ip("-n", self.namespace, "neighbour", "replace", *way)


class MachineService(RunningService):
    """`shoal serve` on a machine. Whoever asks it is on the machine, too."""

    def __init__(self, machine: Machine, data: Path, settings: dict[str, object]) -> None:
        super().__init__(data, settings)
        self.machine = machine
        self.network = machine.file

    def answers(self, path: str) -> bool:
        with self.machine.entered():
            return super().answers(path)


def _ip(*arguments: str) -> None:
    try:
        subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        raise OSError(f"ip {' '.join(arguments)}: {error.stderr.strip()}") from error


def _remove_leftovers() -> None:
    """Remove networks of processes that were killed."""
    for path in _NAMES.glob("shoal-*") if _NAMES.is_dir() else ():
        found = re.fullmatch(r"shoal-(\d+)-[0-9a-f]{8}-\w+", path.name)
        if found and not Path(f"/proc/{found[1]}").exists():
            with contextlib.suppress(OSError):  # another process removes it
                _ip("netns", "delete", path.name)
