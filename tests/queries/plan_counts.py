"""How often each operator and expression of Spark stands in plans, to tell what a search has tried."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from headrace.queries import expressions, groups, relations
from headrace.queries import query as query  # registers all lowerings
from headrace.queries.catalyst_plan import KIND, simple_name

PROPERTY = "plan counts"
"""Property of a test's report with its counts."""

QUERIES = "queries"
"""How many plans were looked at."""

LEAST = 50
"""How often each is to be met in a search."""


UNMET = {
    **dict.fromkeys(
        ("FlatMapGroupsInArrow", "FlatMapGroupsInPandas", "MapInArrow", "MapInPandas"), "DataFrames"
    ),
    **dict.fromkeys(("HiveTableRelation", "LogicalRelation"), "tables of DataFrames"),
    **dict.fromkeys(("AnyValue", "Distinct", "MapContainsKey"), "replaced by Spark's optimiser"),
    **dict.fromkeys(("ResolvedHint", "SubqueryAlias"), "removed by Spark's optimiser"),
    **dict.fromkeys(
        (
            *("Deduplicate", "DeduplicateWithinWatermark", "EventTimeWatermark"),
            *("StreamingRelation", "StreamingRelationV2"),
        ),
        "streams",
    ),
    "HllUnionAgg": "sketches in tables",
    "KnownNotNull": "functions in Scala",
    **dict.fromkeys(
        ("MonotonicallyIncreasingID", "Rand", "RandStr", "Randn", "Shuffle", "SparkPartitionID", "Uuid"),
        "refused",
    ),
}
"""Kinds with a lowering that the text of a query does not lead to, with the reason."""


def kinds_met(value: Any) -> Iterator[str]:
    """Kinds of the nodes in the JSON of a plan, with those of subqueries."""
    if isinstance(value, Mapping):
        node = cast("Mapping[str, Any]", value)
        if "num-children" in node:
            yield node.get(KIND) or simple_name(node["class"])
        value = node.values()
    elif not isinstance(value, list):
        return
    for each in cast("Iterable[Any]", value):
        yield from kinds_met(each)


def kinds_known() -> set[str]:
    """Kinds that have a lowering."""
    tables = (relations._LOWERINGS, expressions._LOWERINGS, groups._AGGREGATES, groups._WINDOW_FUNCTIONS)
    return set().union(*tables)


def summary(met: Counter[str]) -> str:
    """A text of how many queries there were, and of the kinds that were met too rarely."""
    known = kinds_known() - UNMET.keys()
    rare = [f"{kind} {met[kind]}" for kind in sorted(known) if met[kind] < LEAST]
    often = f"{len(known) - len(rare)} kinds of nodes {LEAST} times or more"
    apart: dict[str, list[str]] = defaultdict(list)
    for kind, reason in sorted(UNMET.items()):
        apart[reason].append(f"{kind} {met[kind]}" if met[kind] else kind)
    others = "; ".join(f"{reason}: {', '.join(kinds)}" for reason, kinds in apart.items())
    return (
        f"{met[QUERIES]} random queries; {often}; less: {', '.join(rare) or 'none'}; not in queries: {others}"
    )
