"""Traces: the events at an edge, or at both edges of a transformer, in chronological order.

An event is a request, which goes upstream, or an answer, which comes back. A trace is a sequence of events.
Both have a textual notation, in which traces are stored and discussed:

    D:ask1 U:ans1=value(7) D:abort2 U:ans2=done

The port before the colon names the module that made the event: `D` downstream and `U` upstream of an edge;
`TI` and `TO` for the input and the output of a transformer, whose own upstream is then `U` and answers
`U:ansT1=...`.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from headrace.pull.errors import BadTrace

# Both are written in brackets, so their text must have balanced brackets and fit on one line. Other texts are
# written as Python strings instead.

_OPEN = {"(": ")", "[": "]", "{": "}"}
_QUOTES = "'\""


class OpaqueValue(str):
    """Value without a literal form, known only by its text in a parsed trace.

    Equal to the same text as a string, but written without quotes.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def closing_bracket(text: str, start: int, *, quotes: bool) -> int:
    """Find the index at which the bracket at `start` is closed on its line, or -1.

    quotes: whether brackets within quotes do not count, as in Python.
    """
    expected: list[str] = []
    at, end = start, len(text)
    while at < end:
        sign = text[at]
        if sign in "\n\r":
            return -1
        if quotes and sign in _QUOTES:
            at = _end_of_quote(text, at)
            if at < 0:
                return -1
        elif sign in _OPEN:
            expected.append(_OPEN[sign])
        elif sign in ")]}":
            if not expected or expected.pop() != sign:
                return -1
            if not expected:
                return at
        at += 1
    return -1


def _end_of_quote(text: str, start: int) -> int:
    at = start + 1
    while at < len(text) and text[at] not in "\n\r":
        if text[at] == text[start]:
            return at
        at += 2 if text[at] == "\\" else 1
    return -1


def value_text(value: object) -> str:
    """Format a value for a trace: its `repr`, quoted if it would not fit into brackets."""
    try:
        text = repr(value)
    except Exception:  # A user's value with a failing repr must not break the trace.
        text = f"<{type(value).__name__}>"
    return text if _fits(text, quotes=True) else str.__repr__(text)


def values_text(values: tuple[object, ...]) -> str:
    """Format the values of a batch, separated by commas."""
    return ", ".join(map(value_text, values))


def message_text(message: str) -> str:
    """Format a message for a trace, quoted if it would not fit into brackets."""
    plain = message == message.strip() and message[:1] not in ("'", '"')
    return message if plain and _fits(message, quotes=False) else str.__repr__(message)


def read_value(text: str) -> object:
    """Parse the text of a value: a literal's value, otherwise the text itself as `OpaqueValue`."""
    found = _literal(text)
    return OpaqueValue(text.strip()) if found is _NOTHING else found


def read_values(text: str) -> tuple[object, ...]:
    """Parse the values of a batch from the text within its brackets."""
    if not text.strip():
        return ()
    return tuple(read_value(part) for part in _split(text))


def read_message(text: str) -> str:
    """Parse a message from the text within its brackets."""
    found = _literal(text) if text[:1] in ("'", '"') else _NOTHING
    return found if isinstance(found, str) else text


_NOTHING = object()


_SMALL = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")


def _literal(text: str) -> object:
    if _SMALL.fullmatch(text):
        return int(text)  # by far the most common; Python's parser is slow
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return _NOTHING


def _fits(text: str, *, quotes: bool) -> bool:
    return text.isprintable() and closing_bracket(f"({text})", 0, quotes=quotes) == len(text) + 1


def _split(text: str) -> list[str]:
    """Split at the commas outside brackets and quotes."""
    parts: list[str] = []
    begin = at = depth = 0
    while at < len(text):
        sign = text[at]
        if sign in _QUOTES:
            at = max(_end_of_quote(text, at), at)
        elif sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth -= 1
        elif sign == "," and depth == 0:
            parts.append(text[begin:at])
            begin = at + 1
        at += 1
    return [*parts, text[begin:]]


