"""What the files of a pipeline may not do to the session while they are imported, and while queries are made.

`pyspark.pipelines` blocks the same calls, of Spark Connect only.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, NoReturn

from headrace.errors import SourceLocation
from headrace.pipelines.errors import BadDefinition

_INSTEAD = "dp.temporary_view defines a view; the spec's configuration and spark_conf= have settings"


def _changes() -> list[tuple[Any, str, str]]:
    """List the blocked calls: class, method, what they change."""
    from pyspark.sql.catalog import Catalog
    from pyspark.sql.classic.dataframe import DataFrame
    from pyspark.sql.conf import RuntimeConfig
    from pyspark.sql.udf import UDFRegistration

    return [
        (RuntimeConfig, "set", "a setting"),
        (RuntimeConfig, "unset", "a setting"),
        (Catalog, "setCurrentCatalog", "the current catalogue"),
        (Catalog, "setCurrentDatabase", "the current database"),
        (Catalog, "dropTempView", "a view"),
        (Catalog, "dropGlobalTempView", "a view"),
        (DataFrame, "createTempView", "a view"),
        (DataFrame, "createOrReplaceTempView", "a view"),
        (DataFrame, "createGlobalTempView", "a view"),
        (DataFrame, "createOrReplaceGlobalTempView", "a view"),
        (UDFRegistration, "register", "a function"),
        (UDFRegistration, "registerJavaFunction", "a function"),
        (UDFRegistration, "registerJavaUDAF", "a function"),
    ]


def _reads() -> list[tuple[Any, str, str]]:
    """List the calls that read rows, of which a query function sees none yet."""
    from pyspark.sql.classic.dataframe import DataFrame

    rows = ("collect", "take", "first", "head", "tail", "toPandas", "toArrow", "toLocalIterator")
    names = (
        *rows,
        "count",
        "isEmpty",
        "show",
        "foreach",
        "foreachPartition",
        "checkpoint",
        "localCheckpoint",
    )
    return [
        (DataFrame, name, "rows") for name in (*names, "foreachPartition", "checkpoint", "localCheckpoint")
    ]


@contextmanager
def definitions_only() -> Generator[None]:
    """Refuse, by `BadDefinition`, calls that change the session."""
    with _replaced(_changes(), _refuse_change):
        yield


@contextmanager
def queries_only() -> Generator[None]:
    """Refuse, by `BadDefinition`, calls that change the session or read rows."""
    with _replaced(_changes(), _refuse_change), _replaced(_reads(), _refuse_read):
        yield


def _refuse_change(method: str, what: str) -> NoReturn:
    raise BadDefinition(
        f"{method}() changes {what} of the session",
        where=[SourceLocation.of_caller()],
        why="Files of a pipeline only define datasets; what they change would reach other datasets, too.",
        fix=_INSTEAD,
        dataset="",
    )


def _refuse_read(method: str, what: str) -> NoReturn:
    raise BadDefinition(
        f"{method}() reads {what} in a query function",
        where=[SourceLocation.of_caller()],
        why="A query function returns a DataFrame; the tables it reads are not brought up to date before.",
        fix="compute it in the query, for example by a join with an aggregate",
        dataset="",
    )


@contextmanager
def _replaced(calls: list[tuple[Any, str, str]], refuse: Callable[[str, str], NoReturn]) -> Generator[None]:
    before = [(kind, name, getattr(kind, name)) for kind, name, _ in calls]
    for kind, name, what in calls:
        setattr(kind, name, _refusing(refuse, name, what))
    try:
        yield
    finally:
        for kind, name, method in before:
            setattr(kind, name, method)


def _refusing(refuse: Callable[[str, str], NoReturn], name: str, what: str) -> Callable[..., NoReturn]:
    def refused(*arguments: Any, **keywords: Any) -> NoReturn:
        refuse(name, what)

    return refused
