"""Expressions from text mean what they mean in a flow; whatever else Python can say is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.errors import BadExpression
from headrace.expr import from_text
from headrace.expr.from_text import MAX_DEPTH, MAX_LENGTH, METHODS, expression_from_text
from headrace.expr.tree import Expr, operand
from tests.golden import assert_golden

HOSTILE = {
    "insides of Python": "().__class__.__mro__[1].__subclasses__()",
    "insides of an expression": "col.total.__class__",
    "insides of the columns": "col.__class__",
    "a module by its name": "__import__('os').system('touch /tmp/escaped')",
    "a module of ours": "hr.importlib.import_module('os').system('id')",
    "globals of a function": "hr.when.__globals__['sys']",
    "a builtin": "open('/etc/passwd').read()",
    "evaluation": "eval('1')",
    "attributes of a text": "'{0.__class__}'.format(col)",
    "a function": "(lambda: col.total)()",
    "a comprehension": "[x for x in (1,)][0]",
    "a generator and its frame": "(g.gi_frame.f_back for g in ())",
    "an f-string": "f'{col.total.__class__}'",
    "an assignment": "(x := col.total) > 1",
    "arguments by star": "hr.coalesce(*col.total)",
    "arguments by two stars": "col.total.round(**{})",
    "a method that makes no expression": "col.total.walk()",
    "a statement": "import os",
    "a second line": "col.total > 1\nimport os",
    "cut off": "col.total >",
    "nothing": "",
    "a name": "total > 1",
    "a value that is none": "...",
    "and": "col.a > 1 and col.b > 1",
    "brackets forgotten": "col.a > 1 & col.b > 1",
    "if": "1 if col.a else 2",
    "in": "col.a in (1, 2)",
    "is": "col.a is None",
    "compared with None": "None == col.a",
    "a method nearly": "col.name.contians('x')",
    "a function that is a method": "abs(col.a) > 1",
    "an argument too many": "col.a.is_null(1)",
    "an expression for a constant": "col.a.round(col.b)",
    "a type that there is not": "col.a.cast(object)",
    "a field by a point": "col.address.street == 'x'",
    "a list as a value": "col.a == [1, 2]",
    "a character beyond ASCII before it": "col.\u00e4\u20ac == 'x\u20ac' + x",
    "a fault in the second line": "(col.a == 1) & (\n  col.b == y)",
    "an integer beyond int64": "col.a == -9223372036854775809",
    "an integer of too many digits to show": "col.a == 0x" + "f" * 5000,
    "an integer of too many digits to read": "col.a == " + "9" * 5000,
    "digits beyond count": "col.a.round(2147483648)",
    "a span longer than any": "col.z.tumble('99999999999999d')",
    "a span of parts that are longer than any": "col.z.tumble('999999999d 24h')",
    "a span of too many digits to read": "col.z.tumble('" + "9" * 5000 + "d')",
    "a decimal of too many digits to read": "col.a.cast('decimal(" + "9" * 5000 + ",2)')",
    "half of a surrogate": "col.a == '\ud800'",
    "deep": "-" * (MAX_DEPTH + 1) + "col.a",
    "long": "col.a == '" + "x" * MAX_LENGTH + "'",
}


def refusal(text: str) -> BadExpression:
    with pytest.raises(BadExpression) as caught:
        expression_from_text(text, "--where")
    return caught.value


def test_what_is_no_expression_is_refused_with_its_place() -> None:
    texts = [f"# {name}\n{refusal(text)}\n" for name, text in HOSTILE.items()]
    assert_golden(Path(__file__).with_name("messages_of_texts.txt"), "\n".join(texts))


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_the_position_lies_in_the_text(text: str) -> None:
    assert 0 <= refusal(text).position <= len(text)  # type: ignore[attr-defined]


def test_text_is_never_run(tmp_path: Path) -> None:
    mark = tmp_path / "run"
    for text in (
        f"__import__('pathlib').Path({str(mark)!r}).touch()",
        f"().__class__.__mro__[1].__subclasses__()[-1](['touch', {str(mark)!r}])",
        f"hr.io.files.Path({str(mark)!r}).touch()",
        f"hr.errors.sys.modules['os'].system('touch {mark}')",
        f"col._side.__class__.__base__.__subclasses__()[0]({str(mark)!r})",
    ):
        refusal(text)
    assert not mark.exists()


def test_every_method_that_makes_an_expression_is_known() -> None:
    public = {name for name in dir(Expr) if not name.startswith("_")}
    assert public - METHODS.keys() == {"asc", "children", "desc", "same", "walk"}


# --- what it means: the same as the text in a flow ---------------------------------------------

CONSTANTS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(0, 1e300),
    st.text(max_size=4).filter(lambda text: text.isascii() and text.isprintable()),
    st.booleans(),
    st.just(None),
).map(repr)
COLUMNS = st.sampled_from(["col.a", "col['b c']", 'col["\u00e4"]'])
NAMES = {"col": col, "hr": hr, **from_text.FUNCTIONS}


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    either = st.one_of(inner, CONSTANTS)
    known = st.one_of(inner, CONSTANTS.filter(lambda text: text != "None"))
    infix = st.sampled_from(["+", "-", "*", "/", "//", "%", "&", "|", "==", "!=", "<", "<=", ">", ">="])
    return st.one_of(
        st.builds(lambda a, op, b: f"({a} {op} {b})", inner, infix, known),
        st.builds(lambda op, a: f"({op}{a})", st.sampled_from("-~"), inner),
        st.builds(
            lambda a, m: f"{a}.{m}()", inner, st.sampled_from(["is_null", "abs", "upper", "year", "trim"])
        ),
        st.builds(
            lambda a, m, b: f"{a}.{m}({b})", inner, st.sampled_from(["contains", "eq_null_safe"]), either
        ),
        st.builds(lambda a, b: f"{a}.is_in([{', '.join(b)}])", inner, st.lists(either, max_size=3)),
        st.builds(lambda a, low, high: f"{a}.between({low}, high={high})", inner, known, known),
        st.builds(lambda a, n: f"{a}.round({n})", inner, st.integers(-3, 3)),
        st.builds(lambda a, t: f"{a}.cast({t})", inner, st.sampled_from(["int", "str", "'decimal(5,2)'"])),
        st.builds(lambda a, t: f"{a}.tumble({t!r})", inner, st.sampled_from(["10s", "1h 30m"])),
        st.builds(lambda a, b: f"{a}[{b}]", inner, st.one_of(inner, st.sampled_from(["0", "'street'"]))),
        st.builds(lambda a, b: f"hr.coalesce({a}, {b})", inner, either),
        st.builds(lambda a, b: f"hr.when({a}, {b}).when({a}, {b}).otherwise(None)", inner, either),
        st.builds(lambda a: f"hash({a}, date('2001-01-01'), hr.timestamp('2001-01-01'))", inner),
    )


@given(st.recursive(COLUMNS, _larger, max_leaves=12))
@example("\n  (col.a\n == 1)")
def test_a_text_means_what_it_means_in_a_flow(text: str) -> None:
    in_a_flow = operand(eval(text.strip(), dict(NAMES)))
    assert expression_from_text(text).same(in_a_flow)


PIECES = """
col hr lit when coalesce . .. ( ) [ ] { } , : := = == != < & | ~ + - * ** // % @ not and or in is if else for
lambda await yield async import from __class__ __import__ _side a is_in is_null round cast field x 0 1.5 1j ''
'a' f'{a}' b'' None True ... # \\
"""
WORDS = st.sampled_from([*PIECES.split(), "\n", "\t", "\r", "\0", "\u00e4", "\u2028", "\ud800"])


@given(st.lists(WORDS, max_size=25), st.sampled_from(["", " "]))
@example(["col", ".", "\u2028"], "")
def test_any_text_is_an_expression_or_refused(words: list[str], between: str) -> None:
    text = between.join(words)
    try:
        found = expression_from_text(text)
    except BadExpression as error:
        position: int = error.facts["position"]
        said = str(error)
    else:
        position, said = 0, str(found)
    assert 0 <= position <= len(text)
    said.encode()
