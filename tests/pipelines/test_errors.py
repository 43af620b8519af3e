"""Every mistake in a project, with the whole text of its error: `errors/x.txt` is what the user is told."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.errors import HeadraceError
from headrace.pipelines.planned_project import planned
from headrace.pipelines.spec import find_spec, read_spec
from tests.golden import assert_golden
from tests.pipelines.project import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOLDEN = Path(__file__).parent / "errors"

SPECS = {
    "unknown_field": "name: x\nstorage: s\nschedule: daily\n",
    "missing_storage": "name: x\n",
    "not_yaml": "name: x\nstorage: [\n",
    "no_fields": "- x\n",
    "storage_elsewhere": "name: x\nstorage: s3://bucket/x\n",
    "pattern_of_names": "name: x\nstorage: s\nlibraries: [{glob: {include: a/**/*.py}}]\n",
    "pattern_outside": "name: x\nstorage: s\nlibraries: [{glob: {include: ../other/**}}]\n",
    "library_of_another_form": "name: x\nstorage: s\nlibraries:\n  - file: a.py\n",
    "setting_that_is_a_number": "name: x\nstorage: s\nconfiguration:\n  spark.sql.shuffle.partitions: 2\n",
    "retention_that_is_none": (
        "name: x\nstorage: s\nconfiguration:\n  headrace.event_retention: some time\n"
    ),
    "empty_pattern": "name: x\nstorage: s\nlibraries: [{glob: {include: ''}}]\n",
    "storage_that_is_a_pattern": "name: x\nstorage: 'out[1]'\n",
    "storage_that_is_a_file": "name: x\nstorage: spark-pipeline.yml\n",
    "other_catalog": "name: x\nstorage: s\ncatalog: unity\n",
}

_PYTHON = """\
from pyspark import pipelines as dp
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.active()
"""

_TIMED = """\
def timed(folder):
    return spark.readStream.schema('at TIMESTAMP').json(folder).withWatermark('at', '1 hour')

@dp.table
def a():
"""

_JOINED = """\
def files(folder):
    return spark.readStream.schema('at TIMESTAMP').json(folder)

@dp.table
def a():
    known = spark.range(1).select(F.timestamp_seconds('id').alias('since'))
