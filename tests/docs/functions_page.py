"""The page docs/reference/functions.md: every function of `headrace.functions`, with an example that runs."""

from __future__ import annotations

import importlib
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import headrace as hr
from headrace.expr.function_bases import FixedFunction, Parameter
from headrace.expr.functions import CATALOGUE
from headrace.expr.types import DataType
from tests.docs.pages import GENERATED

HEAD = f"""\
# Functions

{GENERATED}

Functions are written `hr.functions.lpad(col.code, 5, "0")`. Names and meaning are those of Spark 4 with
ANSI on. Arguments are expressions or constants; a null argument gives null unless the description says
otherwise. [Expressions](expressions.md) have operators, methods and casts; [SQL](sql.md#functions)
lists differences from Spark.
"""

SECTIONS = {
    "Numbers": ("arithmetic", "numbers", "mathematics"),
    "Text": ("strings", "formatting"),
    "Regular expressions": ("regular_expressions",),
    "Bytes and encodings": ("encodings",),
    "Dates and times": ("time", "calendar", "time_formats", "intervals"),
    "Lists": ("arrays",),
    "Maps": ("maps",),
    "Functions of elements and entries": ("higher_order",),
    "JSON and CSV": ("json", "from_json", "csv"),
    "Errors": ("logic",),
}
OF_SEVERAL_CALLS = {
    "array_append": "Lists",
    "array_prepend": "Lists",
    "arrays_zip": "Lists",
    "size": "Lists",
    "assert_true": "Errors",
    "from_json": "JSON and CSV",
    "mask": "Text",
    "try_to_binary": "Bytes and encodings",
}
"""Sections of functions that have no entry of their own in the catalogue."""

ARGUMENTS = {
    "aggregate": "list, start, merge, finish",
    "array_append": "list, element",
    "array_compact": "list",
    "array_contains": "list, value",
    "array_distinct": "list",
    "array_except": "list, list",
    "array_insert": "list, position, element",
    "array_intersect": "list, list",
    "array_join": "list, separator, null_text",
    "array_max": "list",
    "array_min": "list",
    "array_position": "list, value",
    "array_prepend": "list, element",
    "array_remove": "list, value",
    "array_sort": "list, comparison",
    "array_union": "list, list",
    "arrays_overlap": "list, list",
    "arrays_zip": "**lists",
    "assert_true": "condition, message",
    "element_at": "list or map, position or key",
    "exists": "list, function",
    "filter": "list, function",
    "flatten": "list",
    "forall": "list, function",
    "from_json": "str, type, mode",
    "get": "list, position",
    "json_tuple": "str, *names",
    "mask": "str, upper, lower, digit, other",
    "map": "*keys_and_values",
    "map_concat": "*maps",
    "map_contains_key": "map, key",
    "map_entries": "map",
    "map_filter": "map, function",
    "map_from_arrays": "keys, values",
    "map_from_entries": "list",
    "map_keys": "map",
    "map_values": "map",
    "map_zip_with": "map, map, function",
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor"), "integer, integer"),
    "bitwise_not": "integer",
    "pmod": "number, number",
    "raise_error": "str",
    "reverse": "list or str",
    "sequence": "first, last, step",
    "size": "list or map",
    "slice": "list, position, length",
    "sort_array": "list, ascending",
    "to_csv": "struct",
    "to_json": "struct, list or map",
    "to_number": "str, format",
    "transform": "list, function",
    "transform_keys": "map, function",
    "transform_values": "map, function",
    "try_element_at": "list or map, position or key",
    "try_to_binary": "str, format",
    "try_to_number": "str, format",
    "zip_with": "list, list, function",
}
"""Arguments of the functions that take several types."""

