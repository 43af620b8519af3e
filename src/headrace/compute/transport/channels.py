"""gRPC channels and servers with our settings: message sizes, keepalive, TLS.

The settings of both sides must agree: a server treats pings more frequent than it permits as abuse, and
closes the connection.
"""

from __future__ import annotations

import socket
from typing import Any

import grpc

from headrace.compute.errors import ConnectionBroken
from headrace.compute.transport.credentials import Security
from headrace.compute.transport.limits import Limits
from headrace.compute.transport.local_addresses import host_of
from headrace.errors import BadOption

SERVICE = "headrace.compute.v1.Compute"
STREAM = f"/{SERVICE}/CommandResponseStream"
FETCH = f"/{SERVICE}/FetchStash"

_grpc: Any = grpc
METADATA = 64 * 1024
"""Limit on metadata, in bytes; it carries problems."""


def _options(limits: Limits) -> list[tuple[str, int | str]]:
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


def open_channel(address: str, security: Security, limits: Limits) -> Any:
    """Create a `grpc.aio` channel, which connects on first use. Raises `InsecureAddress`."""
    return channel_to(security.target(address), security, limits)


def channel_to(target: str, security: Security, limits: Limits) -> Any:
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


def make_server(security: Security, limits: Limits) -> Any:
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
