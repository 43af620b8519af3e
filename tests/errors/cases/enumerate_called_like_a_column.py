from typing import NamedTuple

import headrace as hr


class Line(NamedTuple):
    index: int
    text: str


flow = hr.Flow("book")
lines = flow.source("lines", Line)
flow.sink("numbered", lines.enumerate())
