"""Values that generated code needs and that have no source: functions, decimals, dates."""

from __future__ import annotations


class Constants:
    """Names for values; the same object gets the same name. Lowering adds to `values` too."""

    def __init__(self) -> None:
        self.values: dict[str, object] = {}
        self._names: dict[int, str] = {}

    def name(self, prefix: str, value: object) -> str:
        name = self._names.get(id(value))
        if name is None:
            name = f"{prefix}_{len(self.values)}_"
            self.values[name] = value
            self._names[id(value)] = name
        return name
