"""Local Spark sessions that start in seconds, print nothing, and need no Java on the machine.

A session's properties are read without context or JVM, so that Spark Connect works too.

The master `local-cluster[executors, cores, megabytes]` is a cluster on this machine with a JVM per
executor. It behaves like a real one: tasks run in other processes, a shuffle crosses process boundaries,
and an executor that dies is replaced and its tasks run again. Spark has it for its own tests, so it needs
some settings that a real cluster has in its configuration.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headrace.errors import BadInput, SparkUnavailable
from headrace.spark.jvm import (
    LOGGING,
    Java,
    environment_variables_set,
    find_java,
    last_lines,
    options_to_use,
    start_jvm,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_PREFIX = "headrace-spark-"

# A path of a Unix domain socket has 108 bytes; Spark appends a name of about 45 to the folder.
_LONGEST_SOCKET_FOLDER = 60

_JIT: Mapping[str, tuple[str, ...]] = {
    "quick": ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
    # Twenty times the JVM's own thresholds.
    "hot": (
        "-XX:Tier4InvocationThreshold=100000",
        "-XX:Tier4MinInvocationThreshold=12000",
        "-XX:Tier4CompileThreshold=300000",
        "-XX:Tier4BackEdgeThreshold=800000",
        "-XX:+UseSerialGC",
    ),
    "full": (),
}
"""Options of the JVM, by how much it optimises."""


def session(
    *,
    master: str = "local[2]",
    app_name: str = "headrace",
    memory: str = "1g",
    partitions: int | None = None,
    jit: Literal["quick", "hot", "full"] = "quick",
    python: str | None = None,
    class_archive: bool = True,
    jvm_options: Iterable[str] = (),
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return the existing Spark session unchanged, or start a local one.

    master:      `local[n]`: n tasks at a time, in this machine's one JVM. `local-cluster[e,c,m]`: e executors
                 on this machine, each a JVM of its own with c tasks at a time and m megabytes of heap.
    memory:      heap of the JVM; at least "512m".
    partitions:  partitions of a shuffle; by default the number of concurrent tasks.
    jit:         "quick" compiles little, which suits short starts and small ticks. "full" lets the JVM
                 optimise, which suits batches that run for minutes; "hot" lets it optimise only what runs
                 hundreds of thousands of times, which suits both if it is not known which will come.
    python:      interpreter of the workers; by default this one.
    class_archive: use the archive built by `python -m headrace.spark`, if it exists.
    jvm_options: further options of the JVM.
    config:      further settings of Spark, which override Headrace's.

    The new session uses UTC and ANSI rules, has no user interface, and logs to a file. Its files are removed
    at exit. Raises `SparkUnavailable` if PySpark or Java is missing, or if the JVM does not start, and
    `BadInput` for another `jit`.
    """
    if jit not in _JIT:
        raise BadInput(f"jit is {jit!r}", fix=f"give one of {', '.join(map(repr, _JIT))}", option="jit")
    need_pyspark()
    there = _session_that_is_there()
    if there is not None:
        return there
    folder = _new_folder()
    common = (*_JIT[jit], f"-Djava.io.tmpdir={folder}")
    settings = _settings(master, app_name, partitions, folder)
    executors = Executors.of(master)
    if python is None and not executors:  # Another interpreter may not have this package.
        settings["spark.python.daemon.module"] = "headrace.spark.worker_daemon"
    if executors:
        logging = f"-Dlog4j2.configurationFile={(folder / LOGGING).as_uri()}"
        settings |= executor_settings(executors, (*common, logging))
    settings |= dict(config or {})
    options = (f"-Xmx{memory}", *common, *jvm_options)
    return _start(options, settings, folder, python or sys.executable, class_archive)


def need_pyspark() -> None:
    try:
        import pyspark.sql  # noqa: F401
    except ImportError as error:
        raise SparkUnavailable(
            "PySpark is not installed",
            why=str(error),
            fix="pip install 'headrace[spark]'; a Java comes with it",
        ) from error


