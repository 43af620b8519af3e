"""`headrace check` finds mistakes in files without running their flows."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headrace.analysis.flow_report import Finding, Severity
from headrace.cli.check import OutputFormat, PlacedFinding, lines_of
from headrace.cli.main import app
from headrace.errors import BadFlow, SourceLocation
from tests.cli.conftest import ROOT, Run
from tests.golden import assert_golden

HERE = Path(__file__).parent
pytestmark = pytest.mark.usefixtures("here")

HEADER = "import headrace as hr\n"
GOOD = "flow = hr.Flow('good')\nflow.sink('out', flow.source('numbers', int))\n"
BAD = "bad = hr.Flow('bad')\nbad.sink('out', bad.source('numbers', int).select(hr.col.valeu))\n"


def check(*arguments: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["check", *map(str, arguments)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout


def found(*arguments: str | Path) -> list[dict[str, Any]]:
    return json.loads(check(*arguments, "--output-format", "json")[1])


def codes(*arguments: str | Path) -> list[tuple[str, str, int | None]]:
    return [(each["file"], each["code"], each["line"]) for each in found(*arguments)]


@pytest.fixture
def orders(folder: Path) -> Path:
    return Path(shutil.copy(HERE / "checked" / "orders.py", folder))


def test_every_mistake_of_a_file_is_found_in_one_run(headrace: Run, orders: Path) -> None:
    done = headrace("check", "orders.py")
    assert (done.returncode, done.stderr) == (1, "")
    assert_golden(HERE / "golden" / "check.txt", done.stdout)


def test_annotations_for_github(headrace: Run, orders: Path) -> None:
    done = headrace("check", "orders.py", "--output-format", "github")
    assert done.returncode == 1
    assert_golden(HERE / "golden" / "check_github.txt", done.stdout)
    assert done.stderr == "1 file checked: 7 errors, 6 warnings\n"


def test_annotations_escape_what_github_reads() -> None:
    location = SourceLocation("/a,b:c%.py", 3)
    finding = Finding(Severity.WARNING, BadFlow("100 %\r\n::no, command", where=[location], fix="a: b"))
    (line,) = lines_of([PlacedFinding.of(finding, "")], OutputFormat.GITHUB)
    assert line == (
        "::warning file=/a%2Cb%3Ac%25.py,line=3,title=P104 BadFlow::100 %25%0D%0A::no, command%0AFix: a: b"
    )


def test_json_is_a_list_of_objects(orders: Path) -> None:
    assert found(f"{orders.name}:unknown_column") == [
        {
            "severity": "error",
            "code": "P010",
            "name": "UnknownColumn",
            "file": "orders.py",
            "line": 27,
            "what": "no column 'contry'",
            "why": "The columns are id, country, price, note.",
            "fix": "did you mean 'country'?",
            "where": [{"file": "orders.py", "line": 27, "note": ""}],
        }
    ]
    assert found("flows:flow") == []


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["flows:flow"], 0),
        (["orders.py:unknown_column"], 1),
        (["orders.py:revenue"], 0),
        (["orders.py:revenue", "--strict"], 1),
        (["flows:flow", "nothing.py"], 2),
        (["nothing:flow"], 2),
        (["flows:flaw"], 2),
        (["flows:flow", "--examples", "3"], 2),
    ],
)
def test_the_exit_code_tells_errors_from_files_that_cannot_be_checked(
    orders: Path, arguments: list[str], code: int
) -> None:
    assert check(*arguments)[0] == code


def test_a_file_that_is_missing_hides_no_findings_of_others(orders: Path) -> None:
    assert codes("nothing.py", "orders.py:unknown_column") == [
        ("nothing.py", "P105", None),
        ("orders.py", "P010", 27),
    ]


def test_a_file_without_flows_is_told_with_what_was_looked_for(folder: Path) -> None:
    (folder / "none.py").write_text("def of(name: str) -> 'hr.Flow':\n    raise ValueError\n" + HEADER)
    code, text = check("none.py")
    assert code == 0
    assert text == (
        "nothing to check in none.py:\n    no flow at module level, no function without required arguments "
        "that is annotated `-> Flow`\n1 file checked: no findings\n"
    )


def test_a_module_that_fails_shows_its_error_and_the_flows_before_it(folder: Path) -> None:
    unused = "flow.source('unused', int)\n"
    function = "def made() -> hr.Flow:\n    return later\n"
    (folder / "half.py").write_text(HEADER + GOOD + unused + function + BAD + "later = 1\n")
    assert codes("half.py") == [("half.py", "P010", 8), ("half.py", "P108", 4)]


CASES = sorted((ROOT / "tests" / "errors" / "cases").glob("*.py"))


def test_every_mistake_in_building_a_flow_is_found_with_its_code_and_line(folder: Path) -> None:
    mistakes = {path.with_suffix(".txt").read_text().split()[0]: path for path in CASES}
    assert len(mistakes) >= 5
    for code, path in mistakes.items():
        shutil.copy(path, folder)
        assert (path.name, code) in [(file, found) for file, found, line in codes(path.name) if line], path


def test_a_flow_that_a_function_and_a_variable_hold_is_checked_once(folder: Path) -> None:
    made = "def made() -> hr.Flow:\n    flow = hr.Flow('x')\n    flow.source('n', int)\n"
    (folder / "twice.py").write_text(f"{HEADER}{made}    flow.sink('out', flow.source('m', int))\n")
    with (folder / "twice.py").open("a") as file:
        file.write("    flow.sink('fold', flow.null(int).fold(0, max, commutative=True))\n")
        file.write("    return flow\nflow = made()\n")
    assert codes("twice.py") == [("twice.py", "P108", 4)]
    assert "1 claim tried" in check("twice.py", "--claims", "--examples", "5")[1]


def test_files_of_different_folders_import_their_own_neighbours(folder: Path) -> None:
    for name, text in (("a", GOOD), ("b", BAD)):
        (folder / name).mkdir()
        (folder / name / "neighbour.py").write_text(HEADER + text)
        (folder / name / "json.py").write_text("from neighbour import *\n")
    before = dict(sys.modules)
    assert codes("a/json.py", "b/json.py") == [("b/neighbour.py", "P010", 3)]
    assert sys.modules["json"] is json
    assert "neighbour" not in sys.modules.keys() - before.keys()


def test_files_of_different_packages_import_their_own_neighbours(folder: Path) -> None:
    for name, text in (("a", GOOD), ("b", BAD)):
        (folder / name / "app").mkdir(parents=True)
        (folder / name / "app" / "__init__.py").touch()
        (folder / name / "app" / "near.py").write_text(HEADER + text)
        (folder / name / "app" / "flows.py").write_text("from .near import *\n")
    before = dict(sys.modules)
    assert codes("a/app/flows.py", "b/app/flows.py") == [("b/app/near.py", "P010", 3)]
    assert not {"app", "app.near", "app.flows"} & (sys.modules.keys() - before.keys())


def test_a_folder_that_is_no_pipeline_is_told_how_its_files_are_checked(folder: Path) -> None:
    (finding,) = found(".")
    assert (finding["code"], finding["what"]) == ("P801", ". is not the folder of a pipeline")
    assert finding["fix"] == "headrace check *.py"


def test_an_interrupted_check_speaks_of_no_ticks(folder: Path) -> None:
    (folder / "interrupted.py").write_text("raise KeyboardInterrupt")
    done = CliRunner().invoke(app, ["check", "interrupted.py"])
    assert (done.exit_code, done.stderr) == (130, "stopped immediately\n")


def test_what_a_file_prints_stays_out_of_the_findings(folder: Path) -> None:
    (folder / "loud.py").write_text(f"print('loud')\n{HEADER}{BAD}")
    assert codes("loud.py") == [("loud.py", "P010", 4)]


def test_what_a_file_writes_past_python_stays_out_too(headrace: Run, folder: Path) -> None:
    loud = "import os, subprocess\nos.write(1, b'loud')\nsubprocess.run(['echo', 'louder'])\n"
    (folder / "loud.py").write_text(f"{loud}{HEADER}{GOOD}")
    done = headrace("check", "loud.py", "--output-format", "json")
    assert (done.returncode, json.loads(done.stdout)) == (0, [])
    assert "louder" in done.stderr


def test_what_a_file_writes_at_exit_stays_out_too(headrace: Run, folder: Path) -> None:
    late = "import atexit, os\natexit.register(print, 'late')\natexit.register(os.write, 1, b'later')\n"
    (folder / "late.py").write_text(f"{late}{HEADER}{GOOD}")
    done = headrace("check", "late.py", "--output-format", "json")
    assert (done.returncode, json.loads(done.stdout)) == (0, [])
    assert "late\n" in done.stderr
    assert "later" in done.stderr


@pytest.mark.parametrize(
    ("text", "line"), [("import sys\nsys.exit()", 2), ("def f(:", 1), ("x = 1\nimport nowhere", 2)]
)
def test_a_file_that_cannot_be_loaded_is_a_finding_with_its_line(folder: Path, text: str, line: int) -> None:
    (folder / "broken.py").write_text(text)
    assert codes("broken.py") == [("broken.py", "P105", line)]


def test_a_function_or_module_that_exits_hides_no_findings_of_others(folder: Path) -> None:
    (folder / "bad.py").write_text(f"{HEADER}{BAD}")
    (folder / "exits.py").write_text(f"import sys\n{HEADER}def made() -> hr.Flow:\n    sys.exit(0)\n")
    (folder / "exiting_module.py").write_text("import sys\nsys.exit(0)\n")
    (folder / "at_once.py").write_text(f"import os\n{HEADER}os._exit(7)\n")
    assert codes("exits.py", "at_once.py", "exiting_module", "bad.py") == [
        ("exits.py", "P105", 4),
        ("at_once.py", "P105", 3),
        ("exiting_module.py", "P105", 2),
        ("bad.py", "P010", 3),
    ]


def test_a_process_that_a_file_forks_ends_as_it_means_to(folder: Path) -> None:
    forks = "import os\nif not (child := os.fork()):\n    os._exit(7)\n"
    waits = "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7\n"
    (folder / "forks.py").write_text(f"{forks}{waits}{HEADER}{BAD}")
    assert codes("forks.py") == [("forks.py", "P010", 7)]


def test_a_query_whose_plan_is_kept_needs_no_spark(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("revenue.sql", "revenue.plan"):
        shutil.copy(ROOT / "examples" / "queries" / name, folder)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert check("revenue.sql") == (0, "1 file checked: no findings\n")
    (folder / "other.sql").write_text("-- source orders: id INT\nSELECT id FROM orders")
    ((name, code, line),) = codes("other.sql")
    assert (name, code, line) == ("other.sql", "P401", None)
    assert check("other.sql")[0] == 2


@pytest.mark.spark
def test_one_broken_query_does_not_hide_another(folder: Path) -> None:
    (folder / "a.sql").write_text("-- source orders: id INT\n\nSELECT idd FROM orders")
    (folder / "b.sql").write_text(
        "-- source orders: id INT\n-- table shops: id NUMBER\nSELECT id FROM orders"
    )
    (folder / "c.sql").write_text("-- source orders: id INT\n-- table shops: id INT\nSELECT id FROM orders")
    (folder / "d.sql").write_text("SELECT 1")
    assert codes("a.sql", "b.sql", "c.sql", "d.sql") == [
        ("a.sql", "P107", 3),
        ("b.sql", "P107", 2),
        ("c.sql", "P108", 3),
        ("d.sql", "P107", 1),
    ]


HOSTILE = {
    "text that cannot be made": (
        "class Odd(Exception):\n    def __str__(self):\n        raise ValueError\nraise Odd\n"
    ),
    "end of everything": "class End(BaseException):\n    pass\nraise End('now')\n",
    "generator exit": "raise GeneratorExit\n",
    "a class that cannot be asked": (
        "class Liar:\n    @property\n    def __class__(self):\n        raise ValueError\nliar = Liar()\n"
    ),
    "a coroutine": f"{HEADER}async def made() -> hr.Flow:\n    return hr.Flow('x')\n",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_odd_files_hide_no_findings_of_others(orders: Path, folder: Path, text: str) -> None:
    (folder / "odd.py").write_text(text)
    alone = codes(orders)
    assert [each for each in codes(orders, folder / "odd.py") if each in alone] == alone


def test_the_name_of_a_file_may_hold_a_colon(orders: Path, folder: Path) -> None:
    named = folder / "a:b.py"
    named.write_text(orders.read_text())
    assert [each[1:] for each in codes(named)] == [each[1:] for each in codes(orders)]


def test_a_query_that_is_no_text_is_a_finding(folder: Path) -> None:
    (folder / "a.sql").write_bytes(b"\xff\xfe")
    code, told = check(folder / "a.sql")
    assert code
    assert "not UTF-8" in told


def test_a_line_break_in_the_name_of_a_file_leaves_a_finding_in_one_line(folder: Path) -> None:
    (folder / "a\nb.py").write_text("raise ValueError")
    told = check(folder / "a\nb.py")[1]
    assert r"a\nb.py:1: error: P105 FlowNotFound:" in told.splitlines()[0]
    assert r"a\nb.py cannot be loaded" in told.splitlines()[0]


@pytest.mark.parametrize(
    ("name", "what"),
    [
        (":flow", "'' is not the name of a module"),
        (".near:flow", "'.near' is not the name of a module"),
        ("json:loads", "'loads' of json needs arguments: s"),
    ],
)
def test_names_that_mean_no_flow_are_told(name: str, what: str) -> None:
    (finding,) = found(name)
    assert (finding["file"], finding["line"], finding["what"]) == (name, None, what)
