"""The spec file of a pipeline project: `spark-pipeline.yml`, as `spark-pipelines` reads it."""

from __future__ import annotations

import glob
import linecache
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.errors import BadUri, SourceLocation, WrongType
from headrace.file_system import local_path
from headrace.pipelines.errors import BadSpec
from headrace.pipelines.event_log import RETENTION, Retention

NAMES = ("spark-pipeline.yml", "spark-pipeline.yaml")
_FIELDS = ("name", "storage", "catalog", "database", "schema", "configuration", "libraries")
_REQUIRED = ("name", "storage")

VERSION_RETENTION = "headrace.version_retention"
"""Setting of a project: which earlier runs can be gone back to, such as "7 days" or "30 runs"."""


@dataclass(frozen=True, slots=True)
class PipelineSpec:
    """A pipeline project.

    file:          the spec; its folder is the project's root.
    storage:       folder of tables, state and catalogue.
    database:      of names without one.
    configuration: settings of the Spark session.
    patterns:      of the project's files, relative to its root, with the line of each.
    event_retention: of the event log.
    version_retention: of earlier runs, for diff and rollback; None for the one before only.
    """

    file: Path
    name: str
    storage: Path
    database: str
    configuration: Mapping[str, str]
    patterns: tuple[tuple[str, int], ...]
    event_retention: Retention
    version_retention: Retention | None = None

    @property
    def root(self) -> Path:
        return self.file.parent

    def files(self) -> Iterator[tuple[Path, SourceLocation]]:
        """Yield the project's files with the line of the spec that names each, in the order of their names.

        A file that several lines name comes once. Raises `BadSpec` for one that is neither Python nor SQL.
        """
        seen: set[Path] = set()
        for pattern, line in self.patterns:
            location = SourceLocation(str(self.file), line)
            for file in sorted(self.root.glob(pattern)):
                if not file.is_file() or "__pycache__" in file.parts or file in seen:
                    continue
                if file.suffix not in (".py", ".sql"):
                    raise BadSpec(
                        f"{file.relative_to(self.root)} is neither Python nor SQL",
                        where=[location],
                        why="Each file that the pattern finds is part of the pipeline.",
                        fix="move the file out of this folder, or name folders or files more narrowly",
                        field="libraries",
                    )
                seen.add(file)
                yield file, location


def settings_of(spec: PipelineSpec) -> Mapping[str, str]:
    """Return the Spark settings in a project's configuration."""
    return {key: value for key, value in spec.configuration.items() if not key.startswith("headrace.")}


def find_spec(folder: Path) -> Path:
    """Find the spec file in a folder or the nearest one above it. Raises `BadSpec`."""
    for at in (folder, *folder.parents):
        found = [at / name for name in NAMES if (at / name).is_file()]
        if len(found) > 1:
            raise BadSpec(
                f"{at} has two spec files: {' and '.join(NAMES)}", fix="remove one, or name it by --spec"
            )
        if found:
            return found[0]
    raise BadSpec(
        f"there is no spec file in {folder} or above it",
        fix="go to the project's folder, or give --spec PATH",
    )


def spec_of(path: Path) -> Path | None:
    """Return the spec of the project that a file, or its folder, belongs to; None if there is none.

    A malformed spec counts, as it may mean to name the file.
    """
    path = path.resolve()
    specs = (at / name for at in (path, *path.parents) for name in NAMES if (at / name).is_file())
    spec = next(specs, None)
    if spec is None or path.is_dir() or path == spec:
        return spec
    try:
        return spec if path in (file for file, _ in read_spec(spec).files()) else None
    except BadSpec:
        return spec


