"""Names of streaming sources, which let Spark add or remove sources of a query across restarts.

Without names, Spark identifies sources by position and rejects a different number of them. Spark requires
names for all sources or none, and a user's DataFrame has the name given by the user, if any. So a checkpoint
has source names only if all of its sources are Headrace's own.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS = {
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    "spark.sql.streaming.offsetLog.formatVersion": "2",
}


@contextmanager
def named_sources_enabled(spark: SparkSession, named: bool) -> Iterator[None]:
    """Enable names for streaming sources and queries inside a block, and restore the setting afterwards."""
    if not named:
        yield
        return
    before = {key: spark.conf.get(key, None) for key in _SETTINGS}
    for key, value in _SETTINGS.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, value)


def spark_name(source: str) -> str:
    """Return a name valid in Spark, unique for each source name."""
    plain = re.sub(r"[^A-Za-z0-9_]", "_", source)
    return source if plain == source else f"{plain}_{zlib.crc32(source.encode()):08x}"
