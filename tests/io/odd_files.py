"""Strategies for JSON and CSV files with all that readers disagree about."""

from __future__ import annotations

from hypothesis import strategies as st

from headrace.expr.types import (
    BoolType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    Float64Type,
    Int64Type,
    ListType,
    Schema,
    StrType,
    StructType,
    TimestampType,
)

NUMBERS = st.one_of(
    st.integers(-3, 3).map(str),
    st.integers(-(2**70), 2**70).map(str),
    st.floats().map(repr),
    st.decimals(allow_nan=False, allow_infinity=False, places=3).map(str),
    st.sampled_from(
        ["1.0", "1e2", "1E+2", "-0", "-0.0", "0", "01", "+1", "1.", ".5", "1_000", " 1", "1 ", "0x1F",
         "1e400", "-1e400", "1e-400", "NaN", "-NaN", "Infinity", "-Infinity", "Inf", "inf", "nan",
         "2147483648", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
         "1e99999999999999999999", "9" * 400, "9" * 5000, "1" + "0" * 20, "1e20", "1e19",
         "0.123456789012345678", "0.1234567890123456789", "1.50", str(2**238), "-", "1e30", "1" * 38,
         "1e-57", "4.572389647718405e-62", "1e-2000000000", "1e2000000000", "0." + "0" * 60 + "1", "1e39",
         "99999999999999999999", "100000000000000000000"]
    ),
)  # fmt: skip
TIMES = st.one_of(
    st.dates().map(str),
    st.datetimes().map(str),
    st.datetimes().map(lambda at: at.isoformat() + "Z"),
    st.datetimes().map(lambda at: at.isoformat() + "+01:00"),
    st.sampled_from(
        ["2001-02-30", "2001-1-1", "0000-01-01", "0001-01-01", "9999-12-31", "20010101", "2001-01-01T03",
         "2001-01-01 03:04", "2001-01-01T03:04Z", "2001-01-01T03Z", "2001-01-01T03:04:05+01",
         "2001-01-01T03:04:05-0130", "2001-01-01T24:00:00", "2001-01-01T23:59:60",
         "2001-01-01T03:04:05.123456789", "2001-01-01T03:04:05.1234567Z", "2001-01-01t03:04:05",
         "0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00", "2001-01-01Z", "2001-01-01T03:04:05.",
         "2001-01-01 ", "2001-01-01T03:04:05+24:00", "2001-01-01T03:04:05-00:00", "٢٠٠١-01-01"]
    ),
)  # fmt: skip
WORDS = st.one_of(
    st.text(max_size=5),
    st.sampled_from(
        ["", "a", "ä", "😀", "\0", "true", "TRUE", "False", "tRUE", "null", "NaN", "Infinity", "-Inf",
         "+Infinity", "AAH/", "AA==", "AA=", "A A=", "\ufeff", "\x85", "\u2028", "\r", "\n", "\r\n", ",",
         '"', '""', "{", "}", "}\n{", "[[", "Inf,", "\\", "\x0c"]
    ),
    NUMBERS,
    TIMES,
)  # fmt: skip
ESCAPES = st.sampled_from(
    [f'"\\{e}"' for e in ("ud800", "udc00", "ud83d\\ude00", "u0000", "u00e4", "/", "q", "\t")]
)


def quoted(text: str) -> str:
    return '"' + "".join(f"\\u{ord(c):04x}" if c < " " or c in '"\\' else c for c in text) + '"'


NAMES = ["number", "text", "price", "point", "points", "x", "label", "other", "weight", "\\u0078", ""]
LITERALS = st.sampled_from(["true", "false", "null", "null", "True", "None"])
SCALARS = st.one_of(NUMBERS, WORDS.map(quoted), TIMES.map(quoted), NUMBERS.map(quoted), LITERALS, ESCAPES)


def json_object(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    member = st.tuples(st.sampled_from(NAMES), values, st.sampled_from([":", ": ", " :\t"]))
    members = st.lists(member.map(lambda m: f'"{m[0]}"{m[2]}{m[1]}'), max_size=6)
    return members.map(lambda m: "{" + ", ".join(m) + "}")


VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda v: "[" + ",".join(v) + "]"),
        json_object(inner),
        st.just("[" * 400 + "]" * 400),
    ),
    max_leaves=4,
)
ODD_LINES = st.sampled_from(
    ["", " ", "\t\r", "\x0c", "null", "7", "[1]", "{}", "{} {}", "{}null{}", '{"x": 1} {"x": 2}', '{"x":',
     "1}", '{"x": [{}', "{}]}", "},{", "\ufeff{}", "//", "{} //", '{"x": 1,}', "{x: 1}", "\x00",
     '{"points": [{"x": 1}', '{"x": 2}]}', '{"y": Inf}', '{"y": -NaN}']
)  # fmt: skip


