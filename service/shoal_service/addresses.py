"""Addresses that a request may have the service connect to: public ones, unless its settings allow others.

A name is looked up once for each attempt, every address found is checked, and the connection goes to the checked
address itself. So a name that changes between check and connection leads nowhere else.
"""

import asyncio
import ipaddress
import socket

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_UNICAST = ipaddress.IPv6Network("2000::/3")
"""Global unicast. What `is_global` says of other addresses differs between versions of Python."""


class RefusedAddressError(Exception):
    """The host has no address that may be connected to."""


def is_public(address: str) -> bool:
    """Return whether an IP address is global unicast, also where it stands for an address of version 4."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
        if ip not in _UNICAST:
            return False
    return ip.is_global and not ip.is_multicast


def is_private_name(host: str) -> bool:
    """Return whether a host is known to be private without a look-up: `localhost`, or an IP address that is."""
    host = host.removesuffix(".").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return not is_public(host)
    except ValueError:
        return False


async def address_of(host: str, port: int, *, allow_private: bool) -> str:
    """Look a host up, and return the address to connect to. Raises OSError, and RefusedAddressError if one of its
    addresses is not public.
    """
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise _no_name(host, error) from None
    return _checked(host, [str(info[4][0]) for info in found], allow_private=allow_private)[0]


def public_addresses(host: str, port: int) -> list[str]:
    """Look a host up, and return its addresses. Raises OSError, and RefusedAddressError if one is not public."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise _no_name(host, error) from None
    return _checked(host, [str(info[4][0]) for info in found], allow_private=False)


def _no_name(host: str, error: UnicodeError) -> OSError:
    """The error for a host that no look-up accepts, such as one with a part of over 63 characters."""
    return OSError(f"{host[:80]!r} is no name of a host ({error})")


def _checked(host: str, addresses: list[str], *, allow_private: bool) -> list[str]:
    private = [address for address in addresses if not is_public(address)]
    if private and not allow_private:
        raise RefusedAddressError(f"{host} leads to {private[0]}, a private address")
    if not addresses:
        raise RefusedAddressError(f"{host} has no address")
    return addresses
