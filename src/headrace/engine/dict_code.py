"""Code generation over one mapping, a slot or a tick-local dict: lookup, append, counts, weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.engine.row_codegen import Row
    from headrace.engine.step_writer import StepWriter


class MappingCode:
    """Writer of code over a mapping.

    name: the mapping's variable. get: source of its method `get`, which may have a variable of its own.
    """

    def __init__(self, writer: StepWriter, name: str, get: str | None = None) -> None:
        self.name, self.get = name, get or f"{name}.get"
        self._writer = writer
        self._code = writer.code

    def get_or_add(self, variable: str, key: str, empty: str) -> None:
        """Write code that assigns a key's value to `variable`, adding `empty` if there is none."""
        self._code.line(f"{variable} = {self.get}({key})")
        with self._code.block(f"if {variable} is None:"):
            self._code.line(f"{variable} = {self.name}[{key}] = {empty}")

    def append(self, key: str, item: str) -> None:
        """Write code that appends `item` to a key's list."""
        own = self._writer.fresh("own")
        self._code.line(f"{own} = {self.get}({key})")
        with self._code.block(f"if {own} is None:"):
            self._code.line(f"{self.name}[{key}] = [{item}]")
        with self._code.block("else:"):
            self._code.line(f"{own}.append({item})")

    def add_count(self, key: str, copies: str, before: str = "") -> tuple[str, str]:
        """Write code that adds `copies` to a key's count; return the variables of the old and new count.

        Counts of 0 are dropped. before: a dict that gets the count of each key as it was at first.
        """
        code, old, new = self._code, self._writer.fresh("old"), self._writer.fresh("new")
        code.line(f"{old} = {self.get}({key}) or 0")
        if before:
            with code.block(f"if {key} not in {before}:"):
                code.line(f"{before}[{key}] = {old}")
        code.line(f"{new} = {old} + {copies}")
        with code.block(f"if {new}:"):
            code.line(f"{self.name}[{key}] = {new}")
        with code.block(f"elif {old}:"):
            code.line(f"del {self.name}[{key}]")
        return old, new

    def add_weight(self, key: str, row: Row) -> None:
        """Write code that adds the weight of a row, a tuple in a variable, to a key's {row: weight}.

        Weights of 0 and empty dicts are dropped.
        """
        code, own = self._code, self._writer.fresh("own")
        code.line(f"{own} = {self.get}({key})")
        with code.block(f"if {own} is None:"):
            code.line(f"{self.name}[{key}] = {{{row.whole}: {row.copies}}}")
        with code.block("else:"):
            total = self._writer.fresh("n")
            code.line(f"{total} = {own}.get({row.whole}, 0) + {row.copies}")
            with code.block(f"if {total}:"):
                code.line(f"{own}[{row.whole}] = {total}")
            with code.block("else:"):
                self.delete(key, own, row.source)

    def delete(self, key: str, own: str, entry: str) -> None:
        """Write code that deletes an entry of a key's dict `own`, and the key with its last entry."""
        self._code.line(f"del {own}[{entry}]")
        with self._code.block(f"if not {own}:"):
            self._code.line(f"del {self.name}[{key}]")
