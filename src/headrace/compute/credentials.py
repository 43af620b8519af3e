"""Credentials: certificates, a token, and the rule that without them only this machine may connect.

A server uses TLS if it has a certificate, a client if it has a CA. A server that listens beyond this machine
needs TLS, and either a CA for client certificates or a token. A token is never sent over a network in
plaintext.

There are three roles: clients read and write, operators also manage replicas, and a controller commands its
replicas. A client's credentials never make it an operator or a controller.

An address is HOST:PORT with a name, an IPv4 address, or an IPv6 address in brackets; or `unix:PATH`.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import os
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from headrace.compute.errors import ConnectionBroken, InsecureAddress, NotAuthorized
from headrace.errors import BadOption
from headrace.file_system import is_private

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
    """Return the gRPC target of a loopback address, resolved to IP addresses, never to be resolved again;
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


# An expired certificate loads without complaint, and then every connection fails. Python's `ssl` reports the
# dates of peers and authorities only, so this module reads them from the DER: they are the fifth field of a
# certificate. OpenSSL has already validated the whole certificate; no other field is examined.


SOON = timedelta(days=14)
"""Time before expiry at which to start warning."""

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_NEVER = datetime.max.replace(tzinfo=UTC)
_SEQUENCE, _VERSION, _UTC_TIME, _TIME = 0x30, 0xA0, 0x17, 0x18


@dataclass(frozen=True, slots=True)
class Validity:
    """Validity period of a certificate, both ends included."""

    start: datetime
    end: datetime


def read_validities(pem: bytes) -> list[Validity]:
    """Read the validity of each certificate in a file. Raises `BadOption` if that fails."""
    try:
        return [_of(ssl.PEM_cert_to_DER_cert(block.decode("ascii"))) for block in _PEM.findall(pem)]
    except (ValueError, IndexError) as error:
        raise BadOption(
            "the dates of a certificate cannot be read",
            why=f"{type(error).__name__}: {error}",
            fix="give a certificate as RFC 5280 has it",
            option="certificate",
        ) from error


def check_chain(pem: bytes, now: datetime, path: str | Path | None = None) -> datetime:
    """Return the earliest expiry in our own certificate chain.

    Raises `BadOption` if any certificate of the chain has expired or is not valid yet.
    """
    found = read_validities(pem)
    named = "the certificate" if path is None else f"the certificate {path}"
    for number, each in enumerate(found):
        _check(each, now, named if not number else f"an issuer in {named} (number {number})", "certificate")
    return min((each.end for each in found), default=_NEVER)


def check_authorities(pem: bytes, now: datetime, path: str | Path) -> None:
    """Raise `BadOption` if none of the authorities is valid. Individual ones in a bundle may have expired."""
    found = read_validities(pem)
    if found and not any(each.start <= now <= each.end for each in found):
        _check(max(found, key=lambda each: each.end), now, f"the CA {path}", "ca")


def _check(validity: Validity, now: datetime, named: str, option: str) -> None:
    if validity.start <= now <= validity.end:
        return
    if now > validity.end:
        what = f"{named} expired on {format_utc(validity.end)}"
    else:
        what = f"{named} is not valid before {format_utc(validity.start)}"
    raise BadOption(
        what,
        why=f"It is {format_utc(now)} by the clock of this machine. No other side would trust it.",
        fix="have a new one issued, or set the clock right",
        option=option,
        start=validity.start,
        end=validity.end,
    )


def format_utc(moment: datetime) -> str:
    """Format a time in UTC for display."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _of(der: bytes) -> Validity:
    (certificate,) = _elements(der, 1)
    (to_be_signed,) = _elements(_within(certificate, _SEQUENCE), 1)
    # Version (absent in X.509 v1), then serial number, algorithm, issuer, validity.
    fields = list(_elements(_within(to_be_signed, _SEQUENCE), 5))
    validity = fields[4] if fields[0][0] == _VERSION else fields[3]
    start, end = _elements(_within(validity, _SEQUENCE), 2)
    return Validity(_moment(start), _moment(end))


_Element = tuple[int, bytes]
"""DER element: its tag and content."""


def _elements(data: bytes, count: int) -> Iterator[_Element]:
    """Yield the first `count` elements of a sequence's content."""
    at = 0
    for _ in range(count):
        tag, length = data[at], data[at + 1]
        at += 2
        if length & 0x80:
            size = length & 0x7F
            length, at = int.from_bytes(data[at : at + size], "big"), at + size
        if at + length > len(data):
            raise ValueError("an element ends behind its sequence")
        yield tag, data[at : at + length]
        at += length


def _within(element: _Element, tag: int) -> bytes:
    if element[0] != tag:
        raise ValueError(f"tag {element[0]:#x} in place of {tag:#x}")
    return element[1]


