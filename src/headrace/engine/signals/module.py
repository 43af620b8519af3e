"""Python module shared by a flow's signal functions: its variables, and the code compiled into it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.lowering.generated_source import Constants, SourceCode

if TYPE_CHECKING:
    from collections.abc import Collection

    from headrace.lowering.generated_source import Purpose


@dataclass(slots=True)
class CodeUnit:
    """A unit of code, compiled as a whole.

    parts:     the numbers of those parts whose functions still are its; those of loops are below 0.
    constants: names of values that its functions use, which go when it does.
    """

    file: str
    text: str
    purposes: tuple[Purpose, ...]
    parts: set[int]
    constants: tuple[str, ...]


class UnitConstants(Constants):
    """Names of constants, unique to a unit."""

    def __init__(self, unit: int) -> None:
        super().__init__()
        self._unit = unit

    def name(self, prefix: str, value: object) -> str:
        return super().name(f"{prefix}{self._unit}", value)


class GeneratedModule:
    """Variables by name, and the units compiled to work on them."""

    def __init__(self, name: str) -> None:
        self.variables: dict[str, Any] = {}
        self.variables["module"] = self.variables
        self._name = name
        self._units: list[CodeUnit] = []
        self._number = 0

    def constants(self) -> UnitConstants:
        """Constant names for the unit that is compiled next."""
        return UnitConstants(self._number)

    def execute(self, source: SourceCode, constants: UnitConstants, parts: Collection[int]) -> None:
        """Compile a unit and execute its definitions, which replace earlier ones for `parts`."""
        file = f"<headrace signals {self._name} {self._number}>"
        self._number += 1
        text = "\n".join(source.lines) + "\n"
        self.variables.update(constants.values)
        self.forget(parts)
        self._units.append(CodeUnit(file, text, tuple(source.purposes), set(parts), tuple(constants.values)))
        exec(compile(text, file, "exec"), self.variables)

    def forget(self, parts: Collection[int]) -> None:
        """Drop the functions of parts, and units left empty."""
        if not parts:
            return
        for unit in list(self._units):
            unit.parts.difference_update(parts)
            if not unit.parts:
                self._units.remove(unit)
                for name in unit.constants:
                    del self.variables[name]

    def purposes_of(self, file: str) -> tuple[Purpose, ...] | None:
        """Return the purposes of the lines of a generated file; None for any other file."""
        return next((unit.purposes for unit in self._units if unit.file == file), None)

    @property
    def code(self) -> str:
        """Generated Python code."""
        return "\n".join(unit.text for unit in self._units)
