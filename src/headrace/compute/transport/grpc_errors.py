"""Conversion between errors and gRPC statuses: a standard code, with the problem in the trailing metadata."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Generator
from dataclasses import replace
from typing import Any, NoReturn

import grpc

from headrace.compute import errors
from headrace.compute.errors import BadMessage, ComputeError, ConnectionBroken, MessageTooLarge, NotAuthorized
from headrace.compute.problem_conversion import error_of, problem_of_any
from headrace.compute.protocol import serialization
from headrace.compute.protocol.responses import Problem
from headrace.errors import HeadraceError

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
    """Encode a problem, without its facts and with shortened texts if it is too large for metadata."""
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
