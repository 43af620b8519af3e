"""Row steps of joins and of difference.

All read the keys of both sides through a `KeyWriter`. An inner join pairs each change with the rows of the
other side. The others depend on whether a left row has a partner, and so on the *absence* of right rows: they
apply the right side first and the left side last, so that a left row of this tick meets a complete right
side and is counted once. Two steps do this: one counts the matches of each left row, the other only the right
rows of each key.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.lowering.row_code import ChangeSelection, RowCode, negated_weight, weight_product
from headrace.lowering.slot import Slot, as_it_is, thaw_list
from headrace.lowering.step import RowStep, register_step, step_for
from headrace.operators.join.join import SIDES, Difference, How, Join
from headrace.operators.join.transient_pairs import applies_retractions_first
from headrace.operators.lifetime import Lifetime

if TYPE_CHECKING:
    from collections.abc import Generator
    from contextlib import AbstractContextManager

    from headrace.expr.tree import Expr
    from headrace.graph.node import Node
    from headrace.lowering.step_writer import StepWriter


class KeyWriter:
    """Writer of code for whole rows as keys, in which null equals null.

    keys: per side, the expressions of the key; none if it is the row.
    """

    keys: tuple[tuple[Expr, ...], tuple[Expr, ...]] = ((), ())

    def __init__(self, node: Node, writer: StepWriter) -> None:
        self.node = node
        self.writer = writer
        self.schemas = tuple(writer.input_schema(node, port) for port in (0, 1))

    @contextmanager
    def key_of(self, port: int, row: RowCode) -> Generator[str]:
        """Open a block that runs if the row has a key, with the key's variable."""
        key = self.writer.fresh("key")
        self.writer.code.line(f"{key} = {self.writer.row_key(self.schemas[port], row.columns)}")
        yield key

    def null_left_key(self, row: RowCode) -> str | None:
        """Return a test for a left row without a key; None if all have one."""
        return None

    @contextmanager
    def left_key(self, row: RowCode, emit_keyless: Callable[[RowCode], None] | None) -> Generator[str]:
        """Open a block that runs if a left row has a key, after the code for rows without one, if given."""
        test = None if emit_keyless is None else self.null_left_key(row)
        if emit_keyless is None or test is None:
            with self.key_of(0, row) as key:
                yield key
            return
        with self.writer.code.block(f"if {test}:"):
            emit_keyless(row)
        with self.writer.code.block("else:"), self.key_of(0, row) as key:
            yield key


