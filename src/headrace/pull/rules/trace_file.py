"""Trace files: events in their notation, or JSON.

As text, lines before the first event may give properties of the trace, here with their defaults:

    # recorded at the edge above `double`
    layer: 3
    complete: yes
    D:ask1 U:ans1=value(7)
    D:abort2 U:ans2=done

As JSON, an array of such events, or an object with `events`, `layer` and `complete`.
"""

from __future__ import annotations

import json
import re
from typing import Any, cast

from headrace.pull.errors import BadTrace
from headrace.pull.rules.trace import Layer, Trace, parse

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
        raise BadTrace(f"line {line}: complete is {_shown(value)}", fix="write yes or no", line=line)


def _layer(value: str, line: int) -> Layer:
    if value not in ("1", "2", "3"):
        raise BadTrace(f"line {line}: layer is {_shown(value)}", fix="write 1, 2 or 3", line=line)
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
                f"{_shown(name)} is nothing that a trace has", fix="write events, layer and complete"
            )
    events, layer, complete = fields.get("events"), fields.get("layer", 3), fields.get("complete", True)
    if not isinstance(events, list):
        raise BadTrace("events is missing, or no array", fix="write an array of events")
    if type(layer) is not int or layer not in (1, 2, 3):
        raise BadTrace(f"layer is {_shown(layer)}", fix="write 1, 2 or 3")
    if not isinstance(complete, bool):
        raise BadTrace(f"complete is {_shown(complete)}", fix="write true or false")
    return parse(_texts(cast("list[Any]", events)), layer=layer, complete=complete)


def _texts(events: list[Any]) -> list[str]:
    for number, event in enumerate(events, 1):
        if not isinstance(event, str):
            raise BadTrace(f"event {number} is {_shown(event)}", fix='write events as text: "D:ask1"')
    return cast("list[str]", events)


def _shown(value: object, width: int = 60) -> str:
    shown = json.dumps(value)
    return shown if len(shown) <= width else f"{shown[: width - 3]}..."