EXAMPLES = {
    "acos": "0.5",
    "acosh": "2.0",
    "add_months": "date('2024-01-31'), 1",
    "aggregate": "array(1, 2, 3), 0, lambda sum, x: sum + x",
    "array_append": "array(1, 2), 3",
    "array_compact": "array(1, None, 2)",
    "array_contains": "array(1, 2), 2",
    "array_distinct": "array(1, 2, 1)",
    "array_except": "array(1, 2), array(2)",
    "array_insert": "array(1, 3), 2, 2",
    "array_intersect": "array(1, 2), array(2, 3)",
    "array_join": "array('a', 'b'), '-'",
    "array_max": "array(1, 3, 2)",
    "array_min": "array(2, 1)",
    "array_position": "array('a', 'b'), 'b'",
    "array_prepend": "array(1, 2), 0",
    "array_remove": "array(1, 2, 1), 1",
    "array_sort": "array(3, 1, 2)",
    "array_union": "array(1, 2), array(2, 3)",
    "arrays_overlap": "array(1, 2), array(2)",
    "arrays_zip": "a=array(1, 2), b=array('x', 'y')",
    "ascii": "'A'",
    "asin": "1.0",
    "asinh": "1.0",
    "assert_true": "lit(True)",
    "atan": "1.0",
    "atan2": "1.0, 1.0",
    "atanh": "0.5",
    "base64": "b'abc'",
    "bin": "10",
    "bit_count": "7",
    "bit_length": "'abc'",
    "bitwise_and": "6, 3",
    "bitwise_not": "5",
    "bitwise_or": "6, 3",
    "bitwise_xor": "6, 3",
    "btrim": "'--a--', '-'",
    "cbrt": "27.0",
    "chr": "65",
    "conv": "'ff', 16, 10",
    "convert_timezone": "'UTC', 'Asia/Tokyo', timestamp('2024-07-01 12:00').cast(hr.TimestampNtz)",
    "cos": "1.0",
    "cosh": "1.0",
    "cot": "1.0",
    "crc32": "b'abc'",
    "csc": "1.0",
    "date_add": "date('2024-02-28'), 2",
    "date_format": "timestamp('2024-02-29 07:05'), 'HH:mm'",
    "date_from_unix_date": "1",
    "date_sub": "date('2024-03-01'), 1",
    "dayname": "date('2024-02-29')",
    "decode": "b'abc', 'UTF-8'",
    "degrees": "1.0",
    "element_at": "array('a', 'b'), -1",
    "encode": "'abc', 'UTF-8'",
    "exists": "array(1, 2), lambda x: x > 1",
    "exp": "1.0",
    "expm1": "1.0",
    "factorial": "5",
    "filter": "array(1, 2, 3), lambda x: x > 1",
    "find_in_set": "'b', 'a,b,c'",
    "flatten": "array(array(1), array(2, 3))",
    "forall": "array(1, 2), lambda x: x > 1",
    "format_number": "1234.5, 2",
    "from_json": "'[1, 2]', list[int]",
    "from_unixtime": "0, 'yyyy-MM-dd'",
    "from_utc_timestamp": "timestamp('2024-07-01 12:00'), 'Europe/Paris'",
    "get": "array('a', 'b'), 1",
    "get_json_object": "'{\"a\": [7]}', '$.a[0]'",
    "getbit": "5, 2",
    "hex": "255",
    "hypot": "3.0, 4.0",
    "initcap": "'green tea'",
    "instr": "'green tea', 'tea'",
    "is_valid_utf8": "b'\\xff'",
    "json_array_length": "'[1, 2]'",
    "json_object_keys": '\'{"a": 1, "b": 2}\'',
    "json_tuple": "'{\"a\": 1}', 'a', 'b'",
    "last_day": "date('2024-02-01')",
    "left": "'green', 2",
    "levenshtein": "'tea', 'pea'",
    "ln": "1.0",
    "locate": "'e', 'green tea', 5",
    "log": "2.0, 8.0",
    "log10": "100.0",
    "log1p": "1.0",
    "log2": "8.0",
    "lpad": "'7', 3, '0'",
    "ltrim": "'  a'",
    "luhn_check": "'79927398713'",
    "make_date": "2024, 2, 29",
    "make_dt_interval": "1, 2, 30, Decimal('4.5')",
    "make_timestamp": "2024, 2, 29, 12, 30, lit(Decimal('1.5'))",
    "make_valid_utf8": "b'ab\\xff'",
    "map": "'a', 1, 'b', 2",
    "map_concat": "map('a', 1), map('b', 2)",
    "map_contains_key": "map('a', 1), 'b'",
    "map_entries": "map('a', 1)",
    "map_filter": "map('a', 1, 'b', 2), lambda key, value: value > 1",
    "map_from_arrays": "array('a', 'b'), array(1, 2)",
    "map_from_entries": "array(struct(key='a', value=1))",
    "map_keys": "map('a', 1, 'b', 2)",
    "map_values": "map('a', 1, 'b', 2)",
    "map_zip_with": "map('a', 1), map('a', 2), lambda key, x, y: x + y",
    "mask": "'Ab 12'",
    "md5": "b'abc'",
    "monthname": "date('2024-02-29')",
    "months_between": "timestamp('2024-03-31'), timestamp('2024-02-29'), lit(True)",
    "next_day": "date('2024-02-29'), 'Mon'",
    "octet_length": "'é'",
    "overlay": "'green tea', 'black', 1, 5",
    "pmod": "-7, 3",
    "power": "2.0, 10.0",
    "quote": "'it\\'s'",
    "radians": "180.0",
    "raise_error": "'too large'",
    "regexp_count": "'a1b22', '[0-9]+'",
    "regexp_extract": "'a1b22', '([a-z])([0-9]+)', 2",
    "regexp_extract_all": "'a1b22', '[0-9]+', 0",
    "regexp_instr": "'a1b22', '[0-9]{2}'",
    "regexp_like": "'a1b22', '^a'",
    "regexp_replace": "'a1b22', '[0-9]+', '#', 1",
    "regexp_substr": "'a1b22', '[0-9]{2}'",
    "repeat": "'ab', 2",
    "reverse": "'abc'",
    "right": "'green', 2",
    "rint": "2.5",
    "rpad": "'7', 3, '.'",
    "rtrim": "'a  '",
    "sec": "1.0",
    "second_with_fraction": "timestamp('2024-02-29 12:00:01.5')",
    "sequence": "1, 7, 3",
    "sha1": "b'abc'",
    "sha2": "b'', 224",
    "shiftleft": "1, 3",
    "shiftright": "-8, 1",
    "shiftrightunsigned": "8, 1",
    "signum": "-2.5",
    "sin": "1.0",
    "sinh": "1.0",
    "size": "array(1, 2)",
    "slice": "array(1, 2, 3), 2, 2",
    "sort_array": "array(1, 3, 2), lit(False)",
    "soundex": "'Robert'",
    "space": "2",
    "split": "'a1b2c', '[0-9]', -1",
    "sqrt": "9.0",
    "str_to_map": "'a=1,b=2', ',', '='",
    "substring_index": "'a.b.c', '.', 2",
    "tan": "1.0",
    "tanh": "1.0",
    "timestamp_micros": "1",
    "timestamp_millis": "1",
    "timestamp_seconds": "1",
    "timestampadd": "'HOUR', 2, timestamp('2024-02-29')",
    "timestampdiff": "'DAY', timestamp('2024-02-28'), timestamp('2024-03-01')",
    "to_binary": "'616263', 'hex'",
    "to_char": "lit(Decimal('12.5')), '99.90'",
    "to_csv": "struct(a=1, b='x, y', c=lit(True))",
    "to_date": "'29.02.2024', 'dd.MM.yyyy'",
    "to_json": "struct(a=1, b='x')",
    "to_number": "'1,234', '9,999'",
    "to_timestamp": "'29.02.2024 7', 'dd.MM.yyyy H'",
    "to_utc_timestamp": "timestamp('2024-07-01 14:00'), 'Europe/Paris'",
    "transform": "array(1, 2), lambda x: x * 10",
    "transform_keys": "map('a', 1), lambda key, value: concat(key, '!')",
    "transform_values": "map('a', 1), lambda key, value: value + 1",
    "translate": "'abc', 'ab', 'xy'",
    "try_element_at": "array(1, 2), 3",
    "try_make_timestamp": "2023, 2, 29, 0, 0, lit(Decimal(0))",
    "try_to_binary": "'xyz', 'hex'",
    "try_to_date": "'soon', 'yyyy-MM-dd'",
    "try_to_number": "'soon', '999'",
    "try_to_timestamp": "'soon', 'yyyy'",
    "try_url_decode": "'%zz'",
    "try_validate_utf8": "b'\\xff'",
    "unbase64": "'YWJj'",
    "unhex": "'616263'",
    "unix_date": "date('1970-01-02')",
    "unix_micros": "timestamp('1970-01-01 00:00:01')",
    "unix_millis": "timestamp('1970-01-01 00:00:01')",
    "unix_seconds": "timestamp('1970-01-01 00:00:01')",
    "unix_timestamp": "'1970-01-02', 'yyyy-MM-dd'",
    "url_decode": "'a+b%26'",
    "url_encode": "'a b&'",
    "validate_utf8": "b'abc'",
    "weekofyear": "date('2024-12-31')",
    "width_bucket": "5.0, 0.0, 10.0, 4",
    "yearofweek": "date('2024-12-31')",
    "zip_with": "array(1, 2), array(10, 20), lambda x, y: x + y",
}

