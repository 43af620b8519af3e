"""Pull parser of JSON that accepts and rejects the same texts as Jackson, Spark's parser.

Functions of Spark read a text token by token and mostly stop at the end of the first value: an error behind
it is never seen, while one before it makes the whole text null. `from_json` even goes on after an error
within a field, from where the parser stands. So the position after an error is part of the meaning.

Beside JSON, strings may be in single quotes. Texts are read in UTF-16 code units, in which Java counts.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable
from enum import Enum
from typing import NoReturn

MAX_DEPTH = 1_000
MAX_DIGITS = 1_000
MAX_NAME = 50_000

_SPACE = re.compile(r"[ \t\r\n]*")
_FIRST_FIELD = re.compile(r'[ \t\r\n]*"([^"\\\x00-\x1f]*)"[ \t\r\n]*:[ \t\r\n]*([^\x00-\x20])')
_NEXT_FIELD = re.compile(rf"[ \t\r\n]*,{_FIRST_FIELD.pattern}")
_CONTENT = {
    '"': re.compile(r'[^"\\\x00-\x1f]*'),
    "'": re.compile(r"[^'\\\x00-\x1f]*"),
}
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_BEYOND_BASIC_PLANE = re.compile("[\U00010000-\U0010ffff]")
SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "/": "/", "\\": "\\", "'": "'"}
_HEXADECIMAL = {character: int(character, 16) for character in "0123456789abcdefABCDEF"}
_WORDS = {"t": "true", "f": "false", "n": "null", "N": "NaN", "I": "Infinity"}
_STARTS_OF_IDENTIFIERS = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Sc", "Pc", "Nl"})
_OF_IDENTIFIERS = _STARTS_OF_IDENTIFIERS | {"Nd", "Mc", "Mn", "Cf"}
_IGNORABLE = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x9f]")
_MAX_SHOWN = 256


def _no_constant(word: str) -> NoReturn:
    raise ValueError(word)


# By whether strings may hold control characters.
_SCANNERS: dict[bool, Callable[[str, int], tuple[object, int]]] = {
    controls: json.JSONDecoder(strict=not controls, parse_constant=_no_constant).raw_decode
    for controls in (False, True)
}
_NO_LIMIT = 999
_MANY_DIGITS = re.compile(r"[0-9.eE+-]{500}")


class Token(Enum):
    """Token of a JSON text. A name is a field name."""

    START_OBJECT = "{"
    END_OBJECT = "}"
    START_ARRAY = "["
    END_ARRAY = "]"
    NAME = "name"
    STRING = "string"
    INTEGER = "integer"
    FLOAT = "float"
    TRUE = "true"
    FALSE = "false"
    NULL = "null"


class MalformedJson(Exception):
    """Raised for text that the reader does not accept."""


_STARTS = {Token.START_OBJECT: 1, Token.START_ARRAY: 1, Token.END_OBJECT: -1, Token.END_ARRAY: -1}
_LITERALS = {"true": Token.TRUE, "false": Token.FALSE, "null": Token.NULL}


class _Context:
    """An object, an array, or the top level. kind: its first character. count: values so far."""

    __slots__ = ("count", "kind", "name", "parent")

    def __init__(self, kind: str, parent: _Context | None) -> None:
        self.kind = kind
        self.parent = parent
        self.count = 0
        self.name: str | None = None


class JsonReader:
    """Reader of one text.

    controls:    whether strings may hold control characters.
    non_numbers: whether NaN, Infinity, +INF and the like are floats.
    token:       the last one read; None before the first and at the end.
    number:      text of the last number.
    """

    __slots__ = (
        "_at",
        "_context",
        "_depth",
        "_entered",
        "_next",
        "_open",
        "_string",
        "_text",
        "controls",
        "non_numbers",
        "number",
        "token",
    )

    def __init__(self, text: str, *, controls: bool = True, non_numbers: bool = False) -> None:
        self._text = text if text.isascii() else _BEYOND_BASIC_PLANE.sub(_pair, text)
        self._at = 0
        self._context = _Context("", None)
        self._depth = 0
        self._entered = 0
        self._next: Token | None = None
        self._open = False
        self._string = ""
        self.controls = controls
        self.non_numbers = non_numbers
        self.token: Token | None = None
        self.number = ""

    # -- tokens ---------------------------------------------------------------------------

    def advance(self) -> Token | None:
        """Read the next token; None at the end. Raises `MalformedJson`."""
        if self.token is Token.NAME:
            # The value was found together with the name, if there was no error after it.
            token, self._next = self._next, None
            if token is Token.START_OBJECT or token is Token.START_ARRAY:
                self._enter(token)
            self.token = token
            return token
        if self._open:
            self._content('"')
        context = self._context
        if context.kind == "{":
            field = (_NEXT_FIELD if context.count else _FIRST_FIELD).match(self._text, self._at)
            if field is not None:
                return self._plain_field(context, field)
        start = self._after_space()
        if not start:
            if context.parent is not None:
                raise MalformedJson("it ends within an object or array")
            self.token = None
            return None
        if start == "]" or start == "}":
            return self._close(start)
        context.count += 1
        if context.parent is not None and context.count > 1:
            start = self._after_comma(start)
        if context.kind != "{":
            token = self._value(start)
            if token is Token.START_OBJECT or token is Token.START_ARRAY:
                self._enter(token)
            self.token = token
            return token
        context.name = self._name(start)
        self.token = Token.NAME
        self._next = self._value(self._after_colon())
        return Token.NAME

    def _plain_field(self, context: _Context, field: re.Match[str]) -> Token:
        """Read a name without escapes, and the start of its value."""
        context.count += 1
        self._at = field.end()
        name = field[1]
        context.name = self._fitting(name) if len(name) > MAX_NAME or not name.isascii() else name
        self.token = Token.NAME
        self._next = self._value(field[2])
        return Token.NAME

    def skip_children(self) -> None:
        """Skip to the end of the object or array that the last token starts."""
        if self.token is not Token.START_OBJECT and self.token is not Token.START_ARRAY:
            return
        end = self._end_of_plain() if self._at == self._entered else None
        if end is not None:
            self._at = end
            self._close(self._text[end - 1])
            return
        depth = 1
        while depth:
            token = self.advance()
            if token is None:
                # Behind an error within a field the end seems to come early.
                if self._context.parent is not None:
                    raise MalformedJson("it ends within an object or array")
                return
            depth += _STARTS.get(token, 0)

    @property
    def name(self) -> str | None:
        """Field name that the last token is or belongs to; None in an array."""
        context = self._context
        if (self.token is Token.START_OBJECT or self.token is Token.START_ARRAY) and context.parent:
            context = context.parent
        return context.name

    def string(self) -> str:
        """Return the last token's string, with surrogate pairs decoded."""
        if self._open:
            self._string = _joined(self._content('"'))
        return self._string

    def _end_of_plain(self) -> int | None:
        """Return the end of the object or array just started; None if a simple scan cannot find it.

        Python's parser accepts less than this one, except for the limits.
        """
        start = self._at - 1
        scan = _SCANNERS[self.controls]
        try:
            _, end = scan(self._text, start)
        except (ValueError, RecursionError):
            return None
        if end - start <= _NO_LIMIT - self._depth:
            return end
        openings = self._text.count("[", start, end) + self._text.count("{", start, end)
        has_long = end - start > MAX_NAME or _MANY_DIGITS.search(self._text, start, end)
        return None if has_long or self._depth + openings > MAX_DEPTH else end

    # -- structure ------------------------------------------------------------------------

    def _enter(self, token: Token) -> None:
        self._context = _Context(token.value, self._context)
        self._entered = self._at
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise MalformedJson(f"it is nested deeper than {MAX_DEPTH}")

    def _close(self, end: str) -> Token:
        context = self._context
        if context.parent is None or context.kind != ("[" if end == "]" else "{"):
            raise MalformedJson(f"a {end} that closes nothing")
        self._context = context.parent
        self._depth -= 1
        self.token = Token.END_ARRAY if end == "]" else Token.END_OBJECT
        return self.token

    def _after_space(self) -> str:
        """Return the next non-space character; "" at the end."""
        text, at = self._text, self._at
        found = text[at : at + 1]
        if found <= " ":
            match = _SPACE.match(text, at)
            assert match is not None
            at = match.end()
            found = text[at : at + 1]
            if found and found < " ":
                self._at = at + 1
                raise MalformedJson("a control character")
        self._at = at + len(found)
        return found

    def _after_comma(self, found: str) -> str:
        if found != ",":
            raise MalformedJson(f"{found!r} instead of a comma")
        found = self._after_space()
        if not found:
            raise MalformedJson("it ends after a comma")
        return found

    def _after_colon(self) -> str:
        found = self._after_space()
        if found == ":":
            found = self._after_space()
            if found:
                return found
        raise MalformedJson("a field without a value")

    def _name(self, start: str) -> str:
        if start != '"' and start != "'":
            raise MalformedJson(f"{start!r} instead of a name")
        return self._fitting(self._content(start))

    def _fitting(self, name: str) -> str:
        if len(name) > MAX_NAME:
            raise MalformedJson(f"a name of more than {MAX_NAME} characters")
        return _joined(name)

    # -- values ---------------------------------------------------------------------------

    def _value(self, start: str) -> Token:
        match start:
            case '"':
                self._open = True
                return Token.STRING
            case "{":
                return Token.START_OBJECT
            case "[":
                return Token.START_ARRAY
            case "t" | "f" | "n":
                self._word(_WORDS[start], 1)
                return _LITERALS[_WORDS[start]]
            case "'":
                self._string = _joined(self._content("'"))
                return Token.STRING
            case "N" | "I":
                self._word(_WORDS[start], 1)
                return self._non_number(_WORDS[start])
            case "+":
                return self._not_digit("+")
            case _ if "0" <= start <= "9" or start == "-":
                return self._number(start)
            case _:
                if unicodedata.category(start) in _STARTS_OF_IDENTIFIERS:
                    self._skip_word(1)
                raise MalformedJson(f"{start!r} instead of a value")

    def _word(self, word: str, at: int) -> None:
        """Read the rest of a partly read word."""
        text = self._text
        while at < len(word):
            if text[self._at : self._at + 1] != word[at]:
                self._skip_word(at)
                raise MalformedJson(f"no {word}")
            self._at += 1
            at += 1
        behind = text[self._at : self._at + 1]
        if behind >= "0" and behind not in "]}" and _is_of_identifiers(behind):
            self._skip_word(at)
            raise MalformedJson(f"no {word}")

    def _skip_word(self, length: int) -> None:
        text = self._text
        while self._at < len(text) and length < _MAX_SHOWN and _is_of_identifiers(text[self._at]):
            self._at += 1
            length += 1

    def _number(self, start: str) -> Token:
        text, first = self._text, self._at - 1
        match = _NUMBER.match(text, first)
        if match is None:
            return self._not_digit(start)
        end, fraction, exponent = match.end(), match[1], match[2]
        whole = end - first - len(fraction or "") - len(exponent or "") - (start == "-")
        zero = text[first + (start == "-")] == "0"
        behind = text[end : end + 1]
        self._at = end
        plain = fraction is None and exponent is None
        if plain and zero and behind and "0" <= behind <= "9":
            raise MalformedJson("a number with leading zeros")
        if (plain and behind == ".") or (exponent is None and behind in ("e", "E")):
            # Jackson reads numbers in two ways, of which the one for zeros moves on.
            signed = behind != "." and text[end + 1 : end + 2] in ("+", "-")
            self._at = end + 2 + signed if zero else first + (start == "-") + whole + 1
            raise MalformedJson("a number that ends early")
        if self._context.parent is None and behind:
            self._at += 1
            if behind not in " \t\r\n":
                raise MalformedJson(f"{behind!r} after a number")
        self.number = match[0]
        if end - first > MAX_DIGITS:
            digits = sum(map(str.isdigit, match[0]))
            if not plain and (zero or not behind):
                # The other way counts a part that is not there as -1.
                digits -= (fraction is None) + (exponent is None)
            if digits > MAX_DIGITS:
                raise MalformedJson(f"a number of more than {MAX_DIGITS} digits")
        return Token.INTEGER if plain else Token.FLOAT

    def _not_digit(self, sign: str) -> Token:
        """Read a token that continues after a sign with a non-digit."""
        found = self._text[self._at : self._at + 1]
        self._at += len(found)
        if found == "I":
            second = self._text[self._at : self._at + 1]
            self._at += len(second)
            word = {"N": f"{sign}INF", "n": f"{sign}Infinity"}.get(second)
            if word is not None:
                self._word(word, 3)
                return self._non_number(word)
        raise MalformedJson("a sign without a number")

    def _non_number(self, word: str) -> Token:
        if not self.non_numbers:
            raise MalformedJson(f"{word}, which is no number")
        self.number = word
        return Token.FLOAT

    # -- strings --------------------------------------------------------------------------

    def _content(self, quote: str) -> str:
        """Read the content of a string to its closing quote."""
        self._open = False
        text, plain = self._text, _CONTENT[quote]
        parts: list[str] = []
        while True:
            match = plain.match(text, self._at)
            assert match is not None
            end = match.end()
            parts.append(match[0])
            found = text[end : end + 1]
            self._at = end + len(found)
            if found == quote:
                return parts[0] if len(parts) == 1 else "".join(parts)
            if found == "\\":
                parts.append(self._escaped())
            elif not found or not self.controls:
                raise MalformedJson("a control character in a string" if found else "a string without an end")
            else:
                parts.append(found)

    def _escaped(self) -> str:
        found = self._text[self._at : self._at + 1]
        self._at += len(found)
        if found != "u":
            if found not in _ESCAPES:
                raise MalformedJson(f"a backslash before {found!r}")
            return _ESCAPES[found]
        code = 0
        for _ in range(4):
            character = self._text[self._at : self._at + 1]
            self._at += len(character)
            # Jackson looks at the low byte of a character only.
            digit = _HEXADECIMAL.get(chr(ord(character) & 0xFF)) if character else None
            if digit is None:
                raise MalformedJson("an escape without four hexadecimal digits")
            code = code << 4 | digit
        return chr(code)


def _pair(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be")
    return units[:2].decode("utf-16-be", "surrogatepass") + units[2:].decode("utf-16-be", "surrogatepass")


def _joined(units: str) -> str:
    """Join surrogate pairs in a text; lone surrogates stay."""
    if units.isascii() or not SURROGATE.search(units):
        return units
    return units.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _is_of_identifiers(character: str) -> bool:
    """Return whether a character may be part of a Java identifier."""
    return unicodedata.category(character) in _OF_IDENTIFIERS or bool(_IGNORABLE.match(character))
