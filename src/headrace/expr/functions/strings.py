"""String functions, counted in code points. Most of them accept bytes, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from headrace.expr.code_runtime import utf8
from headrace.expr.function_records import function, of_spark_columns
from headrace.expr.polars_columns import (
    LoweredExpression,
    Lowering,
    NotLowered,
    constant_value,
)
from headrace.expr.types import BYTES, INT32, INT64, STR, ListType, MapType, parts_of
from headrace.expr.typing_rules import (
    NULL,
    Arguments,
    CallTerm,
    Emitter,
    Function,
    LiteralTerm,
    Mismatch,
    Signature,
)
from headrace.requirements import F, pl

if TYPE_CHECKING:
    from pyspark.sql import Column


Python = Callable[[Emitter, CallTerm, tuple[str, ...]], str]


def _length_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    (argument,) = arguments
    if argument.type not in (STR, BYTES) and not isinstance(argument.type, ListType | MapType):
        raise Mismatch(f"length needs a str, bytes, a list or a map, got {argument.type}")
    return Signature((argument.type,), INT32)


def _reverse_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    (argument,) = arguments
    if argument.type not in (STR, NULL) and not isinstance(argument.type, ListType):
        raise Mismatch(f"reverse needs a str or a list, got {argument.type}")
    wanted = STR if argument.type == NULL else argument.type
    return Signature((wanted,), wanted)


def constant_values(call: CallTerm) -> list[Any]:
    return [a.value if isinstance(a, LiteralTerm) else None for a in call.arguments]


# -- more of Spark's ------------------------------------------------------------------------


def initcap(text: str) -> str:
    """Capitalize each word; words are separated by blanks."""
    # The rest of a word is in lower case as the whole of it: a sigma that ends it has a form of its own.
    return " ".join(w[:1].title() + w.lower()[len(w[:1].lower()) :] for w in text.split(" "))


def translate(text: str, search: str, by: str) -> str:
    """Replace characters of `search` by those at the same positions in `by`; remove the excess ones."""
    table: dict[int, str] = {}
    for at, character in enumerate(search):
        table.setdefault(ord(character), by[at] if at < len(by) else "")
    return text.translate(table)


def character(number: int) -> str:
    return "" if number < 0 else chr(number & 0xFF)


# -- of several, null or not -------------------------------------------------------------------


def octets(value: str | bytes) -> int:
    return len(utf8(value) if isinstance(value, str) else value)


# -- on columns -------------------------------------------------------------------------------


LENGTHS = (0, 2**31 - 1)


def constant_text(call: CallTerm, at: int) -> str:
    """Return an argument that is a constant text."""
    value = constant_value(call.arguments[at])
    if not isinstance(value, str):
        raise NotLowered(f"{call.function.name}() has a columnar form only with a constant argument {at + 1}")
    return value


def _of_text_columns(of: Callable[[pl.Expr], pl.Expr]) -> Lowering:
    return lambda call, arguments: LoweredExpression(of(arguments[0].value))


def of_two_columns(of: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> Lowering:
    def lowering(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
        text, other = (a.value for a in arguments)
        return LoweredExpression(pl.when(other.is_not_null()).then(of(text, other)))

    return lowering


def length_of(value: pl.Expr, type_: object) -> pl.Expr:
    """Return the length of a text in characters, or of bytes, as a 64-bit integer."""
    return (value.str.len_chars() if type_ == STR else value.bin.size()).cast(pl.Int64)


def _length_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    type_ = call.arguments[0].type
    if isinstance(type_, ListType):
        return LoweredExpression(arguments[0].value.list.len().cast(pl.Int32), LENGTHS)
    if type_ not in (STR, BYTES):
        raise NotLowered(f"length() of a {type_} has no columnar form")
    return LoweredExpression(length_of(arguments[0].value, type_).cast(pl.Int32), LENGTHS)


def _octets_columns(bits: int) -> Lowering:
    def lowering(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
        value = arguments[0].value
        count = value.str.len_bytes() if call.arguments[0].type == STR else value.bin.size()
        return LoweredExpression(count.cast(pl.Int32) * bits, LENGTHS)

    return lowering


def _in_ascii_columns(of: Callable[[pl.Expr], pl.Expr]) -> Lowering:
    """Lower a function that Polars computes differently for non-ASCII letters.

    Python and Polars may know different editions of Unicode; Polars reverses letters with their accents.
    """

    def lowering(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
        if call.type != STR:
            raise NotLowered(f"{call.function.name}() has a columnar form only of texts")
        text = arguments[0].value
        return LoweredExpression(of(text), None, text.str.len_chars() != text.str.len_bytes())

    return lowering


# -- other texts -------------------------------------------------------------------------------


def _translate_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    search, by = constant_text(call, 1), constant_text(call, 2)
    pairs = {one: by[at : at + 1] for at, one in reversed(list(enumerate(search)))}
    text = arguments[0].value
    return LoweredExpression(text.str.replace_many(list(pairs), list(pairs.values())) if pairs else text)


# -- on Spark ---------------------------------------------------------------------------------


def _length_spark(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    return (F.size if parts_of(call.arguments[0].type) else F.length)(arguments[0])


NAMES: dict[str, Any] = {
    "x_octets": octets,
}


FUNCTIONS: tuple[Function, ...] = (
    function(
        "upper",
        "",
        (STR,),
        STR,
        "{0}.upper()",
        catalyst="Upper",
        columns=_in_ascii_columns(lambda text: text.str.to_uppercase()),
    ),
    function(
        "lower",
        "",
        (STR,),
        STR,
        "{0}.lower()",
        catalyst="Lower",
        columns=_in_ascii_columns(lambda text: text.str.to_lowercase()),
    ),
    function(
        "trim",
        "",
        (STR,),
        STR,
        "{0}.strip(' ')",
        columns=_of_text_columns(lambda text: text.str.strip_chars(" ")),
        keeps_size=True,
    ),
    function(
        "length",
        types=_length_rule,
        rows="len({0})",
        arity=(1, 1),
        catalyst=("Length", "Size"),
        columns=_length_columns,
        takes_lists=True,
        spark=_length_spark,
    ),
    function(
        "ltrim",
        "The text without leading blanks.",
        (STR,),
        STR,
        "{0}.lstrip(' ')",
        example="'  a'",
        columns=_of_text_columns(lambda text: text.str.strip_chars_start(" ")),
        keeps_size=True,
    ),
    function(
        "rtrim",
        "The text without trailing blanks.",
        (STR,),
        STR,
        "{0}.rstrip(' ')",
        example="'a  '",
        columns=_of_text_columns(lambda text: text.str.strip_chars_end(" ")),
        keeps_size=True,
    ),
    function(
        "ltrim_of",
        "",
        (
            STR,
            STR,
        ),
        STR,
        "{0}.lstrip({1})",
        columns=of_two_columns(lambda text, of: text.str.strip_chars_start(of)),
        spark=of_spark_columns(lambda a, b: F.ltrim(a, b)),
        keeps_size=True,
    ),
    function(
        "rtrim_of",
        "",
        (
            STR,
            STR,
        ),
        STR,
        "{0}.rstrip({1})",
        columns=of_two_columns(lambda text, of: text.str.strip_chars_end(of)),
        spark=of_spark_columns(lambda a, b: F.rtrim(a, b)),
        keeps_size=True,
    ),
    function(
        "btrim",
        "The text without the given characters at both ends.",
        (STR, STR),
        STR,
        "{0}.strip({1})",
        defaults=(" ",),
        example="'--a--', '-'",
        columns=of_two_columns(lambda text, of: text.str.strip_chars(of)),
        keeps_size=True,
    ),
    function(
        "initcap",
        "The text with each word capitalized.",
        (STR,),
        STR,
        initcap,
        example="'green tea'",
        catalyst="InitCap",
        keeps_size=True,
    ),
    function(
        "reverse",
        "The text or list reversed.",
        types=_reverse_rule,
        rows="{0}[::-1]",
        arity=(1, 1),
        shown_parameters="list or str",
        example="'abc'",
        catalyst="Reverse",
        columns=_in_ascii_columns(lambda text: text.str.reverse()),
        keeps_size=True,
    ),
    function(
        "translate",
        "The text with characters of the second text replaced by those of the third.",
        (STR, STR, STR),
        STR,
        translate,
        example="'abc', 'ab', 'xy'",
        catalyst="StringTranslate",
        columns=_translate_columns,
        keeps_size=True,
    ),
    function(
        "ascii",
        "Code point of the first character; 0 for empty text.",
        (STR,),
        INT32,
        "ord({0}[:1] or '\\0')",
        example="'A'",
        catalyst="Ascii",
    ),
    function(
        "octet_length",
        "Length in bytes, of text as UTF-8.",
        ((STR, BYTES),),
        INT32,
        "x_octets({0})",
        example="'é'",
        catalyst="OctetLength",
        columns=_octets_columns(1),
    ),
    function(
        "bit_length",
        "Length in bits, of text as UTF-8.",
        ((STR, BYTES),),
        INT32,
        "(8 * x_octets({0}))",
        example="'abc'",
        catalyst="BitLength",
        columns=_octets_columns(8),
    ),
    function(
        "chr",
        "Character with the number, modulo 256.",
        (INT64,),
        STR,
        character,
        example="65",
        catalyst="Chr",
        keeps_size=True,
    ),
)
