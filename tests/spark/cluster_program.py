"""The example flows on executors in processes of their own: `python -m tests.spark.cluster_program MASTER`.

Prints, as JSON, per example whether every tick is what it is in-process, and how many processes ran tasks.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import headrace.spark
from tests.spark.streamed_flows import EXAMPLES
from tests.spark.test_stream_run import in_process, on_spark


def executors(spark: Any) -> int:
    """How many JVMs run tasks that come together."""
    import pyarrow as pa

    def who(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        from pathlib import Path

        def parent(process: int) -> int:
            return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])

        for _ in batches:
            pass
        jvm = parent(parent(os.getpid()))
        yield pa.RecordBatch.from_pylist([{"jvm": jvm}])

    return len({row.jvm for row in spark.range(8).repartition(8).mapInArrow(who, "jvm long").collect()})


def main() -> None:
    spark = headrace.spark.session(master=sys.argv[1])
    ways: set[str] = set()
    same = {
        name: on_spark(spark, example, shards=2, on_tick=lambda progress: ways.add(progress.way))
        == in_process(example)
        for name, example in EXAMPLES.items()
    }
    print(json.dumps({"same": same, "ways": sorted(ways), "executors": executors(spark)}))


if __name__ == "__main__":
    main()
