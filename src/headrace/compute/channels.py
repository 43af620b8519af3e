"""gRPC channels and servers with our settings: message sizes, keepalive, TLS, errors as statuses.

The settings of both sides must agree: a server treats pings more frequent than it permits as abuse, and
closes the connection. Before its first message, the metadata of a stream carries the handshake of a
controller and a replica.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import grpc

from headrace.compute import errors
from headrace.compute.credentials import Security, host_of
from headrace.compute.errors import (
    BadMessage,
    ComputeError,
    ConnectionBroken,
    MessageTooLarge,
    NotAuthorized,
    UnknownName,
    VersionMismatch,
    error_of,
    problem_of_any,
)
from headrace.compute.protocol import serialization
from headrace.compute.protocol.commands import Command, CreateDataflow, Epoch, Peek, PlanBytes
from headrace.compute.protocol.responses import Problem
from headrace.errors import BadOption, HeadraceError, SourceLocation


class Wakeup:
    """Wakeup of an event loop from any thread, also before it is attached. Several rings count as one.

    error: the error to end the process with, once `end_process` was called.
    """

    def __init__(self) -> None:
        self.error: Exception | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Wake the loop."""
        if self._loop is None or threading.get_ident() == self._thread:
            self._rung.set()
            return
        # A closed loop has nothing left to do.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._rung.set)

    def end_process(self, error: Exception) -> None:
        """End the process with an error; only the first one counts."""
        if self.error is None:
            self.error = error
        self.ring()

    def attach_to_loop(self) -> None:
        """Deliver rings to the running event loop from now on."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    async def wait_for_ring(self, seconds: float | None = None) -> None:
        """Wait for a ring, for at most `seconds`, or without limit if None."""
        if not self._rung.is_set():
            if seconds is None:
                await self._rung.wait()
            else:
                timer = asyncio.get_running_loop().call_later(seconds, self._rung.set)
                try:
                    await self._rung.wait()
                finally:
                    timer.cancel()
        self._rung.clear()


MEGABYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of a connection.

    message: bytes of one message, in either direction.
    plan:    bytes of one dataflow's plan, including its source locations.
    batch:   bytes of one batch of a subscription, which is sent in parts.
    keys:    keys of one peek.
    peeks:   pending peeks of one connection; further ones are answered with a problem.
    connect: seconds for establishing a connection.
    idle:    seconds without a message before a keepalive ping is sent.
    silence: seconds without a reply to the ping before the connection is closed.
    """

    message: int = 64 * MEGABYTE
    plan: int = 2 * MEGABYTE
    batch: int = 1024 * MEGABYTE
    keys: int = 100_000
    peeks: int = 10_000
    connect: float = 5.0
    idle: float = 3.0
    silence: float = 5.0

    def check_plan(self, plan: PlanBytes) -> None:
        """Raise `MessageTooLarge` for a plan above the limit, which every replica would refuse."""
        size = len(plan.body) + len(plan.places)
        if size > self.plan:
            raise _too_large(
                "plan", size, self.plan, "bytes", "split the flow, or raise the size limit of plans"
            )

    def check_message(self, what: str, size: int, fix: str) -> None:
        """Raise `MessageTooLarge` for a message above the limit, which the other side would refuse."""
        if size > self.message:
            raise _too_large(what, size, self.message, "bytes", fix, SourceLocation.of_caller())

    def check(self, command: Command) -> None:
        """Raise `MessageTooLarge` for a command that exceeds a limit."""
        match command:
            case CreateDataflow(dataflow):
                self.check_plan(dataflow.plan)
            case Peek(keys=tuple() as keys) if len(keys) > self.keys:
                raise _too_large("peek", len(keys), self.keys, "keys", "ask for fewer keys at a time")
            case _:
                pass


def _too_large(
    what: str, size: int, limit: int, unit: str, fix: str, *where: SourceLocation
) -> MessageTooLarge:
    return MessageTooLarge(
        f"a {what} of {size:,} {unit} is too large",
        where=where,
        why=f"The limit is {limit:,} {unit}.",
        fix=fix,
        size=size,
        limit=limit,
    )


log = logging.getLogger("headrace.transport")

_grpc: Any = grpc
_aio: Any = grpc.aio
END_OF_CALL: Any = _aio.EOF
"""Result of a read after the last message."""
PROBLEM = "headrace-problem-bin"
_MOST = 8 * 1024
"""Limit on a problem in metadata, in bytes; it is sent as base64, a third longer."""

