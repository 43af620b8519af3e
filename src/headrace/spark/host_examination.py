"""Findings of `headrace doctor`, and the examination of this machine.

Python, packages, Java, memory, disk and sockets are examined; no program but `java` runs. A finding is one
sentence, with the command or setting that fixes it."""

from __future__ import annotations

import importlib.metadata
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from headrace.errors import SparkUnavailable
from headrace.spark.jvm import Java, find_java


class Level(Enum):
    """Severity of a finding.

    OK:      as it should be.
    SLOW:    works, but costs time or space.
    MEANING: works, and may answer otherwise than the flow means, in the cases told.
    BROKEN:  flows do not run on Spark like this.
    """

    OK = "ok"
    SLOW = "slow"
    MEANING = "meaning"
    BROKEN = "broken"


_WIDTH = 8


@dataclass(frozen=True, slots=True)
class SparkFinding:
    """Finding of an examination.

    about: its subject. text: the observation. fix: a line to copy, empty if not needed.
    """

    about: str
    level: Level
    text: str
    fix: str = ""

    def __str__(self) -> str:
        fix = f"\n{'':<{_WIDTH}}  {self.fix}" if self.fix else ""
        return f"{self.level.value:<{_WIDTH}} {self.about}: {self.text}{fix}"

    def to_json(self) -> dict[str, str]:
        return {"about": self.about, "level": self.level.value, "text": self.text, "fix": self.fix}


@dataclass(frozen=True, slots=True)
class Examination:
    """Findings in the order of the examination."""

    findings: tuple[SparkFinding, ...]

    @property
    def broken(self) -> bool:
        """Return whether a finding prevents flows from running on Spark."""
        return any(finding.level is Level.BROKEN for finding in self.findings)

    def at(self, *levels: Level) -> tuple[SparkFinding, ...]:
        return tuple(finding for finding in self.findings if finding.level in levels)

    def __str__(self) -> str:
        return "\n".join(map(str, self.findings))


def ok(about: str, text: str) -> SparkFinding:
    return SparkFinding(about, Level.OK, text)


def examination(*parts: Iterable[SparkFinding]) -> Examination:
    return Examination(tuple(finding for part in parts for finding in part))


OLDEST_PYTHON = (3, 11)
_INSTALL = "pip install 'headrace[spark]'"
_GB = 1 << 30

# A JVM with a heap of 1 GB takes 1.5 with what is beside the heap; a Python worker a tenth.
_LEAST_MEMORY = 0.8 * _GB
_ENOUGH_MEMORY = 2.0 * _GB
_LEAST_DISK = 0.1 * _GB
_ENOUGH_DISK = 2.0 * _GB

# Spark appends a name of about 45 bytes to the folder; a path of a socket has 108 at most.
_LONGEST_SOCKET_FOLDER = 60


@dataclass(frozen=True, slots=True)
class PackageRequirement:
    """A package that Spark or flows on it need, with supported versions: from `least` to below `below`."""

    name: str
    least: tuple[int, ...]
    below: tuple[int, ...] | None
    why: str


PACKAGES = (
    PackageRequirement("pyspark", (4, 3), (4, 4), "Headrace is made for and tried with Spark 4.3"),
    PackageRequirement("pyarrow", (18,), None, "rows and state are in Arrow's format"),
    PackageRequirement(
        "pandas", (2, 2), (3,), "PySpark asks for it before it passes batches, and does not know pandas 3"
    ),
    PackageRequirement("polars", (2, 1), None, "large ticks are computed with it"),
    PackageRequirement("msgpack", (1, 0, 8), None, "values of state are written with it"),
    PackageRequirement("xxhash", (3, 4), None, "rows are divided by hashes of their keys"),
)

Version = Callable[[str], str]


def examine_machine(environ: Mapping[str, str] | None = None) -> Iterator[SparkFinding]:
    """Yield findings about the machine and this Python."""
    environ = os.environ if environ is None else environ
    yield python_findings()
    yield from (package_findings(package) for package in PACKAGES)
    java = java_findings(environ)
    yield java[0]
    if java[1] is not None:
        yield archive_findings(java[1])
    yield workers_python_found(environ)
    yield memory_findings(available_memory())
    yield disk_findings(Path(tempfile.gettempdir()))
    yield socket_findings(tempfile.gettempdir())
    yield from program_findings(environ.get("PATH", ""))


