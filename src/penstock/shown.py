"""What shows itself in notebooks: `penstock.notebook` knows how, and is imported when it is asked."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Shown:
    """Base of classes that notebooks show as HTML."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        html: str = import_module("penstock.notebook").html_of(self)
        return html


class Text(Shown, str):
    """Text of several lines that prints plainly, also where a prompt or a notebook shows it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))
