"""Codecs of the messages of `compute.proto`, with fields of custom form."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from headrace.compute.frontier import END, LAST_TIME, Frontier
from headrace.compute.problem_conversion import mark_remote_file
from headrace.compute.protocol import rows
from headrace.compute.protocol.codec_derivation import FieldCodec, MessageCodec, MessageCodecs, bad_message
from headrace.compute.protocol.commands import Command
from headrace.compute.protocol.constrained_fields import Constraint
from headrace.compute.protocol.generated import compute_pb2 as pb
from headrace.compute.protocol.responses import (
    CopyToResponse,
    Counted,
    DroppedAt,
    Frontiers,
    PeekResponse,
    Problem,
    Row,
    StashToken,
    Status,
)
from headrace.errors import Origin


def _shown(text: str) -> str:
    """Escape the characters of a text that UTF-8 cannot encode (lone surrogates), for display."""
    return text.encode("utf-8", "backslashreplace").decode()


def frontier_decoder(field: str) -> Callable[[pb.Frontier], Frontier]:
    def decode(message: pb.Frontier) -> Frontier:
        if not message.HasField("time"):
            return END
        if message.time > LAST_TIME:
            raise bad_message(field, f"{message.time} is no time.")
        return Frontier(message.time)

    return decode


_TEXT = FieldCodec(_shown, lambda _: str)
_CODECS = MessageCodecs(
    by_type={
        Frontier: FieldCodec(lambda frontier: {"time": frontier.time}, frontier_decoder),
        # Of an origin that this version does not know, another replica may be free.
        Origin: FieldCodec(
            lambda origin: pb.PROCESS if origin is Origin.PROCESS else pb.DATA,
            lambda _: lambda number: Origin.DATA if number == pb.DATA else Origin.PROCESS,
        ),
        tuple[Row, ...]: FieldCodec(rows.encode, lambda field: partial(rows.decode_keys, field=field)),
        tuple[Counted, ...]: FieldCodec(rows.encode, lambda field: partial(rows.decode_counted, field=field)),
        tuple[tuple[str, Any], ...]: FieldCodec(
            lambda facts: rows.encode(dict(facts)),
            lambda field: lambda data: tuple(rows.decode_values(data, field).items()),
        ),
    },
    by_field={
        "Problem.message": _TEXT,
        "Problem.why": _TEXT,
        "Problem.fix": _TEXT,
        "Place.file": FieldCodec(lambda file: _shown(mark_remote_file(file)), lambda _: mark_remote_file),
        "Place.function": _TEXT,
        "Place.note": _TEXT,
        "Status.text": _TEXT,
    },
    whole={
        Frontiers: Constraint(lambda report: report != Frontiers(report.id), "No frontier is set."),
    },
)
Alone = Frontiers | PeekResponse | CopyToResponse | Status
"""Responses sent in one piece: all except subscriptions' batches, which are divided (`batch_parts`)."""
COMMAND: MessageCodec[Command, pb.Command] = _CODECS.derive(Command, pb.Command)
RESPONSE: MessageCodec[Alone, pb.Response] = _CODECS.derive(Alone, pb.Response)
PROBLEM: MessageCodec[Problem, pb.Problem] = _CODECS.derive(Problem, pb.Problem)
STASH_TOKEN: MessageCodec[StashToken, pb.StashToken] = _CODECS.derive(StashToken, pb.StashToken)
DROPPED_AT: MessageCodec[DroppedAt, pb.DroppedAt] = _CODECS.derive(DroppedAt, pb.DroppedAt)
