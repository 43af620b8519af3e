"""A JSON object of a case, read field by field: what does not fit names the case and the field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from penstock.errors import BadCase

_MISSING = object()


class Fields:
    """The fields of a JSON object. case: the name of the case. path: where in it the object stands.

    Every method raises `BadCase` for a field that is missing (unless it has a
    default) or of another type.
    """

    def __init__(self, value: object, case: str, path: str = "") -> None:
        self.case = case
        self.path = path
        if not isinstance(value, dict):
            raise self.bad(f"{path or 'a case'} is {shown(value)}, not an object")
        self._fields = cast("dict[str, Any]", value)

    def __contains__(self, name: str) -> bool:
        return name in self._fields

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def value(self, name: str, default: Any = _MISSING) -> Any:
        """Any JSON value."""
        if name in self._fields:
            return self._fields[name]
        if default is _MISSING:
            raise self.bad(f"{self._at(name)} is missing")
        return default

    def text(self, name: str, default: Any = _MISSING) -> str:
        return self._of(name, str, "text", default)

    def number(self, name: str, default: Any = _MISSING) -> int:
        """A whole number."""
        return self._of(name, int, "a whole number", default)

    def flag(self, name: str, default: Any = _MISSING) -> bool:
        return self._of(name, bool, "true or false", default)

    def items(self, name: str, default: Any = _MISSING) -> list[Any]:
        """An array."""
        return self._of(name, list, "an array", default)

    def texts(self, name: str, default: Any = _MISSING) -> tuple[str, ...]:
        """An array of texts."""
        found = self.items(name, default)
        for at, item in enumerate(found):
            if not isinstance(item, str):
                raise self.bad(f"{self._at(name)}[{at}] is {shown(item)}, not text")
        return tuple(found)

    def object(self, name: str) -> Fields:
        """The fields of an object inside."""
        return Fields(self.value(name), self.case, self._at(name))

    def objects(self, name: str) -> list[Fields]:
        """An array of objects."""
        return [Fields(o, self.case, f"{self._at(name)}[{at}]") for at, o in enumerate(self.items(name))]

    def only(self, *names: str) -> None:
        """Raises `BadCase` for a field of another name: a misspelt field must not pass for a left out one."""
        for name in self._fields:
            if name not in names:
                raise self.bad(f"{self._at(name)} is no field of this format", f"one of {', '.join(names)}")

    def bad(self, what: str, fix: str = "") -> BadCase:
        """The error for something wrong in this case."""
        return BadCase(f"case {self.case!r}: {what}", fix=fix or "correct the file", case=self.case)

    def _at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def _of(self, name: str, kind: type, what: str, default: Any) -> Any:
        found = self.value(name, default)
        # Python takes true and false for numbers.
        if found is not default and (
            not isinstance(found, kind) or (kind is int and isinstance(found, bool))
        ):
            raise self.bad(f"{self._at(name)} is {shown(found)}, not {what}")
        return found


def shown(value: object, width: int = 60) -> str:
    """A value in an error, not too long."""
    text = repr(value)
    return text if len(text) <= width else f"{text[: width - 3]}..."
