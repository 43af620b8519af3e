"""Files that are read in the process: as Spark reads them, or not at all."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.pipelines.definitions import Place
from headrace.pipelines.errors import NeedsSpark
from headrace.pipelines.in_process_inputs import rows_of_files
from headrace.pipelines.leaves import FilesLeaf, leaf_of
from headrace.pipelines.pipeline_run import run_pipeline
from tests.pipelines.project import Project, event
from tests.pipelines.test_in_process import never

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def odd(text: str) -> list[str]:
    return text.split("|")


TYPES = ("STRING", "INT", "BIGINT", "SMALLINT", "TINYINT", "DOUBLE", "FLOAT", "BOOLEAN", "DATE")
TYPES += ("TIMESTAMP", "TIMESTAMP_NTZ")
TYPES += ("DECIMAL(6,2)", "DECIMAL(2,2)", "DECIMAL(4,0)", "DECIMAL(38,10)")
TEXTS = odd("x|a b| x|x | |||é|'|NA|null|#|\t|\x01x|\x0b|\x85|\u2028")
QUOTED = odd('"x"|""|" x "|"a,b;c"|"a""b"|""""|"|x"y"|"x"y| "x"|"x" |"x\\"y"|\\|a\\,b|"\\"|"a\nb"|"NA"')
QUOTED += odd('"1"|"é"|"x|x""|"2026-01-02"|"a\\\\"|"\t"|"a""|""a"|"""a"""|"""')
NUMBERS = odd("0|1|-1|007|-0|+1|127|128|-32768|32768|2147483648|9223372036854775808|1,5|1_000|\u0661")
NUMBERS += odd("1.0|-1.25|1.|.5|0.005|-0.0|0.1|1e3|1E-3|NaN|Inf|0x1p3|1d|1f| 1|1 |-|0.99|-0.99|1.00")
NUMBERS += odd("12345.67|1234.56|12345|0.30000000000000004|16777217|0.1234567890123456789012")
NUMBERS += odd("123456789012345678901234567890|12345678901234567890|3.4028236e38")
OTHERS = odd("true|TRUE|False|yes|1|t|2026-01-02|2026-1-2|2026-02-29|0001-01-01|1500-03-01|epoch|now")
OTHERS += odd("12026-01-02|2026-01-02 00:00:00|2026-01-02T| 2026-01-02|2026|1999-12-31")
OTHERS += odd("2026-01-02T03:04:05|2026-01-02 03:04:05.1234567|2026-01-02 03:04:05.12|2026-01-02 24:00:00")
OTHERS += odd("2026-01-02T03:04:05Z|2026-01-02T03:04:05+02:00|2026-01-02T03:04:05-00:30|2026-01-02 3:04:05")
OTHERS += odd("2026-01-02T03:04:05+18:30|2026-01-02T03:04:05 UTC|2026-01-02 03:04|2026-01-02T03:04:60")
OPTIONS: tuple[Mapping[str, str], ...] = (
    {},
    {"header": "true", "mode": "FAILFAST"},
    {"sep": ";", "escape": '"'},
    {"delimiter": "\\t", "nullValue": "NA"},
    {"escape": '"', "nullValue": "x", "header": "True", "mode": "DROPMALFORMED"},
)


def leaf_over(
    folder: Path, columns: str, options: Mapping[str, str], spark: SparkSession, form: str = "csv"
) -> FilesLeaf:
    frame: Any = spark.read.schema(columns).options(**options).format(form).load(str(folder))
    leaf = leaf_of(frame._jdf.queryExecution().analyzed(), {}, spark)
    assert isinstance(leaf, FilesLeaf)
    return leaf


def rows_here(leaf: FilesLeaf, file: Path) -> Counter[str] | NeedsSpark:
    try:
        table = rows_of_files(leaf, {str(file): str(file)}, {str(file.parent)})
    except NeedsSpark as error:
        return error
    return Counter(repr(tuple(row.values())) for row in with_numbers(table).to_pylist())


