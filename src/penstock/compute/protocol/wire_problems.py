"""Problems in their form on the network."""

from __future__ import annotations

from penstock.compute.protocol import rows
from penstock.compute.protocol import wire_fields as fields
from penstock.compute.protocol.generated import compute_pb2 as pb
from penstock.compute.protocol.responses import Problem
from penstock.compute.remote_paths import elsewhere
from penstock.errors import Origin, SourceLocation, Step


def to_message(problem: Problem) -> pb.Problem:
    return pb.Problem(
        code=problem.code,
        message=shown(problem.message),
        retryable=problem.retryable,
        why=shown(problem.why),
        fix=shown(problem.fix),
        id=problem.id,
        time=problem.time,
        facts=rows.encode(dict(problem.facts)) if problem.facts else None,
        where=[
            pb.Place(
                file=shown(elsewhere(step.place.file)),
                line=step.place.line,
                function=shown(step.place.function),
                note=shown(step.note),
            )
            for step in problem.where
        ],
        origin=pb.PROCESS if problem.origin is Origin.PROCESS else pb.DATA,
    )


def from_message(message: pb.Problem) -> Problem:
    facts = rows.decode_values(message.facts, "Problem.facts") if message.HasField("facts") else {}
    return Problem(
        code=fields.name(message.code, "Problem.code"),
        message=message.message,
        retryable=message.retryable,
        why=message.why,
        fix=message.fix,
        id=message.id if message.HasField("id") else None,
        time=fields.time(message.time, "Problem.time") if message.HasField("time") else None,
        facts=tuple(facts.items()),
        where=tuple(
            Step(SourceLocation(elsewhere(p.file), p.line, p.function), p.note) for p in message.where
        ),
        # Of an origin that this version does not know, another replica may be free.
        origin=Origin.DATA if message.origin == pb.DATA else Origin.PROCESS,
    )


def shown(text: str) -> str:
    """The text for people; what UTF-8 does not have (half of a surrogate pair, from a row perhaps) as its
    escape."""
    return text.encode("utf-8", "backslashreplace").decode()
