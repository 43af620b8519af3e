"""Addresses: which are of this machine alone.

HOST:PORT with a name, an IPv4 address, or an IPv6 address in brackets; or `unix:PATH`.
"""

from __future__ import annotations

import ipaddress
import socket

from penstock.compute.errors import ConnectionBroken
from penstock.errors import BadOption

_LOCAL = ("unix:", "unix-abstract:")


def host_of(address: str) -> str | None:
    """The host of an address; None of a socket in the file system. Raises `BadOption` for no address."""
    if address.startswith(_LOCAL):
        return None
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise BadOption(
            f"{address!r} is no address",
            why="It names a host and a port, or a socket in the file system.",
            fix="write 127.0.0.1:7411, [::1]:7411, name:7411 or unix:/path/to/socket",
            option="address",
        )
    return host.removeprefix("[").removesuffix("]")


def is_loopback(address: str) -> bool:
    """Whether only processes of this machine are at the address. Names are looked up; all that a name means
    must be of this machine. Raises `BadOption`; `ConnectionBroken` for a name that means nothing."""
    host = host_of(address)
    return host is None or all(ipaddress.ip_address(found).is_loopback for found in _meant(host, address))


def needs_lookup(address: str) -> bool:
    """Whether `is_loopback` may take as long as a name server does."""
    host = host_of(address)
    return host is not None and _literal(host) is None


def _meant(host: str, address: str) -> set[str]:
    literal = _literal(host)
    if literal is not None:
        return {literal}
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ConnectionBroken(
            f"{host!r} is no known host", why=str(error), fix="correct the address", address=address
        ) from error
    return {str(entry[4][0]).partition("%")[0] for entry in found}


def _literal(host: str) -> str | None:
    try:
        return str(ipaddress.ip_address(host.partition("%")[0]))
    except ValueError:
        return None
