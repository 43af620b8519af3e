"""The sdist and the wheel: what is in them, what they say of themselves, and that the wheel works alone."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest

import headrace

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
pytestmark = pytest.mark.verify

FLOW = """
import headrace as hr

flow = hr.Flow("numbers")
flow.sink("sum", flow.source("numbers", int).group_by().agg(sum=hr.sum(hr.col.value)))
print(hr.Engine(flow).tick(numbers=[1, 2]), hr.__file__)
"""


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an sdist, and a wheel that was built from it: that of `make dist`, or made here."""
    if made := os.environ.get("HEADRACE_DIST"):
        return Path(made).resolve()
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (wheel,) = dist.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def info(wheel: Path) -> str:
    """Folder of the wheel's metadata."""
    return f"{wheel.name.partition('-py3')[0]}.dist-info"


@pytest.fixture(scope="module")
def metadata(wheel: Path, info: str) -> Message:
    with zipfile.ZipFile(wheel) as files:
        return message_from_string(files.read(f"{info}/METADATA").decode())


def tracked(folder: str) -> set[str]:
    listed = subprocess.check_output(["git", "ls-files", folder], cwd=ROOT, text=True)
    return {path for path in listed.splitlines() if (ROOT / path).is_file()}


def test_the_wheel_holds_the_package_as_it_is_tracked_and_nothing_else(wheel: Path, info: str) -> None:
    with zipfile.ZipFile(wheel) as files:
        names = {name for name in files.namelist() if not name.startswith(f"{info}/")}
    assert names == {path.removeprefix("src/") for path in tracked("src/headrace")}
    assert "headrace/py.typed" in names


def test_licence_and_notice_are_in_the_wheel(wheel: Path, info: str) -> None:
    with zipfile.ZipFile(wheel) as files:
        for name in ("LICENSE", "NOTICE"):
            assert files.read(f"{info}/licenses/{name}") == (ROOT / name).read_bytes()


def test_the_sdist_holds_what_is_needed_to_build_test_and_read(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as files:
        names = {name.partition("/")[2] for name in files.getnames()}
    needed = {"pyproject.toml", "Makefile", "README.md", "LICENSE", "NOTICE", "CHANGELOG.md", "SECURITY.md"}
    for folder in ("src", "tests", "examples", "docs", "requirements"):
        needed |= tracked(folder)
    assert needed - names == set()


def test_the_metadata_are_complete(metadata: Message) -> None:
    assert (metadata["Name"], metadata["Version"]) == ("headrace", headrace.__version__)
    assert (metadata["License-Expression"], metadata["Requires-Python"]) == ("Apache-2.0", ">=3.11")
    assert metadata["Summary"] == PROJECT["description"]
    assert metadata.get_all("License-File") == ["LICENSE", "NOTICE"]
    assert set(metadata.get_all("Provides-Extra") or ()) == PROJECT["optional-dependencies"].keys()
    assert "Typing :: Typed" in (metadata.get_all("Classifier") or ())


def test_an_index_renders_the_readme_as_markdown(metadata: Message) -> None:
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert str(metadata.get_payload()).strip() == (ROOT / "README.md").read_text().strip()


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Programs of an environment that holds the wheel and what it requires, without any extra."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", str(wheel)]
    subprocess.run(pip, check=True, capture_output=True)
    return python.parent


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run([*map(str, command)], env=environment, capture_output=True, text=True)


def test_the_wheel_runs_a_flow_with_nothing_else_installed(environment: Path) -> None:
    done = run(environment / "python", "-c", FLOW)
    assert (done.returncode, done.stderr) == (0, "")
    sums, file = done.stdout.rsplit(maxsplit=1)
    assert "sum=3" in sums
    assert Path(file).is_relative_to(environment.parent)


def test_the_command_without_its_extra_says_what_to_install(environment: Path) -> None:
    done = run(environment / "headrace", "--version")
    assert (done.returncode, done.stdout) == (1, "")
    assert "pip install 'headrace[cli]'" in done.stderr
