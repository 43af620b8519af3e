"""Sources and sinks as text, for the command line.

json:PATH  csv:PATH  parquet:PATH             sources; a plain path by its ending
    ?dead_letter=FOLDER&files_per_tick=N
changelog:PATH  table:PATH?key=a,b&buckets=N  sinks
print:  or  -                                 sink: lines on standard output
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import parse_qsl

from penstock.errors import BadUri
from penstock.io.changelog import Changelog
from penstock.io.csv_files import CsvFiles
from penstock.io.files import Files
from penstock.io.json_files import JsonFiles
from penstock.io.parquet_files import ParquetFiles
from penstock.io.print_rows import Print
from penstock.io.sink import SinkTarget
from penstock.io.source import Source
from penstock.io.table_files import TableFiles

Options = dict[str, str]

_ENDINGS: Mapping[str, type[Files]] = {
    ".json": JsonFiles,
    ".jsonl": JsonFiles,
    ".ndjson": JsonFiles,
    ".csv": CsvFiles,
    ".parquet": ParquetFiles,
}


def parse_source(uri: str) -> Source:
    """The source that a URI names. Raises `BadUri`, saying which there are."""
    scheme, path, options = split(uri)
    kind = _FILES.get(scheme) if scheme else _ENDINGS.get(ending(path))
    if kind is None:
        raise BadUri(
            f"{uri!r} names no source" if scheme else f"{uri!r} does not say which kind of files it is",
            fix=f"write {', '.join(f'{name}:PATH' for name in _FILES)}, "
            f"or a path that ends in {', '.join(_ENDINGS)}",
            uri=uri,
        )
    source = kind(
        need_path(uri, path),
        dead_letter=options.pop("dead_letter", None),
        files_per_tick=number(uri, options, "files_per_tick"),
    )
    refuse_rest(uri, options, ("dead_letter", "files_per_tick"))
    return source


def parse_sink(uri: str) -> SinkTarget:
    """The sink that a URI names. Raises `BadUri`, saying which there are."""
    scheme, path, options = split("print:" if uri == "-" else uri)
    make = _SINKS.get(scheme)
    if make is None:
        raise BadUri(
            f"{uri!r} names no sink",
            fix="write changelog:PATH, table:PATH?key=COLUMN,..., print: or -",
            uri=uri,
        )
    return make(uri, path, options)


def _changelog(uri: str, path: str, options: Options) -> SinkTarget:
    refuse_rest(uri, options, ())
    return Changelog(need_path(uri, path))


def _table(uri: str, path: str, options: Options) -> SinkTarget:
    key = options.pop("key", None)
    buckets = number(uri, options, "buckets")
    refuse_rest(uri, options, ("key", "buckets"))
    return TableFiles(need_path(uri, path), key.split(",") if key else None, buckets or 16)


def _print(uri: str, path: str, options: Options) -> SinkTarget:
    refuse_rest(uri, options, ())
    if path:
        raise BadUri(f"{uri!r}: print: takes no path", fix="write print: or -", uri=uri)
    return Print()


_FILES: Mapping[str, type[Files]] = {"json": JsonFiles, "csv": CsvFiles, "parquet": ParquetFiles}
_SINKS: Mapping[str, Callable[[str, str, Options], SinkTarget]] = {
    "changelog": _changelog,
    "table": _table,
    "print": _print,
}

# --- parts of a URI --------------------------------------------------------------------


def split(uri: str) -> tuple[str, str, Options]:
    """Scheme (empty for a plain path), path, options. Raises `BadUri` for options that are not name=value."""
    head, question, query = uri.partition("?")
    if question and "=" not in query:
        head, query = uri, ""  # a pattern: in/part-?.json
    scheme, colon, path = head.partition(":")
    if not colon or len(scheme) < 2 or not scheme.isalnum():  # C:\data is a path
        scheme, path = "", head
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError as error:
        raise BadUri(f"{uri!r}: its options are not name=value&name=value", uri=uri) from error
    return scheme.lower(), path, dict(pairs)


def ending(path: str) -> str:
    name = Path(path)
    return Path(name.stem).suffix if name.suffix == ".gz" else name.suffix


def need_path(uri: str, path: str) -> str:
    if not path:
        raise BadUri(f"{uri!r} names no path", uri=uri)
    return path


def number(uri: str, options: Options, name: str) -> int | None:
    text = options.pop(name, None)
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise BadUri(f"{uri!r}: {name} is a number from 1, not {text!r}", uri=uri)
    return int(text)


def refuse_rest(uri: str, options: Options, known: tuple[str, ...]) -> None:
    if options:
        raise BadUri(
            f"{uri!r} has the option {next(iter(options))!r}, which is none",
            fix=f"there {'is' if len(known) == 1 else 'are'} {', '.join(known)}" if known else "leave it out",
            uri=uri,
        )
