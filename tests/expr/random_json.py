"""Random JSON texts: well-formed ones, and those that a parser has to find its way in."""

from __future__ import annotations

import random

NAMES = ("a", "b", "c", "", "é", "a b", "😀")
_SCALARS = (
    *("1", "-0", "0", "-7", "12", "1.50", "1e2", "-0.0", "2147483648", "9223372036854775808", "1.5E-3"),
    *("0.005", "true", "false", "null", '"x"', '""', '"a b"', '"\\u00e9"', '"\\ud83d\\ude00"', '"😀"'),
    *("'q'", '"1.5"', '"2020-01-02"', '"2020-01-02T03:04:05.5Z"', '"\\"\\\\\\/\\n\\t"', '"NaN"'),
    *('"Infinity"', "1e400", '"7"', '"2020-02-30"', '"-12"', '"2020-1-2 3:4:5 GMT"', '"1,000.5"'),
    *('"\\u2028\\u0001"', "123456789.987654321"),
)
_HOSTILE = (
    *("NaN", "-Infinity", "+INF", "-INF", "Infinit", "tru", "truex", "nul", "01", "-01", "+1", "-", "+"),
    *(".5", "1.", "1.x", "1e", "1ex", "0.5e", "0.5e+", "1.5e", "0e+x", "-x", "--1", "1x", "@", "$", "€"),
    *("é", "/**/1", '"\\q"', '"x\\u12"', '"\\u12', '"abc', "'abc", '"\\ud83d"', '"\\ude00x"', '"a\tb"'),
    *('"\x00"', "#1", "1 2", "'it\\'s'", "'a\"b'", '"it\'s"', '"a""b"', "\x7f", "true\x7f", '"\\u004İ"'),
    *("", " ", ",", ":", "]", "}", "[", "{", '{"a"', '{"a":', '{"a":1', "[1", "[1,", "{a:1}", "{'a':1}"),
    *("{1:2}", '{"a":1,}', "[1,]", "[,1]", "\x0b1", "\u00a01", "\ufeff1", '"\ud7ff"', "1" * 1001),
    *("1" * 1000, '{"a" 1}', '{"a":tru,"b":2}', "[tru,1]"),
)
_SPACES = ("", "", "", "", " ", "\n", "\t ", "\r\n")


def json_text(choice: random.Random, hostility: float) -> str:
    """Draw a text. hostility: how often a part is not what JSON allows."""
    text = _value(choice, choice.choice((0, 1, 2, 3, 3)), hostility)
    if choice.random() < hostility / 2:
        text += choice.choice(("x", "]", "}", " 1", ",", '"', "\x00", " "))
    if choice.random() < hostility / 2:
        text = text[: choice.randrange(len(text) + 1)]
    if text and choice.random() < hostility / 2:
        at = choice.randrange(len(text))
        text = text[:at] + choice.choice(("", ",", '"', "}", "]", ":", "x", "\\", "0", "😀")) + text[at + 1 :]
    return text


def _value(choice: random.Random, depth: int, hostility: float) -> str:
    space = choice.choice(_SPACES)
    if choice.random() < hostility / 4:
        return space + choice.choice(_HOSTILE)
    if depth == 0:
        return space + choice.choice(_SCALARS)
    count = choice.choice((0, 1, 2, 2, 3))
    values = [_value(choice, choice.randrange(depth), hostility) for _ in range(count)]
    comma = "" if choice.random() < hostility / 20 else f"{choice.choice(_SPACES)},"
    if choice.random() < 0.35:
        return f"{space}[{comma.join(values)}{choice.choice(_SPACES)}]"
    fields = [f'{choice.choice(_SPACES)}"{choice.choice(NAMES)}"{space}:{value}' for value in values]
    return f"{space}{{{comma.join(fields)}{choice.choice(_SPACES)}}}"


_STEPS = (
    *(".a", ".b", ".c", "['a b']", ".é", "[0]", "[1]", "[*]", "[*]", ".😀", ". a", "[ 0]", ".*", "['*']"),
    *("['a", "."),
)


def json_path(choice: random.Random) -> str:
    """Draw a path, mostly a valid one."""
    steps = "".join(choice.choice(_STEPS[: choice.choice((9, 9, 9, 16))]) for _ in range(choice.randrange(4)))
    return f"${steps}"
