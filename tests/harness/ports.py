"""TCP ports on 127.0.0.1 for servers that the tests start, end, and start again at the same address.

A port that was free a moment ago may be somebody else's when it is bound: the kernel gives the next connection a port
of the same range. So these are below that range, and each is claimed by a UDP socket of the same number for as long as
this process lives. Other processes that run tests pass over a claimed number.
"""

import contextlib
import random
import socket
from pathlib import Path

_CLAIMS: list[socket.socket] = []
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """A TCP port on 127.0.0.1 that no other process uses, and no other test is given."""
    for port in random.SystemRandom().sample(_numbers(), k=2_000):
        claim = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with contextlib.suppress(OSError):
            claim.bind(("127.0.0.1", port))
            with socket.create_server(("127.0.0.1", port)):
                _CLAIMS.append(claim)
                return port
        claim.close()
    raise OSError("no free port among 2,000")


def _numbers() -> range:
    """Numbers that the kernel gives to no connection, where it says which it gives."""
    first = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32_768
    return range(10_000, first) if first >= 15_000 else range(10_000, 32_768)
