"""Translation of Java regular expressions to Python.

Syntax that both share can differ in meaning: `.` and `$` know six ends of lines in Java, `\\d`, `\\w`, `\\s`
and `(?i)` only ASCII, and `\\Z` is before a last end of line. The translation spells out Java's meaning; what
Python cannot express is refused by name.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NoReturn, Protocol

from headrace.errors import EvaluationError

_ENDS = "\\n\\r\\x85\\u2028\\u2029"
_LAST_END = r"(?=(?:\r\n|(?<!\r)\n|[\r\x85\u2028\u2029])?\Z)"
_END_OF_LINE = r"(?=\r\n|(?<!\r)\n|[\r\x85\u2028\u2029]|\Z)"
_START_OF_LINE = r"(?:(?!\Z)(?:\A|(?<=[\n\x85\u2028\u2029])|(?<=\r)(?!\n)))"
_CLASSES = {
    "d": "0-9",
    "w": "a-zA-Z0-9_",
    "s": " \\t\\n\\x0b\\f\\r",
    "h": " \\t\\xa0\\u1680\\u180e\\u2000-\\u200a\\u202f\\u205f\\u3000",
    "v": "\\n\\x0b\\f\\r\\x85\\u2028\\u2029",
}
_POSIX = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "ASCII": "\\x00-\\x7f",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": "!-/:-@\\[-`{-~",
    "Graph": "!-~",
    "Print": " -~",
    "Blank": " \\t",
    "Cntrl": "\\x00-\\x1f\\x7f",
    "XDigit": "0-9a-fA-F",
    "Space": " \\t\\n\\x0b\\f\\r",
}
_CASED = frozenset({"Lower", "Upper", "Lu", "Ll", "Lt"})
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_CATEGORIES = frozenset(
    [
        "L",
        "Lu",
        "Ll",
        "Lt",
        "Lm",
        "Lo",
        "M",
        "Mn",
        "Mc",
        "Me",
        "N",
        "Nd",
        "Nl",
        "No",
        "P",
        "Pc",
        "Pd",
        "Ps",
        "Pe",
        "Pi",
        "Pf",
        "Po",
        "S",
        "Sm",
        "Sc",
        "Sk",
        "So",
        "Z",
        "Zs",
        "Zl",
        "Zp",
    ]
)
_REPEATED = re.compile(r"\{\d+(?:,\d*)?\}", re.ASCII)
_GROUP_NAME = re.compile(r"<([a-zA-Z][a-zA-Z0-9]*)>")
_FLAGS = re.compile(r"([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])")
_KNOWN_FLAGS = frozenset("ims")


def _refuse(pattern: str, what: str) -> NoReturn:
    raise EvaluationError(
        f"the regular expression {pattern!r} has {what}, which has no counterpart here",
        fix="write it with what Java and Python have in common",
    )


@lru_cache(maxsize=256)
def java_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a Java regular expression. Raises `EvaluationError` if it cannot be translated."""
    translated = Translation(pattern).alternatives()
    try:
        return re.compile(translated)
    except (re.error, OverflowError, RecursionError) as error:
        _refuse(pattern, f"an error or something else ({error})")


@lru_cache(maxsize=64)
def _category(name: str) -> str:
    """Return the content of a character class for a Unicode category."""
    ranges: list[tuple[int, int]] = []
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(chr(code)).startswith(name):
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1] = ranges[-1][0], code
            else:
                ranges.append((code, code))
    return "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in ranges)


