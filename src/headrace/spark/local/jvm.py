"""Startup of Spark's JVM, tied to the life of this process.

PySpark's own launcher starts a shell, then a JVM that prints a command line, and then the actual JVM. It also
always requires a module (`jdk.incubator.vector`, used only for linear algebra) that small Java runtimes lack.
This module starts the JVM directly, without either.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import SparkUnavailable

if TYPE_CHECKING:
    from headrace.spark.local.java import Java

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
