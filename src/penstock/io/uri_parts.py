"""The parts of a URI: scheme, path, options; and what is wrong with one, without its secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl

from penstock.errors import BadUri
from penstock.io.postgres_server import without_password

# One letter is no scheme: C:\data is a path.
_SCHEME = re.compile(r"[A-Za-z0-9]{2,}(\+[A-Za-z0-9]+)?")


@dataclass(frozen=True, slots=True)
class Uri:
    """A URI in its parts; options are taken out one by one, and what is left is refused.

    shown:  the whole as it may be shown.
    scheme: in lower case, empty for a plain path.
    """

    shown: str
    scheme: str
    path: str
    options: dict[str, str]

    @classmethod
    def of(cls, text: str) -> Uri:
        """Raises `BadUri` for options that are not name=value, or given twice."""
        head, question, query = text.partition("?")
        if question and "=" not in query:
            head, query = text, ""  # a pattern: in/part-?.json
        scheme, colon, path = head.partition(":")
        if not colon or not _SCHEME.fullmatch(scheme):
            scheme, path = "", head
        # Options of Kafka may hold secrets under many names.
        is_kafka = scheme.lower().rpartition("+")[2] == "kafka"
        shown = f"{head}?..." if query and is_kafka else without_password(text)
        try:
            pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
        except ValueError:
            raise BadUri(f"{shown!r}: its options are not name=value&name=value", uri=shown) from None
        options = dict(pairs)
        if len(options) < len(pairs):
            twice = next(name for at, (name, _) in enumerate(pairs) if name in dict(pairs[:at]))
            raise BadUri(f"{shown!r} gives {twice} twice", fix=f"{twice}=one,two for several", uri=shown)
        return cls(shown, scheme.lower(), path, options)

    def error(self, problem: str, fix: str = "") -> BadUri:
        return BadUri(f"{self.shown!r}{problem}", fix=fix, uri=self.shown)

    @property
    def ending(self) -> str:
        name = Path(self.path)
        return Path(name.stem).suffix if name.suffix == ".gz" else name.suffix

    def need_path(self) -> str:
        if not self.path:
            raise self.error(" names no path")
        return self.path

    def take(self, name: str) -> str | None:
        return self.options.pop(name, None)

    def need(self, name: str) -> str:
        found = self.take(name)
        if not found:
            raise self.error(f" has no option {name}", f"write ...?{name}=...")
        return found

    def words(self, name: str) -> tuple[str, ...] | None:
        """An option with commas between words."""
        found = self.take(name)
        words = None if found is None else tuple(found.split(","))
        if words is not None and not all(words):
            raise self.error(f": {name} has an empty word", f"write {name}=one,two, or leave it out")
        return words

    def number(self, name: str, least: int = 1) -> int | None:
        text = self.take(name)
        if text is None:
            return None
        if not text.isdecimal() or int(text) < least:
            raise self.error(f": {name} is a number from {least}, not {text!r}")
        return int(text)

    def refuse_rest(self, *known: str) -> None:
        """Raises `BadUri` for an option that was not taken."""
        if self.options:
            raise self.error(
                f" has the option {next(iter(self.options))!r}, which is none",
                f"there {'is' if len(known) == 1 else 'are'} {', '.join(known)}" if known else "leave it out",
            )

    def rest(self) -> Mapping[str, str]:
        """All options that were not taken, which are passed on."""
        found = dict(self.options)
        self.options.clear()
        return found