@dataclass(slots=True)
class Translation:
    """One pass over a pattern. `at`: position of the next character. `flags`: the active flags."""

    pattern: str
    at: int = 0
    flags: frozenset[str] = frozenset()
    groups: int = 0
    closed: set[int] = field(default_factory=set[int])
    names: set[str] = field(default_factory=set[str])
    open: int = 0

    def refuse(self, what: str) -> NoReturn:
        _refuse(self.pattern, what)

    def peek(self, count: int = 1) -> str:
        return self.pattern[self.at : self.at + count]

    def take(self) -> str:
        if self.at >= len(self.pattern):
            self.refuse("an unexpected end")
        self.at += 1
        return self.pattern[self.at - 1]

    def taken(self, text: str) -> bool:
        """Consume a text if it is next; return whether it was."""
        if not self.pattern.startswith(text, self.at):
            return False
        self.at += len(text)
        return True

    def matched(self, syntax: re.Pattern[str], what: str) -> re.Match[str]:
        found = syntax.match(self.pattern, self.at)
        if found is None:
            self.refuse(what)
        self.at = found.end()
        return found

    # -- sequences ------------------------------------------------------------------------------

    def alternatives(self) -> str:
        """Translate up to the end of the group, or of the pattern."""
        before, parts = self.flags, list[str]()
        while self.at < len(self.pattern) and self.peek() != ")":
            parts.append("|" if self.taken("|") else self.repeated())
        self.flags = before
        if self.peek() == ")" and not self.open:
            self.refuse("a bracket that closes nothing")
        return "".join(parts)

    def repeated(self) -> str:
        if self.taken("\\Q"):
            return self.quoted()
        atom = self.atom()
        if not atom:
            return ""
        if self.peek() == "{":
            many = self.matched(_REPEATED, "a brace that repeats nothing").group()
        elif self.peek() and self.peek() in "*+?":
            many = self.take()
        else:
            return atom
        if self.peek() and self.peek() in "?+":
            many += self.take()
        if self.peek() and self.peek() in "*+?{":
            self.refuse("a repetition of a repetition")
        return self.quantified(atom, many)

    def quantified(self, atom: str, many: str) -> str:
        return f"{atom}{many}"

    def quoted(self) -> str:
        end = self.pattern.find("\\E", self.at)
        end = len(self.pattern) if end < 0 else end
        text, self.at = self.pattern[self.at : end], min(end + 2, len(self.pattern))
        if text and self.peek() and self.peek() in "*+?{":
            self.refuse("a repetition of a quotation")
        return "".join(self.literal(character) for character in text)

    def literal(self, character: str) -> str:
        return self.cased(re.escape(character))

    def cased(self, source: str) -> str:
        return f"(?ai:{source})" if "i" in self.flags else source

    def atom(self) -> str:
        match character := self.take():
            case "(":
                return self.group()
            case "[":
                return self.cased(self.character_class())
            case ".":
                return "(?s:.)" if "s" in self.flags else f"[^{_ENDS}]"
            case "^":
                return self.start()
            case "$":
                return self.end()
            case "\\":
                return self.escape()
            case "*" | "+" | "?" | "{":
                self.refuse(f"a {character} that repeats nothing")
            case _:
                pass
        return self.literal(character)

    def start(self) -> str:
        return _START_OF_LINE if "m" in self.flags else r"(?:\A)"

    def end(self) -> str:
        return _END_OF_LINE if "m" in self.flags else _LAST_END

    # -- groups ---------------------------------------------------------------------------------

    def group(self) -> str:
        if not self.taken("?"):
            return self.captured("(")
        for opening in (":", "=", "!", ">", "<=", "<!"):
            if self.taken(opening):
                return self.rest_of_group(f"(?{opening}")
        if self.peek() == "<":
            name = self.matched(_GROUP_NAME, "a group with no name").group(1)
            self.names.add(name)
            return self.captured(f"(?P<{name}>")
        found = self.matched(_FLAGS, "an unknown kind of group")
        on, off = frozenset(found[1]), frozenset(found[2] or "")
        for flag in sorted((on | off) - _KNOWN_FLAGS):
            self.refuse(f"the flag {flag!r}")
        flags = (self.flags | on) - off
        if found[3] == ")":
            self.flags = flags
            return ""
        before, self.flags = self.flags, flags
        translated = self.rest_of_group("(?:")
        self.flags = before
        return translated

    def captured(self, opening: str) -> str:
        self.groups += 1
        number = self.groups
        translated = self.rest_of_group(opening)
        self.closed.add(number)
        return translated

    def rest_of_group(self, opening: str) -> str:
        self.open += 1
        inside = self.alternatives()
        if not self.taken(")"):
            self.refuse("a group that does not end")
        self.open -= 1
        return f"{opening}{inside})"

    # -- escapes --------------------------------------------------------------------------------

    def escape(self) -> str:
        character = self.take()
        match character:
            case "A":
                return r"(?:\A)"
            case "z":
                return r"(?:\Z)"
            case "Z":
                return _LAST_END
            case "b" | "B":
                if self.peek() == "{":
                    self.refuse("a kind of boundary")
                return r"(?u:\b)" if character == "b" else r"(?u:(?!\b))"
            case "R":
                return r"(?:\r\n|[\n\x0b\f\r\x85\u2028\u2029])"
            case "k":
                name = self.matched(_GROUP_NAME, "a reference to no group").group(1)
                if name not in self.names:
                    self.refuse(f"a reference to {name!r} before its group")
                return self.cased(f"(?P={name})")
            case _ if character in "123456789":
                return self.back_reference(character)
            case _:
                inside = self.predefined(character)
                return inside if inside is not None else self.literal(self.character(character))

    def back_reference(self, first: str) -> str:
        number = int(first)
        while self.peek() and self.peek() in "0123456789" and number * 10 + int(self.peek()) <= self.groups:
            number = number * 10 + int(self.take())
        if number not in self.closed:
            self.refuse(f"a reference to group {number} before its end")
        return self.cased(f"(?:\\{number})")

    def predefined(self, character: str) -> str | None:
        """Return the character class that an escaped letter denotes, if any."""
        if character.lower() in _CLASSES:
            return f"[{'^' if character.isupper() else ''}{_CLASSES[character.lower()]}]"
        if character not in "pP":
            return None
        if self.taken("{"):
            end = self.pattern.find("}", self.at)
            name, self.at = self.pattern[self.at : end], end + 1
            if end < 0:
                self.refuse("a property that does not end")
        else:
            name = self.take()
        if "i" in self.flags and name.removeprefix("Is") in _CASED:
            self.refuse(f"\\p{{{name}}} within (?i)")
        category = name.removeprefix("Is")
        if name in _POSIX:
            inside = _POSIX[name]
        elif category in _CATEGORIES:
            inside = _category(category)
        else:
            self.refuse(f"the property {name!r}")
        return f"[{'^' if character == 'P' else ''}{inside}]"

    def character(self, escaped: str) -> str:
        """Return the character that an escape sequence denotes."""
        match escaped:
            case "0":
                digits = self.matched(re.compile(r"[0-3][0-7]{2}|[0-7]{1,2}"), "an escape that is no number")
                return chr(int(digits.group(), 8))
            case "x" if self.peek() == "{":
                digits = self.matched(re.compile(r"\{([0-9a-fA-F]{1,6})\}"), "an escape that is no number")
                return chr(int(digits.group(1), 16))
            case "x" | "u":
                size = 2 if escaped == "x" else 4
                found = self.matched(re.compile(f"[0-9a-fA-F]{{{size}}}"), "an escape that is no number")
                code = int(found.group(), 16)
                if 0xD800 <= code < 0xE000:
                    self.refuse("half of a surrogate pair")
                return chr(code)
            case "c":
                return chr(ord(self.take()) ^ 64)
            case _ if escaped in _CONTROLS:
                return _CONTROLS[escaped]
            case _ if escaped.isascii() and escaped.isalpha():
                self.refuse(f"the escape \\{escaped}")
            case _:
                pass
        return escaped

    # -- classes --------------------------------------------------------------------------------

    def character_class(self) -> str:
        negated, parts = self.taken("^"), list[str]()
        if self.peek() == "]":
            self.refuse("a class that starts with a bracket")
        while not self.taken("]"):
            if self.peek(2) == "&&":
                self.refuse("the intersection of classes (&&)")
            one = self.member(parts)
            if one is None:
                continue
            if self.peek() == "-" and self.peek(2)[1:] not in ("]", "[", ""):
                self.take()
                other = self.member(parts)
                if other is None or other < one:
                    self.refuse("a range that ends before it starts")
                parts.append(f"{_in_class(one)}-{_in_class(other)}")
            else:
                parts.append(_in_class(one))
        return f"[{'^' if negated else ''}{''.join(parts)}]"

    def member(self, parts: list[str]) -> str | None:
        """Return the next character of a class; None if it is a predefined class, then added to `parts`."""
        character = self.take()
        if character == "[":
            self.refuse("a class within a class")
        if character != "\\":
            return character
        escaped = self.take()
        if escaped in "QE":
            self.refuse("a quotation within a class")
        found = self.predefined(escaped)
        if found is None:
            return self.character(escaped)
        if found.startswith("[^"):
            parts.append(_complement(found))
        else:
            parts.append(found[1:-1])
        return None