def _session_that_is_there() -> SparkSession | None:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None) if gateway is not None else None
    if process is not None and process.poll() is not None:
        _forget_dead_jvm()
        return None
    # The first one: what `newSession` makes is active from then on, and meant for who made it.
    there = SparkSession._instantiatedSession or SparkSession.getActiveSession()
    if there is None or (hasattr(there, "_sc") and there._sc._jsc is None):
        return None
    return there


def renew_connection() -> None:
    """Let this thread talk to the JVM by a new connection.

    What a signal cuts off leaves its answer in the old one, where the next call would take it for its own.
    """
    context: Any = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    if context is not None and context._gateway is not None:
        context._gateway._gateway_client.thread_connection.connection = None


def _forget_dead_jvm() -> None:
    """Make PySpark start a new JVM instead of reusing the gateway to a dead one."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._active_spark_context = None
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkSession._instantiatedSession = None


def _start(
    options: tuple[str, ...], settings: Mapping[str, str], folder: Path, python: str, class_archive: bool
) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    gateway: Any = SparkContext._gateway
    if gateway is None:
        java = find_java()
        archived = options_to_use(java) if class_archive else ()
        gateway = start_jvm(
            java, (*archived, *options), settings, folder, python, _variables(java, settings, folder)
        )
    conf = SparkConf(loadDefaults=False, _jvm=gateway.jvm).setAll(list(settings.items()))
    # PySpark reads the workers' interpreter from the environment, and takes `python3` of the PATH else.
    with (
        environment_variables_set({"PYSPARK_PYTHON": python}),
        _start_failure(settings["spark.master"], folder),
    ):
        return SparkSession(SparkContext(conf=conf, gateway=gateway))


@contextmanager
def _start_failure(master: str, folder: Path) -> Iterator[None]:
    """Raise `SparkUnavailable` with Spark's own message if it cannot start with this master."""
    from py4j.protocol import Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        logs = [folder / "jvm.log", *sorted(folder.glob("home/work/*/*/std*"))[:2]]
        said = "\n".join(f"{log.name}:\n{last_lines(log, 5)}" for log in logs if log.exists())
        raise SparkUnavailable(
            f"Spark does not start on master {master!r}",
            why=f"{error.java_exception.toString()}\n{said}",
            fix="the first line gives the reason: often a master or a setting that Spark does not know, "
            "or too little memory (an executor needs 450 megabytes)",
            log=str(logs[0]),
        ) from error


def _variables(java: Java, settings: Mapping[str, str], folder: Path) -> dict[str, str]:
    import pyspark

    if Executors.of(settings["spark.master"]) is None:
        return {}
    return executor_environment(java, Path(pyspark.__file__).parent, folder)


