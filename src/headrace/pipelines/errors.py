"""Errors of pipelines: of the project's files, of the graph, and of a run."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeAlias

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
