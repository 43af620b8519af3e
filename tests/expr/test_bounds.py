"""In bounded code, no function makes a value above the limits."""

from __future__ import annotations

from headrace.expr import bounds
from headrace.expr.functions import CATALOGUE
from headrace.expr.functions import NAMES as USUAL
from headrace.expr.types import BOOL, DATE, FLOAT64, INT32, INT64, TIMESTAMP

OF_CHECKED_SIZE = {
    *("array_insert", "array_join", "array_repeat", "concat", "concat_ws", "flatten", "format_number"),
    *("format_string", "lpad", "regexp_replace", "repeat", "replace", "rpad", "sequence", "space", "split"),
}
"""They compute the size before they make anything, or as they go."""

NOT_LARGER = {
    # One of the arguments, or a part of one or of the row.
    *("array_compact", "array_distinct", "array_except", "array_intersect", "array_max", "array_min"),
    *("array_remove", "array_sort", "btrim", "coalesce", "element", "element_at", "elt", "field", "filter"),
    *("get", "greatest", "initcap", "least", "left", "ltrim", "ltrim_of", "map_entries", "map_filter"),
    *("map_keys", "mask", "rtrim_of"),
    *("map_sort", "map_values", "only_row", "regexp_extract", "regexp_substr", "reverse", "right", "rtrim"),
    *("slice", "sort_array", "split_part", "substring", "substring_index", "translate", "trim"),
    *("try_element_at", "variable", "when", "is_in"),
    # As many elements as a list has; each is made by a bounded expression.
    *("aggregate", "transform", "transform_keys", "transform_values", "zip_with", "map_zip_with", "lambda"),
    *("by_position", "map_from_arrays", "map_from_entries", "struct"),
    # Of a size that does not depend on that of the arguments, or smaller.
    *("bin", "chr", "conv", "date_format", "dayname", "from_unixtime", "hash", "md5", "monthname", "sha1"),
    *("convert_timezone", "getbit", "murmur3", "try_validate_utf8", "validate_utf8"),
    *("sha2", "soundex", "to_binary", "to_char", "try_cast", "try_url_decode", "unbase64", "unhex"),
    *("url_decode", "raise_error"),
}
OF_NUMBERS = {
    *("bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor"),
    *("abs", "add", "and", "array_contains", "array_position", "arrays_overlap", "bround", "ceil"),
    *("contains", "day", "day_of_week", "day_of_year", "days_since", "div", "divide", "ends_with"),
    *("eq", "eq_null_safe", "exists", "floor", "forall", "ge", "gt", "hour", "interval_part", "is_nan"),
    *("is_not_null", "is_null", "le", "length", "like", "lt", "map_contains_key", "micros_since"),
    *("microsecond", "minute", "modulo", "month", "multiply", "ne", "negate", "not", "or"),
    *("pmod", "quarter", "round", "round_ceil", "round_floor", "second", "second_with_fraction"),
    *("seconds_since", "shift", "shiftleft", "shiftright", "shiftrightunsigned", "starts_with"),
    *(
        "make_dt_interval",
        "subtract",
        "to_number",
        "truncate",
        "try_add",
        "try_divide",
        "try_modulo",
        "try_multiply",
    ),
    *("try_subtract", "try_to_number", "tumble", "weekday", "year"),
}
"""They make numbers, times and truth."""
NUMBERS = {BOOL, DATE, FLOAT64, INT32, INT64, TIMESTAMP}


def test_it_is_known_of_each_function_how_its_size_is_bounded() -> None:
    known = [bounds.SIZED, OF_CHECKED_SIZE, NOT_LARGER]
    assert sum(map(len, known)) == len(frozenset[str]().union(*known)), "a function is in two of them"
    left = {name for name, each in CATALOGUE.items() if getattr(each, "result", None) not in NUMBERS}
    left -= frozenset[str]().union(*known, OF_NUMBERS)
    assert not left, f"say in headrace.expr.bounds or here how the size of {sorted(left)} is bounded"


def test_bounded_code_replaces_names_that_there_are() -> None:
    assert bounds.NAMES.keys() - {"x_sized"} <= USUAL.keys()
    assert bounds.PATTERNS.keys() <= CATALOGUE.keys()
    for name in bounds.SIZED:
        assert name in CATALOGUE
