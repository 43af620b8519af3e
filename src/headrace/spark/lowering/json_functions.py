"""Lowering of functions on texts of JSON and CSV to Spark columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812

from headrace.expr.spark_columns import rebuilt, spark_type
from headrace.expr.types import StructType

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column

    from headrace.expr.typing_rules import CallTerm

    Lowering = Callable[[CallTerm, tuple[Any, ...]], Column]

_UTC = {"timeZone": "UTC"}
_AS_OTHER_FUNCTIONS = {"allowUnquotedControlChars": "true", "allowNonNumericNumbers": "false"}
"""Options for texts that are no strict JSON, by which `from_json` takes what the other functions do."""


def _from(call: CallTerm, arguments: tuple[Any, ...]) -> Column:
    # Spark wants a struct, an array or a map here, which the typing rule guarantees.
    type: Any = spark_type(call.type)
    read = F.from_json(arguments[0], type, {**_UTC, "mode": str(call.options[1])})
    # A map in which a key comes twice, as Spark makes them here, is an error when it is made of entries.
    return rebuilt(call.type, read, before=F.map_entries, after=F.map_from_entries)


def _tuple(call: CallTerm, arguments: tuple[Any, ...]) -> Column:
    # Spark's json_tuple makes rows. A map has the fields in order, also those of one name.
    text, *names = arguments
    entries = F.map_entries(F.from_json(text, "map<string, string>", _AS_OTHER_FUNCTIONS))

    def last(name: Column) -> Column:
        of_name = F.filter(entries, lambda entry: (entry["key"] == name) & entry["value"].isNotNull())
        return F.try_element_at(of_name, F.lit(-1))["value"]

    assert isinstance(call.type, StructType)
    fields = zip(call.type.fields, names, strict=True)
    return F.struct(*(last(name).alias(field.name) for field, name in fields))


JSON: dict[str, Lowering] = {
    "from_json": _from,
    "json_tuple": _tuple,
    "to_csv": lambda call, arguments: F.to_csv(arguments[0], _UTC),
    "to_json": lambda call, arguments: F.to_json(arguments[0], _UTC),
}
