"""Task results sent to the driver: names and numbers, and rows only for driver-side sinks.

chain   (cell, chain as JSON text, pending, waiting)   the version of a cell that the tick would make
file    (sink, staged name, rows)              a file written for a sink
rows    (sink, rows)                           changes for a sink that lives in the driver
taken   (source, rows)                         rows read
bad     (source, record)                       a row set aside
widened (source, column, ...)                  a column of a file that is narrower than declared
rounds  (rows by exchange, ...)                what went back after each round that a task ran for the driver
cost    what a task cost, see `headrace.spark.ticks.cost.Report`
clock   (operator, watermark, late rows)       where a watermark stands now
error   (stage, pickled error)                 why the tick cannot be
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable
from dataclasses import astuple, dataclass, field
from typing import Any

from headrace.errors import HeadraceError
from headrace.expr.types import Rows
from headrace.io.files.file_reader import Widened
from headrace.io.source import BadRecord
from headrace.spark.ticks.messages import Result
from headrace.state.chain import Chain


@dataclass(slots=True)
class Outcome:
    """Combined results of a tick's tasks.

    passing: state files needed only by later jobs of the same tick.
    """

    chains: dict[int, Chain] = field(default_factory=dict[int, Chain])
    pending: set[int] = field(default_factory=set[int])
    waiting: set[int] = field(default_factory=set[int])
    files: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    rows: dict[str, Rows] = field(default_factory=dict[str, Rows])
    changes: dict[str, int] = field(default_factory=dict[str, int])
    taken: dict[str, int] = field(default_factory=dict[str, int])
    bad: dict[str, list[BadRecord]] = field(default_factory=dict[str, list[BadRecord]])
    widened: list[Widened] = field(default_factory=list[Widened])
    clocks: dict[str, tuple[Any, int]] = field(default_factory=dict[str, tuple[Any, int]])
    passing: set[str] = field(default_factory=set[str])
    costs: list[Any] = field(default_factory=list[Any])


def chain_result(cell: int, chain: Chain, pending: bool, waiting: bool) -> Result:
    return Result("chain", (cell, json.dumps(chain.to_json()), pending, waiting))


def bad_result(source: str, record: BadRecord) -> Result:
    return Result("bad", (source, astuple(record)))


def error_result(stage: int, error: HeadraceError) -> Result:
    from pyspark import cloudpickle

    try:
        content: bytes = cloudpickle.dumps(error)
    except Exception:
        plain = type(error)(error.what, where=error.where, why=error.why, fix=error.fix)
        content = cloudpickle.dumps(plain)
    return Result("error", (stage, content))


def gathered(results: Iterable[Result]) -> Outcome:
    """Combine results into one outcome. Raises the error of the earliest stage, if a task reported one."""
    outcome = Outcome()
    errors: list[tuple[int, bytes]] = []
    for result in results:
        match result.kind, result.body:
            case "error", (stage, content):
                errors.append((stage, content))
            case "chain", (cell, text, pending, waiting):
                outcome.chains[cell] = Chain.from_json(json.loads(text))
                if pending:
                    outcome.pending.add(cell)
                if waiting:
                    outcome.waiting.add(cell)
            case "file", (sink, name, count):
                outcome.files.setdefault(sink, []).append(name)
                outcome.changes[sink] = outcome.changes.get(sink, 0) + count
            case "rows", (sink, rows):
                outcome.rows.setdefault(sink, []).extend(rows)
                outcome.changes[sink] = outcome.changes.get(sink, 0) + len(rows)
            case "taken", (source, count):
                outcome.taken[source] = outcome.taken.get(source, 0) + count
            case "bad", (source, record):
                outcome.bad.setdefault(source, []).append(BadRecord(*record))
            case "widened", column:
                outcome.widened.append(Widened(*column))
            case "clock", (operator, watermark, late):
                outcome.clocks[operator] = (watermark, late)
            case "cost", cost:
                outcome.costs.append(cost)
            case "rounds", _:
                pass  # `rounds_of` reads these
            case _:
                raise AssertionError(f"unknown kind of result: {result.kind}")
    if errors:
        # Later stages ran on half of the rows; what they say follows from the first error.
        raise pickle.loads(min(errors)[1])
    return outcome
