"""Functions used in cases, looked up by their source text, which is never executed.

Cases write functions as Python lambdas, so that their files can be read on their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class NotAFunction(ValueError):
    """Raised for a text without a known function."""


def function_of(text: str) -> Callable[..., Any]:
    """Return the function for a text. Raises `NotAFunction`."""
    found = FUNCTIONS.get(text.strip())
    if found is None:
        raise NotAFunction(f"{text!r} is none of the functions that cases may use")
    return found


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "lambda *xs: sum(xs)": lambda *xs: sum(xs),
    "lambda a, b, c: [a, b, c]": lambda a, b, c: [a, b, c],
    "lambda a, b: (a + b) % 7": lambda a, b: (a + b) % 7,
    "lambda a, b: [a, b]": lambda a, b: [a, b],
    "lambda a, b: a": lambda a, b: a,
    "lambda a, b: a * b": lambda a, b: a * b,
    "lambda a, b: a + b": lambda a, b: a + b,
    "lambda a, b: a / b": lambda a, b: a / b,
    "lambda a, b: a < b": lambda a, b: a < b,
    "lambda a, b: a == b": lambda a, b: a == b,
    "lambda a, b: a >= b": lambda a, b: a >= b,
    "lambda a, b: a | b": lambda a, b: a | b,
    "lambda a, b: bool(a or b)": lambda a, b: bool(a or b),
    "lambda a, b: max(a, b)": lambda a, b: max(a, b),
    "lambda a, b: tuple(sorted((k, min(v for c, v in a + b if c == k)) for k in {c for c, _ in a + b}))": lambda a, b: (  # noqa: E501
        tuple(sorted((k, min(v for c, v in a + b if c == k)) for k in {c for c, _ in a + b}))
    ),
    "lambda a, x: a + x": lambda a, x: a + x,
    "lambda a: -a": lambda a: -a,
    "lambda acc, x: (*acc, x)": lambda acc, x: (*acc, x),
    "lambda acc, x: (acc + x, [x, acc + x])": lambda acc, x: (acc + x, [x, acc + x]),
    "lambda acc, x: (acc + x, acc + x)": lambda acc, x: (acc + x, acc + x),
    "lambda acc, x: (acc.add(x), acc)[1]": lambda acc, x: (acc.add(x), acc)[1],
    "lambda acc, x: (acc.append(x), acc)[1]": lambda acc, x: (acc.append(x), acc)[1],
    "lambda acc, x: ({**acc, x: 1}, len(acc))": lambda acc, x: ({**acc, x: 1}, len(acc)),
    "lambda acc, x: 0": lambda acc, x: 0,
    "lambda acc, x: None if acc + x > 5 else (acc + x, acc + x)": lambda acc, x: (
        None if acc + x > 5 else (acc + x, acc + x)
    ),
    "lambda acc, x: None if acc > 20 else (acc + x, (acc + x) % 7)": lambda acc, x: (
        None if acc > 20 else (acc + x, (acc + x) % 7)
    ),
    "lambda acc, x: None if x == 0 else (acc + x, acc + x)": lambda acc, x: (
        None if x == 0 else (acc + x, acc + x)
    ),
    "lambda acc, x: acc * x": lambda acc, x: acc * x,
    "lambda acc, x: acc + 1": lambda acc, x: acc + 1,
    "lambda acc, x: acc + [x]": lambda acc, x: acc + [x],  # noqa: RUF005
    "lambda acc, x: acc + x": lambda acc, x: acc + x,
    "lambda acc, x: acc + x + ','": lambda acc, x: acc + x + ",",
    "lambda acc, x: max(acc, x)": lambda acc, x: max(acc, x),
    "lambda acc, x: {**acc, x[0]: acc.get(x[0], 0) + x[1]}": lambda acc, x: {
        **acc,
        x[0]: acc.get(x[0], 0) + x[1],
    },
    "lambda c, f: c - f[0] * f[1]": lambda c, f: c - f[0] * f[1],
    "lambda d: [d['k'], len(d['v'])]": lambda d: [d["k"], len(d["v"])],
    "lambda d: d[0]": lambda d: d[0],
    "lambda e: (e[1], e[0])": lambda e: (e[1], e[0]),
    "lambda g: 'I said: ' + g": lambda g: "I said: " + g,
    "lambda g: g + '!!'": lambda g: g + "!!",
    "lambda h, l: h - l": lambda h, l: h - l,
    "lambda k, x: k * x": lambda k, x: k * x,
    "lambda k, x: k + x": lambda k, x: k + x,
    "lambda m, x: max(m, x)": lambda m, x: max(m, x),
    "lambda m, x: x if m is None else max(m, x)": lambda m, x: x if m is None else max(m, x),
    "lambda m, x: x if m is None else min(m, x)": lambda m, x: x if m is None else min(m, x),
    "lambda n, x: n + 1": lambda n, x: n + 1,
    "lambda n, x: n + x": lambda n, x: n + x,
    "lambda p, k: 1 - p / k": lambda p, k: 1 - p / k,
    "lambda p, q: p * q": lambda p, q: p * q,
    "lambda p, q: p - q": lambda p, q: p - q,
    "lambda p, q: p / q - 1": lambda p, q: p / q - 1,
    "lambda p, v: [p * v, v]": lambda p, v: [p * v, v],
    "lambda p: (p[1], p[0])": lambda p: (p[1], p[0]),
    "lambda p: p[0]": lambda p: p[0],
    "lambda p: p[1]": lambda p: p[1],
    "lambda q, f: q + f[0]": lambda q, f: q + f[0],
    "lambda q, m: q * m": lambda q, m: q * m,
    "lambda q: q >= 1": lambda q: q >= 1,
    "lambda r: (('persist', *r), ('delete', r[0])) if r[1] == 3 else (('persist', *r),)": lambda r: (
        (("persist", *r), ("delete", r[0])) if r[1] == 3 else (("persist", *r),)
    ),
    "lambda r: (r[0] * 3 + r[1]) % 7": lambda r: (r[0] * 3 + r[1]) % 7,
    "lambda r: (r[0], (r[1][0] + r[1][1]) % 5)": lambda r: (r[0], (r[1][0] + r[1][1]) % 5),
    "lambda r: (r[0], r[1][0] + 1)": lambda r: (r[0], r[1][0] + 1),
    "lambda r: (r[1][0], r[1][1])": lambda r: (r[1][0], r[1][1]),
    "lambda r: -r[0]": lambda r: -r[0],
    "lambda r: r[0]": lambda r: r[0],
    "lambda r: r[0] + 1": lambda r: r[0] + 1,
    "lambda r: r[0] - r[1]": lambda r: r[0] - r[1],
    "lambda r: r[0] <= r[1]": lambda r: r[0] <= r[1],
    "lambda r: r[1]": lambda r: r[1],
    "lambda r: r[1] - 1 if r[1] > 0 else None": lambda r: r[1] - 1 if r[1] > 0 else None,
    "lambda r: r[1] < 5": lambda r: r[1] < 5,
    "lambda r: r[1][1]": lambda r: r[1][1],
    "lambda r: r[1][1] - r[1][0] if r[1][1] >= r[1][0] else None": lambda r: (
        r[1][1] - r[1][0] if r[1][1] >= r[1][0] else None
    ),
    "lambda r: sum(v * (n + 1) for n, v in enumerate(r)) % 11": lambda r: (
        sum(v * (n + 1) for n, v in enumerate(r)) % 11
    ),
    "lambda r: tuple(-1 if v is None else v for v in r)": lambda r: tuple(-1 if v is None else v for v in r),
    "lambda row: row[0]": lambda row: row[0],
    "lambda row: row[1][1]": lambda row: row[1][1],
    "lambda s, k: s / k": lambda s, k: s / k,
    "lambda s, l: s - l": lambda s, l: s - l,
    "lambda s, l: s > l": lambda s, l: s > l,
    "lambda s, x: None if s >= 3 else (s + 1, x)": lambda s, x: None if s >= 3 else (s + 1, x),
    "lambda s, x: tuple(sorted(set(s) | {x}))": lambda s, x: tuple(sorted(set(s) | {x})),
    "lambda s: 'Hello ' + s": lambda s: "Hello " + s,
    "lambda s: 'Hello ' + s + '!'": lambda s: "Hello " + s + "!",
    "lambda s: 3.141592653589793 * s[1] * s[1]": lambda s: 3.141592653589793 * s[1] * s[1],
    "lambda s: s * 10": lambda s: s * 10,
    "lambda s: s[0]": lambda s: s[0],
    "lambda s: s[1] * s[1]": lambda s: s[1] * s[1],
    "lambda s: s[1] * s[2]": lambda s: s[1] * s[2],
    "lambda s: tuple(sorted(s))": lambda s: tuple(sorted(s)),
    "lambda t, x: [t[0] + x[0], t[1] + x[1]]": lambda t, x: [t[0] + x[0], t[1] + x[1]],
    "lambda t, x: [x, t[1] + 1 if t[0] == x else 1]": lambda t, x: [x, t[1] + 1 if t[0] == x else 1],
    "lambda t, x: not t": lambda t, x: not t,
    "lambda t, x: t + 1": lambda t, x: t + 1,
    "lambda t, x: t + x": lambda t, x: t + x,
    "lambda t: t[0] / t[1]": lambda t: t[0] / t[1],
    "lambda t: t[0] == t[1]": lambda t: t[0] == t[1],
    "lambda t: t[1]": lambda t: t[1],
    "lambda v: v": lambda v: v,
    "lambda v: v % 2 == 0": lambda v: v % 2 == 0,
    "lambda v: v * 2": lambda v: v * 2,
    "lambda v: v + 1": lambda v: v + 1,
    "lambda v: v - 1": lambda v: v - 1,
    "lambda v: v > 4": lambda v: v > 4,
    "lambda v: v >= 0": lambda v: v >= 0,
    "lambda w, d, x: w == ([x] if d is None else [d, x])": lambda w, d, x: (
        w == ([x] if d is None else [d, x])
    ),
    "lambda x, y: 6 // (3 - y + x)": lambda x, y: 6 // (3 - y + x),
    "lambda x, y: [x, y]": lambda x, y: [x, y],
    "lambda x, y: x * y": lambda x, y: x * y,
    "lambda x, y: x + y": lambda x, y: x + y,
    "lambda x, y: x - y": lambda x, y: x - y,
    "lambda x: 'A ' + str(x)": lambda x: "A " + str(x),
    "lambda x: 'B ' + str(x)": lambda x: "B " + str(x),
    "lambda x: 'go' if x > 0 else 'stop'": lambda x: "go" if x > 0 else "stop",
    "lambda x: 'odd' if x % 2 else 'even'": lambda x: "odd" if x % 2 else "even",
    "lambda x: 'p' if x < 3 else 'q'": lambda x: "p" if x < 3 else "q",
    "lambda x: 'small' if x < 10 else 'large'": lambda x: "small" if x < 10 else "large",
    "lambda x: ('delete', x % 2) if x % 3 == 2 else ('persist', x % 2, x)": lambda x: (
        ("delete", x % 2) if x % 3 == 2 else ("persist", x % 2, x)
    ),
    "lambda x: ('delete', x - 1) if x % 3 == 2 else ('persist', x)": lambda x: (
        ("delete", x - 1) if x % 3 == 2 else ("persist", x)
    ),
    "lambda x: ('k', x)": lambda x: ("k", x),
    "lambda x: ()": lambda x: (),
    "lambda x: (x % 2, x)": lambda x: (x % 2, x),
    "lambda x: (x % 3, x)": lambda x: (x % 3, x),
    "lambda x: (x * 2) % 7": lambda x: (x * 2) % 7,
    "lambda x: (x + 1) % 7": lambda x: (x + 1) % 7,
    "lambda x: (x, ())": lambda x: (x, ()),
    "lambda x: (x, x)": lambda x: (x, x),
    "lambda x: -x": lambda x: -x,
    "lambda x: 2 * x": lambda x: 2 * x,
    "lambda x: False": lambda x: False,
    "lambda x: [x - 1, x - 1] if x else []": lambda x: [x - 1, x - 1] if x else [],
    "lambda x: [x - 1, x - 2] if x > 1 else []": lambda x: [x - 1, x - 2] if x > 1 else [],
    "lambda x: [x, x]": lambda x: [x, x],
    "lambda x: format(x, '.2f')": lambda x: format(x, ".2f"),
    "lambda x: frozenset([x])": lambda x: frozenset([x]),
    "lambda x: min(x + 1, 4)": lambda x: min(x + 1, 4),
    "lambda x: not x": lambda x: not x,
    "lambda x: range(x % 3)": lambda x: range(x % 3),
    "lambda x: range(x)": lambda x: range(x),
    "lambda x: str(x % 4)": lambda x: str(x % 4),
    "lambda x: x": lambda x: x,
    "lambda x: x % 10": lambda x: x % 10,
    "lambda x: x % 2": lambda x: x % 2,
    "lambda x: x % 2 == 0": lambda x: x % 2 == 0,
    "lambda x: x % 2 == 1": lambda x: x % 2 == 1,
    "lambda x: x % 3 == 0": lambda x: x % 3 == 0,
    "lambda x: x % 5 == 0": lambda x: x % 5 == 0,
    "lambda x: x * 10": lambda x: x * 10,
    "lambda x: x * 10 if x > 1 else None": lambda x: x * 10 if x > 1 else None,
    "lambda x: x * 2": lambda x: x * 2,
    "lambda x: x * 3": lambda x: x * 3,
    "lambda x: x ** 3": lambda x: x**3,
    "lambda x: x + 1": lambda x: x + 1,
    "lambda x: x + 2": lambda x: x + 2,
    "lambda x: x - 1": lambda x: x - 1,
    "lambda x: x - 1 if x > 0 else None": lambda x: x - 1 if x > 0 else None,
    "lambda x: x - 1 if x else None": lambda x: x - 1 if x else None,
    "lambda x: x - 2 if x > 1 else None": lambda x: x - 2 if x > 1 else None,
    "lambda x: x - 3 if x > 2 else None": lambda x: x - 3 if x > 2 else None,
    "lambda x: x // 0": lambda x: x // 0,
    "lambda x: x // 1": lambda x: x // 1,
    "lambda x: x // 10": lambda x: x // 10,
    "lambda x: x // 16": lambda x: x // 16,
    "lambda x: x // 2": lambda x: x // 2,
    "lambda x: x // 32": lambda x: x // 32,
    "lambda x: x // 4": lambda x: x // 4,
    "lambda x: x // 8": lambda x: x // 8,
    "lambda x: x < 255": lambda x: x < 255,
    "lambda x: x < 5": lambda x: x < 5,
    "lambda x: x < 6": lambda x: x < 6,
    "lambda x: x < 9": lambda x: x < 9,
    "lambda x: x == 2 or x % 2 != 0": lambda x: x == 2 or x % 2 != 0,
    "lambda x: x == 3": lambda x: x == 3,
    "lambda x: x == 3 or x % 3 != 0": lambda x: x == 3 or x % 3 != 0,
    "lambda x: x == 4": lambda x: x == 4,
    "lambda x: x == 5 or x % 5 != 0": lambda x: x == 5 or x % 5 != 0,
    "lambda x: x > 0": lambda x: x > 0,
    "lambda x: x > 2": lambda x: x > 2,
    "lambda x: x > 3": lambda x: x > 3,
    "lambda x: x > 5": lambda x: x > 5,
    "lambda x: x >= 0": lambda x: x >= 0,
    "lambda x: x.lower()": lambda x: x.lower(),
    "lambda x: x.upper()": lambda x: x.upper(),
    "lambda x: {'b': x, 'a': 1}": lambda x: {"b": x, "a": 1},
    "lambda x: {x, 1}": lambda x: {x, 1},
    "lambda x: ~x": lambda x: ~x,
    "lambda xs: (sum((x - sum(xs) / len(xs)) ** 2 for x in xs) / (len(xs) - 1)) ** 0.5": lambda xs: (
        (sum((x - sum(xs) / len(xs)) ** 2 for x in xs) / (len(xs) - 1)) ** 0.5
    ),
    "lambda xs: [xs[0], max(xs), min(xs), xs[-1]]": lambda xs: [xs[0], max(xs), min(xs), xs[-1]],
    "lambda xs: len(xs)": lambda xs: len(xs),
    "lambda xs: max(xs)": lambda xs: max(xs),
    "lambda xs: sum(xs)": lambda xs: sum(xs),
    "lambda xs: sum(xs) / len(xs)": lambda xs: sum(xs) / len(xs),
    "lambda xs: xs": lambda xs: xs,
    "lambda: ''": lambda: "",
    "lambda: ()": lambda: (),
    "lambda: 0": lambda: 0,
    "lambda: 1": lambda: 1,
    "lambda: 2": lambda: 2,
    "lambda: []": lambda: [],  # noqa: PIE807
    "lambda: frozenset()": lambda: frozenset(),
    "lambda: set()": lambda: set(),
    "lambda: {}": lambda: {},  # noqa: PIE807
}
"""Functions by source text. Add the functions that your own cases use."""