def python_findings(version: tuple[int, ...] = sys.version_info[:3]) -> SparkFinding:
    text = f"{'.'.join(map(str, version))} at {sys.executable}"
    if version[:2] < OLDEST_PYTHON:
        return SparkFinding("python", Level.BROKEN, f"{text} is too old", "install Python 3.11 or newer")
    return ok("python", text)


def without_spark() -> SparkFinding:
    """Return the finding for a machine without PySpark, when Spark was not requested."""
    text = "not installed; flows on Spark, new queries in SQL and pipelines need it"
    return ok("spark", f"{text}: {_INSTALL}")


def package_findings(
    package: PackageRequirement, version_of: Version = importlib.metadata.version
) -> SparkFinding:
    try:
        text = version_of(package.name)
    except importlib.metadata.PackageNotFoundError:
        return SparkFinding(package.name, Level.BROKEN, f"not installed; {package.why}", _INSTALL)
    version = _numbers(text)
    if version < package.least:
        return SparkFinding(package.name, Level.BROKEN, f"{text} is too old; {package.why}", _INSTALL)
    if package.below is not None and version >= package.below:
        return SparkFinding(
            package.name, Level.SLOW, f"{text} is newer than it should be; {package.why}", _INSTALL
        )
    return ok(package.name, text)


