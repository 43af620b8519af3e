"""Base classes of values that notebooks render. `headrace.notebook` is imported only to render one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any


class Shown:
    """Base of classes that notebooks show as HTML."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        html: str = import_module("headrace.notebook").html_of(self)
        return html


class Text(Shown, str):
    """Text of several lines that prints plainly, also where a prompt or a notebook shows it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))


def values_of(row: Any) -> Sequence[Any]:
    """Return the columns of a user's row, in order; a scalar is the only one."""
    if is_dataclass(row) and not isinstance(row, type):
        return [getattr(row, each.name) for each in fields(row)]
    return row if isinstance(row, tuple) else (row,)  # pyright: ignore[reportUnknownVariableType]


def text_of(value: Any) -> str:
    """Return a value as tables show it."""
    return value if isinstance(value, str) else f"{value:,}" if type(value) is int else str(value)