def _settings(master: str, app_name: str, partitions: int | None, folder: Path) -> dict[str, str]:
    sockets = os.name == "posix" and len(str(folder)) <= _LONGEST_SOCKET_FOLDER
    width = str(partitions or _tasks_at_a_time(master))
    return {
        "spark.master": master,
        "spark.app.name": app_name,
        "spark.default.parallelism": width,
        "spark.sql.shuffle.partitions": width,
        # Nothing is shown and nothing is kept for showing.
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.streaming.ui.enabled": "false",
        "spark.ui.retainedJobs": "20",
        "spark.ui.retainedStages": "20",
        "spark.ui.retainedTasks": "100",
        "spark.sql.ui.retainedExecutions": "5",
        # This machine only, by an address that needs no name service.
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        # One meaning of names, expressions and times.
        "spark.sql.caseSensitive": "true",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        # x + 1 + y is not x + (1 + y) where the constants alone overflow: this rule makes it so.
        "spark.sql.optimizer.excludedRules": (
            "org.apache.spark.sql.catalyst.optimizer.ReorderAssociativeOperator"
        ),
        # Small ticks: no re-planning, no copies through local relations, no stall of 40 ms per Python
        # stage (TCP), no processes forked for each checkpoint file, no call sites looked up per column.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.execution.arrow.localRelationThreshold": "0",
        "spark.python.unix.domain.socket.enabled": "true" if sockets else "false",
        "spark.python.unix.domain.socket.dir": str(folder),
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.dataFrameQueryContext.enabled": "false",
        # No limit: Spark would add up the bytes of a batch after each of its rows, which takes two fifths of
        # the JVM's time where millions are read. Batches have 10,000 rows (maxRecordsPerBatch).
        "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    }


def _tasks_at_a_time(master: str) -> int:
    """Task slots of a local master: 2 for "local[2]" and "local[2,4]", all cores for "local[*]"."""
    if executors := Executors.of(master):
        return executors.tasks_at_a_time
    inside = master.partition("[")[2].rstrip("]").split(",")[0]
    if inside == "*":
        return os.cpu_count() or 1
    return int(inside) if inside.isdigit() else 1


def _new_folder() -> Path:
    """Create a folder for this process's logs, sockets and shuffles, removed at exit or, if killed, later."""
    _remove_abandoned_folders()
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _remove_abandoned_folders() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        owner = folder.name.removeprefix(_PREFIX).split("-")[0]
        if owner.isdigit() and not _is_alive(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_alive(process: int) -> bool:
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


_UNKNOWN = 2
"""Assumed number of concurrent tasks if unknown."""


def is_remote(spark: SparkSession) -> bool:
    """Return whether the session uses Spark Connect, with its driver in another process."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def is_local(spark: SparkSession) -> bool:
    """Return whether all tasks run in one JVM and so share its machine."""
    master = str(spark.conf.get("spark.master", ""))
    return master == "local" or master.startswith("local[")


def tasks_at_a_time(spark: SparkSession) -> int:
    """Return the number of concurrent tasks, if known."""
    if not is_remote(spark):
        return spark.sparkContext.defaultParallelism
    said = str(spark.conf.get("spark.default.parallelism", ""))
    if said.isdigit():
        return int(said)
    inside = re.fullmatch(r"local\[(\d+|\*)(?:,.*)?\]", str(spark.conf.get("spark.master", "")))
    if inside is None:
        return _UNKNOWN
    return (os.cpu_count() or 1) if inside[1] == "*" else int(inside[1])


_MASTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\]")


_JAVA = """\
#!/bin/sh
# Spark starts executors with a module (of use to linear algebra only) that small Java runtimes lack.
for word do
  shift
  [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec {program} "$@"
"""


@dataclass(frozen=True, slots=True)
class Executors:
    """Executors of a `local-cluster` URL. cores: concurrent tasks in each; megabytes: heap of each."""

    count: int
    cores: int
    megabytes: int

    @classmethod
    def of(cls, master: str) -> Executors | None:
        """Parse a master URL; None if it has another form."""
        found = _MASTER.fullmatch(master.strip())
        return cls(*map(int, found.groups())) if found else None

    @property
    def tasks_at_a_time(self) -> int:
        return self.count * self.cores


def executor_settings(executors: Executors, options: Iterable[str]) -> dict[str, str]:
    """Return the Spark settings for a local cluster. options: JVM options."""
    return {
        "spark.executor.memory": f"{executors.megabytes}m",
        "spark.executor.extraJavaOptions": shlex.join(options),
    }


def executor_environment(java: Java, installed: Path, folder: Path) -> dict[str, str]:
    """Return the environment variables for the driver's JVM, inherited by the executors.

    java:      what executors run on. installed: PySpark's own folder.
    folder:    of the session; their working folders, logs included, are in `home/work` in it.
    """
    # Executors write into Spark's home, which may belong to somebody else: they get one of their own.
    home = folder / "home"
    (home / "java" / "bin").mkdir(parents=True, exist_ok=True)
    for name in ("jars", "python"):
        if not (home / name).exists():
            (home / name).symlink_to(installed / name, target_is_directory=True)
    program = home / "java" / "bin" / "java"
    program.write_text(_JAVA.format(program=shlex.quote(str(java.program))))
    program.chmod(0o755)
    core = next((home / "jars").glob("spark-core_*.jar")).name
    return {
        "JAVA_HOME": str(home / "java"),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        # Asked for by what builds the executors' command, which else looks for the folders of a build.
        "SPARK_SCALA_VERSION": core.removeprefix("spark-core_").partition("-")[0],
    }
