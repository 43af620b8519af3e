"""Fingerprints of the computation of a table, in named parts, so that a change can be explained.

Parts hold no constants of a query, only checksums of them: a catalogue that keeps them has no values that its
tables have not.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from headrace.analysis.fingerprints import to_canonical_data
from headrace.pipelines.definitions import TOMBSTONES, TableName
from headrace.pipelines.graph import AnalysedQuery, StoredTable
from headrace.pipelines.leaves import text_of
from headrace.queries.plan_details import ANSI, ASSUMED, TIME_ZONE, items, java_class, with_subqueries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_READING = (
    *(ANSI, TIME_ZONE, "spark.sql.mapKeyDedupPolicy", "spark.sql.caseSensitive"),
    *("spark.sql.legacy.timeParserPolicy", "spark.sql.storeAssignmentPolicy"),
)
"""Settings that a fingerprint always names, of those that change what a query answers."""

_SETTING = "setting "
_PLAN, _COLUMNS, _FUNCTIONS = "query", "columns", "functions"
_SENTENCES = {
    "layout": "its format or partitions have changed",
    "records": "the keys or options of its records have changed",
    "flows": "its flows have changed",
    "constants": "a constant of its query has changed",
}


def fingerprint_parts(
    table: StoredTable, names: Mapping[TableName, TableName], spark: SparkSession
) -> dict[str, str]:
    """Return everything that determines how a table's rows are computed, in named parts."""
    import pyspark

    queries = sorted(table.queries, key=lambda each: each.query.name)
    columns = [f"{each.name} {_digest(each.json())}" for each in table.schema.fields]
    plans = [line for query in queries for line in _plan_lines(query, names, spark)]
    constants = [each for query in queries for each in _literals(query, spark)]
    functions = [each for query in queries for each in _functions(query, spark)]
    records = [each for query in queries for each in _records(table, query)]
    settings = {key: str(spark.conf.get(key)) for key in _READING}
    given = {key: spark.conf.get(key, assumed or None) or "" for key, assumed in ASSUMED.items()}
    settings |= {key: value for key, value in given.items() if value != ASSUMED[key]}
    for query in queries:
        settings |= query.query.settings
    return {
        "Spark": pyspark.__version__,
        **{f"{_SETTING}{key}": value for key, value in sorted(settings.items())},
        "layout": table.layout,
        "records": _digest("\0".join(records)),
        "flows": _digest("\0".join(query.query.name for query in queries)),
        _COLUMNS: "\n".join(columns),
        _PLAN: "\n".join(plans),
        _FUNCTIONS: "\n".join(functions),
        "constants": _digest("\0".join(constants)),
        "text": _digest("\0".join(_canonical(query, names, spark) for query in queries)),
    }


