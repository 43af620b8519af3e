"""Streams that are read before they are defined, for recursion."""

from __future__ import annotations

from typing import Any

from penstock.errors import SourceLocation, Step, WrongType
from penstock.flow.markers import Append, Changes, NoOrder, Unbounded
from penstock.flow.stream import Stream
from penstock.flow.stream_base import G, T_co, check_stream


class _Open(Stream[T_co, Unbounded, G, NoOrder]):
    __slots__ = ()

    def _close(self, stream: Stream[Any, Any, Any, Any]) -> None:
        location = SourceLocation.of_caller()
        check_stream(stream, "feedback", location)
        if stream.flow is not self.flow:
            raise self.flow.foreign("feedback", stream, location)
        self.check_row_type("feedback", stream, location)
        for mine, closing in zip(self.schema.fields, stream.schema.fields, strict=True):
            if closing.nullable and not mine.nullable:
                raise WrongType(
                    f"column {mine.name!r} may be null in what closes the feedback, and not in the feedback",
                    where=[Step(self.flow.node(self.node_id).location, "opened here"), location],
                    fix="coalesce() it, or declare it `| None` in the row class",
                    column=mine.name,
                )
        self.flow.close_feedback(self.node_id, stream.node_id, location)


class FeedbackStream(_Open[T_co, Append]):
    """A stream of rows that stay, read before it is defined; `close` defines it."""

    __slots__ = ()

    def close(self, stream: Stream[T_co, Any, Append, Any]) -> None:
        """Define what this stream carries. Must be called exactly once.

        Raises `BadFlow` on a second call and for a stream of another flow,
        `WrongType` where the row types differ.
        """
        self._close(stream)


class ChangingFeedbackStream(_Open[T_co, Changes]):
    """A stream whose rows may be taken back, read before it is defined; `close` defines it."""

    __slots__ = ()

    def close(self, stream: Stream[T_co, Any, Any, Any]) -> None:
        """Define what this stream carries, as `FeedbackStream.close` does."""
        self._close(stream)
