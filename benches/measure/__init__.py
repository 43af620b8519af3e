"""What the measurements share: contestants that take turns, checked answers, a table of ratios."""

from benches.measure.race import race
from benches.measure.table import Table

__all__ = ["Table", "race"]