"""What the functions give, in a sentence."""


def page() -> str:
    rows: dict[str, list[str]] = {title: [] for title in SECTIONS}
    for name in dir(hr.functions):
        rows[_section(name)].append(_row(name))
    parts = [HEAD]
    for title, functions in rows.items():
        table = "\n".join(["| function | value | example |", "|---|---|---|", *functions])
        parts.append(f"## {title}\n\n{table}\n")
    return "\n".join(parts)


def _section(name: str) -> str:
    if name in OF_SEVERAL_CALLS:
        return OF_SEVERAL_CALLS[name]
    for title, themes in SECTIONS.items():
        for theme in themes:
            if CATALOGUE[name] in importlib.import_module(f"headrace.expr.functions.{theme}").FUNCTIONS:
                return title
    raise LookupError(name)


def _row(name: str) -> str:
    takes = ARGUMENTS.get(name)
    if takes is None:
        function = CATALOGUE[name]
        assert isinstance(function, FixedFunction), name
        takes = ", ".join(map(_type_name, function.takes))
    call = f"{name}({EXAMPLES[name]})"
    cells = [_code(f"{name}({takes})"), _meaning(name), f"{_code(call)}<br>{_code(_value(call))}"]
    return f"| {' | '.join(cells)} |"


def _meaning(name: str) -> str:
    said = (getattr(hr.functions, name).__doc__ or "").partition(" Takes ")[0]
    return said.partition("\n\n")[0]


