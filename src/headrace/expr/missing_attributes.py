"""Errors for methods that an object does not have, with a guess at the one that is meant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, NoReturn

from headrace.errors import HeadraceError
from headrace.near_names import did_you_mean
from headrace.source_location import SourceLocation


class UnknownMethod(HeadraceError, AttributeError):
    """A flow, a stream, a group or an expression has no method of this name."""

    code = "P013"


class MethodGuesses:
    """Base of classes whose missing methods raise `UnknownMethod`. A subclass says what its objects are.

    `Engine` is none: Python looks up attributes of a class with `__getattr__` more slowly, found ones too.

    _what: subject of the error. _elsewhere: ways out by names that other libraries use.
    _other_fix: the way out if nothing is near.
    """

    __slots__ = ()
    _what: ClassVar[str]
    _elsewhere: ClassVar[Mapping[str, str]]
    _other_fix: ClassVar[str]

    if not TYPE_CHECKING:  # type checkers find missing methods by themselves

        def __getattr__(self, name: str) -> NoReturn:
            raise self._missing_method(name)

    def _missing_method(self, name: str) -> AttributeError:
        if name.startswith("_"):  # asked by Python and by tools
            return AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        known = [each for each in dir(type(self)) if not each.startswith("_")]
        guess = did_you_mean(name, known, lambda near: f".{near}(...)")
        return self._unknown_method(name, self._elsewhere.get(name) or guess or self._other_fix)

    def _unknown_method(self, name: str, fix: str) -> UnknownMethod:
        return UnknownMethod(
            f"{self._what} has no method {name!r}",
            where=[SourceLocation.of_caller()],
            fix=fix,
            method=name,
        )
