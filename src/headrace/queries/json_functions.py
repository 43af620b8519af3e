"""Lowering of Spark's functions of texts of JSON and CSV."""

from __future__ import annotations

from headrace.expr.tree import Call, Expr
from headrace.queries.catalyst_plan import OPTIONS, CatalystNode, parse_type
from headrace.queries.expressions import Scope, lowers
from headrace.queries.scalar_functions import of_utf8, refuse
from headrace.queries.session_settings import TIME_ZONE, UTC_NAMES, refused_setting


@lowers("JsonToStructs")
def _from_json(node: CatalystNode, scope: Scope) -> Expr:
    options = {name.lower(): value for name, value in node.fields.get(OPTIONS, {}).items()}
    mode = options.pop("mode", "PERMISSIVE").upper()
    for name in options:
        refuse(f"from_json with the option {name!r}, which has no incremental form yet", "from_json")
    if mode not in ("PERMISSIVE", "FAILFAST"):
        refuse(f"from_json in the mode {mode}, which has no incremental form yet", "from_json")
    schema = parse_type(node.fields["schema"])
    return Call("from_json", scope.lower_all(node.children), (schema, mode))


@lowers("StructsToCsv")
def _to_csv(node: CatalystNode, scope: Scope) -> Expr:
    for name in node.fields[OPTIONS]:
        refuse(
            f"to_csv with the option {name!r}, which has no incremental form yet", "to_csv", "leave it out"
        )
    return Call("to_csv", (scope.lower(node.child("child")),))


@lowers("CsvToStructs")
def _from_csv(node: CatalystNode, scope: Scope) -> Expr:
    refuse(
        "the query uses from_csv, which has no incremental form yet",
        "from_csv",
        why="How a line is divided, and what is left of a malformed one, is a matter of the parser of Spark.",
        fix="write the text as JSON, and use from_json; or take its parts by split and casts; or declare a"
        " source of CSV files",
    )


_WRITER = "StructsToJsonEvaluator("


@lowers("Invoke")
def _invoked(node: CatalystNode, scope: Scope) -> Expr:
    target, *arguments = node.children
    of_text = {"isValid": "is_valid_utf8", "makeValid": "make_valid_utf8"}.get(node.fields["functionName"])
    if of_text is not None:
        return of_utf8(of_text, node, scope)
    called = str(target.fields.get("value")) if target.kind == "Literal" else target.kind
    if not called.startswith(_WRITER):
        method = f"{called.partition('(')[0]}.{node.fields['functionName']}"
        refuse(f"the query uses {method}, which has no incremental form yet", method)
    options, _, _ = called.removeprefix(_WRITER).partition("),")
    if options != "Map(":
        refuse(f"to_json with the options {options.partition('(')[2]}", "to_json", "leave them out")
    _, _, zone = called.removesuffix("))").rpartition("Some(")
    if "TimestampType" in called and zone not in UTC_NAMES:
        raise refused_setting(TIME_ZONE, zone, "to_json is computed in that time zone.")
    return Call("to_json", scope.lower_all(tuple(arguments)))
