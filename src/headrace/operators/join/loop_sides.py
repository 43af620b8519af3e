"""State of joins in loops with retractions, per side.

A loop-invariant side has the layout of any join. A loop-variant side also stores the rounds in which each row
is present, in the cheapest of three layouts (`variant_side`).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.expr.tree import Column
from headrace.lowering.round_history import RANK
from headrace.lowering.row_code import MappingCode, RowCode, tuple_source
from headrace.lowering.slot import Slot, thaw_list
from headrace.lowering.step import repeatable_weight
from headrace.operators.distinct import Distinct
from headrace.operators.feedback import Feedback
from headrace.operators.join.join import SIDES, Difference, How, Join
from headrace.operators.rows import Filter, Select

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from contextlib import AbstractContextManager

    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema
    from headrace.graph.node import Node
    from headrace.lowering.step_writer import StepWriter


class JoinSide:
    """One side of a join, stored in the slot of its name."""

    def __init__(self, node: Node, port: int, writer: StepWriter) -> None:
        self.writer = writer
        self.code = writer.code
        self.schema: Schema = writer.input_schema(node, port)
        self._node, self._side = node.id, SIDES[port]
        self._slot, self._get = writer.slot(node.id, self._side), writer.slot_get(node.id, self._side)
        self._mapping = MappingCode(writer, self._slot, self._get)

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self._node}.{self._side}"),)


class InvariantSide(JoinSide):
    """Loop-invariant side: key -> list of entries if the side is append-only, else key -> {entry: weight}.

    A row's entry is its columns that are not in the key; all of them if the key is computed. A row with a
    temporarily negative count is treated as absent.

    counts_odd: also count, per key, the entries with a multiplicity other than one.
    """

    def __init__(self, node: Node, port: int, writer: StepWriter, keys: Sequence[Expr]) -> None:
        super().__init__(node, port, writer)
        self._append = writer.is_append(node.inputs[port])
        names = [key.name for key in keys if isinstance(key, Column)]
        types = {field.name: field.type for field in self.schema.fields}
        plain = len(names) == len(keys) and all(writer.is_own_key(types[name]) for name in names)
        self._keys = names if plain else []
        self._entry_columns = [i for i, name in enumerate(self.schema.names) if name not in self._keys]
        odd = f"odd_{self._side}"
        self._odd, self._get_odd = writer.slot(node.id, odd), writer.slot_get(node.id, odd)
        self.counts_odd = False

    def slots(self) -> tuple[Slot, ...]:
        if self._append:
            return (Slot(f"{self._node}.{self._side}", thaw_list),)
        odd = (Slot(f"{self._node}.odd_{self._side}"),) if self.counts_odd else ()
        return (*super().slots(), *odd)

    def entry(self, row: RowCode) -> str:
        """Return the variable with a row's stored entry, under its key."""
        others = tuple(row.columns[i] for i in self._entry_columns)
        if len(others) == 1 and others[0].isidentifier():
            return others[0]
        if not self._keys and row.whole is not None:
            return row.whole
        name = self.writer.fresh("entry")
        self.code.line(
            f"{name} = {others[0] if len(others) == 1 else tuple_source(others) if others else '()'}"
        )
        return name

    def row_of(self, key: str, entry: str, weight: str | None) -> RowCode:
        """Return the row of an entry under a key."""
        if len(self._entry_columns) == 1:
            others = (entry,)
        else:
            others = tuple(self.writer.fresh(self.schema.names[i]) for i in self._entry_columns)
            if others:
                self.code.line(f"{', '.join(others)} = {entry}")
        of_entry = dict(zip(self._entry_columns, others, strict=True))
        of_key = {n: key if len(self._keys) == 1 else f"{key}[{i}]" for i, n in enumerate(self._keys)}
        columns = tuple(of_entry.get(i) or of_key[name] for i, name in enumerate(self.schema.names))
        return RowCode(columns, None, weight)

    def change(self, key: str, entry: str, row: RowCode) -> str | None:
        """Write code that adds a row's weight.

        Returns the variable with the change of its multiplicity; None for 1.
        """
        code, writer = self.code, self.writer
        if self._append:
            self._mapping.append(key, entry)
            return None
        own = writer.fresh("own")
        code.line(f"{own} = {self._get}({key})")
        change, old, new = writer.fresh("change"), writer.fresh("old"), writer.fresh("new")
        weight = repeatable_weight(writer, row)
        with code.block(f"if {own} is None:"):
            code.line(f"{self._slot}[{key}] = {{{entry}: {weight}}}")
            code.line(f"{change} = {weight} if {weight} > 0 else 0")
            self._count_new_odd(key, weight)
        with code.block("else:"):
            code.line(f"{old} = {own}.get({entry})")
            with code.block(f"if {old} is None:"):
                code.line(f"{own}[{entry}] = {weight}")
                code.line(f"{change} = {weight} if {weight} > 0 else 0")
                self._count_new_odd(key, weight)
            with code.block("else:"):
                code.line(f"{new} = {old} + {weight}")
                self._count_odd(key, f"({new} != 1 and {new} != 0) - ({old} != 1)")
                with code.block(f"if {new}:"):
                    code.line(f"{own}[{entry}] = {new}")
                with code.block("else:"):
                    self._mapping.delete(key, own, entry)
                code.line(f"{change} = ({new} if {new} > 0 else 0) - ({old} if {old} > 0 else 0)")
        return change

    def _count_new_odd(self, key: str, weight: str) -> None:
        if self.counts_odd:
            with self.code.block(f"if {weight} != 1:"):
                self._count_odd(key, "1")

    def _count_odd(self, key: str, change: str) -> None:
        """Write code that updates the number of a key's entries with a multiplicity other than one."""
        if not self.counts_odd:
            return
        code, odd, n = self.code, self.writer.fresh("odd"), self.writer.fresh("n")
        code.line(f"{odd} = {change}")
        with code.block(f"if {odd}:"):
            code.line(f"{n} = ({self._get_odd}({key}) or 0) + {odd}")
            with code.block(f"if {n}:"):
                code.line(f"{self._odd}[{key}] = {n}")
            with code.block("else:"):
                code.line(f"del {self._odd}[{key}]")

    def multiplicity_test(self, key: str) -> str | None:
        """Test for entries of a key with a multiplicity other than one; None if there can be none."""
        return None if self._append else f"{self._get_odd}({key}) is not None"

    def if_found(self, key: str) -> AbstractContextManager[str]:
        """Open a block that runs if the key has entries, with the variable that holds them."""
        return self._mapping.if_found(key)

    @contextmanager
    def each_of(self, key: str, found: str) -> Generator[RowCode]:
        """Open a block that runs for each entry, with its row and multiplicity."""
        code, entry = self.code, self.writer.fresh("entry")
        if self._append:
            with code.block(f"for {entry} in {found}:"):
                yield self.row_of(key, entry, None)
            return
        n = self.writer.fresh("n")
        with code.block(f"for {entry}, {n} in {found}.items():"), code.block(f"if {n} > 0:"):
            yield self.row_of(key, entry, n)

    @contextmanager
    def each(self, key: str) -> Generator[RowCode]:
        """Open a block that runs for each row of a key."""
        with self.if_found(key) as found, self.each_of(key, found) as row:
            yield row

    def collect(self, key: str, found: str, into: str, columns: Sequence[str | int]) -> None:
        """Write code that appends each entry's row (or only column), all of multiplicity one, to `into`.

        columns: of that row, each a source, or a position in the rows of this side.
        """
        if list(columns) == self._entry_columns:
            self.code.line(f"{into}.extend({found})")
            return
        entry = self.writer.fresh("entry")
        with self.code.block(f"for {entry} in {found}:"):
            mine = self.row_of(key, entry, None).columns
            row = tuple(mine[column] if isinstance(column, int) else column for column in columns)
            self.code.line(f"{into}.append({row[0] if len(row) == 1 else tuple_source(row)})")