def with_numbers(table: pa.Table) -> pa.Table:
    """Return a table with numbers for dates and times, of which Python has not all."""
    numbers = {pa.date32(): pa.int32()}
    columns = [
        column.cast(
            pa.int64() if pa.types.is_timestamp(column.type) else numbers.get(column.type, column.type)
        )
        for column in table.columns
    ]
    return pa.Table.from_arrays(columns, names=table.column_names)


def plain(draw: random.Random, of: str) -> str:
    match of:
        case "STRING":
            return draw.choice(("x", "a b", "é", " x "))
        case "DOUBLE" | "FLOAT":
            return f"{draw.randrange(1000)}.{draw.randrange(1, 1000)}"
        case "BOOLEAN":
            return draw.choice(("true", "false"))
        case "TIMESTAMP" | "TIMESTAMP_NTZ":
            return f"2026-0{draw.randrange(1, 9)}-01 10:00:0{draw.randrange(9)}"
        case "DATE":
            return f"2026-0{draw.randrange(1, 9)}-1{draw.randrange(9)}"
        case "DECIMAL(2,2)":
            return f"0.{draw.randrange(100)}"
        case _:
            return str(draw.randrange(100))


def text_of_file(draw: random.Random, columns: list[str], separator: str) -> str:
    """Draw a file: most of them plain, with one odd value, line or end of line."""

    def line() -> str:
        values = [plain(draw, of) for of in columns]
        if draw.random() < 0.5:
            values[draw.randrange(len(values))] = draw.choice(draw.choice((TEXTS, QUOTED, NUMBERS, OTHERS)))
        if draw.random() < 0.05:
            values = values[1:] if draw.random() < 0.5 else [*values, "x"]
        return separator.join(values)

    lines = [line() for _ in range(draw.randrange(3))]
    if draw.random() < 0.1:
        lines.insert(draw.randrange(len(lines) + 1), draw.choice(("", " ", "\t", "\x01", separator)))
    ends = draw.choice(("\n", "\n", "\n", "\r\n", "\r"))
    return ends.join(lines) + draw.choice(("", ends, ends, ends * 2))


