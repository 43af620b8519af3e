"""Java regular expressions on RE2, which matches in time linear in the text.

Where strangers give patterns and texts, a backtracking engine lets a row of fifty characters occupy a process
for hours. The meaning stays Java's, as `headrace.expr.java_patterns` spells it out; what RE2 cannot express
is refused by name: look-around, back references, possessive and atomic groups, `\\b`, ends of lines within
the text, and repetitions of what may be empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from string import ascii_letters
from typing import Any, NoReturn

from headrace.errors import EvaluationError
from headrace.expr.java_patterns import Translation, java_pattern
from headrace.requirements import require_package

_MEMORY = 2 << 20
"""Bytes that RE2 may use for one pattern. A pattern that needs more is refused."""
_MAX_PATTERN = 2_000
"""Limit on the characters of a pattern, which a row may give: to translate it takes longer than to match."""
_LAST_END = r"(?:\z|(?P<x_{0}>[\n\r\x{{85}}\x{{2028}}\x{{2029}}])\z)"
_LAST_END_AFTER_CRLF = r"(?:\z|(?P<x_{0}>\r\n)\z)"
_CODE = re.compile(r"\\u([0-9a-f]{4})|\\U([0-9a-f]{8})")


def _refuse(pattern: str, what: str) -> NoReturn:
    raise EvaluationError(
        f"the regular expression {pattern!r} has {what}, which cannot be matched in linear time",
        why="Served expressions are matched by RE2, so that no row can hold up the readers.",
        fix="write it without, or test in several steps (contains, starts_with, split)",
    )


@lru_cache(maxsize=128)
def linear_pattern(pattern: str) -> LinearPattern:
    """Compile a Java regular expression for RE2.

    Raises `EvaluationError` for one that is wrong, or that RE2 cannot follow.
    """
    if len(pattern) > _MAX_PATTERN:
        size = f"{len(pattern):,} characters, and {_MAX_PATTERN:,} is the limit where it is served"
        raise EvaluationError(f"a regular expression has {size}")
    java_pattern(pattern)
    found = LinearPattern(pattern)
    assert found.groups >= 0  # compiled, so that what is too large is refused now
    return found


@lru_cache(maxsize=128)
def linear_like(pattern: str) -> Any:
    """Return a function that matches whole texts with a translated pattern of `LIKE`."""
    compiled = _compiled(pattern, pattern)

    def match(text: str) -> Any:
        return compiled.fullmatch(_encoded(text))

    return match


class LinearPattern:
    """Compiled pattern with the part of the `re.Pattern` interface that the functions use.

    pattern: empty if that of Java matches the empty text only, since it has no parts.
    """

    def __init__(self, java: str) -> None:
        self._java = java
        self._markers = 0
        self.pattern = self._translated(after_crlf=False)

    def _translated(self, *, after_crlf: bool) -> str:
        translation = _LinearTranslation(self._java, after_crlf=after_crlf)
        found = _CODE.sub(lambda code: f"\\x{{{code[1] or code[2]}}}", translation.alternatives())
        self._markers = translation.markers
        return found

    @cached_property
    def _usual(self) -> Any:
        return _compiled(self.pattern, self._java)

    @cached_property
    def _after_crlf(self) -> Any:
        """Pattern for texts that end with CR LF, between which `$` does not match."""
        return _compiled(self._translated(after_crlf=True), self._java) if self._markers else self._usual

    @cached_property
    def _numbers(self) -> tuple[int, ...]:
        """Group numbers in the translated pattern: of the whole match, then of Java's groups."""
        names = self._usual.groupindex
        markers = {at for name, at in names.items() if name.startswith(b"x_")}
        return tuple(at for at in range(self._usual.groups + 1) if at not in markers)

    @property
    def groups(self) -> int:
        return len(self._numbers) - 1

    @property
    def groupindex(self) -> dict[str, int]:
        names = self._usual.groupindex.items()
        return {name.decode(): self._numbers.index(at) for name, at in names if at in self._numbers}

    def search(self, text: str) -> LinearMatch | None:
        """Return the first match."""
        compiled = self._after_crlf if text.endswith("\r\n") else self._usual
        if compiled.search(_encoded(text)) is None:
            return None  # as of most rows, and faster
        return next(self.matches(text))

    def matches(self, text: str) -> Iterator[LinearMatch]:
        """Yield matches as Java finds them: after an empty one, the next starts a character later."""
        compiled = self._after_crlf if text.endswith("\r\n") else self._usual
        data = _encoded(text)
        plain = len(data) == len(text)
        at = characters = seen = 0
        while at <= len(data):
            found = compiled.search(data, at)
            if found is None:
                return
            spans = [found.span(number) for number in range(compiled.groups + 1)]
            if self._markers:
                spans = self._without_last_end(spans)
            start, end = spans[0]
            if plain:
                first = start
            else:
                characters += len(data[seen:start].decode())
                first, seen = characters, start
            yield LinearMatch(self, data, [spans[number] for number in self._numbers], first)
            at = end if end > start else _next_character(data, end)

    def _without_last_end(self, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
        # `$` is before a last end of line, which RE2 had to match: nothing reaches into it.
        ends = [start for at, (start, _) in enumerate(spans) if start >= 0 and at not in self._numbers]
        last = min(ends, default=None)
        return spans if last is None else [(min(a, last), min(b, last)) for a, b in spans]


@dataclass(frozen=True, slots=True)
class LinearMatch:
    """Match of a pattern in an encoded text. spans: of the match and its groups; -1 for unmatched groups."""

    re: LinearPattern
    _data: bytes
    _spans: list[tuple[int, int]]
    _start: int

    def __getitem__(self, group: int) -> str | None:
        start, end = self._spans[group]
        return None if start < 0 else self._data[start:end].decode()

    def start(self) -> int:
        return self._start

    def end(self) -> int:
        start, end = self._spans[0]
        return self._start + len(self._data[start:end].decode())


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise EvaluationError(f"the text has half of a surrogate pair ({error})") from error


def _without_fold(source: str) -> str:
    """Return an equivalent of a class of one letter's two cases.

    RE2 takes it for a letter in any case, to which some classes add the long s and the sign of Kelvin.
    """
    letters = _CODE.sub(lambda code: chr(int(code[1] or code[2], 16)), source[1:-1])
    both = {part[0] for part in re.findall(r"(\w)(?:-\1)?", letters)}
    if re.fullmatch(r"(?:(\w)(?:-\1)?)+", letters) and len(both) == 2 and len({b.lower() for b in both}) == 1:
        return f"(?:{'|'.join(sorted(both))})"
    return source


def _next_character(data: bytes, at: int) -> int:
    at += 1
    while at < len(data) and data[at] & 0xC0 == 0x80:
        at += 1
    return at


def _compiled(pattern: str, shown: str) -> Any:
    require_package("a served expression", "re2", "serve")
    import re2  # pyright: ignore[reportMissingTypeStubs]

    library: Any = re2
    options = library.Options()
    options.log_errors = False
    options.max_mem = _MEMORY
    try:
        return library.compile(pattern.encode(), options)
    except library.error as error:
        _refuse(shown, f"a part that is too large ({error})")


@dataclass(slots=True)
class _LinearTranslation(Translation):
    """One pass over a pattern, to RE2's syntax.

    after_crlf: whether the text ends with CR LF. markers: groups made for `$`.
    ended, empty: whether the last part reached the end of the text, or may match the empty text.
    """

    after_crlf: bool = False
    markers: int = 0
    ended: bool = False
    empty: bool = False

    def stop(self, what: str) -> NoReturn:
        _refuse(self.pattern, what)

    def alternatives(self) -> str:
        before, parts = self.flags, list[str]()
        ended, empty = False, False
        self.ended, so_far_empty = False, True
        while self.at < len(self.pattern) and self.peek() != ")":
            if self.taken("|"):
                ended, empty = ended or self.ended, empty or so_far_empty
                self.ended, so_far_empty = False, True
                parts.append("|")
                continue
            was_ended, self.empty = self.ended, False
            part = self.repeated()
            if not part:
                continue
            if was_ended:
                self.stop("a $ before its end")
            so_far_empty &= self.empty
            parts.append(part)
        self.flags = before
        self.ended, self.empty = ended or self.ended, empty or so_far_empty
        return "".join(parts)

    def quantified(self, atom: str, many: str) -> str:
        if many.endswith("+") and len(many) > 1:
            self.stop("a possessive repetition")
        if self.ended:
            self.stop("a repeated $")
        once = many[0] == "?"
        if self.empty and not once:
            self.stop("a repetition of what may be empty")
        self.empty = self.empty or many[0] in "*?" or many.startswith(("{0}", "{0,"))
        return f"{atom}{many}"

    def cased(self, source: str) -> str:
        """Return a class or an escaped character. Only ASCII letters have two cases, as in Java."""
        if source.startswith("["):
            return _without_fold(self.cased_class(source) if "i" in self.flags else source)
        character = source[-1]
        if "i" in self.flags and character in ascii_letters:
            return f"(?:{character.lower()}|{character.upper()})"
        return character if character in ascii_letters else f"\\x{{{ord(character):x}}}"

    def cased_class(self, source: str) -> str:
        negation = "^" if source.startswith("[^") else ""
        inside = source[1 + len(negation) : -1]
        there = re.compile(f"[{inside}]")
        others = "".join(letter.swapcase() for letter in ascii_letters if there.match(letter))
        return f"[{negation}{inside}{others}]"

    def start(self) -> str:
        if "m" in self.flags:
            self.stop("(?m) with ^")
        self.empty = True
        return r"(?:\A)"

    def end(self) -> str:
        if "m" in self.flags:
            self.stop("(?m) with $")
        return self.last_end()

    def last_end(self) -> str:
        self.ended = self.empty = True
        self.markers += 1
        return (_LAST_END_AFTER_CRLF if self.after_crlf else _LAST_END).format(self.markers)

    def group(self) -> str:
        if self.peek(2) in ("?=", "?!") or self.peek(3) in ("?<=", "?<!"):
            self.stop("a look-around")
        if self.peek(2) == "?>":
            self.stop("an atomic group")
        return Translation.group(self)

    def escape(self) -> str:
        match self.peek():
            case "b" | "B":
                self.stop("a boundary of words (\\b)")
            case "z":
                self.take()
                self.empty = True
                return r"(?:\z)"
            case "Z":
                self.take()
                return self.last_end()
            case "A":
                self.empty = True
            case _ if self.peek() and self.peek() in "k123456789":
                self.stop("a back reference")
            case _:
                pass
        return Translation.escape(self)
