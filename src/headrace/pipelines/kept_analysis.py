"""Kept analysis of a project: its graph and plans, for runs that neither import the project nor start Java.

    <storage>/analysis/kept.json      what the analysis came from, and the digests of the parts
    <storage>/analysis/<digest>.part  the graph, or the flow of a table, pickled

It holds as long as everything that it came from is the same: the files of the project and those that they
read or import, the variables of the environment that they asked for, the settings, the versions of Headrace,
Spark and Python, and the columns of inputs where Spark has inferred them. An analysis is not kept where that
does not tell all: if definitions read rows, the clock, chance or the network.

A part is code to Python, as a compiled module is. So it is loaded only if what names it belongs to the user
who runs, and nobody else can write it.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import pickle
import re
import sys
import sysconfig
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from time import time_ns
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from headrace.errors import HeadraceError
from headrace.file_system import (
    identity_of,
    make_private_file,
    make_private_folder,
    remove_folder,
    scheme_of,
    write_file,
)
from headrace.pipelines.definitions import Dataset, DatasetKind, Policy, TableName
from headrace.pipelines.errors import NeedsSpark
from headrace.pipelines.file_listing import GLOB, IN_SEVERAL_FOLDERS, NAMED_IN_SQL, files_without_spark
from headrace.pipelines.graph import Graph, StoredTable
from headrace.pipelines.input_identity import mark_at, without_secret_options
from headrace.pipelines.leaves import DeltaLeaf, FilesLeaf, Leaf, UnversionedLeaf, spark_columns
from headrace.state.commit import parse_checked, write_checked
from headrace.version import __version__

if TYPE_CHECKING:
    from headrace.pipelines.spec import PipelineSpec
    from headrace.pipelines.table_plan import TablePlan
    from headrace.spark.prepared_flow import PreparedFlow

_FOLDER, _FILE = "analysis", "kept.json"


@dataclass(frozen=True, slots=True)
class KeptAnalysis:
    """Analysis of a project without what lives in the JVM.

    plans: of all tables; those of tables that a flow keeps up to date have it loaded when it is asked for.
    """

    graph: Graph
    plans: Mapping[TableName, TablePlan]


# --- what an analysis comes from ------------------------------------------------------------------


_ASKED = re.compile(
    "now|today|utcnow|time_ns|monotonic|perf_counter|getpid|gethostname|argv|urandom|rand|randn|randint"
    "|default_rng|import_module|exists|is_file|is_dir|isfile|isdir|stat|lstat|getmtime|getsize"
    r"|(read|scan)_(table|parquet|csv|json|ndjson|ipc|feather|excel|sql|delta|schema)"
    "|ParquetFile|ParquetDataset|environb|popen|__import__"
)
"""Names by which Python code asks for what may differ from run to run, without a file that Python opens."""

_MODULES = re.compile(
    "time|random|uuid|secrets|socket|ssl|http|urllib|requests|httpx|aiohttp|ftplib|boto3|subprocess"
    "|multiprocessing|psycopg|psycopg2|sqlalchemy|sqlite3|duckdb|pymysql|pyodbc|oracledb|redis|pymongo"
    "|kafka|confluent_kafka"
)
"""Modules by which it does."""

_SPARK_FUNCTIONS = frozenset(("F", "f", "sf", "functions"))
"""Usual names of `pyspark.sql.functions`, whose functions are expressions of queries."""

_READING = re.compile(
    r"spark\.sql\.(parquet\.(mergeSchema|binaryAsString|int96\w*|datetimeRebase\w*|inferTimestamp\w*"
    r"|fieldId\..*)|columnNameOfCorruptRecord|streaming\.schemaInference"
    r"|files\.ignore\w+|json\..*|csv\..*|legacy\..*)"
)
"""Settings by which Spark reads files otherwise than a run without it."""

_OUTSIDE = ("/proc/", "/sys/", "/dev/")
_INSTALLED = tuple(
    sorted({f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib")})
)


@dataclass(slots=True)
class AnalysisSources:
    """What definitions asked for while they were read.

    files, folders: that Python opened, or tried to, and listed. environment: variables, with what they were.
    given:   relations in the JVM with columns that a query declares. reasons: why the analysis cannot be
             kept. inferred: those with columns that Spark has inferred. without_pattern: those of paths that
             are no patterns. modules: that were there before.
             folders_named: that SQL names, without patterns.
             began: when definitions began to be read, in nanoseconds.
    """

    files: set[str] = field(default_factory=set[str])
    folders: set[str] = field(default_factory=set[str])
    environment: dict[str, str | None] = field(default_factory=dict[str, "str | None"])
    given: set[int] = field(default_factory=set[int])
    inferred: set[int] = field(default_factory=set[int])
    without_pattern: set[int] = field(default_factory=set[int])
    reasons: list[str] = field(default_factory=list[str])
    folders_named: frozenset[str] = frozenset()
    modules: frozenset[str] = field(default_factory=lambda: frozenset(sys.modules))
    began: int = field(default_factory=time_ns)

    def heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Record an audit event of Python."""
        if event not in ("open", "os.listdir", "os.scandir") or not arguments:
            return
        path = arguments[0]
        if not isinstance(path, (str, os.PathLike)):
            return
        text = os.path.abspath(os.fspath(cast("str | os.PathLike[str]", path)))
        if text.startswith((*_OUTSIDE, *_INSTALLED)) or "__pycache__" in text:
            return
        if event != "open":
            self.folders.add(text)
        elif "+" in str(arguments[1]) or not set("wax") & set(str(arguments[1] or "r")):
            self.files.add(text)


