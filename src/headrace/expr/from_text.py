"""Parser of expressions from text, such as `col.price > 3`, without running it.

Python's parser produces a syntax tree, whose nodes are converted to the columns, constants, operators and
catalogue functions that they would build in a flow. All other syntax is rejected with its position, so a text
from a command line or a network cannot run code.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Mapping
from types import FunctionType, MappingProxyType
from typing import Any, cast

from headrace.errors import BadExpression, HeadraceError, did_you_mean
from headrace.expr import constructors
from headrace.expr.tree import Column, Expr, operand

_LINE_ENDS = re.compile(r"(?<=\n)|(?<=\r)(?!\n)")
MAX_LENGTH = 10_000
"""Maximum length of a text, in characters."""
MAX_DEPTH = 100
"""Maximum nesting of operations."""

ALLOWED = """\
A text is read as an expression and never run. It may hold
  columns     col.price, col["unit price"]
  constants   7, 2.5, "text", True, hr.timestamp("2001-01-01"), hr.date("2001-01-01")
  operators   == != < <= > >=   + - * / // %   & | ~
  functions   {functions}
  methods     of expressions, such as .is_null(), .is_in("a", "b"), .between(1, 9), .contains("x")"""

FUNCTIONS: Mapping[str, Callable[..., Expr]] = MappingProxyType(
    {
        function.__name__: function
        for function in (
            constructors.coalesce,
            constructors.concat,
            constructors.date,
            constructors.greatest,
            constructors.hash,
            constructors.least,
            constructors.lit,
            constructors.timestamp,
            constructors.when,
        )
    }
)
"""Functions that a text may call by name, with or without `hr.` in front."""


def _methods(cls: type[Expr]) -> dict[str, Callable[..., Expr]]:
    gives = ("Expr", "When", "FunctionCall")
    return {
        name: method
        for name, method in vars(cls).items()
        if isinstance(method, FunctionType)
        and not name.startswith("_")
        and method.__annotations__.get("return") in gives
    }


METHODS: Mapping[str, Callable[..., Expr]] = MappingProxyType(_methods(Expr))
"""Expression methods that a text may call: those that return an expression."""
_OF_WHEN = _methods(constructors.When)

_BINARY: dict[type[ast.operator], Callable[[Expr, object], Expr]] = {
    ast.Add: Expr.__add__,
    ast.Sub: Expr.__sub__,
    ast.Mult: Expr.__mul__,
    ast.Div: Expr.__truediv__,
    ast.FloorDiv: Expr.__floordiv__,
    ast.Mod: Expr.__mod__,
    ast.BitAnd: Expr.__and__,
    ast.BitOr: Expr.__or__,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Expr, object], Expr]] = {
    ast.Eq: Expr.__eq__,
    ast.NotEq: Expr.__ne__,
    ast.Lt: Expr.__lt__,
    ast.LtE: Expr.__le__,
    ast.Gt: Expr.__gt__,
    ast.GtE: Expr.__ge__,
}
_INSTEAD: dict[type[ast.AST], tuple[str, str]] = {
    ast.And: ("`and` asks for a truth value", "write (a) & (b)"),
    ast.Or: ("`or` asks for a truth value", "write (a) | (b)"),
    ast.Not: ("`not` asks for a truth value", "write ~(a)"),
    ast.IfExp: ("`if` asks for a truth value", "write hr.when(condition, value).otherwise(other)"),
    ast.In: ("`in` asks for a truth value", 'write .is_in("a", "b") of values, .contains("a") of a text'),
    ast.NotIn: ("`not in` asks for a truth value", 'write ~col.x.is_in("a", "b")'),
    ast.Is: ("`is` compares objects, not values", "write .is_null()"),
    ast.IsNot: ("`is not` compares objects, not values", "write .is_not_null()"),
    ast.UAdd: ("there is no sign +", "leave it out"),
    ast.Pow: ("there is no operator **", "write x * x"),
    ast.NamedExpr: ("nothing can be assigned", "write the value where it is needed"),
    ast.Lambda: ("no function can be defined", ""),
    ast.Await: ("nothing can be awaited", ""),
    ast.Starred: ("arguments are written one by one", "leave out the *"),
    ast.JoinedStr: ("a text cannot be put together by f''", 'write hr.concat(col.a, "-", col.b)'),
}
_LIST = "a list is no value of a row", 'write .is_in("a", "b")'
_TOO_LARGE = "no column holds so large an integer"
_CONSTANTS = (bool, int, float, str, bytes, type(None))
_PLAIN_PARAMETERS: dict[str, type] = {"int": int, "str": str, "timedelta | str": str}
"""Accepted values of parameters that are not expressions, by their annotation."""


def expression_from_text(text: str, what: str = "the expression") -> Expr:
    """Parse an expression. `what` names the text in errors.

    Raises `BadExpression`, with the position (from 0) and the reason, for invalid expressions. Columns and
    types are not checked.
    """
    return _Reader(text, what).expression()


class _Reader:
    """Parser state of one text."""

    def __init__(self, text: str, what: str) -> None:
        self._text = text
        self._what = what
        self._depth = 0

    def expression(self) -> Expr:
        if len(self._text) > MAX_LENGTH:
            raise self._refusal(
                MAX_LENGTH, f"it has {len(self._text):,} characters, and {MAX_LENGTH:,} at most are read"
            )
        try:
            return self._expr(self._parsed())
        except RecursionError:
            raise self._refusal(0, "it is nested too deeply") from None

    def _parsed(self) -> ast.expr:
        if not self._text.strip():
            raise self._refusal(0, "it is empty")
        try:
            return ast.parse(self._text.strip(), mode="eval").body
        except SyntaxError as error:
            # An offset of 0 stands for the end.
            at = self._position(error.lineno or 1, error.offset - 1) if error.offset else len(self._text)
            # Python's hint is only useful for code.
            reason = _TOO_LARGE if "integer string conversion" in error.msg else error.msg
            raise self._refusal(at, reason) from None
        except (ValueError, MemoryError, RecursionError) as error:
            # NUL, unpaired surrogates, or brackets nested too deeply for Python's parser.
            is_no_text = isinstance(error, ValueError)
            reason = "it holds a character that is no text" if is_no_text else "it is nested too deeply"
            raise self._refusal(0, reason) from None

    # --- nodes -------------------------------------------------------------------------------

    def _value(self, node: ast.expr) -> Any:
        """Convert a node to an expression, a constant, or a list of these."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._wrong(
                node, f"it is nested more than {MAX_DEPTH} deep", "write .is_in(...) for many | of =="
            )
        try:
            return self._value_of(node)
        except BadExpression:
            raise
        except HeadraceError as error:  # from the functions that build expressions
            raise self._refusal(self._at(node), error.what, error.fix) from None
        finally:
            self._depth -= 1

    def _value_of(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=int(value)) if value > 2**63:  # -2**63 is written so
                raise self._wrong(node, _TOO_LARGE, "write a number with a point, such as 1e20")
            case ast.Constant(value=value) if isinstance(value, _CONSTANTS):
                return value
            case ast.UnaryOp(op=ast.USub() | ast.Invert() as sign, operand=inner):
                return self._signed(sign, inner)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return _BINARY[type(op)](operand(self._single(left)), self._single(right))
            case ast.Compare():
                return self._comparison(node)
            case ast.Call():
                return self._call(node)
            case ast.Attribute(value=ast.Name(id="col"), attr=name) if not name.startswith("__"):
                return Column(name)
            case ast.Subscript(value=ast.Name(id="col"), slice=ast.Constant(value=str(name))):
                return Column(name)
            case ast.Subscript(value=inner, slice=item) if not isinstance(inner, ast.Name):
                return self._expr(inner)[self._single(item)]
            case ast.List() | ast.Tuple() | ast.Set():
                return [self._single(element) for element in node.elts]
            case _:
                raise self._foreign(node)

    def _single(self, node: ast.expr) -> Any:
        value = self._value(node)
        if isinstance(value, list):
            raise self._wrong(node, *_LIST)
        return value

    def _expr(self, node: ast.expr) -> Expr:
        return operand(self._single(node))

    def _signed(self, sign: ast.unaryop, inner: ast.expr) -> Any:
        value = self._single(inner)
        if isinstance(sign, ast.Invert):
            return ~operand(value)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return -cast("int", value) if is_number else -operand(value)

    def _comparison(self, node: ast.Compare) -> Expr:
        if len(node.ops) > 1:
            fix = "put comparisons in brackets: (col.a > 1) & (col.b > 2); or write col.x.between(1, 9)"
            raise self._wrong(node, "a chain of comparisons asks for a truth value", fix)
        (op,) = node.ops
        if type(op) not in _COMPARISONS:
            raise self._wrong(node, *_INSTEAD[type(op)])
        left, right = self._single(node.left), self._single(node.comparators[0])
        if left is None and isinstance(op, ast.Eq | ast.NotEq):
            left, right = right, left  # so that `operand` sees None on the right, and refuses it
        return _COMPARISONS[type(op)](operand(left), right)

    # --- calls -------------------------------------------------------------------------------

    def _call(self, node: ast.Call) -> Expr:
        match node.func:
            case ast.Name(id=name) | ast.Attribute(value=ast.Name(id="hr"), attr=name):
                if name not in FUNCTIONS:
                    fix = f"write col.x.{name}()" if name in METHODS else did_you_mean(name, FUNCTIONS)
                    raise self._wrong(node.func, f"unknown function {name!r}", fix)
                return self._called(node, FUNCTIONS[name], ())
            case ast.Attribute(value=inner, attr=name):
                of = self._expr(inner)
                methods = {**METHODS, **_OF_WHEN} if isinstance(of, constructors.When) else METHODS
                if name not in methods:
                    raise self._wrong(
                        node.func, f"expressions have no method {name!r}", did_you_mean(name, methods)
                    )
                return self._called(node, methods[name], (of,))
            case _:
                raise self._wrong(node.func, "only functions of expressions can be called")

    def _called(self, node: ast.Call, function: Callable[..., Expr], of: tuple[Expr, ...]) -> Expr:
        """Apply a function, with its arguments checked against its signature."""
        named = {each.arg: each.value for each in node.keywords if each.arg is not None}
        if len(named) < len(node.keywords):
            raise self._wrong(node, "each argument is written once, by its name", "leave out ** and doubles")
        signature = inspect.signature(function)
        try:
            bound = signature.bind(*of, *node.args, **named)
        except TypeError as error:
            fix = f"write {function.__name__}{_written(signature)}"
            raise self._wrong(node, f"{function.__name__}: {error}", fix) from None
        for name, given in bound.arguments.items():
            parameter = signature.parameters[name]
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                bound.arguments[name] = tuple(self._argument(each, parameter) for each in given)
            elif isinstance(given, ast.expr):
                bound.arguments[name] = self._argument(given, parameter)
        return function(*bound.args, **bound.kwargs)

    def _argument(self, node: ast.expr | Expr, parameter: inspect.Parameter) -> Any:
        if isinstance(node, Expr):
            return node
        if parameter.annotation == "Any" and isinstance(node, ast.Name):
            return node.id  # a type: cast(int)
        value = self._value(node)
        wanted = _PLAIN_PARAMETERS.get(parameter.annotation)
        if wanted is not None and (not isinstance(value, wanted) or isinstance(value, bool)):
            raise self._wrong(node, f"{parameter.name} must be a constant {wanted.__name__}")
        if parameter.annotation == "Any" and not isinstance(value, str):
            raise self._wrong(
                node, f"{parameter.name} must be the name of a type", 'write .cast("int32"), .cast(float)'
            )
        return value

    # --- refusals ----------------------------------------------------------------------------

    def _foreign(self, node: ast.expr) -> BadExpression:
        """Build the error for a node that is not allowed in expressions."""
        match node:
            case ast.BinOp(op=op) | ast.UnaryOp(op=op) | ast.BoolOp(op=op) if type(op) in _INSTEAD:
                return self._wrong(node, *_INSTEAD[type(op)])
            case ast.Name(id="col" | "hr" as name):
                return self._wrong(node, f"{name} is not a value by itself", "write col.NAME")
            case ast.Name(id=name):
                return self._wrong(node, f"unknown name {name!r}", f"write col.{name} where it is a column")
            case ast.Attribute(attr=name):
                fix = "" if name.startswith("_") else f'write ["{name}"] where it is a field of a nested row'
                return self._wrong(node, f"the attribute {name!r} cannot be read", fix)
            case ast.Constant(value=value):
                return self._wrong(node, f"{value!r} is not a supported constant")
            case _ if type(node) in _INSTEAD:
                return self._wrong(node, *_INSTEAD[type(node)])
            case _:
                return self._wrong(node, f"Python's {type(node).__name__} has no meaning here")

    def _wrong(self, node: ast.expr, reason: str, fix: str = "") -> BadExpression:
        return self._refusal(self._at(node), reason, fix)

    def _refusal(self, position: int, reason: str, fix: str = "") -> BadExpression:
        return BadExpression(
            f"{self._what}: not an expression: {reason}",
            why=f"{_pointed(self._text, position)}\n\n{ALLOWED.format(functions=_listed(FUNCTIONS))}",
            fix=fix or "write an expression such as col.price > 3",
            position=position,
            reason=reason,
        )

    def _at(self, node: ast.expr) -> int:
        """Return the position reported for a node: an attribute's name, otherwise the operator's start."""
        if isinstance(node, ast.Attribute):
            line, octets = cast("int", node.end_lineno), cast("int", node.end_col_offset)
            end = self._position(line, self._characters(line, octets))
            return max(0, end - len(node.attr))
        return self._position(node.lineno, self._characters(node.lineno, node.col_offset))

    def _characters(self, line: int, octets: int) -> int:
        """Convert a UTF-8 offset, as in Python's nodes, to characters."""
        return len(self._lines()[line - 1].encode()[:octets].decode(errors="ignore"))

    def _position(self, line: int, character: int) -> int:
        """Convert a position in the stripped lines to one in the whole text."""
        before = sum(len(each) for each in self._lines()[: line - 1])
        start = len(self._text) - len(self._text.lstrip())
        return min(start + before + max(character, 0), len(self._text))

    def _lines(self) -> list[str]:
        """Return lines as Python splits them, each with its line end."""
        return _LINE_ENDS.split(self._text.strip())


def _pointed(text: str, position: int) -> str:
    """Excerpt of the line around a position, with a mark below."""
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    line, at = text[start : end if end >= 0 else len(text)], position - start
    cut = max(0, at - 60)
    shown = "".join(c if c.isprintable() else "?" for c in line[cut : cut + 100])
    return f"  {shown}\n  {' ' * (at - cut)}^ character {position + 1}"


def _listed(known: Mapping[str, object]) -> str:
    return ", ".join(known)


def _written(signature: inspect.Signature) -> str:
    names = [f"*{p.name}" if p.kind is p.VAR_POSITIONAL else p.name for p in signature.parameters.values()]
    return f"({', '.join(name for name in names if name != 'self')})"
