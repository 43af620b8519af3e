"""Settings of a Spark session that change what a query answers.

Most act when Spark parses, analyses or optimises a query, so its plan has them: `caseSensitive`, ordinals in
GROUP BY, `timestampType`, types of literals, padding of CHAR. A query is planned in a copy of the user's
session, so these are honoured. Others act when rows are computed; under another value than functions here
assume, a query is refused. The time zone is a matter of each expression: its plan says in which it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from headrace.errors import UnsupportedQuery

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.errors import SourceLocation

ANSI = "spark.sql.ansi.enabled"
PRECISION = "spark.sql.decimalOperations.allowPrecisionLoss"
TIME_ZONE = "spark.sql.session.timeZone"
UTC_NAMES = frozenset({"UTC", "Etc/UTC", "GMT", "Z", "+00:00"})

_LEGACY = "spark.sql.legacy."
_PYTHON = "spark.sql.execution.pythonUDF."
ASSUMED: Mapping[str, str] = MappingProxyType(
    {
        ANSI: "true",
        PRECISION: "true",
        "spark.sql.mapKeyDedupPolicy": "EXCEPTION",
        "spark.sql.icu.caseMappings.enabled": "true",
        "spark.sql.chunkBase64String.enabled": "true",
        "spark.sql.streaming.multipleWatermarkPolicy": "min",
        # JSON
        "spark.sql.jsonGenerator.ignoreNullFields": "true",
        "spark.sql.json.enableExactStringParsing": "true",
        "spark.sql.json.enablePartialResults": "true",
        "spark.sql.columnNameOfCorruptRecord": "_corrupt_record",
        f"{_LEGACY}json.allowEmptyString.enabled": "false",
        f"{_LEGACY}json.enableDateTimeParsingFallback": "",
        # functions as they were in older versions
        f"{_LEGACY}timeParserPolicy": "CORRECTED",
        f"{_LEGACY}allowNegativeScaleOfDecimal": "false",
        f"{_LEGACY}allowNullComparisonResultInArraySort": "false",
        f"{_LEGACY}allowZeroIndexInFormatString": "false",
        f"{_LEGACY}castComplexTypesToString.enabled": "false",
        f"{_LEGACY}codingErrorAction": "false",
        f"{_LEGACY}disableMapKeyNormalization": "false",
        f"{_LEGACY}followThreeValuedLogicInArrayExists": "true",
        f"{_LEGACY}histogramNumericPropagateInputType": "true",
        f"{_LEGACY}javaCharsets": "false",
        f"{_LEGACY}negativeIndexInArrayInsert": "false",
        f"{_LEGACY}nullInEmptyListBehavior": "",
        f"{_LEGACY}percentileDiscCalculation": "false",
        f"{_LEGACY}statisticalAggregate": "false",
        f"{_LEGACY}truncateForEmptyRegexSplit": "false",
        f"{_LEGACY}earlyEvalCurrentTime": "false",
        # how Python functions get and give values
        f"{_LEGACY}execution.pandas.groupedMap.assignColumnsByName": "true",
        f"{_LEGACY}execution.pythonUDF.pandas.conversion.enabled": "false",
        f"{_PYTHON}pandas.intToDecimalCoercionEnabled": "false",
        f"{_PYTHON}pandas.preferIntExtensionDtype": "false",
        "spark.sql.execution.pandas.convertToArrowArraySafely": "true",
        "spark.sql.execution.pyspark.binaryAsBytes": "true",
    }
)
"""Settings that act when rows are computed, with the value that functions here assume; empty: not set."""


def refuse_other_settings(
    setting: Callable[[str, str | None], str | None], location: SourceLocation | None = None
) -> None:
    """Raise `UnsupportedQuery` if a setting has another value than functions here assume.

    setting: the value of a setting, by its name and what it is unless it is set.
    """
    for name, assumed in ASSUMED.items():
        value = setting(name, assumed or None)
        if value is not None and value.lower() != assumed.lower():
            raise refused_setting(name, value, location=location)


def refused_setting(
    name: str, value: str, why: str = "", location: SourceLocation | None = None
) -> UnsupportedQuery:
    """Return the refusal of a query under a setting."""
    assumed = "UTC" if name == TIME_ZONE else ASSUMED[name]
    return UnsupportedQuery(
        f"{name} is {value}",
        where=[] if location is None else [location],
        why=why or "Rows would be computed otherwise than Spark computes them.",
        fix=f'spark.conf.set("{name}", "{assumed}")' if assumed else f'spark.conf.unset("{name}")',
        setting=name,
    )


def setting_of(session: SparkSession) -> Callable[[str, str | None], str | None]:
    """Return the values of a session's settings, by their names."""
    return session.conf.get
