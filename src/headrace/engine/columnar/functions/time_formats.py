"""Times and texts by constant patterns of two digits a field and four for the year. Others stay in rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import polars as pl

from headrace.engine.columnar.functions.calendar import LOWERINGS as CALENDAR
from headrace.engine.columnar.functions.casts import parsed, since_first_year
from headrace.engine.columnar.functions.time import count_of
from headrace.expr.polars_columns import LoweredExpression, Lowering, NotLowered, constant_value
from headrace.expr.types import DATE, INT64, RANGES, STR, TIMESTAMP
from headrace.expr.typing_rules import CallTerm

Arguments = Sequence[LoweredExpression]
_FIELDS = {
    "yyyy": ("%Y", "[0-9]{4}"),
    "MM": ("%m", "(0[1-9]|1[0-2])"),
    "dd": ("%d", "(0[1-9]|[12][0-9]|3[01])"),
    "HH": ("%H", "([01][0-9]|2[0-3])"),
    "mm": ("%M", "[0-5][0-9]"),
    "ss": ("%S", "[0-5][0-9]"),
}
_TOKEN = re.compile("|".join((*_FIELDS, "'T'", "[-/:., _]")))
_DAY, _CLOCK = {"yyyy", "MM", "dd"}, {"HH", "mm"}
_SECONDS_OF_DAY = 86_400


def _tokens(call: CallTerm) -> list[str]:
    pattern = constant_value(call.arguments[1])
    found = _TOKEN.findall(pattern) if isinstance(pattern, str) else []
    fields = [token for token in found if token in _FIELDS]
    if not fields or "".join(found) != pattern or len(set(fields)) < len(fields):
        raise NotLowered(f"{call.function.name}() has a columnar form only for plain patterns as yyyy-MM-dd")
    return found


def _shown(token: str) -> str:
    return _FIELDS[token][0] if token in _FIELDS else token.strip("'")


def _format(call: CallTerm, arguments: Arguments) -> LoweredExpression:
    form = "".join(map(_shown, _tokens(call)))
    return LoweredExpression(arguments[0].value.dt.to_string(form))


def _from_unixtime(call: CallTerm, arguments: Arguments) -> LoweredExpression:
    moment = CALENDAR["timestamp_seconds"](call, arguments)
    return LoweredExpression(_format(call, [moment]).value, None, moment.fails)


def _read(call: CallTerm, arguments: Arguments) -> LoweredExpression:
    """Read the texts that have exactly the digits of the pattern; others are marked."""
    tokens = _tokens(call)
    fields = {token for token in tokens if token in _FIELDS}
    with_clock = not fields <= _DAY
    if not fields >= _DAY or (with_clock and not fields >= _CLOCK):
        raise NotLowered(
            f"{call.function.name}() has a columnar form only for patterns of a whole day or time"
        )
    form = "".join(map(_shown, tokens))
    syntax = "".join(
        _FIELDS[token][1] if token in _FIELDS else re.escape(token.strip("'")) for token in tokens
    )

    def read(text: pl.Expr) -> pl.Expr:
        if with_clock:
            time = text.str.to_datetime(form, time_unit="us", strict=False)
        else:
            time = text.str.to_date(form, strict=False).cast(pl.Datetime("us"))
        return since_first_year(time)

    made = parsed(syntax, read)(arguments[0], STR, TIMESTAMP)
    return LoweredExpression(made.value.dt.date(), None, made.fails) if call.type == DATE else made


def _unix_timestamp(call: CallTerm, arguments: Arguments) -> LoweredExpression:
    (value, *_), type_ = arguments, call.arguments[0].type
    if constant_value(call.arguments[1]) is None:
        raise NotLowered("unix_timestamp() has a columnar form only with a constant pattern")
    if type_ == DATE:
        return LoweredExpression(count_of(value.value) * _SECONDS_OF_DAY, RANGES[INT64])
    time = _read(call, arguments) if type_ == STR else LoweredExpression(value.value)
    micros = count_of(time.value)
    seconds = micros // 1_000_000 + ((micros < 0) & (micros % 1_000_000 != 0)).cast(pl.Int64)
    return LoweredExpression(seconds, RANGES[INT64], time.fails)


LOWERINGS: Mapping[str, Lowering] = {
    "date_format": _format,
    "from_unixtime": _from_unixtime,
    "to_timestamp": _read,
    "try_to_timestamp": _read,
    "to_date": _read,
    "try_to_date": _read,
    "unix_timestamp": _unix_timestamp,
}
