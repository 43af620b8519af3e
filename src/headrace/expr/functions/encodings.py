"""Functions between text and bytes: hexadecimal, base64, URLs, UTF-8, digests, other bases of numbers."""

from __future__ import annotations

import base64
import hashlib
import re
import string
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus
from zlib import crc32

from headrace.errors import EvaluationError
from headrace.expr.code_runtime import raise_overflow, utf8
from headrace.expr.function_records import function
from headrace.expr.text_casts import JAVA_SPACES
from headrace.expr.types import BOOL, BYTES, INT32, INT64, STR
from headrace.expr.typing_rules import Function, SparkForm
from headrace.requirements import F

if TYPE_CHECKING:
    pass


_LINE = 76
_BASE64 = frozenset(string.ascii_letters + string.digits + "+/")
_DIGITS = string.digits + string.ascii_lowercase
_ESCAPED = re.compile(r"%(.{0,2})", re.DOTALL)
_HEX = re.compile(r"[0-9a-fA-F]*", re.ASCII)
_SPACES = re.compile(JAVA_SPACES)
_STRICT_BASE64 = re.compile(r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}(==)?|[A-Za-z0-9+/]{3}=?)?")
_BITS = 64


def to_hex(value: int | str | bytes) -> str:
    """Return the hexadecimal digits of an integer's 64 bits, or of each byte of text or bytes."""
    if isinstance(value, int):
        return f"{value & (1 << _BITS) - 1:X}"
    return (utf8(value) if isinstance(value, str) else value).hex().upper()


def of_hex(text: str) -> bytes | None:
    """Decode hexadecimal digits, the first one alone if their number is odd; None for other texts."""
    if not _HEX.fullmatch(text):
        return None
    return bytes.fromhex(f"0{text}" if len(text) % 2 else text)


def to_base64(value: bytes) -> str:
    """Return bytes as base64, in lines of 76 characters."""
    text = base64.b64encode(value).decode()
    return "\r\n".join(text[at : at + _LINE] for at in range(0, len(text), _LINE))


def of_base64(text: str) -> bytes:
    """Decode base64 text; characters outside the base64 alphabet are ignored.

    Raises `EvaluationError` if it ends too early, or continues after its end.
    """
    kept = "".join(character for character in text if character in _BASE64 or character == "=")
    letters, _, rest = kept.partition("=")
    missing = -len(letters) % 4
    if missing == 3:
        raise EvaluationError(f"the base64 text {text[:60]!r} ends within a byte")
    if len(letters) < len(kept) and (not missing or rest != "=" * (missing - 1)):
        raise EvaluationError(f"the base64 text {text[:60]!r} is filled up at the wrong place")
    return base64.b64decode(letters + "=" * missing)


def of_hex_or_raise(text: str) -> bytes:
    found = of_hex(text)
    if found is None:
        raise EvaluationError(f"{text[:60]!r} has characters that are no hexadecimal digits")
    return found


def of_strict_base64(text: str) -> bytes:
    """Decode base64 text, padded or not; spaces before the padding are ignored."""
    letters, *padding = text.partition("=")
    kept = "".join((_SPACES.sub("", letters), *padding))
    if not _STRICT_BASE64.fullmatch(kept):
        raise EvaluationError(f"{text[:60]!r} is no base64 text")
    return of_base64(kept)


_READERS = {"hex": of_hex_or_raise, "base64": of_strict_base64, "utf-8": utf8, "utf8": utf8}


def reader_of(format: str) -> Callable[[str], bytes]:
    """Return the function that decodes texts of a format. Raises `EvaluationError` for unknown formats."""
    reader = _READERS.get(format.lower())
    if reader is None:
        raise EvaluationError(f"the format {format!r} of bytes", fix="take hex, base64 or utf-8")
    return reader


def url_encode(text: str) -> str:
    return quote_plus(text, safe="*").replace("~", "%7E")


def url_decode(text: str) -> str:
    """Decode URL-encoded form text. Raises `EvaluationError` for a percent sign without digits."""
    if "%" not in text:
        return text.replace("+", " ")
    found = bytearray()
    at = 0
    while at < len(text):
        if text[at] == "%":
            match = _ESCAPED.match(text, at)
            assert match is not None
            digits = match[1]
            if len(digits) != 2 or not _HEX.fullmatch(digits):
                raise EvaluationError(f"{text[:60]!r} is no encoded URL")
            found.append(int(digits, 16))
            at += 3
        else:
            found += (" " if text[at] == "+" else text[at]).encode()
            at += 1
    return found.decode(errors="replace")


def try_url_decode(text: str) -> str | None:
    try:
        return url_decode(text)
    except EvaluationError:
        return None


def sha2(value: bytes, bits: int) -> str | None:
    """Return the SHA-2 digest of 224, 256 (or 0), 384 or 512 bits; None for any other size."""
    if bits not in (0, 224, 256, 384, 512):
        return None
    return hashlib.new(f"sha{bits or 256}", value).hexdigest()


