"""Casts between column types, by the rules of Spark ANSI: what does not fit raises."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.expr.catalogue import Arguments, Function, Mismatch, Signature, Strict
from penstock.expr.functions.arithmetic import checked, shape_of
from penstock.expr.typed import NULL, CallTerm
from penstock.expr.types import FLOAT64, INT32, INT64, DataType, DecimalType

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.expr.emit import Emitter


def _same(emitter: Emitter, source: str, target: DataType) -> str:
    return source


def _narrow(emitter: Emitter, source: str, target: DataType) -> str:
    return checked(emitter, source, target)


def _float(emitter: Emitter, source: str, target: DataType) -> str:
    return f"float({source})"


def _decimal_of_int(emitter: Emitter, source: str, target: DataType) -> str:
    assert isinstance(target, DecimalType)
    return f"x_decimal_of_int({source}, {emitter.constant(shape_of(target))})"


_CASTS: dict[tuple[type[DataType], type[DataType]], Callable[[Emitter, str, DataType], str]] = {
    (type(INT32), type(INT64)): _same,
    (type(INT64), type(INT32)): _narrow,
    (type(INT32), type(FLOAT64)): _float,
    (type(INT64), type(FLOAT64)): _float,
    (DecimalType, type(FLOAT64)): _float,
    (type(INT32), DecimalType): _decimal_of_int,
    (type(INT64), DecimalType): _decimal_of_int,
}


def _rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    (argument,), (target,) = arguments, options
    assert isinstance(target, DataType)
    source = argument.type
    if source not in (target, NULL) and (type(source), type(target)) not in _CASTS:
        raise Mismatch(f"{source} cannot be cast to {target}")
    return Signature((source if source != NULL else target,), target)


def _cast(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    source, target = call.arguments[0].type, call.type
    if source == target:
        return operands[0]
    return _CASTS[type(source), type(target)](emitter, operands[0], target)


def _fallible(call: CallTerm) -> bool:
    pair = type(call.arguments[0].type), type(call.type)
    return pair not in _SAFE


_SAFE = {
    (type(INT32), type(INT64)),
    (type(INT32), type(FLOAT64)),
    (type(INT64), type(FLOAT64)),
    (DecimalType, type(FLOAT64)),
}

CAST = Strict("cast", _rule, _cast, fallible=_fallible)

FUNCTIONS: tuple[Function, ...] = (CAST,)
