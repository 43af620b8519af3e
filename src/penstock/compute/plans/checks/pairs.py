"""Checks of operators that bring several streams together, and of loops."""

from __future__ import annotations

from dataclasses import replace

from penstock.compute.plans.checks.context import Claimed, output_of
from penstock.expr.tree import Expr
from penstock.expr.types import BOOL, Field, Schema
from penstock.flow.lifetime import Lifetime
from penstock.flow.operators.bag_feedback import BagFeedback
from penstock.flow.operators.chain import Chain
from penstock.flow.operators.chain_first_n import ChainFirstN
from penstock.flow.operators.cross_singleton import CrossSingleton
from penstock.flow.operators.difference import Difference
from penstock.flow.operators.feedback import Feedback
from penstock.flow.operators.join import How, Join
from penstock.flow.operators.union import Union
from penstock.flow.operators.zip import Zip
from penstock.flow.operators.zip_longest import ZipLongest

Fields = tuple[Field, ...]
_KEEPS_LEFT = (Lifetime.STATIC, Lifetime.TICK)


@output_of.register(Union)
def _union(operator: Union, claimed: Claimed) -> Fields:
    return claimed.alike()


@output_of.register(Chain)
def _chain(operator: Chain, claimed: Claimed) -> Fields:
    return claimed.alike()


@output_of.register(ChainFirstN)
def _chain_first_n(operator: ChainFirstN, claimed: Claimed) -> Fields:
    claimed.need(operator.count >= 0, "a count is below zero")
    claimed.reason(operator.nondet)
    return claimed.alike()


@output_of.register(Difference)
def _difference(operator: Difference, claimed: Claimed) -> Fields:
    left, right = claimed.inputs
    claimed.all_columns(operator.columns, left)
    claimed.all_columns(operator.neg_columns, right)
    claimed.need(operator.lifetimes != _KEEPS_LEFT, "a difference cannot have these lifetimes")
    claimed.reason(operator.nondet)
    claimed.alike()
    return left.fields


@output_of.register(Join)
def _join(operator: Join, claimed: Claimed) -> Fields:
    return check_join(operator, claimed)


def check_join(operator: Join, claimed: Claimed) -> Fields:
    """The columns of the answer of a join of the first two inputs."""
    left, right = claimed.inputs[:2]
    claimed.reason(operator.nondet)
    inner = operator.how is How.INNER
    claimed.need(inner or operator.lifetimes != _KEEPS_LEFT, "a join cannot have these lifetimes")
    pairs = list(zip(operator.left_keys, operator.right_keys, strict=False))
    claimed.need(len(operator.left_keys) == len(operator.right_keys), "a side of the join lacks keys")
    for one, other in pairs:
        same = claimed.type_of(one, left) == claimed.type_of(other, right)
        claimed.need(same, "keys of the join are of different types")
    claimed.need(bool(pairs) or (inner and operator.residual is None), "the join has no key")
    _check_residual(operator, left, right, claimed)
    if not operator.how.has_right_columns:
        claimed.need(not operator.kept_right, "the join has no columns of the right")
        return left.fields
    return claimed.beside(operator.kept_right, (False, operator.how is How.LEFT))


def _check_residual(operator: Join, left: Schema, right: Schema, claimed: Claimed) -> None:
    fields = (*left.fields, *right.fields)
    names = operator.pair_names
    claimed.need(len(names) == len(fields) == len(set(names)), "the names of pairs are not those of pairs")
    pair = Schema(tuple(replace(f, name=name) for f, name in zip(fields, names, strict=True)))
    residual: Expr | None = operator.residual
    if residual is not None:
        claimed.need(claimed.type_of(residual, pair) == BOOL, "a join condition is not true or false")


@output_of.register(Zip)
def _zip(operator: Zip, claimed: Claimed) -> Fields:
    claimed.reason(operator.nondet)
    return _all_beside(operator.kept_right, claimed)


@output_of.register(ZipLongest)
def _zip_longest(operator: ZipLongest, claimed: Claimed) -> Fields:
    claimed.reason(operator.nondet)
    return _all_beside(operator.kept_right, claimed, may_lack=True)


@output_of.register(CrossSingleton)
def _cross_singleton(operator: CrossSingleton, claimed: Claimed) -> Fields:
    claimed.reason(operator.nondet)
    return _all_beside(operator.kept_right, claimed)


def _all_beside(kept: tuple[int, ...], claimed: Claimed, *, may_lack: bool = False) -> Fields:
    every = kept == tuple(range(len(claimed.inputs[1].fields)))
    claimed.need(every, "not all columns of the right are there")
    return claimed.beside(kept, (may_lack, may_lack))


@output_of.register(Feedback)
def _feedback(operator: Feedback, claimed: Claimed) -> Fields:
    claimed.need(operator.max_iterations > 0, "a loop has no rounds")
    claimed.all_columns(operator.columns, claimed.schema)
    return claimed.schema.fields


@output_of.register(BagFeedback)
def _bag_feedback(operator: BagFeedback, claimed: Claimed) -> Fields:
    claimed.need(operator.max_iterations > 0, "a loop has no rounds")
    return claimed.schema.fields


def check_closing(feedback: Schema, closing: Schema, claimed: Claimed) -> None:
    """Raises where what closes a feedback has not its columns."""
    mine = [(f.name, f.type) for f in feedback.fields]
    claimed.need(mine == [(f.name, f.type) for f in closing.fields], "a feedback is closed by other rows")
    nulls = any(c.nullable and not f.nullable for f, c in zip(feedback.fields, closing.fields, strict=True))
    claimed.need(not nulls, "null may be in what closes a feedback, and not in the feedback")