def fingerprint_of(parts: Mapping[str, str]) -> str:
    """Hash of everything that determines how a table's rows are computed."""
    return _digest("\0".join(f"{name}\0{value}" for name, value in sorted(parts.items())))


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def describe_changes(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Describe which parts of a fingerprint have changed."""
    if not before:
        return "its query or its settings have changed"
    different = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    said = [each for name in different for each in _describe(name, before.get(name, ""), now.get(name, ""))]
    found = [each for each in said if each != _SENTENCES["constants"]] or said
    return ", ".join(dict.fromkeys(found)) or "its query has changed"


def _describe(name: str, was: str, now: str) -> Iterator[str]:
    if name == "Spark":
        yield f"Spark is {now}, was {was}"
    elif name.startswith(_SETTING):
        yield f"{name.removeprefix(_SETTING)} is {now or 'not set'}, was {was or 'not set'}"
    elif name == _COLUMNS:
        yield f"its columns have changed ({_describe_columns(was, now)})"
    elif name == _PLAN:
        yield f"its query has changed ({', '.join(_changed_names(was, now))})"
    elif name == _FUNCTIONS:
        yield f"the code of {', '.join(_changed_names(was, now))} has changed"
    elif name in _SENTENCES:
        yield _SENTENCES[name]


def _describe_columns(was: str, now: str) -> str:
    before, after = (dict(line.rsplit(" ", 1) for line in text.split("\n") if line) for text in (was, now))
    said = [f"{name} is new" for name in after if name not in before]
    said += [f"{name} is gone" for name in before if name not in after]
    said += [f"{name} has another type" for name in after if before.get(name, after[name]) != after[name]]
    return ", ".join(said) or "they are in another order"


def _changed_names(was: str, now: str) -> list[str]:
    """Return the names of the lines in which two texts differ."""
    before, after = (Counter(line for line in text.split("\n") if line) for text in (was, now))
    names = [line.rsplit(" ", 1)[0] for line in (*(after - before), *(before - after))]
    return list(dict.fromkeys(names)) or ["its parts are in another order"]


# -- of queries ------------------------------------------------------------------------------------

_NUMBER = re.compile(
    r"#\d+|(?<=CTERelationDef )\d+|(?<=CTERelationRef )\d+|(?<=EventTimeWatermark )[0-9a-f-]{36}"
)
"""Numbers of expressions, common table expressions and watermarks, which Spark makes anew in each session."""


def _canonical(query: AnalysedQuery, names: Mapping[TableName, TableName], spark: SparkSession) -> str:
    """Return the text of a plan with canonical numbers instead of those that Spark assigns anew each time."""
    numbers = dict[str, str]()
    text = "\n".join(f"{' ' * depth}{line}" for depth, _, line in text_of(query.plan, names, spark))
    return _NUMBER.sub(lambda found: numbers.setdefault(found[0], f"#{len(numbers)}"), text)


def _plan_lines(
    query: AnalysedQuery, names: Mapping[TableName, TableName], spark: SparkSession
) -> Iterator[str]:
    """Yield the operators and inputs of a query, each with a checksum of its definition."""
    for _, name, line in text_of(query.plan, names, spark):
        yield f"{name} {_digest(_NUMBER.sub('#', line))}"


def _expressions(query: AnalysedQuery, pattern: Any) -> Iterator[Any]:
    """Yield the nodes of all expressions that contain a pattern."""
    for plan in with_subqueries(query.plan):
        for node in _nodes(plan):
            for expression in items(node.expressions()):
                if expression.containsPattern(pattern):
                    yield from _nodes(expression)


def _nodes(tree: Any) -> Iterator[Any]:
    yield tree
    for child in items(tree.children()):
        yield from _nodes(child)


def _patterns(spark: SparkSession) -> Any:
    return java_class(spark, "org.apache.spark.sql.catalyst.trees.TreePattern")


def _literals(query: AnalysedQuery, spark: SparkSession) -> Iterable[str]:
    """Return the constants of a query, which the text of a plan may abbreviate."""
    found = _expressions(query, _patterns(spark).LITERAL())
    return [each.sql() for each in found if each.nodeName() == "Literal"]


def _functions(query: AnalysedQuery, spark: SparkSession) -> Iterator[str]:
    """Yield the Python functions of a query, with a checksum of their code."""
    byte = java_class(spark, "scala.reflect.ClassTag").Byte()
    for each in _expressions(query, _patterns(spark).PYTHON_UDF()):
        if each.nodeName() in ("PythonUDF", "PythonUDAF", "PythonUDTF"):
            command = pickle.loads(bytes(each.func().command().toArray(byte)))
            yield f"{each.name()} {_digest(_code_of(command[0] if isinstance(command, tuple) else command))}"


def _code_of(function: Any) -> str:
    """Return the code of a function with the constants of its module that it may read."""
    named = getattr(function, "__globals__", {})
    read = {name: to_canonical_data(named[name]) for name in sorted(named) if not name.startswith("__")}
    return json.dumps([to_canonical_data(function), read], sort_keys=True)


def _records(table: StoredTable, query: AnalysedQuery) -> Iterator[str]:
    """Yield the specification of AUTO CDC."""
    cdc = query.query.cdc
    if cdc is None:
        return
    yield repr((cdc.keys, cdc.included, cdc.excluded, cdc.versions, cdc.tracked, cdc.untracked))
    yield table.dataset.properties.get(TOMBSTONES, "")
