"""Findings on a project for `headrace check`: all that a dry run refuses, and tables it cannot maintain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.analysis.findings import Finding, Severity
from headrace.pipelines.errors import BadDefinition, NotIncremental, QueryRefused
from headrace.pipelines.plans import Method, TablePlan, policy_of
from headrace.pipelines.policy import Policy
from headrace.pipelines.run import default_policy, planned

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.errors import HeadraceError
    from headrace.pipelines.spec import PipelineSpec


def findings_of_project(spec: PipelineSpec, spark: SparkSession) -> tuple[int, list[Finding]]:
    """Return the number of tables that can be planned, and the findings. Raises `BadSpec`."""
    errors: list[HeadraceError] = []
    with planned(spec, spark, report=errors.append) as (_, plans):
        warnings = [warning for plan in plans.values() for warning in _warnings(plan, default_policy(spec))]
    found = [Finding(_severity(error), error) for error in _without_consequences(errors)]
    return len(plans), found + [Finding(Severity.WARNING, warning) for warning in warnings]


def _severity(error: HeadraceError) -> Severity:
    """Return a warning for a query that only misses its data, which need not be where it is checked."""
    missing = isinstance(error, QueryRefused) and (error.unreachable or "PATH_NOT_FOUND" in error.why)
    return Severity.WARNING if missing else Severity.ERROR


def _without_consequences(errors: list[HeadraceError]) -> list[HeadraceError]:
    """Leave out queries that miss a table while definitions are wrong: it may be one that they define."""
    if not any(isinstance(error, BadDefinition) for error in errors):
        return errors
    return [
        error
        for error in errors
        if not (isinstance(error, QueryRefused) and "TABLE_OR_VIEW_NOT_FOUND" in error.why)
    ]


def _warnings(plan: TablePlan, default: Policy) -> Iterator[HeadraceError]:
    """Warn of a table whose source cannot be reached, and of one that is recomputed against its policy."""
    dataset = plan.table.dataset
    if plan.table.failure is not None:
        yield plan.table.failure
    elif plan.method is Method.RECOMPUTE and plan.why and policy_of(dataset, default) is not Policy.FULL:
        yield NotIncremental(
            f"{dataset.name} is recomputed in every run: {plan.why}",
            where=plan.where or [query.query.location for query in plan.table.queries],
            why="Spark runs its query on all rows.",
            fix="change the query, or accept that by the refresh policy 'full'",
            dataset=str(dataset.name),
        )
