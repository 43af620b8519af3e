"""Identity of relations that cannot be asked for their changes: of databases, data sources and memory.

What a relation is called is shown and written down, so it is free of secrets, and the same from run to run.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.queries.plan_details import items, pairs

_SECRET = (
    r"password|passphrase|passcode|passwd|pwd|secret|token|credential|signature"
    r"|(?:access|account|api|private)[._-]?key"
)
_KEY = re.compile(rf"(?i){_SECRET}")
_NAME = rf"(?:{_SECRET})[\w.-]*|(?<![a-z])(?:sig|auth)\b"
_VALUE = r"""'(?:[^'\\]|\\.|'')*'?|"(?:[^"\\]|\\.|"")*"?|\{(?:[^}]|\}\})*\}?|[^\s;&]*"""
_NAMED = re.compile(rf"""(?i)((?:{_NAME})(?:\s*=\s*(?=['"{{])|=|['"][:,]\s*))(?:{_VALUE})""")
_HEADER = re.compile(r"""(?i)(\bauthorization['"]?\s*[:=,]\s*['"]?|\bbearer\s+)[^'"\n]+""")
_USER = re.compile(r"(//|thin:)\S*@")
"""A user and a password, which may hold any character: up to the last @."""

_PLACES, _TABLES = ("path", "url"), ("dbtable", "query", "table")
"""Options that say what is read. Others may hold secrets under any name."""

_LONGEST = 60
"""Characters of a query or of options that a title has room for."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of a relation.

    title: for users. description: what it reads, without secrets, the same from run to run.
    exact: the same only for the same rows, in this process.
    """

    title: str
    description: str
    exact: str


def without_secrets(text: str) -> str:
    """Return a text without the passwords and tokens in its URLs and options."""
    return _NAMED.sub(r"\1***", _HEADER.sub(r"\1***", _USER.sub(r"\1***@", text)))


def place_of(url: str) -> str:
    """Return a path or URL without its user, query and parameters."""
    return re.split(r"[;?#]|:(?=\w+=)", without_secrets(url))[0]


def _shown(options: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the options that may be shown: those that say what is read."""
    places = [(key, place_of(value)) for key, value in options if key.lower() in _PLACES]
    tables = [(key, without_secrets(value)) for key, value in options if key.lower() in _TABLES]
    return sorted(places + tables)


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
    table, where = without_secrets(given.tableOrQuery()), place_of(given.url())
    title = f"{_short(table)} at {where}"
    return Identity(title, f"{table} at {where} {schema}", f"jdbc {options} {parts} {schema}")


def _of_data_source(node: Any) -> Identity:
    table, name = node.table(), node.identifier()
    options = sorted((str(key), str(value)) for key, value in node.options().asCaseSensitiveMap().items())
    catalog = f"{node.catalog().get().name()}." if node.catalog().isDefined() else ""
    called = f"{catalog}{name.get().toString()}" if name.isDefined() else table.name()
    known = _shown(options)
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