def _moment(element: _Element) -> datetime:
    tag, content = element
    text = content.decode("ascii")
    if tag == _UTC_TIME:
        text = f"{'19' if text >= '50' else '20'}{text}"
    elif tag != _TIME:
        raise ValueError(f"tag {tag:#x} in place of a time")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


log = logging.getLogger("headrace.transport")

ANY_NAME = "*"
"""Allowed name that stands for every certificate of the CA."""
REPLICA_TOKEN_VARIABLE = "HEADRACE_REPLICA_TOKEN"
"""Environment variable of the secret that a controller shares with its replicas, and no client has."""


@dataclass(frozen=True, slots=True)
class Security:
    """Credentials of one side, and those required of the other. Without any, both must be on this machine.

    ca:          PEM of the authorities that must have issued the other side's certificate.
    certificate: PEM of our own certificate, with its chain.
    key:         PEM of its private key.
    token:       secret shared by both sides.
    server_name: name required in the server's certificate, if it differs from the host.
    clients:     allowed names (SAN or CN) in callers' certificates; empty or "*": any certified by the CA.
    operators:   names in the certificates of callers that are operators.
    operator_token: token that is accepted instead of `token`, and makes its callers operators.
    """

    ca: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    server_name: str | None = None
    clients: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    operator_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.token is not None and self.token == self.operator_token:
            raise BadOption(
                "clients and operators have the same token",
                why="Every client would be an operator, and might let a replica of its own read all rows.",
                fix="make another one for the operators: openssl rand -hex 32",
                option="operator_token_file",
            )

    @classmethod
    def load(
        cls,
        *,
        ca: str | Path | None = None,
        certificate: str | Path | None = None,
        key: str | Path | None = None,
        token_file: str | Path | None = None,
        token_variable: str = "HEADRACE_TOKEN",
        server_name: str | None = None,
        clients: Iterable[str] = (),
        operators: Iterable[str] = (),
        operator_token_file: str | Path | None = None,
        environment: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.time,
    ) -> Security:
        """Load credentials from files; the token from a file or an environment variable, but never from a
        command line, which every user of the machine can read.

        Raises `BadOption` for files that are not valid certificates or keys, or do not belong together; for
        certificates that have expired or are not valid yet; for a key or token file that others may access;
        for one token of two roles, and for names without a CA.
        """
        if (certificate is None) != (key is None):
            raise BadOption(
                "a certificate and its key belong together", fix="give both", option="certificate"
            )
        _check_credentials(ca, certificate, key)
        _check_names(ca, "controller_name", clients := tuple(clients))
        _check_names(ca, "operator_name", operators := tuple(operators))
        token = (
            _check_token(environment.get(token_variable, "").strip() or None)
            if token_file is None
            else _read_token(token_file, "token_file")
        )
        loaded = cls(
            ca=None if ca is None else _read(ca, "ca"),
            certificate=None if certificate is None else _read(certificate, "certificate"),
            key=None if key is None else _read_secret(key, "key"),
            token=token,
            server_name=server_name,
            clients=clients,
            operators=operators,
            operator_token=None
            if operator_token_file is None
            else _read_token(operator_token_file, "operator_token_file"),
        )
        now = datetime.fromtimestamp(clock(), UTC)
        if ca is not None and loaded.ca is not None:
            check_authorities(loaded.ca, now, ca)
        if loaded.certificate is not None:
            check_chain(loaded.certificate, now, certificate)
        return loaded

    def check_certificate(self, clock: Callable[[], float] = time.time) -> None:
        """Log a warning if our certificate expires soon, since servers run for a long time.

        Raises `BadOption` if it has expired, or is not valid yet.
        """
        if self.certificate is None:
            return
        now = datetime.fromtimestamp(clock(), UTC)
        end = check_chain(self.certificate, now)
        left = end - now
        if left < SOON:
            log.warning(
                "warning: the certificate expires on %s, in %s; a new one is read at the next start",
                format_utc(end),
                f"{left.days} days" if left.days > 1 else f"{left // timedelta(hours=1)} hours",
            )

    def check_listen(self, address: str) -> None:
        """Raise `InsecureAddress` if strangers could connect to the address or eavesdrop."""
        known = self.certificate is not None and (self.ca is not None or self.token is not None)
        if known or is_loopback(address):
            return
        raise InsecureAddress(
            f"listening at {address} would let strangers in",
            why="Without credentials only this machine may connect. A token alone could be intercepted.",
            fix="give a certificate with its key, and a CA or a token; or listen at 127.0.0.1",
            address=address,
        )

    def target(self, address: str) -> str:
        """Return the gRPC target for an address. Without TLS, a name is resolved here and never again, since
        it might later resolve to another machine.

        Raises `InsecureAddress` if the connection could be eavesdropped on; `ConnectionBroken` for a name
        that does not resolve; `BadOption` for an invalid address.
        """
        if self.ca is not None:
            host_of(address)
            return address
        target = loopback_target(address)
        if target is not None:
            return target
        raise InsecureAddress(
            f"traffic to {address} would not be encrypted",
            why="Connections to other machines need TLS.",
            fix="give the CA of the other side's certificate",
            address=address,
        )

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the metadata to send with each call to a `target`."""
        return () if self.token is None else (("authorization", f"Bearer {self.token}"),)

    def check_names_controllers(self) -> None:
        """Raise `BadOption` if a replica with these credentials could not tell a controller from a client."""
        if self.ca is None or self.token is not None or self.clients:
            return
        raise BadOption(
            "any certificate of the CA would command this replica",
            why="Clients usually have certificates of the same CA.",
            fix="name the controller as in its certificate (--controller-name NAME), or give controller and "
            "replicas a secret of their own (--replica-token-file). If the CA signs controllers only: "
            f"--controller-name '{ANY_NAME}'",
            option="controller_name",
        )

    def check_differs(self, links: Security) -> None:
        """Raise `BadOption` if a token of clients or operators is also used for the replicas."""
        if links.token is not None and links.token in (self.token, self.operator_token):
            raise BadOption(
                "clients and replicas have the same token",
                why="A client that reached a replica would be taken for its controller.",
                fix="make another one for the replicas: openssl rand -hex 32",
                option="replica_token_file",
            )

    def admit(self, metadata: Mapping[str, str | bytes], names: Iterable[str]) -> bool:
        """Admit a caller, and return whether it is an operator. Without credentials, everyone is.

        names: those in its certificate, which TLS has verified.
        Raises `NotAuthorized` for a caller without a token that is asked for, or without an allowed name.
        """
        sent = metadata.get("authorization", "")
        given = sent.encode() if isinstance(sent, str) else sent
        by_token = _is_token(given, self.operator_token)
        if self.token is not None and not (_is_token(given, self.token) or by_token):
            raise NotAuthorized(
                "no token was given" if not given else "the token is wrong",
                why="This side was started with a token.",
                fix="start the other side with the same token",
            )
        shown = set(names)
        allowed = {*self.clients, *self.operators}
        if self.clients and ANY_NAME not in self.clients and not allowed & shown:
            whose = ", ".join(map(_printable, sorted(shown))) or "nobody"
            raise NotAuthorized(
                f"the certificate is of {whose}, who may not connect",
                why=f"Allowed are {', '.join(sorted(allowed))}.",
                fix="use the certificate of one of them",
            )
        if by_token or not shown.isdisjoint(self.operators):
            return True
        return self.ca is None and self.token is None and self.operator_token is None and not self.operators


def _check_credentials(ca: str | Path | None, certificate: str | Path | None, key: str | Path | None) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    option = "ca"
    try:
        if ca is not None:
            context.load_verify_locations(ca)
        option = "certificate"
        if certificate is not None:
            # The empty password makes a key with a passphrase fail, instead of OpenSSL prompting for it.
            context.load_cert_chain(certificate, key, password=lambda: b"")
    except (OSError, ValueError) as error:
        raise BadOption(
            f"the {option} cannot be used",
            why=f"{type(error).__name__}: {error}",
            fix="name files in PEM that can be read; a key without a passphrase, of the certificate",
            option=option,
        ) from error


def _check_names(ca: str | Path | None, option: str, names: tuple[str, ...]) -> None:
    if names and ca is None:
        raise BadOption(
            f"{names[0]!r} is the name in a certificate, and without a CA none is asked for",
            why="Only a certificate that the CA has signed shows a name.",
            fix="give the CA that signs these certificates (--ca), or leave out the name",
            option=option,
        )


def _printable(name: str) -> str:
    """Return a name from a certificate, escaped for display in a terminal."""
    return name if name.isprintable() else ascii(name)


def _is_token(given: bytes, token: str | None) -> bool:
    return token is not None and hmac.compare_digest(given, f"Bearer {token}".encode())


def _read_token(path: str | Path, option: str) -> str | None:
    return _check_token(_read_secret(path, option).decode("utf-8", "replace").strip())


def _check_token(token: str | None) -> str | None:
    if token is not None and (not token or not token.isascii() or not token.isprintable()):
        raise BadOption(
            "the token is empty or has characters that cannot travel",
            fix="write one line of letters and digits, such as `openssl rand -hex 32` makes",
            option="token",
        )
    return token


def _read_secret(path: str | Path, option: str) -> bytes:
    content = _read(path, option)
    if not is_private(os.stat(path)):
        raise BadOption(
            f"others may read or write the secret in {path}",
            why="Whoever has it is taken for the one it was given to.",
            fix=f"chmod 600 {path}",
            option=option,
        )
    return content


def _read(path: str | Path, option: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise BadOption(
            f"{path} cannot be read", why=str(error), fix="name a file that can be read", option=option
        ) from error
