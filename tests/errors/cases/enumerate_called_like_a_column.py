from typing import NamedTuple

import penstock as ps


class Line(NamedTuple):
    index: int
    text: str


flow = ps.Flow("book")
lines = flow.source("lines", Line)
flow.sink("numbered", lines.enumerate())
