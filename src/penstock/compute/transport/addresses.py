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
    return host is None or _all_loopback(_meant(host, address))


def loopback_target(address: str) -> str | None:
    """What gRPC connects to for an address: what its name means at this moment, as numbers, so that nobody
    looks it up again; None where it is beyond this machine. Raises what `is_loopback` raises."""
    if not needs_lookup(address):
        return address if is_loopback(address) else None
    host, _, port = address.rpartition(":")
    found = _meant(host, address)
    if not _all_loopback(found):
        return None
    if all("." in each for each in found):
        return "ipv4:" + ",".join(f"{each}:{port}" for each in sorted(found))
    # One list is of one family: those of the other are written as if they were of this one.
    mapped = sorted(each if ":" in each else f"::ffff:{each}" for each in found)
    return "ipv6:" + ",".join(f"[{each}]:{port}" for each in mapped)


def needs_lookup(address: str) -> bool:
    """Whether `is_loopback` may take as long as a name server does."""
    host = host_of(address)
    return host is not None and _literal(host) is None


def _all_loopback(found: set[str]) -> bool:
    return all(ipaddress.ip_address(each).is_loopback for each in found)


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
