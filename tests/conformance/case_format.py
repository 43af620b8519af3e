"""Conformance case format: kinds of cases, and field-by-field reading of their JSON.

A kind is a module beside this one that creates a `Kind` from two functions:

    def read_case(fields: Fields) -> PropagationCase: ...
    def run_case(case: PropagationCase) -> str: ...

    PROPAGATION = Kind(read_case, run_case)

and an entry in `runner.KINDS`. `read_case` validates one JSON object. Missing fields and wrong types raise
`BadCase`, as all methods of `Fields` do. `run_case` returns "" for a correct outcome, otherwise a short text
with what was expected and found. An exception counts as a failure of the case. `in_words` tells which cases
are only described in words and not run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

_MISSING = object()


class BadCase(Exception):
    """A file of cases cannot be read, or a case is malformed. fix: what to do about it."""

    def __init__(self, what: str, fix: str = "correct the file", case: str | None = None) -> None:
        super().__init__(f"{what}\n\nFix: {fix}")
        self.what = what
        self.fix = fix
        self.case = case


class Fields:
    """Fields of a JSON object. case: the case's name. path: location of the object within the case.

    Every method raises `BadCase` for a missing field (unless it has a default), or one of another type.
    """

    def __init__(self, value: object, case: str, path: str = "") -> None:
        self.case = case
        self.path = path
        if not isinstance(value, dict):
            raise self.build_error(f"{path or 'a case'} is {shown(value)}, not an object")
        self._fields = cast("dict[str, Any]", value)

    def __contains__(self, name: str) -> bool:
        return name in self._fields

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def value(self, name: str, default: Any = _MISSING) -> Any:
        """Read any JSON value."""
        if name in self._fields:
            return self._fields[name]
        if default is _MISSING:
            raise self.build_error(f"{self._at(name)} is missing")
        return default

    def text(self, name: str, default: Any = _MISSING) -> str:
        return self._of(name, str, "text", default)

    def number(self, name: str, default: Any = _MISSING) -> int:
        """Read an integer."""
        return self._of(name, int, "a whole number", default)

    def flag(self, name: str, default: Any = _MISSING) -> bool:
        return self._of(name, bool, "true or false", default)

    def items(self, name: str, default: Any = _MISSING) -> list[Any]:
        """Read an array."""
        return self._of(name, list, "an array", default)

    def texts(self, name: str, default: Any = _MISSING) -> tuple[str, ...]:
        """Read an array of texts."""
        found = self.items(name, default)
        for at, item in enumerate(found):
            if not isinstance(item, str):
                raise self.build_error(f"{self._at(name)}[{at}] is {shown(item)}, not text")
        return tuple(found)

    def object(self, name: str) -> Fields:
        """Read the fields of a nested object."""
        return Fields(self.value(name), self.case, self._at(name))

    def objects(self, name: str) -> list[Fields]:
        """Read an array of objects."""
        return [Fields(o, self.case, f"{self._at(name)}[{at}]") for at, o in enumerate(self.items(name))]

    def only(self, *names: str) -> None:
        """Raise `BadCase` for unknown fields, so that a misspelt optional field is not ignored."""
        for name in self._fields:
            if name not in names:
                raise self.build_error(
                    f"{self._at(name)} is no field of this format", f"one of {', '.join(names)}"
                )

    def build_error(self, what: str, fix: str = "") -> BadCase:
        """Build the error for a problem in this case."""
        return BadCase(f"case {self.case!r}: {what}", fix=fix or "correct the file", case=self.case)

    def _at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def _of(self, name: str, kind: type, what: str, default: Any) -> Any:
        found = self.value(name, default)
        # bool is a subclass of int.
        if found is not default and (
            not isinstance(found, kind) or (kind is int and isinstance(found, bool))
        ):
            raise self.build_error(f"{self._at(name)} is {shown(found)}, not {what}")
        return found


def shown(value: object, width: int = 60) -> str:
    """Format a value for an error, shortened."""
    text = repr(value)
    return text if len(text) <= width else f"{text[: width - 3]}..."


C = TypeVar("C")


def _never(_case: Any) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Kind(Generic[C]):
    """Kind of case. read: reads a case from its JSON object. run: returns the problem, "" if none.

    in_words: whether a case is only described in words, and not run.
    """

    read: Callable[[Fields], C]
    run: Callable[[C], str]
    in_words: Callable[[C], bool] = _never


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a case. problem: what was expected and what was found; empty if correct.

    in_words: whether the case is only described in words, and was not run.
    """

    name: str
    problem: str = ""
    in_words: bool = False

    @property
    def ok(self) -> bool:
        """Whether the case was run with the expected outcome."""
        return not self.problem and not self.in_words

    @property
    def failed(self) -> bool:
        return bool(self.problem)


AnyKind = Kind[Any]
