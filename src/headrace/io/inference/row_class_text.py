"""Python text of row classes: the inverse of `headrace.expr.row_classes.schema_of`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import singledispatchmethod
from typing import Any

from headrace.expr.types import (
    INT64,
    BoolType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    Field,
    Float32Type,
    Float64Type,
    IntegerType,
    IntervalType,
    ListType,
    MapType,
    StrType,
    StructType,
    TimestampNtzType,
    TimestampType,
)


def row_class_text(name: str, fields: Sequence[Field]) -> str:
    """Write the classes of a row and of its nested rows, innermost first, with their imports."""
    classes = _Classes()
    classes.add(name, "", fields)
    modules = {**classes.imports, "typing": {"NamedTuple", *classes.imports.get("typing", ())}}
    # As isort orders them: the standard library, then ours.
    lines = [
        f"from {module} import {', '.join(sorted(modules[module]))}"
        for module in _MODULES
        if module in modules
    ]
    if "headrace" in modules:
        lines.insert(-1, "")
    return "\n".join(lines) + "".join(f"\n\n\n{text}" for text in classes.texts) + "\n"


_MODULES = ("datetime", "decimal", "typing", "headrace")
_TAKEN = (
    *("None", "True", "False", "NamedTuple", "Annotated", "Decimal", "DecimalType"),
    *("Float32", "Int8", "Int16", "Int32", "TimestampNtz"),
)
"""Names that a class cannot have, because they are keywords or imported for its columns."""


def class_name(words: str) -> str:
    """Make a class name of a file or column name: "order_lines" is OrderLines."""
    parts = "".join(c if c.isalnum() else " " for c in words).split()
    name = "".join(part[0].upper() + part[1:] for part in parts)
    return name if name.isidentifier() else f"Row{name}"


@dataclass(slots=True)
class _Classes:
    texts: list[str] = field(default_factory=list[str])
    imports: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    _names: set[str] = field(default_factory=lambda: {*_TAKEN})
    _prefix: str = ""

    def add(self, name: str, within: str, fields: Sequence[Field]) -> str:
        """Add a class, after those that it needs, and return its name."""
        while name in self._names:
            name = f"{within}{name}" if within else f"{name}Row"
        self._names.add(name)
        outer, self._prefix = self._prefix, name
        lines = [f"    {f.name}: {self._annotation(f.name, f.type, nullable=f.nullable)}" for f in fields]
        self._prefix = outer
        self.texts.append("\n".join([f"class {name}(NamedTuple):", *lines]))
        return name

    def _annotation(self, name: str, type: DataType, *, nullable: bool) -> str:
        return self._of(type, name) + (" | None" if nullable else "")

    def _import(self, module: str, name: str) -> str:
        self.imports.setdefault(module, set()).add(name)
        return name

    @singledispatchmethod
    def _of(self, type: Any, name: str) -> str:
        raise TypeError(type)

    @_of.register(BoolType | StrType | BytesType | Float64Type)
    def _(self, type: DataType, name: str) -> str:
        return str(type).rstrip("0123456789")

    @_of.register
    def _(self, type: IntegerType, name: str) -> str:
        return "int" if type == INT64 else self._import("headrace", str(type).title())

    @_of.register
    def _(self, type: DateType, name: str) -> str:
        return self._import("datetime", "date")

    @_of.register
    def _(self, type: TimestampType, name: str) -> str:
        return self._import("datetime", "datetime")

    @_of.register
    def _(self, type: Float32Type, name: str) -> str:
        return self._import("headrace", "Float32")

    @_of.register
    def _(self, type: IntervalType, name: str) -> str:
        return self._import("datetime", "timedelta")

    @_of.register
    def _(self, type: TimestampNtzType, name: str) -> str:
        return self._import("headrace", "TimestampNtz")

    @_of.register
    def _(self, type: DecimalType, name: str) -> str:
        self._import("typing", "Annotated")
        decimal, of = self._import("decimal", "Decimal"), self._import("headrace", "DecimalType")
        return f"Annotated[{decimal}, {of}({type.precision}, {type.scale})]"

    @_of.register
    def _(self, type: ListType, name: str) -> str:
        return f"list[{self._annotation(name, type.element, nullable=type.nullable)}]"

    @_of.register
    def _(self, type: MapType, name: str) -> str:
        return (
            f"dict[{self._of(type.key, name)}, {self._annotation(name, type.value, nullable=type.nullable)}]"
        )

    @_of.register
    def _(self, type: StructType, name: str) -> str:
        return self.add(class_name(name), self._prefix, type.fields)
