"""Which flow a command means."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.cli.load_flow import load_flow, load_flows
from headrace.errors import FlowNotFound, WrongType
from tests.cli.conftest import ROOT

pytestmark = pytest.mark.usefixtures("here")


@pytest.mark.parametrize("name", ["flows:flow", "flows:totals", "flows.py:flow", "flows", "./flows.py"])
def test_a_flow_is_found(name: str) -> None:
    assert load_flow(name).name == "totals"


def test_a_file_imports_what_lies_beside_it(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "beside.py").write_text((tmp_path / "flows.py").read_text())
    (tmp_path / "sub" / "other.py").write_text("from beside import flow")
    assert load_flow("sub/other.py:flow").name == "totals"


@pytest.fixture
def package(folder: Path) -> Path:
    """A flow within a package, which imports what it is made of by the package's name."""
    inner = folder / "shop" / "flows"
    inner.mkdir(parents=True)
    for each in (folder / "shop", inner):
        (each / "__init__.py").touch()
    (folder / "shop" / "rows.py").write_text((folder / "flows.py").read_text())
    (inner / "sales.py").write_text("from shop.rows import totals\n\nflow = totals()\n")
    (inner / "near.py").write_text("from ..rows import totals\n\nflow = totals()\n")
    return folder


@pytest.mark.parametrize(
    "name",
    [
        "shop/flows/sales.py:flow",
        "shop/flows/near.py:flow",
        "shop.flows.sales:flow",
        "shop.flows.near:flow",
    ],
)
def test_a_file_imports_the_packages_of_the_current_folder(package: Path, name: str) -> None:
    assert load_flow(name).name == "totals"


@pytest.mark.parametrize("name", ["sales.py:flow", "near.py:flow"])
def test_a_file_of_a_package_is_loaded_from_any_folder(
    package: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(package / "shop" / "flows")
    assert load_flow(name).name == "totals"


def test_a_package_that_is_hidden_by_a_module_of_python_is_no_obstacle(folder: Path) -> None:
    for inner in (folder / "platform", folder / "platform" / "flows"):
        inner.mkdir()
        (inner / "__init__.py").write_text("raise ValueError")
    (folder / "platform" / "flows" / "sales.py").write_text((folder / "flows.py").read_text())
    assert load_flow("platform/flows/sales.py:flow").name == "totals"


def test_a_package_that_fails_is_told_with_its_line(package: Path) -> None:
    (package / "shop" / "flows" / "__init__.py").write_text("import not_there\n")
    with pytest.raises(FlowNotFound, match="No module named 'not_there'") as raised:
        load_flow("shop/flows/near.py:flow")
    assert "__init__.py:1   import not_there" in str(raised.value)
    (error,) = load_flows("shop/flows/near.py")
    assert isinstance(error, FlowNotFound)


def test_what_lies_beside_a_file_goes_before_the_current_folder(package: Path) -> None:
    (package / "beside.py").write_text("raise ValueError")
    (package / "shop" / "beside.py").write_text("from shop.rows import totals")
    (package / "shop" / "here.py").write_text("from beside import totals\nflow = totals()")
    assert load_flow("shop/here.py:flow").name == "totals"


def test_a_module_that_is_not_found_is_told_with_where_it_was_looked_for(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for init in package.rglob("__init__.py"):
        init.unlink()
    monkeypatch.chdir(package / "shop" / "flows")
    with pytest.raises(FlowNotFound, match="No module named 'shop'") as raised:
        load_flow("sales.py:flow")
    assert str(package / "shop" / "flows") in raised.value.fix
    with pytest.raises(FlowNotFound, match="relative import") as raised:
        load_flow("near.py:flow")
    assert raised.value.fix == (
        "make its folder a package by an __init__.py, or name it as package.module:flow"
    )


def test_the_name_of_a_file_may_hold_colons(folder: Path) -> None:
    odd = folder / "we ird,%:x"
    odd.mkdir()
    (odd / "co nd.py").write_text((folder / "flows.py").read_text())
    assert load_flow("we ird,%:x/co nd.py:totals").name == "totals"
    with pytest.raises(FlowNotFound, match=r"there is no file we ird,%:x/none\.py"):
        load_flow("we ird,%:x/none.py")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nothing:flow", "there is no module 'nothing'"),
        ("flows.inner:flow", "there is no module 'flows.inner'"),
        ("nothing.py:flow", "there is no file nothing.py"),
        ("flows:flaw", "flows has no 'flaw'\n\nFix: the flows there: flow"),
        ("flows:number", "'number' of flows is int, not a flow"),
        ("flows:failing", "flows:failing cannot be loaded: KeyError: 'nothing'\n\n  flows.py:33   return {}"),
        ("broken", "broken cannot be loaded: SyntaxError"),
        ("broken.py:flow", "broken.py:1   def f(:"),
        ("needy:flow", "needy cannot be loaded: ModuleNotFoundError: No module named 'not_there'"),
        ("two", "two has 2 flows: a, b"),
    ],
)
def test_what_is_wrong_is_said(folder: Path, name: str, text: str) -> None:
    (folder / "broken.py").write_text("def f(:\n")
    (folder / "needy.py").write_text("import not_there\n")
    (folder / "two.py").write_text("import headrace as hr\na = hr.Flow('a')\nb = hr.Flow('b')\n")
    with pytest.raises(FlowNotFound) as raised:
        load_flow(name)
    assert text in str(raised.value)


def test_a_function_that_says_it_makes_a_flow_counts_as_one(tmp_path: Path) -> None:
    made = "import headrace as hr\ndef made(name: str = 'made') -> hr.Flow:\n    return hr.Flow(name)\n"
    (tmp_path / "making.py").write_text(made)
    assert load_flow(str(tmp_path / "making.py")).name == "made"
    with pytest.raises(FlowNotFound, match="the flows there: made"):
        load_flow(f"{tmp_path / 'making.py'}:other")


def test_an_object_that_makes_a_flow_when_it_is_called_counts_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT)
    queries = ROOT / "examples" / "nexmark" / "queries" / "windows.py"
    with pytest.raises(FlowNotFound, match=r"the flows there: q5, q7, q8, q11, q12$"):
        load_flow(f"{queries}:zz")
    made = (
        "from examples.nexmark.queries.query import Query\nfrom examples.nexmark.queries.windows import q5\n"
    )
    (tmp_path / "one.py").write_text(made)
    assert load_flow(str(tmp_path / "one.py")).name == "nexmark q5"


def test_a_module_without_flows_is_told_what_is_one(tmp_path: Path) -> None:
    (tmp_path / "none.py").write_text("def made():\n    pass\n")
    with pytest.raises(FlowNotFound) as raised:
        load_flow(f"{tmp_path / 'none.py'}:other")
    assert raised.value.fix == "nothing in it is a flow, or says by `-> Flow` that it makes one"


def test_a_mistake_in_the_flow_is_told_as_what_it_is(folder: Path) -> None:
    (folder / "wrong.py").write_text((folder / "flows.py").read_text().replace("col.price", "col.shop + 1"))
    with pytest.raises(WrongType):
        load_flow("wrong:flow")