_noted: AnalysisSources | None = None


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if _noted is not None:
        _noted.heard(event, arguments)


@cache
def _listen() -> None:
    sys.addaudithook(_hear)


@contextmanager
def noting_sources() -> Generator[AnalysisSources]:
    """Note in the block what definitions ask for."""
    global _noted
    _listen()
    made = AnalysisSources()
    with ExitStack() as closing:
        closing.enter_context(_noting_reads(made))
        closing.enter_context(_noting_environment(made))
        before, _noted = _noted, made
        try:
            yield made
        finally:
            _noted = before


@contextmanager
def _noting_environment(made: AnalysisSources) -> Generator[None]:
    kind: Any = type(os.environ)
    get = kind.__getitem__

    def noting(self: Any, key: Any) -> Any:
        if isinstance(key, str):
            made.environment[key] = None
        value = get(self, key)
        if isinstance(key, str):
            made.environment[key] = _digest(str(value))
        return value

    def noting_all(self: Any) -> Iterator[Any]:
        made.reasons.append("its definitions ask for all variables of the environment")
        return iterate(self)

    iterate = kind.__iter__
    kind.__getitem__, kind.__iter__ = noting, noting_all
    try:
        yield
    finally:
        kind.__getitem__, kind.__iter__ = get, iterate


@contextmanager
def _noting_reads(made: AnalysisSources) -> Generator[None]:
    """Note calls that read rows, and relations with given columns."""
    from pyspark.core.rdd import RDD
    from pyspark.sql.classic.dataframe import DataFrame
    from pyspark.sql.group import GroupedData
    from pyspark.sql.readwriter import DataFrameReader

    rows = ("collect", "take", "first", "head", "tail", "toPandas", "toArrow", "toLocalIterator", "count")
    more = ("isEmpty", "show", "foreach", "foreachPartition", "checkpoint", "localCheckpoint")
    statistics = ("approxQuantile", "corr", "cov", "crosstab", "freqItems")
    calls = [(DataFrame, name) for name in (*rows, *more, *statistics)]
    calls += [(RDD, name) for name in ("collect", "take", "first", "count", "toLocalIterator")]
    loads = [
        (DataFrameReader, name) for name in ("load", "parquet", "json", "csv", "orc", "text", "table", "xml")
    ]
    wrapped = [
        *((kind, name, _noting_call(made, getattr(kind, name), name)) for kind, name in calls),
        *((kind, name, _noting_columns(made, getattr(kind, name))) for kind, name in loads),
        (GroupedData, "pivot", _noting_pivot(made, GroupedData.pivot)),
    ]
    before = [(kind, name, getattr(kind, name)) for kind, name, _ in wrapped]
    for kind, name, method in wrapped:
        setattr(kind, name, method)
    try:
        yield
    finally:
        for kind, name, method in before:
            setattr(kind, name, method)


def _noting_call(made: AnalysisSources, method: Callable[..., Any], name: str) -> Callable[..., Any]:
    def noting(*arguments: Any, **keywords: Any) -> Any:
        made.reasons.append(f"its definitions read rows, by {name}()")
        return method(*arguments, **keywords)

    return noting