_CHARSETS = {
    "UTF-8": "utf-8",
    "US-ASCII": "ascii",
    "ISO-8859-1": "latin-1",
    "UTF-16BE": "utf-16-be",
    "UTF-16LE": "utf-16-le",
    "UTF-16": "utf-16-be",
    "UTF-32": "utf-32-be",
}
_MARKS = {
    "UTF-16": ((b"\xfe\xff", "utf-16-be"), (b"\xff\xfe", "utf-16-le")),
    "UTF-32": ((b"\x00\x00\xfe\xff", "utf-32-be"), (b"\xff\xfe\x00\x00", "utf-32-le")),
}


def decode_text(value: bytes, charset: str) -> str:
    codec, name = _codec(charset), charset.upper()
    for mark, marked in _MARKS.get(name, ()):
        if value.startswith(mark):
            value, codec = value[len(mark) :], marked
            break
    try:
        return value.decode(codec)
    except UnicodeDecodeError:
        raise EvaluationError(f"{value[:20]!r} is not {name} text") from None


def encode_text(text: str, charset: str) -> bytes:
    codec, name = _codec(charset), charset.upper()
    try:
        encoded = text.encode(codec)
    except UnicodeEncodeError:
        raise EvaluationError(f"{text[:20]!r} has characters that {name} has not") from None
    # As in Java, this one alone begins with a mark.
    return _MARKS[name][0][0] + encoded if name == "UTF-16" and text else encoded


def _codec(charset: str) -> str:
    codec = _CHARSETS.get(charset.upper())
    if codec is None:
        raise EvaluationError(
            f"the encoding {charset!r}, which Spark has not", fix=f"one of {', '.join(_CHARSETS)}"
        )
    return codec


def convert(text: str, base: int, to: int) -> str | None:
    """Convert a number from one base to another, signed if the target is negative.

    It ends at the first character that is no digit.
    None without a digit, and for bases beyond 2 and 36. Raises beyond 64 bits.
    """
    if not (2 <= base <= 36 and 2 <= abs(to) <= 36):
        return None
    text = text.strip(" ")
    if not text:
        return None
    negative = text.startswith("-")
    value = 0
    for character in text[negative:].lower():
        digit = _DIGITS.find(character)
        if not 0 <= digit < base:
            break
        value = value * base + digit
        if value >= 1 << _BITS:
            raise_overflow(text, "64 bits")
    # As Spark computes it: a signed number of 64 bits.
    signed = value - (1 << _BITS) if value >> (_BITS - 1) else value
    if negative and to > 0:
        signed = -1 if signed < 0 else -signed
    if to < 0 and signed < 0:
        negative, signed = True, -signed
    shown = _in_base(signed % (1 << _BITS), abs(to))
    return f"-{shown}" if negative and to < 0 else shown


def _in_base(value: int, base: int) -> str:
    digits = ""
    while value:
        value, digit = divmod(value, base)
        digits = _DIGITS[digit] + digits
    return (digits or "0").upper()


def luhn_check(text: str) -> bool:
    """Return whether digits end with the check digit of Luhn's algorithm."""
    if not (text.isascii() and text.isdigit()):
        return False
    doubled = (int(digit) * (1 + at % 2) for at, digit in enumerate(reversed(text)))
    return sum(digit - 9 if digit > 9 else digit for digit in doubled) % 10 == 0


# -- UTF-8 ---------------------------------------------------------------------------------------


def try_validate_utf8(value: str | bytes) -> str | None:
    """Return a text, or decode UTF-8 bytes; None if they are invalid."""
    try:
        if isinstance(value, bytes):
            return value.decode()
        value.encode()
    except UnicodeError:
        return None
    return value


def validate_utf8(value: str | bytes) -> str:
    text = try_validate_utf8(value)
    if text is None:
        raise EvaluationError(f"{value[:20]!r} is not UTF-8")
    return text


def make_valid_utf8(value: str | bytes) -> str:
    """Return a text, or decode bytes, with U+FFFD for each invalid part."""
    octets = value.encode(errors="surrogatepass") if isinstance(value, str) else value
    return octets.decode(errors="replace")


# -- on Spark ---------------------------------------------------------------------------------


def _of_utf8_spark(name: str) -> SparkForm:
    return lambda call, arguments: F.call_function(name, arguments[0].cast("string"))


NAMES: dict[str, Any] = {
    "x_md5": hashlib.md5,
    "x_sha1": hashlib.sha1,
}

_TEXT = (STR, BYTES)

