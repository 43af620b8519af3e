"""What both sides say of themselves before the first message: in the metadata of the stream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.compute.errors import BadMessage, UnknownName, VersionMismatch
from penstock.compute.protocol.commands import Epoch

VERSION = "2"
"""Of the protocol: of the messages and of what they mean. Both sides must have the same."""
_VERSION, _EPOCH, _NONCE = "x-penstock-protocol", "x-penstock-epoch", "x-penstock-nonce-bin"
_REPLICA, _BOOT, _RUNTIME = "x-penstock-replica", "x-penstock-boot", "x-penstock-runtime"
_LAST_EPOCH = 2**63 - 1

Metadata = Mapping[str, str | bytes]
Pairs = tuple[tuple[str, str | bytes], ...]


@dataclass(frozen=True, slots=True)
class Greeting:
    """What a controller says: which connection this is, and which replica it means, if any."""

    epoch: Epoch
    nonce: bytes
    replica: str | None = None

    def metadata(self) -> Pairs:
        named = () if self.replica is None else ((_REPLICA, self.replica.encode().hex()),)
        return (*version(), (_EPOCH, _epoch_text(self.epoch)), (_NONCE, self.nonce), *named)

    @classmethod
    def read(cls, metadata: Metadata) -> Greeting:
        """Raises `BadMessage`. The version is checked before, by `check_version`."""
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
        """Raises `UnknownName` where another replica was meant: the address may be ours only since then."""
        if None not in (self.replica, ours) and self.replica != ours:
            raise UnknownName(
                f"this is replica {ours!r} and not {self.replica!r}",
                why="The address belongs to another replica now, or is wrong.",
                fix="correct the address of the replica",
                name=self.replica,
            )


@dataclass(frozen=True, slots=True)
class Welcome:
    """What a replica answers.

    boot:    of this process, another one after each start.
    runtime: what runs its dataflows; empty before the first `CreateTimely`.
    epoch:   the greatest it has seen before this connection.
    """

    boot: str
    runtime: str
    epoch: Epoch | None

    def metadata(self) -> Pairs:
        epoch = () if self.epoch is None else ((_EPOCH, _epoch_text(self.epoch)),)
        return (*version(), (_BOOT, self.boot), (_RUNTIME, self.runtime), *epoch)

    @classmethod
    def read(cls, metadata: Metadata) -> Welcome:
        """Raises `VersionMismatch`, `BadMessage`."""
        check_version(metadata)
        return cls(str(metadata.get(_BOOT, "")), str(metadata.get(_RUNTIME, "")), _epoch(metadata))


def version() -> Pairs:
    return ((_VERSION, VERSION),)


def check_version(metadata: Metadata) -> None:
    """Raises `VersionMismatch`."""
    theirs = metadata.get(_VERSION)
    if theirs == VERSION:
        return
    raise VersionMismatch(
        "request missing version metadata"
        if theirs is None
        else f"version {theirs!s:.20} but {VERSION} required",
        why="Controller and replicas must speak the same version of the protocol.",
        fix="install the same version of Penstock on both sides",
        ours=VERSION,
        theirs=theirs if theirs is None else str(theirs),
    )


def pairs(metadata: Iterable[tuple[str, str | bytes]] | None) -> dict[str, str | bytes]:
    """Metadata as `grpc` gives it, as a mapping."""
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
        # No controller could ever come after it.
        raise BadMessage(f"{text!s:.50} is no epoch", field=_EPOCH)
    return epoch