"""

_EXPECTING = "from headrace.pipelines import create_streaming_table, expect, expect_or_drop\n"
_RANGE = "@dp.materialized_view\ndef a():\n    return spark.range(1)\n"

PYTHON = {
    "defined_twice": "@dp.materialized_view(name='a')\ndef one():\n    return spark.range(1)\n"
    "@dp.materialized_view(name='A')\ndef two():\n    return spark.range(1)\n",
    "cycle": "@dp.materialized_view\ndef a():\n    return spark.table('b')\n"
    "@dp.materialized_view\ndef b():\n    return spark.table('a')\n",
    "no_query": "dp.create_streaming_table('a')\n",
    "no_target": "@dp.append_flow(target='a')\ndef one():\n    return spark.readStream.json('in')\n",
    "view_of_a_stream": "@dp.materialized_view\ndef a():\n    return spark.readStream.schema('x INT').json('in')\n",
    "streaming_table_of_rows": "@dp.table\ndef a():\n    return spark.range(1)\n",
    "partitioned_by_all": "@dp.materialized_view(partition_cols=['id'])\ndef a():\n    return spark.range(1)\n",
    "column_without_a_type": "@dp.materialized_view\ndef a():\n    return spark.sql('SELECT 1 AS id, null AS n')\n",
    "partitioned_by_what": "@dp.materialized_view(partition_cols=['day'])\ndef a():\n    return spark.range(1)\n",
    "other_columns": "@dp.materialized_view(schema='x INT')\ndef a():\n    return spark.range(1)\n",
    "no_dataframe": "@dp.materialized_view\ndef a():\n    return 1\n",
    "fails_at_import": "1 / 0\n",
    "syntax": "def a(:\n",
    "counts_in_a_query": "@dp.materialized_view\ndef a():\n    n = spark.range(1).count()\n    return spark.range(n)\n",
    "changes_a_setting": "spark.conf.set('spark.sql.ansi.enabled', 'false')\n",
    "unknown_table": "@dp.materialized_view\ndef a():\n    return spark.table('orders')\n",
    "unknown_column": "@dp.materialized_view\ndef a():\n    return spark.range(1).select('x')\n",
    "query_that_raises": "@dp.materialized_view\ndef a():\n    return spark.range([][0])\n",
    "unknown_policy": "@dp.materialized_view(table_properties={'headrace.refresh_policy': 'always'})\n"
    "def a():\n    return spark.range(1)\n",
    "strict_of_random_rows": "@dp.materialized_view(table_properties={'headrace.refresh_policy': 'incremental_strict'})\n"
    "def a():\n    return spark.range(9).where(F.rand() < 0.5)\n",
    "stream_with_state": "@dp.table\ndef a():\n    return spark.readStream.schema('x INT').json('in').groupBy('x').count()\n",
    "stream_of_overlapping_windows": _TIMED
    + "    return timed('in').groupBy(F.window('at', '1 hour', '9 minutes')).count()\n",
    "stream_of_sessions": _TIMED
    + "    return timed('in').groupBy(F.session_window('at', '1 hour')).count()\n",
    "watermark_of_two_streams": _TIMED + "    both = timed('in').union(timed('other'))\n"
    "    return both.withWatermark('at', '2 hours').groupBy('at').count()\n",
    "watermark_above_a_join": _JOINED + "    joined = files('in').join(known, F.expr('at >= since'))\n"
    "    return joined.withWatermark('at', '1 hour').groupBy('at').count()\n",
    "watermark_of_exploded_rows": _JOINED
    + "    rows = files('in').select(F.explode(F.array('at')).alias('at'))\n"
    "    return rows.withWatermark('at', '1 hour').groupBy('at').count()\n",
    "watermark_of_joined_streams": _TIMED + "    return timed('in').join(timed('other'), 'at')\n",
    "watermark_of_one_joined_stream": _JOINED + "    one = files('in').withWatermark('at', '1 hour')\n"
    "    return one.join(files('other'), 'at')\n",
    "watermark_of_two_operators": _TIMED + "    rows = timed('in').dropDuplicates(['at'])\n"
    "    return rows.groupBy(F.window('at', '1 hour')).count()\n",
    "watermark_without_delay": _JOINED
    + "    return files('in').withWatermark('at', '0 seconds').groupBy('at').count()\n",
    "windows_that_are_no_keys": _TIMED
    + "    return timed('in').dropDuplicates(['at']).select(F.window('at', '1 hour'))\n",
    "duplicates_within_a_watermark": _TIMED
    + "    return timed('in').dropDuplicatesWithinWatermark(['at'])\n",
    "duplicates_without_the_time": _TIMED
    + "    return timed('in').select(F.lit(1).alias('x')).dropDuplicates()\n",
    "tombstones_of_rows": "@dp.materialized_view(table_properties={'headrace.tombstones': '3'})\n"
    "def a():\n    return spark.range(1)\n",
    "source_that_does_not_answer": "@dp.materialized_view\ndef a():\n    raise ConnectionError('no route to shop')\n",
    "stream_of_rates": "@dp.table\ndef a():\n    return spark.readStream.format('rate').load()\n",
    "records_of_other_columns": "@dp.table\ndef r():\n    return spark.readStream.schema('id INT, at INT').json('in')\n"
    "dp.create_streaming_table('a')\ndp.create_auto_cdc_flow('a', 'r', ['key'], 'at')\n",
    "records_ordered_by_what": "@dp.table\ndef r():\n    return spark.readStream.schema('id INT, at BOOLEAN').json('in')\n"
    "dp.create_streaming_table('a')\ndp.create_auto_cdc_flow('a', 'r', ['id'], 'at')\n",
    "records_beside_rows": "@dp.table\ndef r():\n    return spark.readStream.schema('id INT, at INT').json('in')\n"
    "dp.create_auto_cdc_flow('r', 'r', ['id'], 'at', name='f')\n",
    "tombstones_of_versions": "@dp.table\ndef r():\n    return spark.readStream.schema('id INT, at INT').json('in')\n"
    "dp.create_streaming_table('a', table_properties={'headrace.tombstones': '3'})\n"
    "dp.create_auto_cdc_flow('a', 'r', ['id'], 'at', stored_as_scd_type=2)\n",
    "tombstones_for_days": "@dp.table\ndef r():\n    return spark.readStream.schema('id INT, at INT').json('in')\n"
    "dp.create_streaming_table('a', table_properties={'headrace.tombstones': '3 d'})\n"
    "dp.create_auto_cdc_flow('a', 'r', ['id'], 'at')\n",
    "columns_of_one_name": "@dp.materialized_view\ndef a():\n"
    "    return spark.range(1).select('id', F.col('id').alias('ID'))\n",
    "reserved_column": "@dp.materialized_view\ndef a():\n"
    "    return spark.range(1).select(F.col('id').alias('__headrace_weight'))\n",
    "table_that_is_no_name": "@dp.materialized_view(name='`a b`')\ndef a():\n    return spark.range(1)\n",
    "table_that_is_a_path": "@dp.materialized_view(name='`/tmp/../evil`')\ndef a():\n    return spark.range(1)\n",
    "records_called_weight": "@dp.table\ndef r():\n    return spark.readStream.schema('id INT, weight INT').json('in')\n"
    "dp.create_streaming_table('a')\ndp.create_auto_cdc_flow('a', 'r', ['id'], 'weight')\n",
    "sink_without_path": "dp.create_sink('s', 'parquet')\n@dp.append_flow(target='s')\ndef f():\n"
    "    return spark.readStream.schema('x INT').json('in')\n",
    "sink_without_flow": "dp.create_sink('s', 'parquet', {'path': 'out'})\n",
    "sink_of_rows": "dp.create_sink('s', 'console')\n@dp.append_flow(target='s')\ndef f():\n    return spark.range(1)\n",
    "sink_with_state": "dp.create_sink('s', 'console')\n@dp.append_flow(target='s')\ndef f():\n"
    "    return spark.readStream.schema('x INT').json('in').dropDuplicates()\n",
    "format_csv": "@dp.materialized_view(format='csv')\ndef a():\n    return spark.range(1)\n",
    "changelog_column": "@dp.materialized_view(format='changelog')\ndef a():\n"
    "    return spark.range(1).withColumnRenamed('id', 'weight')\n",
    "delta_without_a_table": "@dp.materialized_view\ndef a():\n    return spark.read.format('delta').load('in')\n",
    "delta_of_another_machine": "@dp.materialized_view\ndef a():\n"
    "    return spark.read.format('delta').load('s3://bucket/orders')\n",
    "delta_version_that_is_not_there": "import deltalake, pyarrow\n"
    "deltalake.write_deltalake('t', pyarrow.table({'x': [1]}))\n@dp.materialized_view\ndef a():\n"
    "    return spark.read.format('delta').option('versionAsOf', 7).load('t')\n",
    "delta_option": "@dp.table\ndef a():\n"
    "    return spark.readStream.format('delta').option('skipChangeCommits', 'true').load('in')\n",
    "delta_sink_option": "dp.create_sink('s', 'delta', {'path': 'out', 'mergeSchema': 'true'})\n"
    "@dp.append_flow(target='s')\ndef f():\n    return spark.readStream.schema('x INT').json('in')\n",
    "delta_sink_without_path": "dp.create_sink('s', 'delta')\n@dp.append_flow(target='s')\ndef f():\n"
    "    return spark.readStream.schema('x INT').json('in')\n",
    "delta_column": "@dp.materialized_view(format='delta')\ndef a():\n"
    "    return spark.sql(\"SELECT INTERVAL '1' DAY AS since FROM range(1)\")\n",
    "expectation_of_unknown_column": _EXPECTING + "@expect('big', 'amount > 1')\n" + _RANGE,
    "expectation_of_a_hidden_column": _EXPECTING
    + "@expect('big', 'other > 1')\n@dp.materialized_view\ndef a():\n"
    "    return spark.range(1).withColumn('other', F.lit(1)).select('id')\n",
    "expectation_that_is_a_number": _EXPECTING + "@expect('big', 'id + 1')\n" + _RANGE,
    "expectation_with_an_aggregate": _EXPECTING + "@expect('big', F.sum('id') > 1)\n" + _RANGE,
    "expectation_with_a_window": _EXPECTING + "@expect('big', 'rank() OVER (ORDER BY id) > 1')\n" + _RANGE,
    "expectation_with_a_subquery": _EXPECTING + "@expect('big', 'id IN (SELECT 1)')\n" + _RANGE,
    "expectation_of_the_time": _EXPECTING + "@expect('big', 'id < unix_timestamp()')\n" + _RANGE,
    "expectation_of_chance": _EXPECTING + "@expect('big', 'rand() < 0.5')\n" + _RANGE,
    "expectation_that_is_not_sql": _EXPECTING + "@expect('big', 'id >')\n" + _RANGE,
    "expectation_that_is_no_text": _EXPECTING + "@expect('big', True)\n" + _RANGE,
    "expectation_without_a_name": _EXPECTING + "@expect(' ', 'id > 1')\n" + _RANGE,
    "expectation_twice": _EXPECTING
    + "@expect('big', 'id > 1')\n@dp.materialized_view\n@expect_or_drop('big', 'id > 2')\n"
    "def a():\n    return spark.range(1)\n",
    "expectation_of_a_flow": _EXPECTING
    + "dp.create_streaming_table('a')\n@expect('big', 'x > 1')\n@dp.append_flow(target='a')\ndef one():\n"
    "    return spark.readStream.schema('x INT').json('in')\n",
    "expectation_below_a_flow": _EXPECTING
    + "dp.create_streaming_table('a')\n@dp.append_flow(target='a')\n@expect('big', 'x > 1')\ndef one():\n"
    "    return spark.readStream.schema('x INT').json('in')\n",
    "expectation_of_a_sink": _EXPECTING + "dp.create_sink('s', 'console')\nexpect('big', 'x > 1')(None)\n",
    "expectation_that_drops_records": _EXPECTING
    + "@dp.table\ndef r():\n    return spark.readStream.schema('id INT, at INT').json('in')\n"
    "create_streaming_table('a', expect_all_or_drop={'big': 'id > 1'})\n"
    "dp.create_auto_cdc_flow('a', 'r', ['id'], 'at')\n",
    "expectation_that_drops_random_rows": _EXPECTING
    + "@expect_or_drop('big', 'x > 0.5')\n@dp.materialized_view\ndef a():\n"
    "    return spark.range(9).select(F.rand().alias('x'))\n",
    "expectation_beside_its_column": _EXPECTING
    + "@expect('big', 'failed_expectations > 1')\n@dp.materialized_view\ndef a():\n"
    "    return spark.range(9).select(F.col('id').alias('failed_expectations'))\n",
    "reserved_name": "@dp.materialized_view\ndef a__headrace_dropped():\n    return spark.range(1)\n",
}

SQL = {
    "expectation_of_unknown_column": "CREATE MATERIALIZED VIEW a (\n    id BIGINT,\n"
    "    CONSTRAINT big EXPECT (amount\n        > 1) ON VIOLATION DROP ROW\n) AS SELECT id FROM range(1);",
    "expectation_without_parentheses": "CREATE MATERIALIZED VIEW a (\n    CONSTRAINT big EXPECT id > 1\n) AS SELECT 1 AS id;",
    "expectation_without_name": "CREATE MATERIALIZED VIEW a (CONSTRAINT EXPECT (id > 1)) AS SELECT 1 AS id;",
    "expectation_with_another_action": "CREATE MATERIALIZED VIEW a (\n    id INT, CONSTRAINT big EXPECT (id > 1)\n"
    "    ON VIOLATION DROP TABLE\n) AS SELECT 1 AS id;",
    "expectation_twice": "CREATE MATERIALIZED VIEW a (CONSTRAINT big EXPECT (id > 1),\n"
    "    CONSTRAINT big EXPECT (id > 2)) AS SELECT 1 AS id;",
    "expectation_beside_a_mistake": "CREATE OR REFRESH MATERIALIZED VIEW a (CONSTRAINT big EXPECT (id\n > 1))\nAS\nSELEC 1;",
    "statement": "INSERT INTO a SELECT 1;",
    "not_sql": "CREATE MATERIALIZED VIEW a AS SELEC 1;",
    "global_view": "CREATE GLOBAL TEMPORARY VIEW a AS SELECT 1 AS x;",
    "strict_sketch": "CREATE MATERIALIZED VIEW a\nTBLPROPERTIES ('headrace.refresh_policy' = 'incremental_strict')\n"
    "AS SELECT id % 2 AS k,\n    theta_sketch_estimate(theta_sketch_agg(id)) AS n\nFROM range(9) GROUP BY id % 2;",
    "partitioned_by_a_function": "CREATE MATERIALIZED VIEW a PARTITIONED BY (bucket(4, id)) AS SELECT id FROM range(1);",
    "other_catalogue": "CREATE MATERIALIZED VIEW other.db.a AS SELECT 1 AS x;",
}


def told(error: HeadraceError, root: Path) -> str:
    return str(error).replace(str(root), "PROJECT") + "\n"


@pytest.mark.parametrize("name", SPECS)
def test_a_spec_that_is_wrong(tmp_path: Path, name: str) -> None:
    file = tmp_path / "spark-pipeline.yml"
    file.write_text(SPECS[name])
    with pytest.raises(HeadraceError) as error:
        read_spec(file)
    assert error.value.fix
    assert_golden(GOLDEN / f"spec_{name}.txt", told(error.value, tmp_path))


def test_a_spec_that_is_missing_or_there_twice(tmp_path: Path) -> None:
    folder = tmp_path / "a/b"
    folder.mkdir(parents=True)
    (tmp_path / "spark-pipeline.yml").write_text("name: x\nstorage: s\n")
    assert find_spec(folder) == tmp_path / "spark-pipeline.yml"
    (tmp_path / "spark-pipeline.yaml").write_text("name: x\nstorage: s\n")
    with pytest.raises(HeadraceError, match="two spec files"):
        find_spec(folder)


@pytest.mark.spark
@pytest.mark.parametrize("name", PYTHON)
def test_a_python_file_that_is_wrong(tmp_path: Path, spark: SparkSession, name: str) -> None:
    project = Project.new(tmp_path / "project", spark)
    project.write("a.py", _PYTHON + PYTHON[name])
    project.add("in", 1, [])
    project.add("other", 1, [])
    check(project, f"python_{name}")


@pytest.mark.spark
@pytest.mark.parametrize("name", SQL)
def test_a_sql_file_that_is_wrong(tmp_path: Path, spark: SparkSession, name: str) -> None:
    project = Project.new(tmp_path / "project", spark)
    project.write("a.sql", "-- a comment; with a semicolon\n" + SQL[name])
    check(project, f"sql_{name}")


@pytest.mark.spark
def test_files_that_are_no_part_of_a_pipeline(tmp_path: Path, spark: SparkSession) -> None:
    project = Project.new(tmp_path / "project", spark)
    project.write("notes.txt", "")
    check(project, "other_file")


def check(project: Project, golden: str) -> None:
    with pytest.raises(HeadraceError) as error, planned(project.spec, project.spark):
        pass
    assert error.value.fix
    assert error.value.where
    assert_golden(GOLDEN / f"{golden}.txt", told(error.value, project.root))


def test_no_text_is_left_without_its_mistake() -> None:
    names = {
        f"{kind}_{name}" for kind, of in (("spec", SPECS), ("python", PYTHON), ("sql", SQL)) for name in of
    }
    elsewhere = {
        "other_file",
        "delta_files_gone",
        "delta_stream_lost_commits",
        "delta_stream_lost_another_table",
        "expectation_failed",
    }
    assert {path.stem for path in GOLDEN.glob("*.txt")} == names | elsewhere
