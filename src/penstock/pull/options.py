"""Options of pieces that must be numbers of a certain size, checked where the user wrote them."""

from __future__ import annotations

import math
from typing import NoReturn

from penstock.errors import BadOption, SourceLocation


def whole(piece: str, option: str, value: object, *, least: int | None = None) -> None:
    """Raises `BadOption` unless the value is a whole number, of at least `least` where that is given."""
    if not isinstance(value, int) or isinstance(value, bool) or (least is not None and value < least):
        wanted = "a whole number"
        _refuse(piece, option, value, wanted if least is None else f"{wanted}, {least} or more")


def port(piece: str, value: object) -> None:
    """Raises `BadOption` unless the value is the number of a TCP port, or 0."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 65535:
        _refuse(piece, "port", value, "a whole number from 0 to 65535")


def positive(piece: str, option: str, value: object) -> None:
    """Raises `BadOption` unless the value is a finite number above 0."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0:
        return
    _refuse(piece, option, value, "a finite number above 0")


def check_confirm_within(piece: str, seconds: object) -> None:
    """Raises `BadOption` unless it is None or a finite number above 0."""
    if seconds is not None:
        positive(piece, "confirm_within", seconds)


def _refuse(piece: str, option: str, value: object, wanted: str) -> NoReturn:
    raise BadOption(
        f"{piece}() cannot work with {option}={value!r}",
        where=[SourceLocation.of_caller()],
        fix=f"give {wanted}",
        piece=piece,
        option=option,
    )