_CODES: dict[str, str] = {
    errors.ProtocolViolation.code: "FAILED_PRECONDITION",
    errors.StaleEpoch.code: "FAILED_PRECONDITION",
    errors.BadMessage.code: "INVALID_ARGUMENT",
    errors.BadPlan.code: "INVALID_ARGUMENT",
    errors.CallableRefused.code: "PERMISSION_DENIED",
    errors.MessageTooLarge.code: "RESOURCE_EXHAUSTED",
    errors.VersionMismatch.code: "PERMISSION_DENIED",
    errors.NotAuthorized.code: "UNAUTHENTICATED",
    errors.UnknownName.code: "NOT_FOUND",
    errors.ResultGone.code: "NOT_FOUND",
    errors.ConnectionBroken.code: "UNAVAILABLE",
    errors.FellBehind.code: "UNAVAILABLE",
    errors.IncompatibleInstance.code: "ABORTED",
    errors.ReplicaExpired.code: "ABORTED",
    errors.RuntimeLost.code: "ABORTED",
}


async def abort_call(context: Any, error: BaseException) -> NoReturn:
    """End a call with an error. Never returns: `grpc.aio` raises its own exception."""
    if not isinstance(error, HeadraceError):
        log.error("a mistake in Headrace", exc_info=error)
    problem = problem_of_any(error)
    code = getattr(_grpc.StatusCode, _CODES.get(problem.code, "INTERNAL"))
    await context.abort(code, _short(problem.message), ((PROBLEM, _fitting(problem)),))
    raise AssertionError("abort has raised")


def error_from_rpc(error: Any, address: str) -> ComputeError:
    """Convert the `grpc.aio.AioRpcError` of a call to an address."""
    for key, value in error.trailing_metadata() or ():
        if key == PROBLEM:
            return _problem_in(value)
    details = error.details() or error.code().name
    match error.code():
        case grpc.StatusCode.UNAUTHENTICATED | grpc.StatusCode.PERMISSION_DENIED:
            return NotAuthorized(f"{address} refuses the connection", why=details)
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return MessageTooLarge(f"a message is too large for {address}", why=details)
        case grpc.StatusCode.UNIMPLEMENTED:
            return errors.VersionMismatch(
                f"{address} is no replica of this version",
                why=details,
                fix="give the address of a replica, and use the same version of Headrace on both sides",
            )
        case _ if "CERTIFICATE_VERIFY_FAILED" in details or "Hostname Verification" in details:
            return NotAuthorized(
                f"the certificate of {address} is not to be trusted",
                why=details,
                fix="give the CA that it comes from, or the name that it has",
            )
        case _ if "Failed to create security handshaker" in details:
            return NotAuthorized(
                "our own CA, certificate or key cannot be used",
                why="They are no PEM, or do not belong together.",
                fix="give files in PEM, the certificate first with what signed it",
            )
        case _:
            return ConnectionBroken(
                f"there is no connection to {address}",
                why=details,
                fix="start it, or correct the address (a controller's: --controller or HEADRACE_CONTROLLER). "
                "If it runs: use TLS on both sides or on neither, and give it the CA of our certificate",
                address=address,
            )


@contextlib.contextmanager
def raising_compute_errors(address: str) -> Generator[None]:
    """Convert errors of `grpc.aio` calls in the body to `ComputeError`."""
    try:
        yield
    except _aio.AioRpcError as error:
        raise error_from_rpc(error, address) from error
    except (_aio.UsageError, _aio.InternalError, asyncio.InvalidStateError) as error:
        raise ConnectionBroken(f"the connection to {address} is closed", address=address) from error


def _problem_in(value: bytes) -> ComputeError:
    try:
        return to_compute_error(error_of(serialization.problem_from_bytes(value)))
    except (BadMessage, MessageTooLarge) as bad:
        return bad


def to_compute_error(error: Exception) -> ComputeError:
    """Convert any exception to an error that ends a connection. Unexpected ones are logged."""
    if isinstance(error, ComputeError):
        return error
    if not isinstance(error, HeadraceError):
        log.error("a mistake in Headrace", exc_info=error)
        return to_compute_error(error_of(problem_of_any(error)))
    return ComputeError(error.what, where=error.where, why=error.why, fix=error.fix, original=error)


def _fitting(problem: Problem) -> bytes:
    """Encode a problem. If it is too large for metadata, drop its facts and shorten its texts."""
    data = serialization.problem_to_bytes(problem)
    if len(data) <= _MOST:
        return data
    short = replace(
        problem,
        message=_short(problem.message),
        why=_short(problem.why),
        fix=_short(problem.fix),
        facts=(),
        where=problem.where[:1],
    )
    data = serialization.problem_to_bytes(short)
    return data if len(data) <= _MOST else serialization.problem_to_bytes(replace(short, where=()))