FUNCTIONS: tuple[Function, ...] = (
    function(
        "hex", "Hexadecimal digits.", ((INT64, STR, BYTES),), STR, to_hex, example="255", catalyst="Hex"
    ),
    function(
        "unhex",
        "Bytes of hexadecimal digits; null for other text.",
        (STR,),
        BYTES,
        of_hex,
        nullable=True,
        example="'616263'",
        keeps_size=True,
    ),
    function(
        "bin",
        "Binary digits of an integer.",
        (INT64,),
        STR,
        "format({0} & 0xFFFFFFFFFFFFFFFF, 'b')",
        example="10",
        catalyst="Bin",
        keeps_size=True,
    ),
    function(
        "base64",
        "Base64 text of the bytes, in lines of 76 characters.",
        (BYTES,),
        STR,
        to_base64,
        example="b'abc'",
        catalyst="Base64.encode",
    ),
    function(
        "unbase64",
        "Bytes of base64 text.",
        (STR,),
        BYTES,
        of_base64,
        fallible=True,
        example="'YWJj'",
        keeps_size=True,
    ),
    function(
        "to_binary",
        "Bytes of a text in the format `hex`, `base64` or `utf-8`.",
        (STR, STR),
        BYTES,
        "{1}({0})",
        fallible=True,
        prepared={1: reader_of},
        constant=(1,),
        defaults=("hex",),
        example="'616263', 'hex'",
        keeps_size=True,
    ),
    function(
        "md5",
        "MD5 digest, in hexadecimal.",
        (BYTES,),
        STR,
        "x_md5({0}).hexdigest()",
        example="b'abc'",
        catalyst="Md5",
        keeps_size=True,
    ),
    function(
        "sha1",
        "SHA-1 digest, in hexadecimal.",
        (BYTES,),
        STR,
        "x_sha1({0}).hexdigest()",
        example="b'abc'",
        catalyst="Sha1",
        keeps_size=True,
    ),
    function("crc32", "CRC-32 checksum.", (BYTES,), INT64, crc32, example="b'abc'", catalyst="Crc32"),
    function(
        "sha2",
        "SHA-2 digest, in hexadecimal; null for sizes other than 0, 224, 256, 384, 512.",
        (BYTES, INT32),
        STR,
        sha2,
        nullable=True,
        example="b'', 224",
        catalyst="Sha2",
        keeps_size=True,
    ),
    function(
        "url_encode",
        "Text in URL form encoding.",
        (STR,),
        STR,
        url_encode,
        example="'a b&'",
        catalyst="UrlCodec.encode",
    ),
    function(
        "url_decode",
        "Text decoded from URL form encoding.",
        (STR,),
        STR,
        url_decode,
        fallible=True,
        example="'a+b%26'",
        keeps_size=True,
    ),
    function(
        "try_url_decode",
        "As `url_decode`; null if the text doesn't fit.",
        (STR,),
        STR,
        try_url_decode,
        nullable=True,
        example="'%zz'",
        keeps_size=True,
    ),
    function(
        "encode",
        "Bytes of the text in an encoding: UTF-8, -16, -16BE, -16LE, -32, US-ASCII or ISO-8859-1.",
        (STR, STR),
        BYTES,
        encode_text,
        fallible=True,
        example="'abc', 'UTF-8'",
        catalyst="Encode.encode",
    ),
    function(
        "decode",
        "Text of bytes in an encoding, as of `encode`.",
        (BYTES, STR),
        STR,
        decode_text,
        fallible=True,
        example="b'abc', 'UTF-8'",
        catalyst="StringDecode.decode",
    ),
    function(
        "conv",
        "The number converted from one base to another; null if it isn't a number.",
        (STR, INT32, INT32),
        STR,
        convert,
        fallible=True,
        nullable=True,
        example="'ff', 16, 10",
        catalyst="Conv",
        keeps_size=True,
    ),
    function(
        "is_valid_utf8",
        "Whether bytes are UTF-8.",
        (_TEXT,),
        BOOL,
        "(x_try_validate_utf8({0}) is not None)",
        example="b'\\xff'",
        spark=_of_utf8_spark("is_valid_utf8"),
    ),
    function(
        "validate_utf8",
        "The text, or that of bytes in UTF-8.",
        (_TEXT,),
        STR,
        validate_utf8,
        fallible=True,
        example="b'abc'",
        spark=_of_utf8_spark("validate_utf8"),
        keeps_size=True,
    ),
    function(
        "try_validate_utf8",
        "As `validate_utf8`; null if the bytes aren't UTF-8.",
        (_TEXT,),
        STR,
        try_validate_utf8,
        nullable=True,
        example="b'\\xff'",
        spark=_of_utf8_spark("try_validate_utf8"),
        keeps_size=True,
    ),
    function(
        "make_valid_utf8",
        "The text, or that of bytes, with a replacement character for each part that isn't UTF-8.",
        (_TEXT,),
        STR,
        make_valid_utf8,
        example="b'ab\\xff'",
        spark=_of_utf8_spark("make_valid_utf8"),
    ),
    function(
        "luhn_check",
        "Whether the last digit is the Luhn check digit.",
        (STR,),
        BOOL,
        luhn_check,
        example="'79927398713'",
        catalyst="ExpressionImplUtils.isLuhnNumber",
    ),
)
