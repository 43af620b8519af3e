"""Handshake of a controller and a replica, in the metadata of the stream before its first message."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace.compute.errors import BadMessage, UnknownName, VersionMismatch
from headrace.compute.protocol.commands import Epoch

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
        """Parse the metadata of a call, whose version is already checked by `check_version`.

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
        """Raise `UnknownName` if the controller expects another replica: one that had the address before."""
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
    """Raise `VersionMismatch` unless the other side has our version of the protocol."""
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