def java_findings(environ: Mapping[str, str]) -> tuple[SparkFinding, Java | None]:
    """Return findings about the Java that `headrace.spark.session` would use, and whether it runs."""
    try:
        java = find_java(environ)
    except SparkUnavailable as error:
        reasons = "; ".join(str(r) for r in getattr(error, "refused", ()))
        return SparkFinding("java", Level.BROKEN, f"none that Spark runs on ({reasons})", _INSTALL), None
    text = f"{java.release}, by {java.origin}, at {java.home}"
    command = [str(java.program), "-version"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        problem = "" if said.returncode == 0 else (said.stderr.strip() or "it said nothing").splitlines()[-1]
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = str(error)
    if problem:
        return SparkFinding(
            "java", Level.BROKEN, f"{text}, does not run: {problem}", "unset JAVA_HOME; " + _INSTALL
        ), None
    return ok("java", text), java


def archive_findings(java: Java) -> SparkFinding:
    from headrace.spark.jvm import archive_of

    try:
        archive = archive_of(java)
    except ImportError:
        return SparkFinding("class archive", Level.SLOW, "none without PySpark", _INSTALL)
    if archive.is_file():
        return ok("class archive", f"there: {archive}")
    text = "not there: Spark takes about twice as long to start"
    return SparkFinding("class archive", Level.SLOW, text, f"{shlex.quote(sys.executable)} -m headrace.spark")


def workers_python_found(environ: Mapping[str, str]) -> SparkFinding:
    """Return findings about the Python that Spark uses for workers in sessions not started by Headrace."""
    about = "workers' python"
    named = environ.get("PYSPARK_PYTHON", "")
    program = shutil.which(named or "python3", path=environ.get("PATH", ""))
    fix = f"export PYSPARK_PYTHON={shlex.quote(sys.executable)}"
    if program is None:
        text = (
            f"{named or 'python3'} is not on PATH; headrace.spark.session() does not need it, your own would"
        )
        return SparkFinding(about, Level.SLOW, text, fix)
    if os.path.samefile(program, sys.executable) and _same_environment(program):
        return ok(about, program)
    found = _worker(program)
    described = f"{program} ({'PYSPARK_PYTHON' if named else 'python3 on PATH'})"
    if found:
        text = f"{described} {found}; sessions that you start yourself would take it"
        return SparkFinding(about, Level.BROKEN if named else Level.SLOW, text, fix)
    return ok(about, described)


_ASK_WORKER = "import sys, pyarrow, polars, msgpack, xxhash; print('%d.%d' % sys.version_info[:2])"


def _same_environment(program: str) -> bool:
    # A virtual environment's python is a link to the one outside: the same file, and other packages.
    return Path(program).absolute().parent == Path(sys.executable).absolute().parent


def _worker(program: str) -> str:
    """Return the problem with a worker's interpreter; empty if there is none."""
    try:
        said = subprocess.run(
            [program, "-c", _ASK_WORKER], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not run ({error})"
    if said.returncode != 0:
        return "fails: " + (said.stderr.strip() or "it said nothing").splitlines()[-1]
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    version = said.stdout.strip()
    return "" if version == here else f"is Python {version}, and this is {here}"


def available_memory() -> int | None:
    """Return the available memory in bytes, of the machine or the container; None if unknown."""
    free = _from_meminfo()
    limit = _number(Path("/sys/fs/cgroup/memory.max"))
    used = _number(Path("/sys/fs/cgroup/memory.current"))
    if limit is not None and used is not None:
        inside = limit - used
        return inside if free is None else min(free, inside)
    return free


def memory_findings(free: int | None) -> SparkFinding:
    if free is None:
        return ok("memory", "this system does not tell how much is free")
    text = f"{free / _GB:.1f} GB free"
    if free < _LEAST_MEMORY:
        text += "; a session takes 0.7 GB at least"
        return SparkFinding(
            "memory", Level.BROKEN, text, 'end something; spark = headrace.spark.session(memory="512m")'
        )
    if free < _ENOUGH_MEMORY:
        text += "; a session with a heap of 1 GB takes 1.5 GB, and 0.1 GB per Python worker"
        return SparkFinding("memory", Level.SLOW, text, 'spark = headrace.spark.session(memory="512m")')
    return ok("memory", text)


def disk_findings(folder: Path) -> SparkFinding:
    about = "temporary files"
    fix = "export TMPDIR=/a/folder/with/space"
    try:
        with tempfile.TemporaryFile(dir=folder):
            free = shutil.disk_usage(folder).free
    except OSError as error:
        return SparkFinding(about, Level.BROKEN, f"{folder} cannot be written: {error.strerror}", fix)
    text = f"{free / _GB:.1f} GB free in {folder}"
    if free < _ENOUGH_DISK:
        level = Level.BROKEN if free < _LEAST_DISK else Level.SLOW
        return SparkFinding(about, level, f"{text}; shuffles and logs go there", fix)
    return ok(about, text)


def socket_findings(folder: str) -> SparkFinding:
    about = "unix sockets"
    slow = "each Python stage of a tick waits some 40 ms for TCP"
    if os.name != "posix":
        return SparkFinding(about, Level.SLOW, f"this system has none: {slow}")
    if len(folder) > _LONGEST_SOCKET_FOLDER - 20:
        return SparkFinding(
            about, Level.SLOW, f"{folder} is too long a path for them: {slow}", "export TMPDIR=/tmp"
        )
    try:
        with tempfile.TemporaryDirectory(dir=folder) as inside, socket.socket(socket.AF_UNIX) as probe:
            probe.bind(f"{inside}/socket")
    except OSError as error:
        return SparkFinding(
            about, Level.SLOW, f"none can be made in {folder} ({error}): {slow}", "export TMPDIR=/tmp"
        )
    return ok(about, f"can be made in {folder}")


def program_findings(path: str) -> Iterator[SparkFinding]:
    """Yield findings about system programs called by Hadoop's file code and Spark's scripts."""
    missing = [name for name in ("chmod", "readlink") if shutil.which(name, path=path) is None]
    if os.name == "posix" and missing:
        text = f"{' and '.join(missing)} not on PATH, which Spark starts for files"
        yield SparkFinding("programs", Level.BROKEN, text, "export PATH=$PATH:/usr/bin:/bin")
    if shutil.which("bash", path=path) is None:
        yield SparkFinding(
            "programs",
            Level.SLOW,
            "bash not on PATH: headrace.spark.session() does without, spark-submit does not",
        )


def _numbers(version: str) -> tuple[int, ...]:
    """Parse a version number: (4, 3, 0) for "4.3.0" and for "4.3.0.dev1"."""
    numbers: list[int] = []
    for piece in version.split("."):
        if not piece.isdigit():
            break
        numbers.append(int(piece))
    return tuple(numbers)


def _from_meminfo() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(found[0]) * 1024 if found else None


def _number(file: Path) -> int | None:
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
