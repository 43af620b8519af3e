"""tee: each value to several branches."""

from __future__ import annotations

from penstock.errors import SourceLocation
from penstock.pull.fan_out.hub import branches
from penstock.pull.options import whole
from penstock.pull.piece_checks import only
from penstock.pull.pieces import Source


def tee(source: Source, count: int = 2, *, ahead: int | None = 0) -> tuple[Source, ...]:
    """`count` sources that each give all values of the one, which is read once.

    All branches run in the same run: complete each and run them `together`, or bring them into one again
    with `merge` or the like. A branch that no pipeline of the run reads still counts, and holds up the
    others: `NeverAnswered` names it.

    ahead: how many values a branch may be behind the fastest. With 0 a value is asked for when every branch
           has asked for one, so the slowest sets the pace; None: any number. What it is behind is kept.

    done and errors of the source reach each branch after the values before. A branch that aborts or fails
    leaves at once, and the others go on; the last one aborts (or fails) the source, and its confirmation
    is that of the source.

    >>> from penstock.pull import collect, map, pull, together, values
    >>> plain, squares = tee(values([1, 2, 3]))
    >>> together(pull(plain, collect()), pull(squares, map(lambda x: x * x), collect())).run()
    ([1, 2, 3], [1, 4, 9])
    """
    only(Source, "tee", [source])
    whole("tee", "count", count, least=1)
    if ahead is not None:
        whole("tee", "ahead", ahead, least=0)
    return branches("tee", SourceLocation.of_caller(), source, count, choose=None, ahead=ahead)
