"""Rows and mappings in generated code: Python sources of columns, weights, lookups and updates."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from headrace.expr.check import check
from headrace.expr.compile_python import key_of
from headrace.expr.row_classes import exact_test, to_user
from headrace.expr.tree import Column, Expr
from headrace.expr.types import Field, IntegerType, Schema
from headrace.expr.types import holds_any as type_holds_any
from headrace.expr.value_keys import order_key

if TYPE_CHECKING:
    from collections.abc import Generator

    from headrace.expr.check import TypeAndNullability
    from headrace.graph.node import Node
    from headrace.lowering.step_writer import StepWriter


# --- rows in generated code: Python sources of the columns and of the weight ----------------------


@dataclass(frozen=True, slots=True)
class RowCode:
    """A row in generated code.

    columns: source of each column, cheap to repeat (a name, a subscript, a constant).
    whole:   name of a variable that holds exactly this row as a tuple, if there is one.
    weight:  source of the weight; None on an append edge, where it is +1.
    """

    columns: tuple[str, ...]
    whole: str | None = None
    weight: str | None = None

    @property
    def source(self) -> str:
        """Source of the row as a tuple."""
        return self.whole if self.whole is not None else tuple_source(self.columns)

    def flat(self, *, append: bool) -> str:
        """Return the source of the row as carried by edges: a tuple, with the weight last unless `append`."""
        if append:
            assert self.weight in (None, "1"), "an append edge carries weights of +1 only"
            return self.source
        weight = self.weight or "1"
        if self.whole is not None and weight in ("1", "-1"):
            return f"{self.whole} + ({weight},)"
        return tuple_source((*self.columns, weight))

    @property
    def copies(self) -> str:
        """Source of the weight, even if it is known to be 1."""
        return self.weight or "1"


def tuple_source(parts: tuple[str, ...] | list[str]) -> str:
    """Return the source of a tuple with these items."""
    if len(parts) == 1:
        return f"({parts[0]},)"
    return "(" + ", ".join(parts) + ")"


def item_sources(source: str, count: int) -> tuple[str, ...]:
    """Return the sources of the items of a tuple or list."""
    return tuple(f"{source}[{at}]" for at in range(count))


def key_columns(key: str, count: int) -> tuple[str, ...]:
    """Return the column sources of a key with `count` expressions; a single one is the key itself."""
    return (key,) if count == 1 else item_sources(key, count)


def weight_product(one: str | None, other: str | None) -> str | None:
    """Return the source of the product of two weights, with None for +1."""
    if one in (None, "1"):
        return other
    if other in (None, "1"):
        return one
    return f"{one} * {other}"


def negated_weight(weight: str | None) -> str:
    """Return the source of the negated weight."""
    if weight in (None, "1"):
        return "-1"
    return "1" if weight == "-1" else f"-({weight})"


class ChangeSelection(Enum):
    """Selection of a table's changes in a loop: all, insertions or retractions."""

    ALL = ""
    GOES = "<"
    COMES = ">"


# --- code generation over one mapping, a slot or a tick-local dict: lookup, append, counts, w -----


class MappingCode:
    """Writer of code that accesses a mapping.

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

    @contextmanager
    def if_found(self, key: str) -> Generator[str]:
        """Open a block that runs if there is a value of a key, with its variable."""
        found = self._writer.fresh("found")
        self._code.line(f"{found} = {self.get}({key})")
        with self._code.block(f"if {found} is not None:"):
            yield found

    @contextmanager
    def each_item(self, key: str) -> Generator[str]:
        """Open a block that runs for each item of a key's list, with its variable."""
        item = self._writer.fresh("row")
        with self.if_found(key) as found, self._code.block(f"for {item} in {found}:"):
            yield item

    @contextmanager
    def each_entry(self, key: str, value: str, entry: str = "row") -> Generator[tuple[str, str]]:
        """Open a block that runs for each entry of a key's dict, with its row and its value."""
        row, name = self._writer.fresh(entry), self._writer.fresh(value)
        with self.if_found(key) as found, self._code.block(f"for {row}, {name} in {found}.items():"):
            yield row, name

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

    def add_weight(self, key: str, row: RowCode) -> None:
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


