"""A hash that is the same on every engine, machine and run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.expr.catalogue import Arguments, Function, Lazy, Mismatch, Signature
from penstock.expr.emit import Code
from penstock.expr.typed import NULL, CallTerm
from penstock.expr.types import BOOL, INT64, holds_any
from penstock.expr.xxhash64 import hash_of

if TYPE_CHECKING:
    from penstock.expr.emit import Emitter


def _rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    if not arguments:
        raise Mismatch("hash needs at least one value")
    types = tuple(BOOL if a.type == NULL else a.type for a in arguments)
    for found in types:
        if holds_any(found):
            raise Mismatch(
                f"a value of type {found} has no hash that is the same everywhere",
                fix="give the column a type in the row class",
            )
    return Signature(types, INT64, nullable=False)


def _hash(emitter: Emitter, call: CallTerm) -> Code:
    hashes = emitter.constant(tuple(hash_of(a.type) for a in call.arguments))
    values = ", ".join(emitter.value(a) for a in call.arguments)
    return Code(f"x_hash({hashes}, {values})")


FUNCTIONS: tuple[Function, ...] = (Lazy("hash", _rule, _hash),)