def _noting_pivot(made: AnalysisSources, method: Callable[..., Any]) -> Callable[..., Any]:
    def noting(self: Any, pivot_col: str, values: Any = None) -> Any:
        if values is None:
            made.reasons.append("its definitions read rows, by pivot() without values")
        return method(self, pivot_col, values)

    return noting


def _noting_columns(made: AnalysisSources, method: Callable[..., Any]) -> Callable[..., Any]:
    def noting(self: Any, *arguments: Any, **keywords: Any) -> Any:
        frame = method(self, *arguments, **keywords)
        relation = identity_in_jvm(frame._jdf.queryExecution().analyzed())
        (made.given if self._jreader.userSpecifiedSchema().isDefined() else made.inferred).add(relation)
        if not _has_pattern([*arguments, *keywords.values()]):
            made.without_pattern.add(relation)
        return frame

    return noting


def _has_pattern(given: Any) -> bool:
    """Return whether what a reader is given may be a pattern of paths."""
    from pyspark.sql.types import DataType

    if isinstance(given, str):
        return bool(GLOB & set(given))
    if isinstance(given, (list, tuple)):
        return any(map(_has_pattern, cast("Iterable[Any]", given)))
    return not isinstance(given, (bool, int, DataType, type(None)))


def identity_in_jvm(node: Any) -> int:
    """Return the number by which the JVM tells the relation of a plan's node from others; 0 without one."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context  # pyright: ignore[reportPrivateUsage]
    if node.nodeName() != "LogicalRelation" or context is None:
        return 0
    jvm: Any = context._jvm  # pyright: ignore[reportPrivateUsage]
    return int(jvm.java.lang.System.identityHashCode(node.relation()))


def _why_it_varies(file: Path) -> str:
    """Return why the definitions in a file of Python may differ in the next run; empty if they may not."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return f"{file.name} cannot be read"
    for node in cast("Iterable[Any]", ast.walk(tree)):
        names = [name for name in _names_in(node) if _ASKED.fullmatch(name)]
        names += [name for name in _modules_in(node) if _MODULES.fullmatch(name)]
        if names:
            return f"{file.name}, line {node.lineno}, uses {names[0]}, which may differ from run to run"
    return ""


