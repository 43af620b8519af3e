"""Inputs of queries as one run reads them: one interface for the pipeline's tables, files and Delta tables.

A new kind of input, or a new table format, is a leaf of `leaves` and one subclass of `RunInput`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from headrace.pipelines.catalog import Position
from headrace.pipelines.errors import PipelineError
from headrace.pipelines.graph import StoredTable
from headrace.pipelines.leaves import ConstantLeaf, Leaf, TableLeaf
from headrace.pipelines.table_versions import TableVersions, adds_only, count_rows
from headrace.pipelines.weighted_rows import expand, has_removals, with_weight
from headrace.queries.plan_details import frame_of_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

L = TypeVar("L", bound=Leaf)


@dataclass(frozen=True, slots=True)
class RunInput(ABC, Generic[L]):
    """An input of a query, as all tables of one run read it. Methods may raise `PipelineError`.

    Each kind has positions of a type of its own; a position of another type counts as unknown.
    """

    leaf: L
    spark: SparkSession

    def position(self) -> Position | None:
        """Return how far the input goes in this run; None if that cannot be said."""
        return None

    @abstractmethod
    def whole(self) -> DataFrame:
        """Return all rows."""

    def changes(self, before: Position | None) -> DataFrame | None:
        """Return what changed since a position, with weights; None if that is not known."""
        return None

    def adds_only(self, before: Position | None) -> bool:
        """Return whether known changes since a position surely take nothing back, without computing them."""
        return True

    def why_unknown(self, before: Position | None) -> str:
        """Return why it is not known what changed since a position."""
        return f"{self.leaf.key} {'was not read before' if before is None else 'has changed'}"

    def is_unchanged(self, before: Position | None) -> bool:
        """Return whether it is known to have the rows that it had at a position."""
        return before is not None and before == self.position()

    def rows_changed(self, before: Position | None) -> int | None:
        """Return how many rows changed since a position, or are there, once an update has read them.

        None where that is not known.
        """
        return None

    def has_retractions(self, before: Position | None, changes: DataFrame) -> bool:
        """Return whether the changes since a position take rows back."""
        return not self.adds_only(before) and has_removals(changes)

    def unread(self, before: Position | None, table: StoredTable) -> DataFrame:
        """Return the rows that a stream into `table` has not read since a position; all without one.

        Raises `PipelineError` if rows that it has read were taken back.
        """
        if before is None:
            return self.whole()
        changes = self.changes(before)
        if changes is None or self.has_retractions(before, changes):
            raise PipelineError(
                f"{self.leaf.key} has taken rows back, which a stream into {table.name} has read",
                where=[table.dataset.location],
                why="What a streaming table holds stays.",
                fix=f"make it a materialized view, or reread its inputs: --full-refresh {table.name}",
            )
        return expand(changes)


@dataclass(frozen=True, slots=True)
class TableInput(RunInput[TableLeaf]):
    """A table of the pipeline, at its last version. Positions are numbers of versions."""

    versions: TableVersions

    def position(self) -> int:
        return self.versions.last.version

    def whole(self) -> DataFrame:
        return self.versions.rows()

    def changes(self, before: Position | None) -> DataFrame | None:
        return self.versions.changes(before) if isinstance(before, int) else None

    def adds_only(self, before: Position | None) -> bool:
        return not isinstance(before, int) or all(map(adds_only, self.versions.change_folders(before) or ()))

    def why_unknown(self, before: Position | None) -> str:
        if before is None:
            return f"{self.leaf.key} was not read before"
        return f"what changed in {self.leaf.name} since its version {before} is not kept"

    def rows_changed(self, before: Position | None) -> int | None:
        if before is None:
            return self.versions.last.rows
        if not isinstance(before, int):
            return None
        return sum(map(count_rows, self.versions.change_folders(before) or ()))


@dataclass(frozen=True, slots=True)
class ConstantInput(RunInput[ConstantLeaf]):
    """Rows that the text of the query holds. Their position is that text."""

    def position(self) -> str:
        return self.leaf.key

    def whole(self) -> DataFrame:
        return frame_of_plan(self.leaf.node, self.spark)

    def changes(self, before: Position | None) -> DataFrame | None:
        return with_weight(self.whole().limit(0), 1) if before == self.position() else None


@dataclass(frozen=True, slots=True)
class UnversionedInput(RunInput[Leaf]):
    """What cannot be asked for its changes."""

    def whole(self) -> DataFrame:
        return frame_of_plan(self.leaf.node, self.spark)
