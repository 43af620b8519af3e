"""Errors of pipelines: of the project's files, of the graph, and of a run."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeAlias

from headrace.errors import HeadraceError

Report: TypeAlias = Callable[[HeadraceError], object]


@contextmanager
def reporting(report: Report | None) -> Generator[None]:
    """Pass an error to `report` and continue after the block; raise it if there is no `report`."""
    try:
        yield
    except HeadraceError as error:
        if report is None:
            raise
        report(error)


class PipelineError(HeadraceError):
    """Base of the errors of pipelines."""

    code = "P800"


class BadSpec(PipelineError):
    """Raised for a spec file that is missing or malformed. Carries `field`, if one is to blame."""

    code = "P801"


class BadDefinition(PipelineError):
    """Raised for an invalid definition of a table, view, sink or flow. Carries `dataset`."""

    code = "P802"


class UnknownDataset(PipelineError):
    """Raised for the name of a dataset that the pipeline does not define. Carries `dataset`."""

    code = "P803"


class QueryRefused(PipelineError):
    """Raised for a query that Spark or its own Python function refuses.

    Carries `dataset`, and `unreachable`: whether only a source that it reads could not be reached.
    """

    code = "P804"
    unreachable = False


class NotIncremental(PipelineError):
    """Raised by the policy `incremental_strict` for a view that can only be recomputed. Carries `dataset`."""

    code = "P805"


class PipelineInUse(PipelineError):
    """Raised for a second run of a pipeline at the same time. Carries `storage`."""

    code = "P806"


class CatalogDamaged(PipelineError):
    """Raised for a catalogue of tables that cannot be read. Carries `file`."""

    code = "P807"


class ExpectationFailed(PipelineError):
    """Raised for rows that violate an expectation of `expect_or_fail`, or ON VIOLATION FAIL UPDATE.

    Carries `dataset`, `expectations`, the number of violating rows by name, and `row`, one of them as text.
    """

    code = "P808"


class NeedsSpark(PipelineError):
    """Raised in a run that is to do without Spark for what only Spark can do. Carries `dataset`."""

    code = "P809"


class RunNotKept(PipelineError):
    """Raised for a run whose tables are not kept. Carries `run`, and `kept`, the runs that are."""

    code = "P810"


class BackfillRefused(PipelineError):
    """Raised for a part of a table that cannot be computed by itself. Carries `dataset`."""

    code = "P811"


class AbsentSpark:
    """Stand-in for the session of a run without Spark: whatever needs it raises `NeedsSpark`."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NeedsSpark("it needs Spark")


def is_absent(session: object) -> bool:
    """Return whether a run has no Spark."""
    return isinstance(session, AbsentSpark)