def _short(text: str) -> str:
    """Shorten a text to a line that fits a status."""
    line = " ".join(text.encode("utf-8", "backslashreplace").decode().split())
    return line if len(line) <= 500 else f"{line[:500]} ..."


SERVICE = "headrace.compute.v1.Compute"
STREAM = f"/{SERVICE}/CommandResponseStream"
FETCH = f"/{SERVICE}/FetchStash"


METADATA = 64 * 1024
"""Limit on metadata, in bytes; it carries problems."""


def _options(limits: ConnectionLimits) -> list[tuple[str, int | str]]:
    return [
        # Plus room for the message's tags and a compression flag.
        ("grpc.max_send_message_length", limits.message + 1024),
        ("grpc.max_receive_message_length", limits.message + 1024),
        ("grpc.max_metadata_size", METADATA),
        ("grpc.absolute_max_metadata_size", 2 * METADATA),
        ("grpc.keepalive_time_ms", int(limits.idle * 1000)),
        ("grpc.keepalive_timeout_ms", int(limits.silence * 1000)),
        # The keepalive timeout alone is not enough: pings that measure bandwidth are subject to this timeout,
        # a minute by default, and no other ping is sent meanwhile.
        ("grpc.http2.ping_timeout_ms", int(limits.silence * 1000)),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]


def open_channel(address: str, security: Security, limits: ConnectionLimits) -> Any:
    """Create a `grpc.aio` channel, which connects on first use. Raises `InsecureAddress`."""
    return channel_to(security.target(address), security, limits)


def channel_to(target: str, security: Security, limits: ConnectionLimits) -> Any:
    """Create a channel as `open_channel` does, to a target resolved by `Security.target`."""
    options = [
        *_options(limits),
        # Connections must not be shared: a second channel would reuse the credentials of the first.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_http_proxy", 0),
        # By default gRPC waits up to two minutes between attempts to connect, which would keep a subscriber
        # disconnected long after the other side is back; and callers pause between attempts themselves.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1000),
        ("grpc.min_reconnect_backoff_ms", int(limits.connect * 1000)),
    ]
    if security.ca is None:
        return _grpc.aio.insecure_channel(target, options)
    if security.server_name is not None:
        options.append(("grpc.ssl_target_name_override", security.server_name))
    credentials = _grpc.ssl_channel_credentials(security.ca, security.key, security.certificate)
    return _grpc.aio.secure_channel(target, credentials, options)


def make_server(security: Security, limits: ConnectionLimits) -> Any:
    """Create a `grpc.aio` server that does not listen yet."""
    interval = max(1, int(limits.idle * 500))
    options = [
        *_options(limits),
        ("grpc.so_reuseport", 0),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", interval),
        ("grpc.http2.min_ping_interval_without_data_ms", interval),
        ("grpc.http2.max_ping_strikes", 0),
    ]
    return _grpc.aio.server(options=options, compression=None)


def listen(server: Any, address: str, security: Security) -> str:
    """Make a server listen. Returns the address, with the actual port in place of port 0.

    Raises `InsecureAddress`; `BadOption` for an invalid address or certificate; `ConnectionBroken` if the
    address is taken, or does not belong to this machine.
    """
    security.check_listen(address)
    try:
        port = _add_port(server, address, security)
    except RuntimeError as error:
        if security.certificate is not None and _is_free(address):
            raise BadOption(
                "the certificate, its key or the CA cannot be used",
                why="They are no PEM, or do not belong together.",
                fix="give files in PEM, the certificate first with what signed it",
                option="certificate",
            ) from error
        raise ConnectionBroken(
            f"{address} is in use, or is not an address of this machine",
            why=str(error),
            fix="stop the process that listens there, or choose another address; port 0 picks a free port",
            address=address,
        ) from error
    return address if host_of(address) is None else f"{address.rpartition(':')[0]}:{port}"


def _add_port(server: Any, address: str, security: Security) -> int:
    if security.certificate is None:
        return server.add_insecure_port(address)
    pair = ((security.key, security.certificate),)
    must = security.ca is not None
    return server.add_secure_port(address, _grpc.ssl_server_credentials(pair, security.ca, must))


def _is_free(address: str) -> bool:
    host = host_of(address)
    if host is None:
        return True
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        socket.create_server((host, int(address.rpartition(":")[2])), family=family).close()
    except OSError:
        return False
    return True


def names_of_peer(context: Any) -> set[str]:
    """Return the names in the certificate of a call's peer."""
    found: dict[str, list[bytes]] = context.auth_context()
    return {
        name.decode("utf-8", "replace")
        for kind in ("x509_common_name", "x509_subject_alternative_name")
        for name in found.get(kind, ())
    }