class JoinConditionWriter(KeyWriter):
    """Writer of code for a join's keys, in which null equals nothing, and for its residual condition."""

    def __init__(self, node: Node, writer: StepWriter, operator: Join) -> None:
        super().__init__(node, writer)
        self.operator = operator
        self.keys = (operator.left_keys, operator.right_keys)
        self._pair = operator.pair_schema(self.schemas)

    @contextmanager
    def key_of(self, port: int, row: RowCode) -> Generator[str]:
        exprs = self.keys[port]
        key = self.writer.fresh("key")
        nullable = self.writer.assign_key(key, exprs, self.schemas[port], row.columns)
        if not nullable:
            yield key
            return
        parts = [key] if len(exprs) == 1 else [f"{key}[{i}]" for i in nullable]
        with self.writer.code.block(f"if {' and '.join(f'{p} is not None' for p in parts)}:"):
            yield key

    def null_left_key(self, row: RowCode) -> str | None:
        return self.writer.null_key_test(self.operator.left_keys, self.node, 0, row.columns)

    def pair(self, port: int, own: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
        """Return the columns of a pair, left ones first; `own` are those of the input `port`."""
        return own + other if port == 0 else other + own

    @contextmanager
    def where_residual(self, pair: tuple[str, ...]) -> Generator[None]:
        """Open a block that runs if the residual condition holds for the pair."""
        if self.operator.residual is None:
            yield
            return
        condition = self.writer.predicate(self.operator.residual, self._pair, pair)
        with self.writer.code.block(f"if {condition}:"):
            yield

    @contextmanager
    def joined(self, port: int, row: RowCode, partner: RowCode) -> Generator[RowCode]:
        """Open a block that runs if a row and one of the other side match, with their output row."""
        pair = self.pair(port, row.columns, partner.columns)
        with self.where_residual(pair):
            yield RowCode(self.output(pair), None, weight_product(row.weight, partner.weight))

    def output(self, pair: tuple[str, ...]) -> tuple[str, ...]:
        """Return the output columns of a pair: all of the left, the kept ones of the right."""
        width = len(self.schemas[0].fields)
        return pair[:width] + tuple(pair[width + i] for i in self.operator.kept_right)

    def unmatched(self, row: RowCode) -> RowCode:
        """Return the output of an unmatched left row, with nulls for the right columns."""
        if not self.operator.how.has_right_columns:
            return row
        nulls = ("None",) * len(self.operator.kept_right)
        return replace(row, columns=row.columns + nulls, whole=None)


def key_writer(node: Node, writer: StepWriter) -> KeyWriter:
    """Create the writer of a join's or difference's keys."""
    if isinstance(node.operator, Join):
        return JoinConditionWriter(node, writer, node.operator)
    return KeyWriter(node, writer)


# --- inner join -----------------------------------------------------------------------------------

# With L, R before a batch of changes l, r the answer changes by
#     l x R  +  L x r  +  l x r.
# Each row is first matched with what the other side holds and then added to its
# own side, so every pair of new rows is met once, by whichever comes second;
# the order in which the sides come does not matter.


class InnerJoinStep(RowStep):
    """Step of the inner join. Slot per side: key -> list of rows if append-only, else key -> {row: weight}.

    A side of lifetime TICK has a slot of one tick. Beside it, a table comes whole
    before the tick's rows are matched with it: they answer what holds in the end.
    """

    keeps_state = True
    heavy = True

    def __init__(self, node: Node, writer: StepWriter, operator: Join) -> None:
        super().__init__(node, writer)
        self.rows = JoinConditionWriter(node, writer, operator)
        self.appends = tuple(writer.is_append(i) for i in node.inputs)
        self.of_a_tick = tuple(lifetime is Lifetime.TICK for lifetime in operator.lifetimes)
        self.looked_up = any(self.of_a_tick) and not all(self.appends)
        self.takes_rows = not self.looked_up and not applies_retractions_first(writer, node)
        self.sites = 2 if self.takes_rows else 1 if self.looked_up else 2 + self.appends.count(False)

    def slots(self) -> tuple[Slot, ...]:
        return tuple(
            Slot(f"{self.node.id}.{side}", thaw_list if append else as_it_is, "value", transient=of_a_tick)
            for side, append, of_a_tick in zip(SIDES, self.appends, self.of_a_tick, strict=True)
        )

    def consume(self, port: int, row: RowCode) -> None:
        with self.rows.key_of(port, row) as key:
            row = self.writer.as_whole(row)
            self._match(port, row, key)
            self._add(port, row, key)

    def finish(self) -> None:
        if self.takes_rows:
            return
        if self.looked_up:
            self._look_up()
            return
        self.writer.consolidate_inputs(self.node)
        for only in (ChangeSelection.GOES, ChangeSelection.COMES):
            for port, append in enumerate(self.appends):
                if append and only is ChangeSelection.GOES:
                    continue
                with self.writer.each_row(self.node, port, only) as row:
                    self.consume(port, row)

    def _look_up(self) -> None:
        """Write code that first adds the table's changes, then matches the tick's rows."""
        of_a_tick = self.of_a_tick.index(True)
        table = 1 - of_a_tick
        with self.writer.each_row(self.node, table) as row, self.rows.key_of(table, row) as key:
            self._add(table, self.writer.as_whole(row), key)
        with self.writer.each_row(self.node, of_a_tick) as row, self.rows.key_of(of_a_tick, row) as key:
            self._match(of_a_tick, row, key)

    def _match(self, port: int, row: RowCode, key: str) -> None:
        with self._rows_of(1 - port, key) as partner, self.rows.joined(port, row, partner) as pair:
            self.writer.emit_copies(self.node.id, pair)

    @contextmanager
    def _rows_of(self, port: int, key: str) -> Generator[RowCode]:
        """Open a block that runs for each row of a side with this key."""
        side, schema = self.state(SIDES[port]), self.input_schema(port)
        if self.appends[port]:
            with side.each_item(key) as row:
                yield RowCode(self.writer.unpack(schema, row))
        else:
            with side.each_entry(key, "n") as (row, weight):
                yield RowCode(self.writer.unpack(schema, row), None, weight)

    def _add(self, port: int, row: RowCode, key: str) -> None:
        side = self.state(SIDES[port])
        if self.appends[port]:
            side.append(key, row.source)
        else:
            side.add_weight(key, row)


# --- steps that depend on absence -----------------------------------------------------------------


class RightFirstStep(RowStep):
    """Base of steps that apply the right side first and the left side last.

    If later operators could notice a left row that is retracted in this tick, such rows are retracted first
    of all (see `headrace.operators.join.transient_pairs`).
    """

    takes_rows = False
    keeps_state = True
    merges = True
    heavy = True

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        lifetimes: tuple[Lifetime, Lifetime] = self.operator.lifetimes
        self.of_a_tick = tuple(lifetime is Lifetime.TICK for lifetime in lifetimes)
        # A right row may come after a left row that it says something about: in a later tick or round.
        self.stores_left = lifetimes[0] is Lifetime.STATIC or writer.is_in_loop(node.id)

    def finish(self) -> None:
        before = self.writer.fresh("before")
        self.code.line(f"{before} = {{}}")
        split = applies_retractions_first(self.writer, self.node)
        if split:
            self.writer.consolidate_inputs(self.node)
            if not self.writer.is_append(self.node.inputs[0]):
                self.write_left_changes(ChangeSelection.GOES)
        self.write_right_changes(before)
        if self.stores_left:
            self.emit_crossings(before)
        self.write_left_changes(ChangeSelection.COMES if split else ChangeSelection.ALL)

    def write_left_changes(self, only: ChangeSelection) -> None:
        """Write the left side's changes against the current right side."""
        with self.writer.each_row(self.node, 0, only) as row:
            self.write_left_row(self.writer.as_whole(row))

    def write_left_row(self, row: RowCode) -> None:
        """Write the code for one left row."""
        raise NotImplementedError

    def write_right_changes(self, before: str) -> None:
        """Write the right side's changes.

        The dict `before` receives the earlier state of each touched key or row.
        """
        raise NotImplementedError

    def emit_crossings(self, before: str) -> None:
        """Write the output for earlier left rows whose match has changed."""
        raise NotImplementedError


class MatchCounting(RowStep):
    """Counting of each left row's matches: left joins, and semi or anti joins with a residual."""

    rows: JoinConditionWriter

    def right_rows(self, key: str) -> AbstractContextManager[RowCode]:
        """Open a block that runs for each right row of a key."""
        raise NotImplementedError

    def store_left(self, row: RowCode, key: str, matches: str) -> None:
        """Write code that adds a left row to its side."""
        raise NotImplementedError

    def write_left_row(self, row: RowCode) -> None:
        """Write the code for one left row: its pairs, or its output depending on whether it has matches."""
        semi = self.rows.operator.how is How.SEMI

        def emit_unmatched(row: RowCode) -> None:
            self.emit(self.rows.unmatched(row))

        with self.rows.left_key(row, None if semi else emit_unmatched) as key:
            matches = self.count_matches(row, key, emits=self.rows.operator.how is How.LEFT)
            with self.code.block(f"if {matches} {'> 0' if semi else '<= 0'}:"):
                emit_unmatched(row)
            self.store_left(row, key, matches)

    def count_matches(self, row: RowCode, key: str, *, emits: bool) -> str:
        """Write code that counts a left row's matches, and `emits` the pairs. Returns the variable."""
        matches = self.writer.fresh("matches")
        self.code.line(f"{matches} = 0")
        with self.right_rows(key) as right, self.rows.where_residual(row.columns + right.columns):
            self.code.line(f"{matches} += {right.copies}")
            if emits:
                self.emit_pair(row.columns + right.columns, weight_product(row.weight, right.weight))
        return matches

    def emit_pair(self, pair: tuple[str, ...], weight: str | None) -> None:
        """Write the code for a pair of the output."""
        self.emit(RowCode(self.rows.output(pair), None, weight))


def thaw_left(rows: dict[Any, Any]) -> dict[Any, Any]:
    """Thaw function for {row: [copies, matches]}."""
    return {row: list(entry) for row, entry in rows.items()}


class MatchedJoinStep(MatchCounting, RightFirstStep):
    """Step that keeps the number of each left row's matches.

    Slots: left, key -> {row: [copies, matches]}; right, key -> {row: weight}. `matches` is the weight of the
    right rows for which the residual is true.
    """

    operator: Join
    sites = 6

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self.rows = JoinConditionWriter(node, writer, self.operator)

    def slots(self) -> tuple[Slot, ...]:
        left = Slot(f"{self.node.id}.left", thaw_left, "value", transient=self.of_a_tick[0])
        right = Slot(f"{self.node.id}.right", divides="value", transient=self.of_a_tick[1])
        return (left, right) if self.stores_left else (right,)

    def write_right_changes(self, before: str) -> None:
        with self.writer.each_row(self.node, 1) as row, self.rows.key_of(1, row) as key:
            row = self.writer.as_whole(row)
            if self.stores_left:
                self._match_left(row, key, before)
            self.state("right").add_weight(key, row)

    def _match_left(self, row: RowCode, key: str, before: str) -> None:
        code = self.code
        with self.state("left").each_entry(key, "entry") as (left, entry):
            pair = self.writer.unpack(self.rows.schemas[0], left) + row.columns
            with self.rows.where_residual(pair):
                with code.block(f"if ({key}, {left}) not in {before}:"):
                    code.line(f"{before}[{key}, {left}] = ({entry}, {entry}[1])")
                code.line(f"{entry}[1] += {row.copies}")
                if self.operator.how is How.LEFT:
                    self.emit_pair(pair, weight_product(f"{entry}[0]", row.weight))

    def emit_crossings(self, before: str) -> None:
        writer, code = self.writer, self.code
        left, entry, old = writer.fresh("row"), writer.fresh("entry"), writer.fresh("old")
        with code.block(f"for (_, {left}), ({entry}, {old}) in {before}.items():"):
            columns = writer.unpack(self.rows.schemas[0], left)
            row = RowCode(columns, left, f"{entry}[0]")
            with code.block(f"if {entry}[1] > 0 >= {old}:"):
                self._emit_crossing(row, matched=True)
            with code.block(f"elif {entry}[1] <= 0 < {old}:"):
                self._emit_crossing(row, matched=False)

    def _emit_crossing(self, row: RowCode, *, matched: bool) -> None:
        """Emit the change of a stored left row that has gained its first match or lost its last."""
        if matched == (self.operator.how is How.SEMI):
            self.writer.emit_copies(self.node.id, self.rows.unmatched(row))
        elif not self.writer.is_append(self.node.id):
            self.emit(self.rows.unmatched(RowCode(row.columns, row.whole, negated_weight(row.weight))))

    @contextmanager
    def right_rows(self, key: str) -> Generator[RowCode]:
        with self.state("right").each_entry(key, "n") as (right, n):
            yield RowCode(self.writer.unpack(self.rows.schemas[1], right), right, n)

    def store_left(self, row: RowCode, key: str, matches: str) -> None:
        if not self.stores_left:
            return
        writer, code = self.writer, self.code
        slot = self.slot("left")
        own, entry = writer.fresh("own"), writer.fresh("entry")
        code.line(f"{own} = {self.slot_getter('left')}({key})")
        with code.block(f"if {own} is None:"):
            code.line(f"{slot}[{key}] = {{{row.whole}: [{row.copies}, {matches}]}}")
        with code.block("else:"):
            code.line(f"{entry} = {own}.get({row.whole})")
            with code.block(f"if {entry} is None:"):
                code.line(f"{own}[{row.whole}] = [{row.copies}, {matches}]")
            with code.block("else:"):
                code.line(f"{entry}[0] += {row.copies}")
                with code.block(f"if not {entry}[0]:"):
                    self.state("left").delete(key, own, row.source)

    def emit_pair(self, pair: tuple[str, ...], weight: str | None) -> None:
        self.writer.emit_copies(self.node.id, RowCode(self.rows.output(pair), None, weight))


@register_step(Difference)
class PresenceStep(RightFirstStep):
    """Step that tests a key's presence on the right: difference, and semi or anti join without a residual.

    Slots: left, key -> {row: weight}; right, key -> number of rows. With L, R before this tick and R' after
    it, the change in the answer is

        l where R' says so  +  L where R' newly says so  -  L where R' no longer does.
    """

    sites = 4

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self.keys = key_writer(node, writer)
        self.present = keeps_present(self.operator)
        self.test = "> 0" if self.present else "<= 0"

    def slots(self) -> tuple[Slot, ...]:
        left = Slot(f"{self.node.id}.left", divides="value", transient=self.of_a_tick[0])
        right = Slot(f"{self.node.id}.right", transient=self.of_a_tick[1])
        return (left, right) if self.stores_left else (right,)

    def write_right_changes(self, before: str) -> None:
        with self.writer.each_row(self.node, 1) as row, self.keys.key_of(1, row) as key:
            self.state("right").add_count(key, row.copies, before)

    def emit_crossings(self, before: str) -> None:
        writer, code = self.writer, self.code
        key, old, new = writer.fresh("key"), writer.fresh("old"), writer.fresh("new")
        with code.block(f"for {key}, {old} in {before}.items():"):
            code.line(f"{new} = {self.slot_getter('right')}({key}) or 0")
            with (
                code.block(f"if ({old} > 0) != ({new} > 0):"),
                self.state("left").each_entry(key, "n") as (row, n),
            ):
                self._emit_crossing(RowCode(writer.unpack(self.node.schema, row), row, n), new)

    def _emit_crossing(self, row: RowCode, new: str) -> None:
        with self.code.block(f"if {new} {self.test}:"):
            # On an append edge every stored copy is one that was never retracted.
            self.writer.emit_copies(self.node.id, row)
        if not self.writer.is_append(self.node.id):
            with self.code.block("else:"):
                self.emit(RowCode(row.columns, row.whole, negated_weight(row.weight)))

    def write_left_row(self, row: RowCode) -> None:
        with self.keys.left_key(row, None if self.present else self.emit) as key:
            with self.code.block(f"if ({self.slot_getter('right')}({key}) or 0) {self.test}:"):
                self.emit(row)
            if self.stores_left:
                self.state("left").add_weight(key, row)


def keeps_present(operator: Join | Difference) -> bool:
    """Return whether left rows are kept if their key is present on the right (semi join), or if absent."""
    return isinstance(operator, Join) and operator.how is How.SEMI


@step_for.register(Join)
def _join_step(operator: Join, node: Node, writer: StepWriter) -> RowStep:
    if operator.how is How.INNER:
        return InnerJoinStep(node, writer, operator)
    if operator.how is How.LEFT or operator.residual is not None:
        return MatchedJoinStep(node, writer)
    return PresenceStep(node, writer)