def _in_class(character: str) -> str:
    return f"\\U{ord(character):08x}"


@lru_cache(maxsize=64)
def _complement(negated: str) -> str:
    """Return the content of the positive class that is equivalent to a negated class."""
    ranges: list[tuple[int, int]] = []
    excluded = re.compile(negated.replace("[^", "[", 1))
    for code in range(sys.maxunicode + 1):
        if not excluded.match(chr(code)):
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1] = ranges[-1][0], code
            else:
                ranges.append((code, code))
    return "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in ranges)


class Matched(Protocol):
    """Part of a match's interface that replacements use."""

    def __getitem__(self, group: int, /) -> str | None: ...


class RegexGroup(Protocol):
    """Part of a pattern's interface that replacements use."""

    @property
    def groups(self) -> int: ...
    @property
    def groupindex(self) -> Mapping[str, int]: ...


Replacement = Callable[[Matched], str]
_REFERENCE = re.compile(r"\$(?:\{([a-zA-Z][a-zA-Z0-9]*)\}|([0-9]))")


@lru_cache(maxsize=256)
def java_replacement(pattern: RegexGroup, text: str) -> Replacement:
    """Compile a Java replacement text: `$1` and `${name}` are groups, a backslash escapes.

    Raises `EvaluationError` for any other dollar sign, and for a group that the pattern lacks.
    """
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        if text[at] == "\\":
            if at + 1 == len(text):
                raise EvaluationError(f"the replacement {text!r} ends with a backslash that escapes nothing")
            parts.append(text[at + 1])
            at += 2
        elif text[at] == "$":
            found = _REFERENCE.match(text, at)
            if found is None:
                raise EvaluationError(f"the replacement {text!r} has a dollar that names no group")
            at = found.end()
            number = pattern.groupindex.get(found[1], -1) if found[1] else int(found[2])
            while found[1] is None and at < len(text) and text[at] in "0123456789":
                if number * 10 + int(text[at]) > pattern.groups:
                    break
                number, at = number * 10 + int(text[at]), at + 1
            if not 0 <= number <= pattern.groups:
                raise EvaluationError(f"the replacement {text!r} names a group that there is not")
            parts.append(number)
        else:
            end = at
            while end < len(text) and text[end] not in "\\$":
                end += 1
            parts.append(text[at:end])
            at = end

    def replaced(match: Matched) -> str:
        return "".join(part if isinstance(part, str) else match[part] or "" for part in parts)

    return replaced
