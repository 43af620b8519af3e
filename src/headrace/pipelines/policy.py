"""Refresh policies of materialized views, by the names that users of Databricks know."""

from __future__ import annotations

from enum import Enum

from headrace.errors import SourceLocation
from headrace.pipelines.errors import BadDefinition

POLICY = "headrace.refresh_policy"
"""Property of a table, and setting of a pipeline."""


class Policy(Enum):
    """What may become of a materialized view at a refresh (docs/reference/pipelines.md)."""

    INCREMENTAL_STRICT = "incremental_strict"
    INCREMENTAL = "incremental"
    AUTO = "auto"
    FULL = "full"


def parse_policy(text: str, of: str, where: list[SourceLocation]) -> Policy:
    """Return the policy of a name. Raises `BadDefinition`, located at `where`. of: what has this policy."""
    try:
        return Policy(text.lower())
    except ValueError:
        raise BadDefinition(
            f"{of} has the refresh policy {text!r}",
            where=where,
            fix=f"one of: {', '.join(policy.value for policy in Policy)}",
        ) from None
