"""Query files, and the plans saved beside them so that they run without Spark.

A `.sql` file says in its comments what its tables are:

    -- source orders: id BIGINT NOT NULL, shop STRING, price BIGINT
    -- table shops: shop STRING, region STRING
    SELECT region, sum(price) AS revenue FROM orders JOIN shops USING (shop) GROUP BY region

A `.plan` file is JSON, to be checked in beside the query: the query's text, what its tables are, which Spark
planned it, and the plan of the flow, which holds no code.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from headrace.errors import FlowNotFound, SourceLocation, UnsupportedQuery
from headrace.requirements import require_package

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.expr.types import Schema
    from headrace.flow.flow import Flow


_FORMAT = 1
_PROTOBUF = ("google.protobuf", "serve")
_LARGEST = 1 << 23
"""Limit on the bytes of a file, several times what a plan and its places may have."""
_DECLARED = re.compile(r"^--\s*(source|table)\s+(\w+)\s*:\s*(.+?)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class QueryFile:
    """Text of a query, and its declared tables by name: kind, and columns in Spark's DDL."""

    path: Path
    text: str
    tables: Mapping[str, tuple[Literal["source", "table"], str]]

    @classmethod
    def read(cls, path: Path) -> QueryFile:
        """Read a `.sql` file. Raises `FlowNotFound`, and `UnsupportedQuery` if it declares no table."""
        _check_exists(path)
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise UnsupportedQuery(
                f"{path} is not UTF-8",
                where=[SourceLocation(str(path), 1)],
                why=str(error),
                fix="save the file as UTF-8",
            ) from None
        declared: dict[str, Any] = {name: (kind, ddl) for kind, name, ddl in _DECLARED.findall(text)}
        if not declared:
            raise UnsupportedQuery(
                f"{path} does not say what its tables are",
                where=[SourceLocation(str(path), 1)],
                fix="-- source NAME: id BIGINT, ...    (rows are only added)\n"
                "-- table NAME: id BIGINT, ...     (rows may be taken back)",
            )
        return cls(path, text, declared)

    def plan(self) -> Flow:
        """Plan the query with Spark. Raises `UnsupportedQuery`, and `SparkUnavailable`."""
        from headrace.spark.session import need_pyspark

        need_pyspark()
        from headrace.queries.catalyst_plan import QueryText
        from headrace.queries.query import plan_flow

        append = {name for name, (kind, _) in self.tables.items() if kind == "source"}
        lines = self.text.split("\n")
        first = next(
            (at for at, line in enumerate(lines, 1) if line.strip() and not line.startswith("--")), 1
        )
        query, location = QueryText(self.text, str(self.path)), SourceLocation(str(self.path), first)
        return plan_flow(query, self._schemas(), append, "answer", None, location)

    def _schemas(self) -> dict[str, Schema]:
        from pyspark.errors import PySparkException
        from pyspark.sql.types import StructType

        from headrace.queries.catalyst_plan import parse_schema
        from headrace.spark import session

        session()  # whose parser reads the columns
        schemas: dict[str, Schema] = {}
        for name, (_, ddl) in self.tables.items():
            try:
                read: Any = StructType.fromDDL(ddl).jsonValue()
                schemas[name] = parse_schema(read)
            except PySparkException as error:
                raise self._unread(name, ddl, str(error).partition("\n")[0]) from None
            except UnsupportedQuery as error:
                raise self._unread(name, ddl, f"It has {error.what}.") from None
        return schemas

    def _unread(self, name: str, ddl: str, why: str) -> UnsupportedQuery:
        lines = self.text.split("\n")
        at = next(at for at, line in enumerate(lines, 1) if _DECLARED.match(line) and ddl in line)
        return UnsupportedQuery(
            f"the columns of {name!r} in {self.path} cannot be read: {ddl}",
            where=[SourceLocation(str(self.path), at)],
            why=why,
            fix=f"correct them: -- {self.tables[name][0]} {name}: id BIGINT, ...",
        )

    @property
    def kept_plan(self) -> Path:
        """Path of the plan saved beside the query."""
        return self.path.with_suffix(".plan")


def load_query(path: Path) -> Flow:
    """Load the flow of a `.sql` file: from the plan beside it if its text is unchanged, else with Spark."""
    query = QueryFile.read(path)
    return load_flow(query.kept_plan) if plan_is_kept(query) else query.plan()


def plan_is_kept(query: QueryFile) -> bool:
    """Return whether a plan of the query's current text is saved beside it."""
    return query.kept_plan.is_file() and _read(query.kept_plan).get("query") == query.text


def save_flow(flow: Flow, path: str | Path, *, query: str | None = None) -> None:
    """Save a flow as a plan, from which `load_flow` restores it without Spark.

    query: the text that it was planned from, for readers.

    Needs `headrace[serve]`. Raises `CallableRefused` for a flow with Python functions, `BadInput` without
    protobuf.
    """
    from headrace.version import __version__

    require_package("a plan", *_PROTOBUF)
    from headrace.compute.plans import encode

    plan, graph = encode(flow), flow.graph()
    made = {
        "format": _FORMAT,
        "headrace": __version__,
        "spark": _spark_version(),
        "query": query,
        "sources": {name: str(graph.nodes[node].schema) for name, node in graph.sources.items()},
        "plan": b64encode(plan.body).decode(),
        "places": b64encode(plan.places).decode(),
    }
    Path(path).write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")


def load_flow(path: str | Path) -> Flow:
    """Load a flow that `save_flow` saved.

    Raises `FlowNotFound` if there is no file, `BadPlan` for other files, `BadInput` without protobuf.
    """
    require_package("a plan", *_PROTOBUF)
    _check_exists(Path(path))
    return _decoded(_read(Path(path)), Path(path))


def _check_exists(path: Path) -> None:
    if not path.is_file():
        raise FlowNotFound(f"there is no file {path}", fix="name a .sql or a .plan file", name=str(path))


def _spark_version() -> str | None:
    try:
        import pyspark
    except ImportError:
        return None
    return pyspark.__version__


def _read(path: Path) -> dict[str, Any]:
    from headrace.compute.errors import BadPlan

    if path.stat().st_size > _LARGEST:
        raise BadPlan(f"{path} is too large for a plan", fix="save it again", part="")
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadPlan(f"{path} is no plan of a flow: {error}", fix="save it again", part="") from error
    if not isinstance(kept, dict) or cast("dict[str, Any]", kept).get("format") != _FORMAT:
        raise BadPlan(
            f"{path} is no plan of a flow that this version reads",
            fix="save it again, by this version",
            part="",
        )
    return cast("dict[str, Any]", kept)


def _decoded(kept: Mapping[str, Any], path: Path) -> Flow:
    from headrace.compute.errors import BadPlan
    from headrace.compute.plans import decode
    from headrace.compute.protocol.commands import PlanBytes

    try:
        parts = [b64decode(kept[name], validate=True) for name in ("plan", "places")]
    except (KeyError, TypeError, ValueError) as error:
        raise BadPlan(f"{path} is damaged: {error}", fix="save it again", part="") from error
    return decode(PlanBytes(*parts))
