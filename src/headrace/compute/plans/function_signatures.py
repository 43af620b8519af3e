"""Signatures of expression functions: number of arguments, and options.

The catalogue's typing rules take valid calls for granted, because expressions are built by methods that
guarantee them. A plan may contain invalid calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import cast

from headrace.expr.functions import CATALOGUE
from headrace.expr.tree import MAX_DIGITS
from headrace.expr.types import DataType, fits_interval


@dataclass(frozen=True, slots=True)
class CallSignature:
    """Valid calls of a function.

    least, most: number of arguments; `most` None: unlimited. step: increment above `least`.
    options: test of each option's value.
    """

    least: int
    most: int | None
    step: int = 1
    options: tuple[Callable[[object], bool], ...] = ()

    def fits(self, arguments: int, options: Sequence[object]) -> bool:
        """Return whether a call with this many arguments and these options is valid."""
        if arguments < self.least or (self.most is not None and arguments > self.most):
            return False
        if (arguments - self.least) % self.step or len(options) != len(self.options):
            return False
        return all(test(option) for test, option in zip(self.options, options, strict=True))


def _is_type(option: object) -> bool:
    return isinstance(option, DataType)


def _is_text(option: object) -> bool:
    return type(option) is str


def _is_names(option: object) -> bool:
    return type(option) is tuple and all(map(_is_text, cast("tuple[object, ...]", option)))


def _is_mask(option: object) -> bool:
    return option is None or (_is_text(option) and len(cast("str", option)) == 1)


def _is_span(option: object) -> bool:
    return type(option) is timedelta and fits_interval(option)


def _is_digits(option: object) -> bool:
    return type(option) is int and -MAX_DIGITS <= option <= MAX_DIGITS


def _is_part(option: object) -> bool:
    return type(option) is int and 0 <= option <= 3


def _of(least: int, most: int | None, names: str, step: int = 1) -> dict[str, CallSignature]:
    return {name: CallSignature(least, most, step) for name in names.split()}


SHAPES: Mapping[str, CallSignature] = MappingProxyType(
    {
        **_of(1, 1, "abs ceil floor negate not is_null is_not_null is_nan upper lower trim length try_eval"),
        **_of(1, 1, "by_position"),
        **_of(1, 1, "year quarter month day day_of_week weekday day_of_year hour minute second microsecond"),
        **_of(2, 2, "add subtract multiply divide div modulo eq ne lt le gt ge eq_null_safe and or element"),
        **_of(2, 2, "array_repeat only_row ltrim_of rtrim_of"),
        **_of(2, 2, "try_add try_subtract try_multiply try_divide try_modulo"),
        **_of(2, 2, "contains starts_with ends_with micros_since seconds_since days_since"),
        **_of(2, 3, "like"),
        **_of(3, 3, "replace split_part substring"),
        **_of(1, None, "array coalesce concat concat_ws format_string hash is_in murmur3"),
        **_of(2, None, "elt greatest least"),
        **_of(3, None, "when", step=2),
        **{name: CallSignature(*function.arity) for name, function in CATALOGUE.items() if function.meaning},
        "from_json": CallSignature(1, 1, options=(_is_type, _is_text)),
        "mask": CallSignature(1, 1, options=(_is_mask,) * 4),
        "lambda": CallSignature(1, 1, options=(_is_names,)),
        "variable": CallSignature(0, 0, options=(_is_text,)),
        "map": CallSignature(2, None, step=2),
        "map_sort": CallSignature(1, 1),
        "arrays_zip": CallSignature(1, None, options=(_is_names,)),
        "cast": CallSignature(1, 1, options=(_is_type,)),
        "try_cast": CallSignature(1, 1, options=(_is_type,)),
        "struct": CallSignature(1, None, options=(_is_names,)),
        "field": CallSignature(1, 1, options=(_is_text,)),
        "round": CallSignature(1, 1, options=(_is_digits,)),
        "bround": CallSignature(1, 1, options=(_is_digits,)),
        "round_floor": CallSignature(1, 1, options=(_is_digits,)),
        "round_ceil": CallSignature(1, 1, options=(_is_digits,)),
        "interval_part": CallSignature(1, 1, options=(_is_part,)),
        "shift": CallSignature(1, 1, options=(_is_span,)),
        "truncate": CallSignature(1, 1, options=(_is_text,)),
        "tumble": CallSignature(1, 1, options=(_is_span,)),
    }
)
"""Signature of each function in the catalogue, by name."""
