"""Identity of relations that cannot be asked for their changes: of databases, data sources and memory.

What a relation is called is shown and written down, so it is free of secrets, and the same from run to run.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.queries.plan_details import items, pairs

_SECRET = r"password|passphrase|passwd|pwd|secret|token|credential|(?:access|account|api|private)[._-]?key"
_KEY = re.compile(rf"(?i){_SECRET}")
_NAMED = re.compile(rf"""(?i)((?:{_SECRET})[\w.-]*(?:=|['"][:,]\s*))('[^']*'|"[^"]*"|[^\s;&,)}}]*)""")
_USER = re.compile(r"(//|thin:)[^\s@]*@")

_LONGEST = 60
"""Characters of a query or of options that a title has room for."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What a relation is.

    title: for users. told: what is known of it, without secrets, from run to run.
    exact: the same only for the same rows, in this process.
    """

    title: str
    told: str
    exact: str


def without_secrets(text: str) -> str:
    """Return a text without the passwords and tokens in its URLs and options."""
    return _NAMED.sub(r"\1***", _USER.sub(r"\1***@", text))


def without_secret_options(options: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return options without those that are secret, and without the secrets in others."""
    return [(key, without_secrets(value)) for key, value in options if not _KEY.search(key)]


def identity_of(node: Any) -> Identity | None:
    """Return the identity of a relation; None for a leaf of a plan that is not a relation on its own."""
    found = _IDENTITIES.get(node.nodeName())
    return None if found is None else found(node)


def _of_relation(node: Any) -> Identity:
    relation = node.relation()
    kind: str = relation.getClass().getSimpleName()
    if kind == "JDBCRelation":
        return _of_jdbc(relation, node.schema().json())
    # It says nothing of its options: one that is not equal to it is another input.
    return Identity(kind, kind, f"{kind} {relation.hashCode()} {relation.toString()}")


def _of_jdbc(relation: Any, schema: str) -> Identity:
    given = relation.jdbcOptions()
    options = sorted(pairs(given.parameters()))
    parts = [str(part.whereClause()) for part in relation.parts()]
    where = re.split("[;?]", without_secrets(given.url()))[0]
    title = f"{_short(without_secrets(given.tableOrQuery()))} at {where}"
    told = f"{without_secret_options(options)} {parts} {schema}"
    return Identity(title, told, f"jdbc {options} {parts} {schema}")


def _of_data_source(node: Any) -> Identity:
    table, name = node.table(), node.identifier()
    options = sorted((str(key), str(value)) for key, value in node.options().asCaseSensitiveMap().items())
    catalog = f"{node.catalog().get().name()}." if node.catalog().isDefined() else ""
    called = f"{catalog}{name.get().toString()}" if name.isDefined() else table.name()
    known = without_secret_options(options)
    shown = _short(", ".join(f"{key}={value}" for key, value in known))
    rest = f"{table.getClass().getName()} {called} {node.timeTravelSpec().toString()} {node.schema().json()}"
    title = without_secrets(called) + (f" ({shown})" if shown else "")
    return Identity(title, f"{known} {without_secrets(rest)}", f"{options} {rest}")


def _of_memory(node: Any) -> Identity:
    names = _short(", ".join(each.name() for each in items(node.output())))
    title = f"rows in memory ({names})"
    return Identity(title, f"{title} {node.schema().json()}", f"{title} {node.rdd().id()}")


_IDENTITIES: dict[str, Callable[[Any], Identity]] = {
    "LogicalRelation": _of_relation,
    "DataSourceV2Relation": _of_data_source,
    "LogicalRDD": _of_memory,
}


def digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."