def read_spec(file: Path) -> PipelineSpec:
    """Read a spec file. Raises `BadSpec` with the line."""
    linecache.checkcache()  # Errors quote the file as it is now.
    try:
        import yaml
    except ImportError as missing:
        raise BadSpec(
            "reading a spec file needs one more package",
            why=str(missing),
            fix="pip install 'headrace[pipelines]'",
        ) from missing
    try:
        text = file.read_text(encoding="utf-8")
        given, node = yaml.safe_load(text), yaml.compose(text, yaml.SafeLoader)
    except (OSError, UnicodeDecodeError) as error:
        raise BadSpec(
            f"the spec file {file} cannot be read", why=f"{error}.", fix="correct --spec"
        ) from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise BadSpec(
            "the spec file is not YAML",
            where=[SourceLocation(str(file), line)],
            why=f"{error.problem}.",
            fix="correct this line",
        ) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadSpec("the spec file is not YAML", why=f"{error}.", fix="write it anew") from error
    lines = {key.value: key.start_mark.line + 1 for key, _ in node.value} if isinstance(given, dict) else {}
    return _Reader(file, given, lines).spec()


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reader of the parsed content of a spec. lines: line numbers of the fields."""

    file: Path
    given: Any
    lines: Mapping[str, int]

    def spec(self) -> PipelineSpec:
        if not isinstance(self.given, dict):
            raise BadSpec("the spec file has no fields", where=[self._at("")], fix="name: NAME, storage: ...")
        for field in self.given:
            if field not in _FIELDS:
                raise self._bad(str(field), "is no field of a spec", f"give only {', '.join(_FIELDS)}")
        for field in _REQUIRED:
            if field not in self.given:
                raise self._bad(field, "is missing", f"add the line `{field}: ...`")
        configuration = self._configuration()
        database = self._text("database" if "database" in self.given else "schema", "default")
        if self._text("catalog", "spark_catalog") != "spark_catalog":
            raise self._bad("catalog", "is not spark_catalog", "remove it: tables lie under the storage")
        return PipelineSpec(
            self.file.resolve(),
            self._text("name", ""),
            self._storage(),
            database,
            configuration,
            tuple(self._patterns()),
            self._retention(configuration, RETENTION) or Retention(),
            self._retention(configuration, VERSION_RETENTION),
        )

    def _storage(self) -> Path:
        text = self._text("storage", "")
        try:
            path = Path(local_path(text, "storage"))
        except BadUri as error:
            raise BadSpec(
                f"'storage' is {text!r}",
                where=[self._at("storage")],
                why=error.why,
                fix="a folder of this machine, or file:///...",
                field="storage",
            ) from None
        if "\0" in text:
            raise self._no_folder(text)
        # Spark names files without `..`, and takes some characters for patterns.
        whole = (self.file.resolve().parent / path).resolve()
        try:
            there = whole.exists()
        except OSError:  # Its name is too long.
            raise self._no_folder(text) from None
        if set("*?[]{}:\\") & set(str(whole)) or (there and not whole.is_dir()):
            raise self._no_folder(text)
        return whole

    def _no_folder(self, text: str) -> BadSpec:
        fix = "a folder of this machine, or file:///..., without * ? [ ] { } : and \\ in its path"
        return self._bad("storage", f"is {text!r}, no folder", fix)

    def _text(self, field: str, default: str) -> str:
        value = self.given.get(field, default)
        if not isinstance(value, str) or (field in _REQUIRED and not value):
            raise self._bad(field, f"is {value!r}, not a text", f"{field}: NAME")
        return value

    def _configuration(self) -> Mapping[str, str]:
        given = self.given.get("configuration") or {}
        if not isinstance(given, dict):
            raise self._bad(
                "configuration", "is not a mapping", "configuration: {spark.some.setting: 'text'}"
            )
        for key, value in given.items():
            if not isinstance(key, str) or not isinstance(value, str):
                raise self._bad(
                    "configuration",
                    f"has {key!r}: {value!r}",
                    "settings are texts: write the value in quotes",
                )
        return given

    def _retention(self, configuration: Mapping[str, str], setting: str) -> Retention | None:
        text = configuration.get(setting)
        if text is None:
            return None
        try:
            return Retention.parse(text)
        except WrongType:
            fix = "a time or a number of runs, such as '90 days' or '1000 runs'"
            raise self._bad("configuration", f"has {setting}: {text!r}", fix) from None

    def _patterns(self) -> Iterator[tuple[str, int]]:
        listed = self.given.get("libraries") or []
        fix = "libraries: [{glob: {include: transformations/**}}]"
        if not isinstance(listed, Sequence) or isinstance(listed, str):
            raise self._bad("libraries", "is not a list", fix)
        for entry in listed:
            try:
                pattern = entry["glob"]["include"]
            except (TypeError, KeyError):
                pattern = None
            if not isinstance(pattern, str):
                raise self._bad("libraries", f"has {entry!r}", fix)
            folder = pattern.removesuffix("/**")
            if not folder.strip("./"):
                raise self._bad("libraries", f"has the pattern {pattern!r}", fix)
            if glob.has_magic(folder):
                raise self._bad(
                    "libraries", f"has the pattern {pattern!r}", "give a file, or a folder with /** behind it"
                )
            if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
                raise self._bad(
                    "libraries", f"has the pattern {pattern!r}", "give a path inside the project's folder"
                )
            yield (pattern if folder == pattern else f"{pattern}/*"), self.lines.get("libraries", 1)

    def _at(self, field: str) -> SourceLocation:
        return SourceLocation(str(self.file), self.lines.get(field, 1))

    def _bad(self, field: str, what: str, fix: str) -> BadSpec:
        return BadSpec(f"{field!r} {what}", where=[self._at(field)], fix=fix, field=field)
