"""Network addresses, and a test for those that only this machine can reach.

An address is HOST:PORT with a name, an IPv4 address, or an IPv6 address in brackets; or `unix:PATH`.
"""

from __future__ import annotations

import ipaddress
import socket

from headrace.compute.errors import ConnectionBroken
from headrace.errors import BadOption

_LOCAL = ("unix:", "unix-abstract:")


def host_of(address: str) -> str | None:
    """Return the host of an address; None for a Unix socket. Raises `BadOption` for an invalid address."""
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
    """Whether an address is reachable from this machine only. A name is resolved, and all its addresses must
    be loopback. Raises `BadOption`; `ConnectionBroken` for a name that does not resolve."""
    host = host_of(address)
    return host is None or _all_loopback(_meant(host, address))


def loopback_target(address: str) -> str | None:
    """Return the gRPC target of a loopback address, resolved to numbers so that it is not resolved again;
    None for an address beyond this machine. Raises as `is_loopback` does."""
    if not needs_lookup(address):
        return address if is_loopback(address) else None
    host, _, port = address.rpartition(":")
    found = _meant(host, address)
    if not _all_loopback(found):
        return None
    if all("." in each for each in found):
        return "ipv4:" + ",".join(f"{each}:{port}" for each in sorted(found))
    # A target list has a single address family, so IPv4 addresses are mapped to IPv6.
    mapped = sorted(each if ":" in each else f"::ffff:{each}" for each in found)
    return "ipv6:" + ",".join(f"[{each}]:{port}" for each in mapped)


def needs_lookup(address: str) -> bool:
    """Whether `is_loopback` has to resolve a name, which may block."""
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