@pytest.mark.seeds(len(OPTIONS))
def test_files_are_read_as_spark_reads_them_or_left_to_it(
    tmp_path: Path, spark: SparkSession, seed: int
) -> None:
    draw, options = random.Random(seed), OPTIONS[seed % len(OPTIONS)]
    separator = options.get("sep", options.get("delimiter", ",")).replace("\\t", "\t")
    of = [TYPES[(3 * seed + seed // len(OPTIONS) + at) % len(TYPES)] for at in range(4)]
    columns = ", ".join(f"c{at} {each}" for at, each in enumerate(of))
    files = [tmp_path / f"{number}.csv" for number in range(400)]
    for file in files:
        head = f"{separator.join('abcd')}\n" if "header" in options else ""
        file.write_text(head + text_of_file(draw, of, separator), newline="")
    assert 100 < number_read_here(files, columns, options, spark) < len(files)


def number_read_here(
    files: list[Path], columns: str, options: Mapping[str, str], spark: SparkSession, form: str = "csv"
) -> int:
    """Return how many files of a folder are read in the process, each of them as by Spark."""
    folder, read = files[0].parent, 0
    leaf = leaf_over(folder, columns, options, spark, form)
    # An odd file must not fail the others.
    reader = spark.read.schema(columns).options(**{**options, "mode": "PERMISSIVE"}).format(form)
    by_spark: dict[str, Counter[str]] = {file.name: Counter() for file in files}
    for row in with_numbers(
        reader.load(str(folder)).select("*", "_metadata.file_name").toArrow()
    ).to_pylist():
        by_spark[row.pop("file_name")][repr(tuple(row.values()))] += 1
    for file in files:
        found = rows_here(leaf, file)
        if not isinstance(found, NeedsSpark):
            read += 1
            assert found == by_spark[file.name], (file.read_bytes(), columns, options)
    return read


JSON = odd('1|-0|1.0|1.5|-0.0|1e3|12345678901|9223372036854775808|true|null|""|"x"|" x"|"1"|"true"')
JSON += odd('[1]|{}|NaN|0.1|"0.1"|1.|01|+1|"2026-01-02"|"2026-1-2"|"2026-02-30"|"é"|"\\u00e9"|"\\ud800"')
JSON += odd('"\\n"|"a\\"b"|"\\x"|9007199254740993|0.30000000000000004|1e400|x|tru')
TIMES = [f'"{text}"' for text in OTHERS]
PLAIN_JSON = {"BOOLEAN": ("true", "false"), "DOUBLE": ("1.5", "3"), "STRING": ('"x"', '"é"')}


@pytest.mark.seeds(3)
def test_lines_of_json_are_read_as_spark_reads_them_or_left_to_it(
    tmp_path: Path, spark: SparkSession, seed: int
) -> None:
    draw = random.Random(seed)
    of = draw.sample(odd("STRING|INT|BIGINT|DOUBLE|BOOLEAN|DATE|TIMESTAMP|TIMESTAMP_NTZ"), 4)

    def value(kind: str) -> str:
        if draw.random() < 0.2:
            return draw.choice(draw.choice((JSON, TIMES)))
        text = plain(draw, kind)
        return draw.choice(PLAIN_JSON.get(kind, (text if kind.endswith("INT") else f'"{text}"',)))

    def line() -> str:
        names = draw.choice((range(4), range(4), range(4), range(3), (0, 0, 1), (9, 1)))
        return "{" + ", ".join(f'"c{at}": {value(of[at % 4])}' for at in names) + "}"

    files = [tmp_path / f"{number}.json" for number in range(400)]
    for file in files:
        lines = [line() for _ in range(draw.randrange(3))] + draw.choice(([], [], [], [""], [" "], ["{"]))
        file.write_text("\n".join(lines), newline="")
    columns = ", ".join(f"c{at} {each}" for at, each in enumerate(of))
    assert 100 < number_read_here(files, columns, {}, spark, "json") < len(files)


PLAIN = b"1,x,2.5,true,2026-01-02,7.25\n2,,,,,\n"


def test_plain_files_need_no_spark_and_odd_ones_do(tmp_path: Path, spark: SparkSession) -> None:
    columns = "a BIGINT, b STRING, c DOUBLE, d BOOLEAN, e DATE, f DECIMAL(6,2)"
    leaf = leaf_over(tmp_path, columns, {}, spark)
    file = tmp_path / "1.csv"

    def read(content: bytes) -> Counter[str] | NeedsSpark:
        file.write_bytes(content)
        return rows_here(leaf, file)

    both = Counter(
        [
            "(1, 'x', 2.5, True, 20455, Decimal('7.25'))",
            "(2, None, None, None, None, None)",
        ]
    )
    assert read(PLAIN) == both
    assert read(PLAIN.replace(b"\n", b"\r\n") + b"\r\n") == both
    assert read(b"") == Counter()
    assert read(b'1,"' + b"y" * 2_000_000 + b'",2.5,true,2026-01-02,7.25') == Counter(
        [f"(1, '{'y' * 2_000_000}', 2.5, True, 20455, Decimal('7.25'))"]
    )
    for odd in (
        b"\xef\xbb\xbf" + PLAIN,
        PLAIN.replace(b"x", b"\xff"),
        PLAIN.replace(b"x", b"\xed\xa0\x80"),
        PLAIN.replace(b"x", b"\0"),
        PLAIN.decode().encode("utf-16"),
        PLAIN.replace(b"x", b'"x\ny"'),
        PLAIN + b"3,x\n",
        PLAIN + b" \n",
        PLAIN.replace(b"2.5", b"1e400"),
        PLAIN.replace(b"x", b'"' * 100_001),
    ):
        assert isinstance(read(odd), NeedsSpark), odd[:80]
    (tmp_path / "1.csv").rename(tmp_path / "1.csv.gz")
    assert isinstance(rows_here(leaf, tmp_path / "1.csv.gz"), NeedsSpark)
    assert isinstance(rows_here(leaf, tmp_path / "gone.csv"), NeedsSpark)


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        ("a STRING", {"multiLine": "true"}),
        ("a STRING", {"quote": "'"}),
        ("a STRING", {"sep": "||"}),
        ("a STRING", {"sep": ",", "delimiter": ";"}),
        ("a STRING", {"encoding": "latin1"}),
        ("a STRING", {"inferSchema": "true"}),
        ("a STRING", {"comment": "#"}),
        ("a STRING, _corrupt_record STRING", {}),
        ("a INTERVAL DAY", {}),
        ("a BINARY", {}),
    ],
)
def test_options_and_types_that_spark_interprets_are_left_to_it(
    tmp_path: Path, spark: SparkSession, columns: str, options: Mapping[str, str]
) -> None:
    (tmp_path / "1.csv").write_text("x,y\n")
    leaf = leaf_over(tmp_path, columns, options, spark)
    assert isinstance(rows_here(leaf, tmp_path / "1.csv"), NeedsSpark)


VIEWS = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()

@dp.materialized_view
def per_city():
    read = spark.read.schema("city STRING, cents BIGINT").csv("orders", header=True)
    return read.groupBy("city").agg(F.sum("cents").alias("cents"))

@dp.table
def seen():
    return spark.readStream.schema("id INT, note STRING").option("sep", ";").csv("notes")
"""


def test_a_pipeline_over_csv_goes_on_without_spark(tmp_path: Path, spark: SparkSession) -> None:
    project = Project.new(tmp_path / "project", spark, a_py=VIEWS)

    def put(name: str, text: str) -> None:
        (project.root / name).parent.mkdir(exist_ok=True)
        (project.root / name).write_text(text)

    put("orders/1.csv", "city,cents\nbath,2\ncork,3\n")
    put("notes/1.csv", "1;a\n")
    project.run()
    put("orders/1.csv", "city,cents\nbath,5\n")
    put("orders/2.csv", 'city,cents\n"bath",1\ncork,7\n')
    put("notes/2.csv", '2;"b;c"\n')
    report = run_pipeline(project.spec, never, place=Place.HERE)
    assert not report.failed, [each.error for each in report.events.values() if each.error]
    assert project.rows("per_city") == Counter({("bath", 6): 1, ("cork", 7): 1})
    assert project.rows("seen") == Counter({(1, "a"): 1, (2, "b;c"): 1})
    put("orders/3.csv", "city,cents\ncork, 1\n")
    assert isinstance(
        event(run_pipeline(project.spec, never, place=Place.HERE), "per_city").error, NeedsSpark
    )
    project.run()
    # Spark reads " 1" as null.
    assert project.rows("per_city") == Counter({("bath", 6): 1, ("cork", 7): 1})


def test_times_of_parquet_files_are_those_that_spark_reads(tmp_path: Path, spark: SparkSession) -> None:
    moments = [0, 1_767_225_600_123_000, -62_135_596_800_000_000, None]
    file = tmp_path / "in" / "1.parquet"
    file.parent.mkdir()
    kinds = {
        "local": pa.timestamp("us"),
        "local_ms": pa.timestamp("ms"),
        "utc": pa.timestamp("us", "UTC"),
        "oslo": pa.timestamp("us", "Europe/Oslo"),
    }
    given = pa.array(moments, pa.timestamp("us"))
    pq.write_table(pa.table({name: given.cast(kind) for name, kind in kinds.items()}), file)
    spark = spark.newSession()
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    schema = ", ".join(f"{name} TIMESTAMP" for name in kinds)
    leaf = leaf_over(file.parent, schema, {}, spark, "parquet")
    read = spark.read.schema(schema).parquet(str(file.parent))
    expected = Counter(
        repr(tuple(row)) for row in read.selectExpr(*(f"unix_micros({name})" for name in kinds)).collect()
    )
    assert rows_here(leaf, file) == expected
    local = leaf_over(file.parent, "utc TIMESTAMP_NTZ", {}, spark, "parquet")
    assert isinstance(rows_here(local, file), NeedsSpark)
