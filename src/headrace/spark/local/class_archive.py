"""Class archive of Spark's JVM, built once, which halves the startup time of later sessions.

An archive is valid for one Java and one set of jars, so its name includes both; the JVM ignores a missing or
damaged one. Building it takes half a minute and 160 MB of disk, so it is only built on request:

    python -m headrace.spark
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.spark.local.java import Java, find_java
from headrace.spark.local.jvm import classpath

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