FITTING: dict[type[DataType], st.SearchStrategy[str]] = {
    BoolType: st.sampled_from(["true", "false"]),
    Int64Type: st.integers(-(2**31), 2**31 - 1).map(str),
    Float64Type: st.one_of(
        st.floats(allow_nan=False, allow_infinity=False).map(repr), st.integers(-5, 5).map(str)
    ),
    DecimalType: st.decimals(-9999, 9999, places=2).map(str),
    BytesType: st.sampled_from(["AAH/", "", "AA=="]),
    TimestampType: TIMES,
    DateType: st.dates().map(str),
    StrType: WORDS,
}
UNQUOTED = (BoolType, Int64Type, Float64Type, DecimalType)


def json_values(of: DataType, *, nullable: bool, odd: bool) -> st.SearchStrategy[str]:
    """JSON that fits a field, or mostly if `odd`."""
    if isinstance(of, StructType):
        members = [
            json_values(f.type, nullable=f.nullable, odd=odd).map(f'"{f.name}": {{}}'.format)
            for f in of.fields
        ]
        fitting = st.tuples(*members).map(lambda m: "{" + ", ".join(m) + "}")
    elif isinstance(of, ListType):
        elements = st.lists(json_values(of.element, nullable=of.nullable, odd=odd), max_size=3)
        fitting = elements.map(lambda v: "[" + ",".join(v) + "]")
    else:
        fitting = FITTING[type(of)] if isinstance(of, UNQUOTED) else FITTING[type(of)].map(quoted)
        if isinstance(of, DecimalType) and odd:
            fitting = st.one_of(fitting, fitting.map(quoted), NUMBERS, NUMBERS.map(quoted))
    likely = [fitting] * 12
    return st.one_of(*likely, *([st.just("null")] * 2 if nullable else []), *([VALUES] if odd else []))


@st.composite
def json_lines(draw: st.DrawFn, schema: Schema) -> bytes:
    odd = draw(st.booleans())
    fields = [(f.name, json_values(f.type, nullable=f.nullable, odd=odd)) for f in schema.fields]
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 6))):
        if odd and draw(st.integers(0, 7)) == 0:
            lines.append(draw(st.one_of(ODD_LINES, json_object(VALUES))))
            continue
        members = [f'"{name}": {draw(value)}' for name, value in fields]
        if draw(st.integers(0, 5)) == 0:
            members += [f'"{draw(st.sampled_from(NAMES))}": {draw(VALUES)}']
        if odd and draw(st.integers(0, 5)) == 0:
            members.pop(draw(st.integers(0, len(members) - 1)))
        lines.append("{" + ", ".join(members) + "}")
    end = draw(st.sampled_from(["\n", "\n", "\n", "\r\n", "\n\n", "\r"]))
    content = (end.join(lines) + draw(st.sampled_from([end, ""]))).encode(errors="surrogatepass")
    return broken(draw, content) if odd else content


def broken(draw: st.DrawFn, content: bytes) -> bytes:
    """Now and then with a byte order mark, or bytes that are no UTF-8."""
    how = draw(st.integers(0, 12))
    at = draw(st.integers(0, len(content)))
    return (
        b"\xef\xbb\xbf" + content
        if how == 0
        else content[:at] + b"\xff" + content[at:]
        if how == 1
        else content
    )


@st.composite
def csv_records(draw: st.DrawFn, schema: Schema) -> bytes:
    names = list(schema.names)
    kinds = {f.name: FITTING[type(f.type)] for f in schema.fields}
    if draw(st.integers(0, 3)) == 0:
        names = draw(st.permutations([*names, draw(st.sampled_from(["other", "weight", "x", "", names[0]]))]))
    if draw(st.integers(0, 9)) == 0:
        names = names[1:]
    quote_all = draw(st.integers(0, 5)) == 0
    records: list[list[str]] = [names]
    for _ in range(draw(st.integers(0, 6))):
        record: list[str] = []
        for name in names:
            odd = draw(st.integers(0, 19)) == 0
            text = draw(st.one_of(WORDS, st.just("")) if odd or name not in kinds else kinds[name])
            if quote_all or (any(c in text for c in ',"\r\n') and draw(st.integers(0, 9))):
                text = '"' + text.replace('"', '""') + '"'
            record.append(text)
        if draw(st.integers(0, 19)) == 0:
            record = draw(
                st.sampled_from([record[1:], [*record, "a"], [""], ['"a" b'], ['a"b'], ['"a'], [" "]])
            )
        records.append(record)
    end = draw(st.sampled_from(["\n", "\n", "\n", "\r\n", "\n\n", "\r"]))
    content = end.join(map(",".join, records)) + draw(st.sampled_from([end, ""]))
    return broken(draw, content.encode(errors="surrogatepass"))
