"""Names that the Delta protocol gives to change data feeds, and one of ours for merges."""

from __future__ import annotations

from collections.abc import Mapping

FEED = "delta.enableChangeDataFeed"
"""Property of tables that keep a change data feed."""

CHANGE_TYPE = "_change_type"
"""Column of a feed that says what became of a row."""

WEIGHTS: Mapping[str, int] = {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1}
"""Weight of a row by its change type."""

OPERATION = "__headrace_operation"
"""Column of a merge's source: below 0 for rows to delete, above for rows to insert."""