RequestKind = Literal["ask", "abort", "error", "done", "errorInd"]
"""Kinds of requests. The last two are indications, which expect no answer."""

AnswerKind = Literal["value", "done", "error"]
RequestPort = Literal["D", "TI"]
AnswerPort = Literal["U", "TO"]
Layer = Literal[1, 2, 3]

LARGEST_INDEX = 999_999_999
"""Largest number that a request can have."""


@dataclass(frozen=True, slots=True)
class Request:
    """Event sent upstream: `D:ask1`, `TI:abort2`, `D:error2(E)`, `D:done3`, `D:errorInd3(E)`.

    index: the number of the request on its port, from 1; indications are numbered with them.
    message: text of an error; None if missing.
    most: limit on the values of an ask for a batch, written `D:ask1*512`.
    """

    port: RequestPort
    kind: RequestKind
    index: int
    message: str | None = None
    most: int | None = None

    @property
    def expects_answer(self) -> bool:
        """Whether the request expects an answer, unlike an indication."""
        return self.kind not in ("done", "errorInd")

    @property
    def terminates(self) -> bool:
        """Whether the request ends the stream: anything but an ask."""
        return self.kind != "ask"

    def __str__(self) -> str:
        batch = "" if self.most is None else f"*{self.most}"
        message = "" if self.message is None else f"({message_text(self.message)})"
        return f"{self.port}:{self.kind}{self.index}{batch}{message}"


@dataclass(frozen=True, slots=True)
class Answer:
    """Event sent downstream: `U:ans1=value(x)`, `TO:ans2=done`, `U:ans3=error(E)`.

    index: number of the answered request. value: the value of a `value`.
    values: values of a batch, written `U:ans1=values(a, b)`; None if it is not a batch.
    message: text of an error; None if missing.
    """

    port: AnswerPort
    index: int
    kind: AnswerKind
    value: object = None
    message: str | None = None
    values: tuple[object, ...] | None = None

    @property
    def carried(self) -> int:
        """Number of values carried by this answer."""
        if self.kind != "value":
            return 0
        return 1 if self.values is None else len(self.values)

    @property
    def terminates(self) -> bool:
        """Whether the answer ends the stream."""
        return self.kind != "value"

    def __str__(self) -> str:
        return f"{self.port}:ans{self.index}={self._what()}"

    def _what(self) -> str:
        if self.kind == "value":
            if self.values is None:
                return f"value({value_text(self.value)})"
            return f"values({values_text(self.values)})"
        return self.kind if self.message is None else f"{self.kind}({message_text(self.message)})"


Event = Request | Answer


@dataclass(frozen=True)
class Trace:
    """Events of an edge or of a transformer, in chronological order.

    layer: supported requests: 1 asks, 2 also aborts, 3 also errors.
    complete: whether no further event will occur; False for a truncated trace.
    of_transformer: whether these are both edges of a transformer; always so if it has events of one.
    """

    events: tuple[Event, ...]
    layer: Layer = 3
    complete: bool = True
    of_transformer: bool = False

    def __post_init__(self) -> None:
        if any(event.port in ("TI", "TO") for event in self.events):
            object.__setattr__(self, "of_transformer", True)

    def texts(self) -> tuple[str, ...]:
        """Format the events; in a trace of a transformer, upstream answers `ansT1`."""
        texts = map(str, self.events)
        if not self.of_transformer:
            return tuple(texts)
        return tuple(text.replace("U:ans", _TO_TRANSFORMER, 1) if text[0] == "U" else text for text in texts)

    def __str__(self) -> str:
        return " ".join(self.texts())


def parse(trace: str | Sequence[str], *, layer: Layer = 3, complete: bool = True) -> Trace:
    """Parse a trace from a text, or from one text per event.

    In a text, events are separated by white space, and `#` begins a comment until the end of the line. Raises
    `BadTrace` for an invalid event, with its position.
    """
    if isinstance(trace, str):
        found = list(_events(trace))
    else:
        found = [_single(text, number) for number, text in enumerate(trace, 1)]
    of_transformer = any(upstream for _, upstream in found)
    return Trace(tuple(event for event, _ in found), layer, complete, of_transformer)