# --- order ----------------------------------------------------------------------------------------


def comparable(
    writer: StepWriter, source: str, of: TypeAndNullability | Field, *, descending: bool = False
) -> str:
    """Return the source of the sort key for a value with the type and nullability of `of`."""
    if descending and not of.nullable and isinstance(of.type, IntegerType):
        return f"-({source})"
    key = order_key(of.type, of.nullable, descending)
    return source if key is None else f"{writer.constant('order', key)}({source})"


def user_form(writer: StepWriter, schema: Schema, row: RowCode) -> str:
    """Return the source of a row as user functions see it."""
    if schema.scalar and exact_test(schema.fields[0], "") is not None:
        # Such a value is the user's as it is.
        return row.columns[0]
    return f"{writer.constant('user', to_user(schema))}({row.source})"


def write_received(
    writer: StepWriter, schema: Schema, call: str, checked: str, weight: str | None = None
) -> RowCode:
    """Write code that unpacks the result of `call`, a row of `schema`; return the variables as a row.

    A result that is exactly a row is passed on; any other is converted or rejected.
    checked: name of the converter from a list of users' rows.
    """
    code = writer.code
    columns = tuple(writer.fresh(f.name) for f in schema.fields)
    tests = [exact_test(f, c) for f, c in zip(schema.fields, columns, strict=True)]
    if None not in tests and schema.scalar:
        (column,) = columns
        code.line(f"{column} = {call}")
        with code.block(f"if not {tests[0]}:"):
            code.line(f"(({column},),) = {checked}([{column}])")
        return RowCode(columns, None, weight)
    unpack = ", ".join(columns) + "," * (len(columns) == 1)
    out = writer.fresh("row")
    code.line(f"{out} = {call}")
    if None in tests or not _is_named_tuple(schema.row_class):
        code.line(f"({out},) = {checked}([{out}])")
        code.line(f"{unpack} = {out}")
    else:
        with code.block(f"if type({out}) is not {writer.constant('class', schema.row_class)}:"):
            code.line(f"({out},) = {checked}([{out}])")
        code.line(f"{unpack} = {out}")
        with code.block(f"if not ({' and '.join(filter(None, tests))}):"):
            code.line(f"({out},) = {checked}([{out}])")
            code.line(f"{unpack} = {out}")
    return RowCode(columns, out, weight)


def holds_any(schema: Schema) -> bool:
    """Return whether any column of the row may hold values of any type."""
    return any(type_holds_any(field.type) for field in schema.fields)


def _is_named_tuple(row_class: type[Any] | None) -> bool:
    return row_class is not None and issubclass(row_class, tuple)


def merged_item(writer: StepWriter, node: Node, item: Expr, row: RowCode) -> str:
    """Return the source of a row's item for a lattice: the value of `item`, with zeros and NaNs unified."""
    return item_source(writer, node, item, row, merges=True)


def item_source(
    writer: StepWriter, node: Node, item: Expr | None, row: RowCode, *, merges: bool = False
) -> str:
    """Return the source of a row's item for a folding function: the row, or the value of `item`."""
    schema = writer.input_schema(node, 0)
    if item is None:
        return user_form(writer, schema, row)
    typed = check(item, schema)
    value = source = writer.value(item, schema, row.columns)
    if merges:
        source = key_of(typed.type, typed.nullable, value)
    if not isinstance(item, Column) or source != value:
        value = writer.fresh("item")
        writer.code.line(f"{value} = {source}")
    bare = Schema((Field("value", typed.type, typed.nullable),), scalar=True)
    return user_form(writer, bare, RowCode((value,)))
