"""The page on event time: its code builds flows, in the order in which it stands there."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import penstock as ps
from penstock import col, left, right

PAGE = Path(__file__).parents[2] / "docs" / "event-time.md"


class Seen(NamedTuple):
    id: int
    at: datetime


def test_what_the_page_shows_can_be_built() -> None:
    flow = ps.Flow("page")
    shown = flow.source("shown", Seen).watermark(col.at, lateness="1s")
    clicked = flow.source("clicked", Seen).watermark(col.at, lateness="1s")
    names: dict[str, Any] = {
        "ps": ps, "col": col, "left": left, "right": right, "NamedTuple": NamedTuple,
        "datetime": datetime, "timedelta": timedelta, "shown": shown, "clicked": clicked,
    }  # fmt: skip
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        last = block.rstrip().splitlines()[-1]
        exec(compile(block, str(PAGE), "exec", dont_inherit=True), names)
        if last.startswith("shown.join"):
            flow.sink("out", eval(last, names))
            assert "forgets" in ps.explain(flow)
    assert names["minutes"].schema.names == ("auction", "window_start", "window_end", "bids", "best")
    engine = ps.Engine(names["flow"])
    assert list(engine.tick(bids=[])) == ["late_bids", "minutes"]
