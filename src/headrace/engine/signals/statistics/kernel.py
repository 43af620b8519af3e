"""Kernel: one statistic as straight-line Python over a few variables of plain data.

A name that begins with `$` belongs to the kernel: its inputs `$x`, `$y` (the second
signal), `$t` (the time) and `$fresh` (whether a value came, and not the time alone), its
variables and constants, the functions of `functions.py`, and what it needs between two
lines. Whoever writes a kernel into a tick gives these names, so any number of kernels
stand in one function.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

_NAME = re.compile(r"\$([A-Za-z]\w*)")

SILENT: Any = object()
"""Result of `compile_kernel` for a value at which the statistic does not fire."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A state variable. start: source of its initial value. lists: nesting depth of its lists."""

    name: str
    start: str
    lists: int = 0

    def first(self, functions: Mapping[str, Any]) -> Any:
        """Create an initial value."""
        return eval(rename_variables(self.start, str), dict(functions))


@dataclass(frozen=True, slots=True)
class Kernel:
    """Code that updates a statistic by a value.

    variables: its state, in the order in which it is kept.
    lines:     what is done with a value; they change nothing but the variables.
    value:     source of the statistic after these lines; `fires` of whether it has one.
    constants: values that the lines name with a `$`.
    """

    variables: tuple[Variable, ...]
    lines: tuple[str, ...]
    value: str
    fires: str = "True"
    constants: Mapping[str, object] = field(default_factory=dict[str, object])

    def start(self, functions: Mapping[str, Any]) -> list[Any]:
        """Return the initial state."""
        return [v.first(functions) for v in self.variables]


def rename_variables(source: str, name: Callable[[str], str]) -> str:
    """Replace each `$n` in `source` with `name(n)`."""
    return _NAME.sub(lambda found: name(found[1]), source)


def compile_kernel(kernel: Kernel, functions: Mapping[str, Any]) -> Callable[..., Any]:
    """Compile the kernel to a function of state and named inputs; `SILENT` if it does not fire."""
    names = ", ".join(v.name for v in kernel.variables)
    fires = rename_variables(kernel.fires, str)
    lines = [
        "def step(state, x=None, y=None, t=None, fresh=True):",
        f"    [{names}] = state",
        *(f"    {rename_variables(line, str)}" for line in kernel.lines),
        f"    out = ({rename_variables(kernel.value, str)}) if {fires} else SILENT",
        f"    state[:] = [{names}]",
        "    return out",
    ]
    namespace: dict[str, Any] = {**functions, **kernel.constants, "SILENT": SILENT}
    exec("\n".join(lines), namespace)
    return namespace["step"]
