"""Reasons why operators cannot be served by a replica.

A replica starts from the rows of its collections at some time, each with its count, in any order and cut into
any ticks, and continues with changes. It must agree with a replica that has seen every change. So results
must not depend on the order of rows, on their time of arrival, or on the rows they arrive with.
"""

from __future__ import annotations

from headrace.graph.operator_declarations import Unservable

OF_A_TICK = Unservable(
    "Its answers depend on how the input is cut into ticks, and who serves it cuts as is convenient.",
    'keep the rows over the ticks, lifetime="static", or name what belongs together by a column',
)
IN_ORDER = Unservable(
    "It reads the order in which rows come, and collections keep none.",
    "say what the order is by a column: top_k(n, by=...), hr.first(..., by=...), hr.last(..., by=...)",
)
OLD_TOMBSTONES = Unservable(
    "Which tombstones are forgotten before an older record comes depends on how the input is cut into ticks.",
    "leave out tombstones=, and they are kept for good",
)
LATER = Unservable(
    "It speaks of earlier ticks, and at a time there are only the rows of that time.",
    "give rows a time in a column, and compare that",
)
EVENT_TIME = Unservable(
    "How far event time has passed depends on when rows came, and a replica that starts later sees them"
    " all at once.",
    "group by col.at.tumble(...) without a watermark: each window is a group, and changes while rows come",
)
SIGNAL = Unservable(
    "A signal is what was said last, and when: collections hold rows.",
    "write the values as rows with their times; hr.last(..., by=hr.col.at) is the latest one",
)
BOUNDED = Unservable(
    "A collection can always be written to, and this source ends with its first tick.",
    "leave out bounded=True",
)
RECORDS = Unservable(
    "A collection holds rows, and what a table with a key is given are records that set or delete them.",
    "declare a source of records, and hold their rows by upsert(..., sequence=...)",
)
LOOP_OF_LATTICES = Unservable(
    "In a loop, which of its growing values are shown depends on ticks.",
    "put the lattice_fold behind the loop",
)
UNCLAIMED = Unservable(
    "The function may give something else when rows come in another order, and collections keep none.",
    "claim commutative=True if it does not (`headrace check --claims` tries it), "
    "or use group_by(...).agg(...)",
)