def _type_name(parameter: Parameter) -> str:
    several = parameter if isinstance(parameter, tuple) else (parameter,)
    return " or ".join(str(each) if isinstance(each, DataType) else "decimal" for each in several)


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def _value(call: str) -> str:
    """The value of a call, as a flow computes it."""
    names: dict[str, Any] = {name: getattr(hr.functions, name) for name in dir(hr.functions)}
    made = {name: getattr(hr, name) for name in ("array", "concat", "date", "lit", "struct", "timestamp")}
    flow = hr.Flow("example")
    one = flow.source("one", int)
    expression = eval(call, names | made | {"Decimal": Decimal, "hr": hr})
    if call.startswith("raise_error"):
        expression = hr.when(hr.col.value == 1, expression).otherwise(0)
    flow.sink("out", one.select(x=expression))
    try:
        (change,) = hr.Engine(flow).tick(one=[1])["out"]
    except hr.HeadraceError as error:
        return str(error).splitlines()[0]
    return _shown(change.row.x)


def _shown(value: Any) -> str:
    match value:
        case datetime():
            return value.astimezone(UTC).replace(tzinfo=None).isoformat(" ")
        case date():
            return value.isoformat()
        case Decimal() | timedelta():
            return str(value)
        case float():
            return repr(round(value, 6))  # the last digits depend on the machine's library
        case list():
            return f"[{', '.join(map(_shown, value))}]"
        case tuple():
            fields = zip(getattr(value, "_fields"), value, strict=True)  # noqa: B009
            return f"({', '.join(f'{name}={_shown(each)}' for name, each in fields)})"
        case _:
            return repr(value)