VERSION = "2"
"""Version of the protocol, of both its messages and their meaning. It must be equal on both sides."""
_VERSION, _EPOCH, _NONCE = "x-headrace-protocol", "x-headrace-epoch", "x-headrace-nonce-bin"
_REPLICA, _BOOT, _RUNTIME = "x-headrace-replica", "x-headrace-boot", "x-headrace-runtime"
_LAST_EPOCH = 2**63 - 1

Metadata = Mapping[str, str | bytes]
Pairs = tuple[tuple[str, str | bytes], ...]


@dataclass(frozen=True, slots=True)
class Greeting:
    """Greeting of a controller: the identity of the connection, and the name of the replica it expects."""

    epoch: Epoch
    nonce: bytes
    replica: str | None = None

    def metadata(self) -> Pairs:
        named = () if self.replica is None else ((_REPLICA, self.replica.encode().hex()),)
        return (*version_metadata(), (_EPOCH, _epoch_text(self.epoch)), (_NONCE, self.nonce), *named)

    @classmethod
    def read(cls, metadata: Metadata) -> Greeting:
        """Parse the metadata of a call. Its version has already been checked by `check_version`.

        Raises `BadMessage`.
        """
        nonce = metadata.get(_NONCE, b"")
        if not isinstance(nonce, bytes) or len(nonce) != 16:
            raise BadMessage("request without a nonce of 16 bytes in its metadata", field=_NONCE)
        epoch = _epoch(metadata)
        if epoch is None:
            raise BadMessage("request without an epoch in its metadata", field=_EPOCH)
        named = metadata.get(_REPLICA)
        try:
            replica = None if named is None else bytes.fromhex(str(named)).decode()
        except ValueError as error:
            raise BadMessage("the name of the replica is unreadable", field=_REPLICA) from error
        return cls(epoch, nonce, replica)

    def check_name(self, ours: str | None) -> None:
        """Raise `UnknownName` if the controller expects another replica: a previous one at this address."""
        if None not in (self.replica, ours) and self.replica != ours:
            raise UnknownName(
                f"this is replica {ours!r} and not {self.replica!r}",
                why="The address belongs to another replica now, or is wrong.",
                fix="correct the address of the replica",
                name=self.replica,
            )


@dataclass(frozen=True, slots=True)
class Welcome:
    """Reply of a replica to a greeting.

    boot:    id of this process, different after each start.
    runtime: name of the runtime of its dataflows; empty before the first `CreateTimely`.
    epoch:   greatest epoch seen before this connection.
    """

    boot: str
    runtime: str
    epoch: Epoch | None

    def metadata(self) -> Pairs:
        epoch = () if self.epoch is None else ((_EPOCH, _epoch_text(self.epoch)),)
        return (*version_metadata(), (_BOOT, self.boot), (_RUNTIME, self.runtime), *epoch)

    @classmethod
    def read(cls, metadata: Metadata) -> Welcome:
        """Parse the metadata of a replica. Raises `VersionMismatch`, `BadMessage`."""
        check_version(metadata)
        return cls(str(metadata.get(_BOOT, "")), str(metadata.get(_RUNTIME, "")), _epoch(metadata))


def version_metadata() -> Pairs:
    return ((_VERSION, VERSION),)


def check_version(metadata: Metadata) -> None:
    """Raise `VersionMismatch` unless the other side uses our protocol version."""
    theirs = metadata.get(_VERSION)
    if theirs == VERSION:
        return
    raise VersionMismatch(
        "request missing version metadata"
        if theirs is None
        else f"version {theirs!s:.20} but {VERSION} required",
        why="Controller and replicas must speak the same version of the protocol.",
        fix="install the same version of Headrace on both sides",
        ours=VERSION,
        theirs=theirs if theirs is None else str(theirs),
    )


def metadata_mapping(metadata: Iterable[tuple[str, str | bytes]] | None) -> dict[str, str | bytes]:
    """Convert metadata as given by `grpc` to a mapping."""
    return dict(metadata or ())


def _epoch_text(epoch: Epoch) -> str:
    return f"{epoch.controller}.{epoch.replica}"


def _epoch(metadata: Metadata) -> Epoch | None:
    text = metadata.get(_EPOCH)
    if text is None:
        return None
    controller, dot, replica = str(text).partition(".")
    if not (dot and controller.isdecimal() and replica.isdecimal() and len(str(text)) < 50):
        raise BadMessage(f"{text!s:.50} is no epoch", field=_EPOCH)
    epoch = Epoch(int(controller), int(replica))
    if max(epoch.controller, epoch.replica) > _LAST_EPOCH:
        # No later controller could ever exceed it.
        raise BadMessage(f"{text!s:.50} is no epoch", field=_EPOCH)
    return epoch
