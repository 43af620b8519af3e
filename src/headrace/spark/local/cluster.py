"""`local-cluster[executors, cores, megabytes]`: a cluster on this machine with a JVM per executor.

It behaves like a real cluster: tasks run in other processes, a shuffle crosses process boundaries, and an
executor that dies is replaced and its tasks run again. Spark has it for its own tests, so it needs some
settings that a real cluster has in its configuration.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.spark.local.java import Java

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


def environment(java: Java, installed: Path, folder: Path) -> dict[str, str]:
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