_EVENT = re.compile(
    r"(?:(?P<asker>D|TI):(?P<request>ask|abort|errorInd|error|done)(?P<r>[0-9]+)(?:\*(?P<most>[0-9]+))?"
    r"|(?P<answerer>U|TO):ans(?:(?<=U:ans)T)?(?P<a>[0-9]+)=(?P<answer>values?|done|error))(?P<open>\()?"
)
_TO_TRANSFORMER = "U:ansT"
_BLANK = re.compile(r"(?:\s|#[^\n]*)*")


def _events(text: str) -> Iterator[tuple[Event, bool]]:
    """Parse the events of a text. Yields each with a flag: written as an answer to a transformer."""
    at = _skip(text, 0)
    while at < len(text):
        event, end = _event(text, at)
        if end < len(text) and not text[end].isspace():
            raise _bad(text, at, "runs into what follows it", "separate events by white space")
        yield event, text.startswith(_TO_TRANSFORMER, at)
        at = _skip(text, end)


def _skip(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    assert blank is not None
    return blank.end()


def _single(text: str, number: int) -> tuple[Event, bool]:
    """Parse a text with exactly one event, which is event `number`."""
    try:
        events = list(_events(text))
    except BadTrace as error:
        raise BadTrace(f"event {number}, {error.what}", why=error.why, fix=error.fix, **error.facts) from None
    if len(events) != 1:
        raise BadTrace(
            f"event {number} is {len(events)} events: {_shown(text)}",
            fix="write one event per text",
            line=1,
            column=1,
        )
    return events[0]


def _event(text: str, at: int) -> tuple[Event, int]:
    """Parse the event at a position, and return where it ends."""
    found = _EVENT.match(text, at)
    if found is None:
        raise _bad(text, at, "is no event", "write events like D:ask1, U:ans1=value(7), D:error2(text)")
    carried, end = _carried(text, at, found)
    if found["asker"]:
        return _request(text, at, found, carried), end
    return _answer(text, at, found, carried), end


def _carried(text: str, at: int, found: re.Match[str]) -> tuple[str | None, int]:
    """Parse the bracketed content of an event (None without one), and return where the event ends."""
    if not found["open"]:
        return None, found.end()
    begin = found.end()
    # A message is prose: apostrophes are not quotes, unless the whole message is quoted.
    quotes = found["answer"] in ("value", "values") or text[begin : begin + 1] in ("'", '"')
    end = closing_bracket(text, begin - 1, quotes=quotes)
    if end < 0:
        raise _bad(text, at, "has a bracket that its line does not close", "close it, or quote the text")
    return text[begin:end], end + 1


def _request(text: str, at: int, found: re.Match[str], carried: str | None) -> Request:
    kind = cast(RequestKind, found["request"])
    if carried is not None and kind not in ("error", "errorInd"):
        raise _bad(text, at, f"carries something, and {kind} carries nothing", "leave out the brackets")
    if found["most"] and kind != "ask":
        raise _bad(text, at, f"is a batch, and only asks can be: not {kind}", "leave out the *")
    return Request(
        port=cast(RequestPort, found["asker"]),
        kind=kind,
        index=_number(text, at, found["r"]),
        message=None if carried is None else read_message(carried),
        most=_number(text, at, found["most"]) if found["most"] else None,
    )


def _answer(text: str, at: int, found: re.Match[str], carried: str | None) -> Answer:
    port, index, kind = cast(AnswerPort, found["answerer"]), _number(text, at, found["a"]), found["answer"]
    if kind in ("value", "values"):
        if carried is None:
            raise _bad(text, at, "does not say which value", f"write {kind}(...)")
        if kind == "value":
            return Answer(port, index, "value", value=read_value(carried))
        return Answer(port, index, "value", values=read_values(carried))
    if kind == "done" and carried is not None:
        raise _bad(text, at, "carries something, and done carries nothing", "leave out the brackets")
    message = None if carried is None else read_message(carried)
    return Answer(port, index, cast(AnswerKind, kind), message=message)


def _number(text: str, at: int, digits: str) -> int:
    if len(digits) > len(str(LARGEST_INDEX)) or digits[0] == "0":
        raise _bad(text, at, f"has a number that is not from 1 to {LARGEST_INDEX}", "number requests from 1")
    return int(digits)


def _bad(text: str, at: int, what: str, fix: str) -> BadTrace:
    line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
    word = text[at : at + 200].split(maxsplit=1)[0]
    return BadTrace(
        f"line {line}, column {column}: {_shown(word)} {what}", fix=fix, line=line, column=column, text=word
    )


def _shown(text: str, width: int = 60) -> str:
    shown = ascii(text)
    return shown if len(shown) <= width else f"{shown[: width - 3]}..."


_HEADER = re.compile(r"[^\S\n]*(?P<name>layer|complete)[^\S\n]*:[^\S\n]*(?P<value>[^\s#]*)[^\S\n]*(?:#.*)?")
_COMPLETE = {"yes": True, "true": True, "no": False, "false": False}


def read_trace(text: str) -> Trace:
    """Parse the trace in a file's text. Raises `BadTrace` for an invalid one, with the position."""
    if text.lstrip()[:1] in ("[", "{"):
        return _from_json(text)
    said: dict[str, Any] = {}
    lines = text.split("\n")
    for number, line in enumerate(lines):
        header = _HEADER.fullmatch(line.rstrip("\r"))
        if header is not None:
            _take(said, header["name"], header["value"], number + 1)
            lines[number] = ""  # kept as a line, so that line numbers stay correct
        elif line.strip() and not line.lstrip().startswith("#"):
            break
    return parse("\n".join(lines), **said)


def _take(said: dict[str, Any], name: str, value: str, line: int) -> None:
    if name in said:
        raise BadTrace(f"line {line}: {name} is said twice", fix="say it once", line=line)
    said[name] = _layer(value, line) if name == "layer" else _COMPLETE.get(value.lower())
    if said[name] is None:
        raise BadTrace(f"line {line}: complete is {_quoted(value)}", fix="write yes or no", line=line)


def _layer(value: str, line: int) -> Layer:
    if value not in ("1", "2", "3"):
        raise BadTrace(f"line {line}: layer is {_quoted(value)}", fix="write 1, 2 or 3", line=line)
    return cast(Layer, int(value))


def _from_json(text: str) -> Trace:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadTrace(f"this is not JSON: {error}", fix="correct it, or write events as text") from None
    if isinstance(found, list):
        return parse(_texts(cast("list[Any]", found)))
    fields = cast("dict[str, Any]", found)
    for name in fields:
        if name not in ("events", "layer", "complete"):
            raise BadTrace(
                f"{_quoted(name)} is nothing that a trace has", fix="write events, layer and complete"
            )
    events, layer, complete = fields.get("events"), fields.get("layer", 3), fields.get("complete", True)
    if not isinstance(events, list):
        raise BadTrace("events is missing, or no array", fix="write an array of events")
    if type(layer) is not int or layer not in (1, 2, 3):
        raise BadTrace(f"layer is {_quoted(layer)}", fix="write 1, 2 or 3")
    if not isinstance(complete, bool):
        raise BadTrace(f"complete is {_quoted(complete)}", fix="write true or false")
    return parse(_texts(cast("list[Any]", events)), layer=layer, complete=complete)


def _texts(events: list[Any]) -> list[str]:
    for number, event in enumerate(events, 1):
        if not isinstance(event, str):
            raise BadTrace(f"event {number} is {_quoted(event)}", fix='write events as text: "D:ask1"')
    return cast("list[str]", events)


def _quoted(value: object, width: int = 60) -> str:
    shown = json.dumps(value)
    return shown if len(shown) <= width else f"{shown[: width - 3]}..."