class VariantSide(JoinSide):
    """Loop-variant side: key -> {row: {round: weight}}."""

    def add(self, key: str, row: RowCode) -> None:
        """Write code that adds a row's weight at the writer's current `at`."""
        code, writer, at = self.code, self.writer, self.writer.at
        row = self.writer.as_whole(row)
        own, history, n = writer.fresh("own"), writer.fresh("history"), writer.fresh("n")
        weight = repeatable_weight(writer, row)
        code.line(f"{own} = {self._get}({key})")
        with code.block(f"if {own} is None:"):
            code.line(f"{self._slot}[{key}] = {{{row.whole}: {{{at}: {weight}}}}}")
        with code.block("else:"):
            code.line(f"{history} = {own}.get({row.whole})")
            with code.block(f"if {history} is None:"):
                code.line(f"{own}[{row.whole}] = {{{at}: {weight}}}")
            with code.block("else:"):
                code.line(f"{n} = {history}.get({at}, 0) + {weight}")
                with code.block(f"if {n}:"):
                    code.line(f"{history}[{at}] = {n}")
                with code.block("else:"):
                    code.line(f"del {history}[{at}]")
                    with code.block(f"if not {history}:"):
                        self._mapping.delete(key, own, row.source)

    @contextmanager
    def each_row(self, key: str) -> Generator[tuple[RowCode, str]]:
        """Open a block that runs for each row of a key, with the source of its stored rounds."""
        with self._mapping.each_entry(key, "known") as (row, known):
            yield RowCode(self.writer.unpack(self.schema, row), row), known

    @contextmanager
    def each_round(self, row: RowCode, known: str) -> Generator[RowCode]:
        """Open a block that runs at each round in which the row's weight changes."""
        code, writer = self.code, self.writer
        at, n = writer.fresh("at"), writer.fresh("n")
        with code.block(f"for {at}, {n} in {known}.items():"), writer.at_round(at):
            yield RowCode(row.columns, row.whole, n)

    @contextmanager
    def each(self, key: str) -> Generator[RowCode]:
        """Open a block that runs for each row of a key, at each round in which it changes."""
        with self.each_row(key) as (row, known), self.each_round(row, known) as found:
            yield found


