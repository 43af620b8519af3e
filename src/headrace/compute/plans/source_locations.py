"""Source locations in plans: shown to users, and not part of a flow's identity."""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf.message import DecodeError

from headrace.analysis.node_labels import is_named
from headrace.compute.plans.generated import plan_pb2 as pb
from headrace.compute.problem_conversion import file_name, mark_remote_file
from headrace.errors import SourceLocation
from headrace.graph.node import Node
from headrace.operators.signals.signal_source import SignalSource
from headrace.operators.sink import Sink
from headrace.operators.source import Source

_LONGEST = 1 << 20
_LONGEST_NAME = 200


def encode_locations(flow: str, nodes: Sequence[Node]) -> bytes:
    """Encode source locations and user-given names of operators. Of files, only the names travel."""
    named = [_text(file_name(node.location.file)) for node in nodes]
    files = {file: at for at, file in enumerate(dict.fromkeys(named))}
    places = [
        pb.Place(
            file=files[file],
            line=max(node.location.line, 0),
            function=_text(node.location.function),
            name=_text(_given_name(node)),
        )
        for node, file in zip(nodes, named, strict=True)
    ]
    written = pb.Places(flow=_text(flow), files=list(files), places=places)
    return written.SerializeToString(deterministic=True)


def _given_name(node: Node) -> str:
    """Return an operator's user-given name, unless the name belongs to the operator's definition."""
    own = isinstance(node.operator, Source | SignalSource | Sink)
    return node.name if is_named(node) and not own else ""


def _printable(text: str) -> str:
    """Sanitise text for display: printable characters only, of limited length."""
    return "".join(c for c in text[:_LONGEST_NAME] if c.isprintable())


def _text(text: str) -> str:
    return text.encode(errors="replace").decode()


class SourceLocations:
    """Best-effort source locations of a plan; malformed ones are ignored.

    Files are shown in `<>` and never opened here, because the sender of the plan chose their names.
    """

    def __init__(self, data: bytes) -> None:
        self._message = pb.Places()
        try:
            if len(data) <= _LONGEST:
                self._message.ParseFromString(data)
        except DecodeError:
            self._message = pb.Places()

    @property
    def _count(self) -> int:
        return len(self._message.places)

    @property
    def flow(self) -> str:
        """Name of the flow."""
        return _printable(self._message.flow) or "plan"

    def location(self, node: int) -> SourceLocation:
        """Return an operator's source location."""
        if node >= self._count:
            return SourceLocation("<plan>", node)
        found = self._message.places[node]
        files = self._message.files
        file = _printable(files[found.file]) if found.file < len(files) else "plan"
        return SourceLocation(mark_remote_file(file), found.line, _printable(found.function))

    def name(self, node: int) -> str | None:
        """Return an operator's user-given name, if there is one."""
        return (_printable(self._message.places[node].name) or None) if node < self._count else None