def _names_in(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.ImportFrom():
            yield from (alias.name for alias in node.names)
        case ast.Attribute(value=ast.Name(id=owner)) if owner in _SPARK_FUNCTIONS:
            return
        case ast.Attribute():
            yield node.attr
        case ast.Name(id="__import__" as name):
            yield name
        case ast.Constant(value="now" | "today" as moment):
            yield moment
        case _:
            return


def _modules_in(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Import():
            yield from (alias.name.partition(".")[0] for alias in node.names)
        case ast.ImportFrom():
            yield (node.module or "").partition(".")[0]
        case _:
            return


# --- digests --------------------------------------------------------------------------------------


def _digest(text: str | bytes) -> str:
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


def _digest_of_file(path: str | Path) -> str | None:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def _digest_of_folder(path: str) -> str | None:
    try:
        return _digest("\0".join(sorted(each for each in os.listdir(path) if each != "__pycache__")))
    except OSError:
        return None


def _surroundings(spec: PipelineSpec, policy: Policy | None) -> dict[str, Any]:
    """Return what an analysis depends on besides files."""
    import pyspark

    named = {name: os.environ.get(name, "") for name in _VARIABLES}
    home = os.environ.get("SPARK_HOME") or os.path.dirname(pyspark.__file__)
    defaults = Path(named["SPARK_CONF_DIR"] or os.path.join(home, "conf"), "spark-defaults.conf")
    return {
        "headrace": __version__,
        "python": sys.version,
        "spark": pyspark.__version__,
        "policy": policy.value if policy else "",
        "root": str(spec.root),
        "zone": [os.environ.get("TZ", ""), os.path.realpath("/etc/localtime")],
        "variables": _digest(json.dumps(named)),
        "defaults": _digest_of_file(defaults),
        "files": [str(file) for file, _ in spec.files()],
    }


_VARIABLES = ("SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "HADOOP_CONF_DIR", "SPARK_DIST_CLASSPATH")
"""Variables of the environment by which sessions get settings. Others are set by sessions that start."""


def _sources_of(spec: PipelineSpec, sources: AnalysisSources) -> tuple[set[Path], set[str]]:
    """Return the files that a project consists of, with what it imports and reads, and those installed."""
    own = {spec.file, *(file for file, _ in spec.files())}
    waiting = [(file, "") for file in own if file.suffix == ".py"]
    while waiting:
        for module in _imported(*waiting.pop()):
            file = Path(module.__file__ or "")
            if module.__name__ in sources.modules:
                sources.reasons.append(f"{module.__name__} was imported before, by other than the project")
            if file not in own:
                own.add(file)
                waiting.append((file, module.__package__ or ""))
    installed = set[str]()
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        ours = module.__name__.partition(".")[0] == "headrace" if isinstance(file, str) else False
        if isinstance(file, str) and (ours or "-packages" in file):
            installed.add(file)
    storage = f"{spec.storage}{os.sep}"
    for path in sources.files:
        # Python itself opens files of Python to show their lines.
        of_others = path.endswith(".py") and not path.startswith(f"{spec.root}{os.sep}")
        if path not in installed and not path.startswith(storage) and not of_others:
            own.add(Path(path))
    return own, {path for path in installed if os.path.isfile(path)}


def _imported(file: Path, package: str) -> Iterator[ModuleType]:
    """Yield the modules of the user that a file of Python imports. package: that it is in, if any."""
    from headrace.spark.ticks.plan import is_users

    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    names = set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                names |= {alias.name for alias in node.names}
            case ast.ImportFrom():
                above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
                base = ".".join([*above, *([node.module] if node.module else [])])
                names |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
            case _:
                pass
    parents = {".".join(name.split(".")[:at]) for name in names for at in range(1, name.count(".") + 2)}
    for name in sorted(parents):
        module = sys.modules.get(name)
        if module is not None and is_users(module):
            yield module


def _why_not_kept(
    spec: PipelineSpec, graph: Graph, own: Iterable[Path], installed: Iterable[str], sources: AnalysisSources
) -> str:
    """Return why an analysis cannot be kept; empty if it can."""
    if sources.reasons:
        return sources.reasons[0]
    if any(table.failure is not None for table in graph.tables):
        return "a source cannot be reached"
    own_settings = (key for table in graph.tables for each in table.queries for key in each.query.settings)
    if found := sorted(filter(_READING.fullmatch, {*spec.configuration, *own_settings})):
        return f"{found[0]} is set, by which only Spark reads files"
    read = {identity_in_jvm(leaf.node) for table in graph.tables for q in table.queries for leaf in q.leaves}
    if sources.inferred - read - {0}:
        return "its definitions look at columns of files that no table reads"
    for file in (*own, *map(Path, installed)):
        mark = mark_at(str(file))
        if mark is not None and mark[1] >= sources.began:
            return f"{file.name} was written while the project was analysed"
    return next(filter(None, (_why_it_varies(file) for file in own if file.suffix == ".py")), "")


# --- columns that Spark has inferred --------------------------------------------------------------


def _inferred(leaf: Leaf) -> Any:
    """Return what the columns of an input were inferred from; None where that does not matter.

    Raises `OSError` and `HeadraceError` for what cannot be read.
    """
    match leaf:
        case FilesLeaf() if leaf.elsewhere or leaf.given:
            # Of files that only Spark can list, a run without Spark reads none.
            return None
        case FilesLeaf() if leaf.tells_columns_by_first_file:
            # As Spark does it: the first by name decides, and what sums up others would come before.
            first = _first(files_without_spark(leaf))
            return first and [*first, _columns_of_parquet(first[0])]
        case FilesLeaf():
            there = files_without_spark(leaf)
            return [[path, mark, _digest_of_file(path)] for path, mark in sorted(there.items())]
        case DeltaLeaf():
            return _digest(spark_columns(leaf).json())
        case _:
            return None


def _is_after(inferred: Any, began: int) -> bool:
    """Return whether a file that columns were inferred from is newer than the analysis."""
    if isinstance(inferred, str):
        return False
    marks = [each[1] for each in inferred] if isinstance(inferred[0], list) else [inferred[1]]
    return any(mark[1] >= began for mark in marks)


def _first(files: Mapping[str, list[int]]) -> list[Any] | None:
    return [min(files), files[min(files)]] if files else None


def _infers_the_same(leaf: Leaf, before: Any) -> bool:
    """Return whether Spark would infer the columns of an input as it has done. Raises like `_inferred`."""
    match leaf:
        case FilesLeaf() if leaf.tells_columns_by_first_file:
            first = _first(files_without_spark(leaf))
            same = first is not None and first == before[:2]
            return same or (first is not None and _columns_of_parquet(first[0]) == before[2])
        case FilesLeaf():
            there = sorted(files_without_spark(leaf).items())
            same = [[path, mark] for path, mark in there] == [each[:2] for each in before]
            return same or [_digest_of_file(path) for path, _ in there] == [each[2] for each in before]
        case DeltaLeaf():
            from headrace.pipelines.delta_source import delta_table, spark_schema

            return _digest(spark_schema(delta_table(leaf.path), leaf.version).json()) == before
        case _:
            return True


def _columns_of_parquet(path: str) -> str:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return _digest(pq.read_schema(path).serialize().to_pybytes())
    except (OSError, ValueError, pa.ArrowException) as error:
        raise OSError(str(error)) from None


# --- keep and load --------------------------------------------------------------------------------


def keep(
    spec: PipelineSpec,
    policy: Policy | None,
    graph: Graph,
    plans: Mapping[TableName, TablePlan],
    sources: AnalysisSources,
    session: str = "",
) -> str:
    """Keep an analysis for later runs. Return why it cannot be kept; empty if it is.

    session: settings of the session, if one was given.
    """
    folder = spec.storage / _FOLDER
    own, installed = _sources_of(spec, sources)
    if why := _why_not_kept(spec, graph, own, installed, sources):
        remove_folder(folder)
        return why
    sources.folders_named = _folders_named(spec.root, own)
    kept = _without_jvm(graph, plans, sources)
    leaves = {leaf.exact: leaf for table in kept.graph.tables for q in table.queries for leaf in q.leaves}
    try:
        inferred = {exact: found for exact, leaf in leaves.items() if (found := _inferred(leaf)) is not None}
        if any(_is_after(found, sources.began) for found in inferred.values()):
            return "files of an input were written while the project was analysed"
        parts = _parts_of(kept)
    except (OSError, HeadraceError, pickle.PicklingError, TypeError, AttributeError) as error:
        remove_folder(folder)
        return f"{type(error).__name__}: {error}"
    make_private_folder(folder)
    for content in parts.values():
        if _digest_of_file(folder / f"{_digest(content)}.part") != _digest(content):
            write_file(folder / ".part.tmp", content, durable=False)
            os.replace(folder / ".part.tmp", folder / f"{_digest(content)}.part")
    body = {
        **_surroundings(spec, policy),
        "session": session,
        "own": {str(path): _digest_of_file(path) for path in own},
        "folders": {path: _digest_of_folder(path) for path in sorted(_folders_of(spec, sources))},
        "installed": {path: mark_at(path) for path in installed},
        "environment": sources.environment,
        "inferred": inferred,
        "parts": {name: _digest(content) for name, content in parts.items()},
    }
    aside = folder / ".kept.tmp"
    make_private_file(aside)
    write_checked(aside, body, durable=False)
    os.replace(aside, folder / _FILE)
    named = {f"{digest}.part" for digest in body["parts"].values()}
    for file in folder.glob("*.part"):
        if file.name not in named:
            file.unlink()
    return ""


def _folders_of(spec: PipelineSpec, sources: AnalysisSources) -> Iterator[str]:
    for path in sources.folders:
        if path != str(spec.storage) and not path.startswith(f"{spec.storage}{os.sep}"):
            yield path


@dataclass(slots=True)
class ReadParts:
    """Parts of a kept analysis that this process has read: those of the last analysis that it loaded.

    file: identity of the file that named them. body: its content.
    parts: by digest; flows as prepared for runs.
    """

    file: tuple[int, ...] = ()
    body: Mapping[str, Any] = field(default_factory=dict[str, Any])
    parts: dict[str, Any] = field(default_factory=dict[str, Any])

    def read(self, file: Path) -> Mapping[str, Any]:
        """Return the content of the file that names the parts. Raises `PermissionError` and others."""
        identity = identity_of(os.lstat(file))
        if self.file != identity:
            self.body = parse_checked(file, _read_own(file).decode("ascii"))
            self.file = identity
            named = set(self.body["parts"].values())
            self.parts = {digest: part for digest, part in self.parts.items() if digest in named}
        return self.body

    def part(self, folder: Path, digest: str) -> Any:
        """Return a part. Raises whatever unpickling it does."""
        if digest not in self.parts:
            self.parts[digest] = _unpickled(folder, digest)
        return self.parts[digest]

    def flow(self, folder: Path, digest: str) -> PreparedFlow:
        """Return the flow that is a part. Raises like `part`."""
        from headrace.spark.prepared_flow import PreparedFlow

        self.parts[digest] = prepared = PreparedFlow.of(self.part(folder, digest))
        return prepared


def load(
    spec: PipelineSpec, policy: Policy | None, session: str = "", *, parts: ReadParts | None = None
) -> KeptAnalysis | str:
    """Return the kept analysis of a project, or why there is none that holds.

    session: settings of the session, if one was given. parts: need not be read again.
    """
    folder, parts = spec.storage / _FOLDER, parts or ReadParts()
    if not (folder / _FILE).exists():
        return "no analysis is kept"
    try:
        body = parts.read(folder / _FILE)
        if changed := _what_changed(spec, policy, session, body):
            return changed
        graph, plans = parts.part(folder, body["parts"][_GRAPH])
        for exact, found in body["inferred"].items():
            if not _infers_the_same(_leaf_of(graph, exact), found):
                return f"the columns of {_leaf_of(graph, exact).key} may have changed"
    except NeedsSpark as error:
        return error.what
    except PermissionError as error:
        return str(error)
    except Exception as error:  # What unpickles parts may raise any.
        return f"the kept analysis cannot be read: {type(error).__name__}"
    flows = {name: partial(parts.flow, folder, digest) for name, digest in body["parts"].items()}
    named = {name: replace(plan, load=flows.get(_part_name(name))) for name, plan in plans.items()}
    return KeptAnalysis(graph, named)


def load_with_any_policy(spec: PipelineSpec) -> KeptAnalysis | str:
    """Return the kept analysis of a project like `load`, whichever policy the run that kept it was given."""
    found = load(spec, None)
    for policy in Policy if isinstance(found, str) else ():
        other = load(spec, policy)
        if isinstance(other, KeptAnalysis):
            return other
    return found


def _leaf_of(graph: Graph, exact: str) -> Leaf:
    leaves = (leaf for table in graph.tables for query in table.queries for leaf in query.leaves)
    return next(leaf for leaf in leaves if leaf.exact == exact)


def _read_own(file: Path) -> bytes:
    """Read a file that only the user can have written. Raises `PermissionError` for others."""
    opened = os.open(file, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    with open(opened, "rb") as content:
        for found in (os.fstat(opened), os.lstat(file.parent)):
            if os.name == "posix" and (found.st_uid != os.geteuid() or found.st_mode & 0o022):
                raise PermissionError("others can write the kept analysis")
        return content.read()


def _what_changed(spec: PipelineSpec, policy: Policy | None, session: str, body: Mapping[str, Any]) -> str:
    """Return what an analysis came from that is not the same; empty if all is."""
    if session and body["session"] and session != body["session"]:
        return "the settings of the session have changed"
    for name, value in _surroundings(spec, policy).items():
        if body[name] != value:
            return f"the {_NAMES.get(name, name)} changed"
    for path, digest in body["own"].items():
        if _digest_of_file(path) != digest:
            return f"{path} has changed"
    for path, digest in body["folders"].items():
        if _digest_of_folder(path) != digest:
            return f"the files in {path} have changed"
    for path, mark in body["installed"].items():
        if mark_at(path) != mark:
            return f"{path} has changed"
    for name, digest in body["environment"].items():
        value = os.environ.get(name)
        if (None if value is None else _digest(value)) != digest:
            return f"the environment variable {name} has changed"
    return ""


_NAMES = {"variables": "settings of Spark in the environment have", "defaults": "defaults of Spark have"}
_NAMES |= {"files": "list of the project's files has"}
_NAMES |= {name: f"{name} has" for name in ("headrace", "python", "spark", "policy", "root", "zone")}

_GRAPH = "graph"


def _part_name(name: TableName) -> str:
    return f"flow {name}"


def _parts_of(kept: KeptAnalysis) -> dict[str, bytes]:
    """Return the parts of an analysis as bytes, by name: the graph, and the flow of each table."""
    from headrace.spark.ticks.plan import pickled

    plans = {name: replace(plan, flow=None, load=None) for name, plan in kept.plans.items()}
    flows = {_part_name(name): plan.flow for name, plan in kept.plans.items() if plan.flow is not None}
    return {_GRAPH: pickled((kept.graph, plans)), **{name: pickled(flow) for name, flow in flows.items()}}


def _unpickled(folder: Path, digest: str) -> Any:
    content = _read_own(folder / f"{digest}.part")
    if _digest(content) != digest:
        raise pickle.UnpicklingError("its content does not match its checksum")
    return pickle.loads(content)


def _without_jvm(
    graph: Graph, plans: Mapping[TableName, TablePlan], sources: AnalysisSources
) -> KeptAnalysis:
    """Return an analysis without what lives in the JVM, and without options that may be secrets."""
    tables = {table.name: _table_without_jvm(table, sources) for table in graph.tables}
    datasets = {name: _kept_dataset(each) for name, each in graph.definitions.datasets.items()}
    definitions = replace(graph.definitions, datasets=datasets, queries={})
    made = {name: _plan_without_jvm(plan, tables[name], sources) for name, plan in plans.items()}
    return KeptAnalysis(replace(graph, definitions=definitions, tables=tuple(tables.values())), made)


def _plan_without_jvm(plan: TablePlan, table: StoredTable, sources: AnalysisSources) -> TablePlan:
    inputs = plan.inputs and {each: _kept_leaf(leaf, sources) for each, leaf in plan.inputs.items()}
    return replace(plan, table=table, inputs=inputs)


def _table_without_jvm(table: StoredTable, sources: AnalysisSources) -> StoredTable:
    queries: list[Any] = []
    for query in table.queries:
        own = replace(query.query, frame=_not_kept, text=None, cdc=None, settings={})
        leaves = tuple(_kept_leaf(leaf, sources) for leaf in query.leaves)
        queries.append(replace(query, query=own, frame=cast("Any", None), leaves=leaves))
    return replace(table, dataset=_kept_dataset(table.dataset), queries=tuple(queries))


def _kept_dataset(dataset: Dataset) -> Dataset:
    options = dict(without_secret_options([*dataset.properties.items()]))
    if dataset.kind is DatasetKind.SINK:
        # Relative to the folder of the project, which is the working folder while it is analysed.
        path = options.get("path", "")
        options = {"path": path if scheme_of(path) else os.path.abspath(path)} if path else {}
    expectations = tuple(replace(each, column=None) for each in dataset.expectations)
    return replace(dataset, properties=options, expectations=expectations)


def _not_kept() -> Any:
    raise AssertionError("a kept analysis has no query")


def _kept_leaf(leaf: Leaf, sources: AnalysisSources) -> Leaf:
    if leaf.node is None:
        return leaf
    if isinstance(leaf, UnversionedLeaf):
        # What tells it from others in this process may hold a password.
        return replace(leaf.without_plan(), exact=leaf.key, identity=None)
    if not isinstance(leaf, FilesLeaf):
        return leaf.without_plan()
    relation = identity_in_jvm(leaf.node)
    listed = (leaf.elsewhere == NAMED_IN_SQL and sources.folders_named.issuperset(leaf.roots)) or (
        leaf.elsewhere == IN_SEVERAL_FOLDERS and relation in sources.without_pattern - {0}
    )
    # Streams of files have given columns unless a setting says otherwise.
    given = leaf.streaming or relation in sources.given - {0}
    return replace(leaf.without_plan(), given=given, elsewhere="" if listed else leaf.elsewhere)


def _folders_named(root: Path, own: Iterable[Path]) -> frozenset[str]:
    """Return the folders that SQL names, as in parquet.`orders`; none if it also has patterns."""
    texts = (file.read_text("utf-8", "replace") for file in own if file.suffix in (".sql", ".py"))
    names = [name for text in texts for name in re.findall(r"\w\.`([^`]*)`", text)]
    if any(GLOB & set(name) for name in names):
        return frozenset()
    return frozenset(os.path.normpath(root / name.removeprefix("file:")) for name in names)


__all__ = [
    "AnalysisSources",
    "KeptAnalysis",
    "ReadParts",
    "keep",
    "load",
    "load_with_any_policy",
    "noting_sources",
]