class FirstRoundSide(VariantSide):
    """Loop-variant side whose rows are a set that grows with the rounds: key -> {row: first round}.

    In a tick a row goes at its old round before or after it comes at its new one, so
    what is remembered is right once both came. So only changes of the first kind of
    round, those from outside, may meet it, which come before.
    """

    def add(self, key: str, row: RowCode) -> None:
        code, writer, at = self.code, self.writer, self.writer.at
        row = self.writer.as_whole(row)
        own, weight = writer.fresh("own"), repeatable_weight(writer, row)
        code.line(f"{own} = {self._get}({key})")
        with code.block(f"if {weight} > 0:"):
            with code.block(f"if {own} is None:"):
                code.line(f"{self._slot}[{key}] = {{{row.whole}: {at}}}")
            with code.block("else:"):
                code.line(f"{own}[{row.whole}] = {at}")
        with code.block(f"elif {own} is not None and {own}.get({row.whole}) == {at}:"):
            self._mapping.delete(key, own, row.source)

    @contextmanager
    def each_round(self, row: RowCode, known: str) -> Generator[RowCode]:
        with self.writer.at_round(known):
            yield row


class StoredHistorySide(VariantSide):
    """Loop-variant side keyed by the whole row, which reads the history that its input already stores."""

    def __init__(self, node: Node, port: int, writer: StepWriter, keys: Sequence[Expr]) -> None:
        super().__init__(node, port, writer)
        self._history = writer.slot_get(node.inputs[port], "history")
        self._order = [[k.name for k in keys if isinstance(k, Column)].index(n) for n in self.schema.names]

    def slots(self) -> tuple[Slot, ...]:
        return ()

    def add(self, key: str, row: RowCode) -> None:
        pass

    @contextmanager
    def each_row(self, key: str) -> Generator[tuple[RowCode, str]]:
        code, writer = self.code, self.writer
        row, own, known = key, writer.fresh("own"), writer.fresh("known")
        columns = (key,) if len(self._order) == 1 else tuple(f"{key}[{i}]" for i in self._order)
        if self._order != list(range(len(self._order))):
            row = writer.fresh("row")
            code.line(f"{row} = {tuple_source(columns)}")
        code.line(f"{own} = {self._history}({row})")
        with code.block(f"if {own} is not None:"):
            code.line(f"{known} = {own}.get({RANK})")
            with code.block(f"if {known} is not None:"):
                yield RowCode(columns, None if len(columns) == 1 else row), known

    @contextmanager
    def each_round(self, row: RowCode, known: str) -> Generator[RowCode]:
        with self.writer.at_round(known):
            yield row


def variant_side(
    node: Node, port: int, writer: StepWriter, keys: Sequence[Expr], varies: Sequence[bool]
) -> VariantSide:
    """Choose the cheapest state for a loop-variant side.

    If both sides vary, rounds of both are compared, so each has its weights by round. Opposite a
    loop-invariant side, a set needs only the first round of each row; if the key is the row, not even that,
    because the set itself stores it.

    keys: the expressions of the side's key; none are given where it is the whole row in another form.
    """
    if varies[1 - port]:
        return VariantSide(node, port, writer)
    source = writer.graph.nodes[node.inputs[port]]
    names = [key.name for key in keys if isinstance(key, Column)]
    is_row = len(names) == len(keys) and sorted(names) == sorted(source.schema.names)
    if is_row and isinstance(source.operator, Feedback | Distinct):
        return StoredHistorySide(node, port, writer, keys)
    if is_set(source, writer):
        return FirstRoundSide(node, port, writer)
    return VariantSide(node, port, writer)


def is_set(node: Node, writer: StepWriter) -> bool:
    """Return whether a loop node's rows are a set that only grows from round to round."""
    match node.operator:
        case Feedback() | Distinct():
            return True
        case Filter() | Difference():
            pass
        case Select(columns):
            kept = {expr.name for _, expr in columns if isinstance(expr, Column)}
            if not kept >= set(writer.input_schema(node, 0).names):
                return False
        case Join(how=How.SEMI | How.ANTI) if writer.loops_apart(node.inputs[1], node.id):
            pass
        case _:
            return False
    source = writer.graph.nodes[node.inputs[0]]
    return not writer.loops_apart(source.id, node.id) and is_set(source, writer)
