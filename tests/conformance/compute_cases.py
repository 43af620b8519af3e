"""Compute protocol cases of many kinds, in the form `given`, `when`, `then`.

Cases whose three parts are data run against the pure logic of Headrace. The others describe the behaviour of
processes in words; they are counted separately and not run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.conformance.case_format import Fields, Kind
from tests.conformance.compute_commands import Run, read_history, read_reconciliation
from tests.conformance.compute_notation import InWords
from tests.conformance.compute_response_cases import (
    read_delivery,
    read_frontier,
    read_response_merging,
)
from tests.conformance.compute_times import (
    read_as_of,
    read_epochs,
    read_hydration,
    read_readiness,
    read_start_case,
)


@dataclass(frozen=True, slots=True)
class ComputeCase:
    """Compute protocol case. run: returns the problem, empty if none; None for a case in words."""

    run: Run | None


_READERS: Mapping[str, Callable[[Fields], Run]] = {
    "history": read_history,
    "reconcile": read_reconciliation,
    "partition": read_response_merging,
    "frontier": read_frontier,
    "controller": read_delivery,
    "as_of": read_as_of,
    "hydration": read_hydration,
    "schedule": read_start_case,
    "readiness": read_readiness,
    "transport": read_epochs,
}
"""Readers by kind. A reader raises `InWords` for a case that is not data."""


def read_case(fields: Fields) -> ComputeCase:
    reader = _READERS.get(fields.text("kind"))
    if reader is None:
        return ComputeCase(None)
    try:
        return ComputeCase(reader(fields))
    except InWords:
        return ComputeCase(None)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise fields.build_error(f"what it gives is not what its kind takes: {error}") from None


def run_case(case: ComputeCase) -> str:
    return case.run() if case.run is not None else ""


def is_in_words(case: ComputeCase) -> bool:
    return case.run is None


COMPUTE = Kind(read_case, run_case, is_in_words)
