"""What the measurements share: contestants that take turns, checked answers, a table of ratios."""

from benches.measure.race import race
from benches.measure.table import LiveTable, Table

__all__ = ["LiveTable", "Table", "race"]
