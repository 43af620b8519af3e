"""`headrace state` shows what a checkpoint holds, and what of it is damaged."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

typer = pytest.importorskip("typer")
from typer.testing import CliRunner

import headrace as hr
from headrace import Flow, col
from headrace.cli.main import app
from headrace.io import Changelog
from headrace.io.files import compaction
from headrace.state.inspection import inspect, rows_of_key


class Bid(NamedTuple):
    item: str
    price: int


class Item(NamedTuple):
    item: str
    owner: str


def flow() -> Flow:
    flow = Flow("owned")
    bids = flow.source("bids", Bid)
    joined = bids.join(flow.source("items", Item), on="item", name="owned")
    flow.sink("best", joined.group_by(col.owner).agg(best=hr.max(col.price)))
    return flow


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    bids = [Bid("ab"[n % 2], n) for n in range(10)]
    items = [Item("a", "ann"), Item("b", "bob")]
    hr.run(flow(), {"bids": bids, "items": items}, checkpoint=tmp_path / "c", tick_rows=3)
    return tmp_path / "c"


def told(*arguments: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["state", *map(str, arguments)])
    assert done.exit_code == code, done.output
    return done.output


def test_a_checkpoint_is_told_operator_by_operator(checkpoint: Path) -> None:
    lines = [" ".join(line.split()) for line in told(checkpoint).replace(str(checkpoint), "C").splitlines()]
    shown = [re.sub(r"\b[0-9a-f]{8}\b", "NAME", re.sub(r"py:\d+", "py:N", line)) for line in lines]
    assert [re.sub(r"files, [\d,]+ bytes", "files, N bytes", line.strip("─")) for line in shown] == [
        "checkpoint C, of a run on one process",
        "tick 4 (back to 2), 1 shard, 5 files, N bytes",
        "read of bids: rows 10",
        "read of items: rows 2",
        "name operator at slot shards keys bytes",
        "",
        "owned join 'owned' test_state.py:N left 1 2 170",
        "owned join 'owned' test_state.py:N right 1 2 24",
        "NAME aggregate (by (owner): best=max(price)) test_state.py:N groups 1 2 81",
    ]


def test_all_that_a_group_holds_is_shown_together(checkpoint: Path) -> None:
    (found,) = rows_of_key(checkpoint, "aggregate (by (owner): best=max(price))", "ann")
    assert found.key == "ann"
    assert sorted(found.value.values()) == [1, 5], "its greatest price, and its rows"


def test_json_says_the_same(checkpoint: Path) -> None:
    body = json.loads(told(checkpoint, "--json"))
    assert (body["tick"], body["oldest"], body["shards"], body["on"]) == (4, 2, 1, "one process")
    assert body["positions"] == {"bids": {"rows": 10}, "items": {"rows": 2}}
    assert [(slot["called"], slot["what"], slot["keys"]) for slot in body["slots"]] == [
        ("owned", "left", 2),
        ("owned", "right", 2),
        (None, "groups", 2),
    ]
    assert body["damage"] == []


def test_the_rows_of_one_key_are_told(checkpoint: Path) -> None:
    rows = json.loads(told(checkpoint, "--operator", "owned", "--key", '"a"', "--json"))
    assert [(row["slot"], row["value"]) for row in rows] == [
        ("left", [[["a", n], 1] for n in range(0, 10, 2)]),
        ("right", [[["a", "ann"], 1]]),
    ]
    text = told(checkpoint, "-o", "owned", "-k", '"b"')
    assert '["b", 9]' in text
    assert '["b", "bob"]' in text
    assert "no state for this key" in told(checkpoint, "-o", "owned", "-k", '"c"')


def test_an_operator_is_found_by_name_and_by_the_name_of_its_state(checkpoint: Path) -> None:
    name = inspect(checkpoint).slots[-1].name
    assert "groups" in told(checkpoint, "--operator", name)
    assert "left" not in told(checkpoint, "--operator", name)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--operator", "nothing"], "no operator 'nothing' has state"),
        (["--operator", "owned", "--key", "a"], "is not JSON"),
        (["--key", "1"], "--key needs --operator"),
    ],
)
def test_what_cannot_be_told_is_refused(checkpoint: Path, arguments: list[str], text: str) -> None:
    assert text in told(checkpoint, *arguments, code=2)


def test_a_folder_without_ticks_is_no_checkpoint(tmp_path: Path) -> None:
    assert "has no ticks" in told(tmp_path / "nothing", code=2)
    assert not (tmp_path / "nothing").exists()


def damage_deleted(path: Path) -> None:
    path.unlink()


def damage_altered(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [damage_deleted, damage_altered])
def test_damage_is_told_by_file(checkpoint: Path, damage: Callable[[Path], Any]) -> None:
    victim = max(checkpoint.glob("state/*/*"))  # the older ones are for a rewind
    damage(victim)
    assert f"damaged: {victim}" in told(checkpoint, code=1).replace("\n", "")


def test_a_checkpoint_in_use_can_be_read(checkpoint: Path) -> None:
    seen: list[str] = []
    bids = [Bid("ab"[n % 2], n) for n in range(20)]
    items = [Item("a", "ann"), Item("b", "bob")]
    hr.run(
        flow(), {"bids": bids, "items": items}, checkpoint=checkpoint, tick_rows=3,
        on_tick=lambda _: seen.append(told(checkpoint).splitlines()[1]),
    )  # fmt: skip
    assert [line.split()[1] for line in seen] == ["5", "6", "7", "8"]


# -- commands that change it -----------------------------------------------------------------------


def commanded(*arguments: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, [*map(str, arguments)])
    assert done.exit_code == code, done.output
    return done.output


def test_rewind_goes_back_to_a_tick_that_is_kept(checkpoint: Path) -> None:
    assert "the ticks that are kept are 2 to 4" in commanded("rewind", checkpoint, 1, code=2)
    assert commanded("rewind", checkpoint, 3) == "back at tick 3, 1 forgotten\n"
    assert commanded("rewind", checkpoint, 3) == "the last tick is 3 already: nothing to forget\n"
    assert json.loads(told(checkpoint, "--json"))["tick"] == 3


def test_compact_merges_the_old_ticks_of_a_changelog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "LISTING_SECONDS", 0.0)
    numbers = Flow("numbers")
    numbers.sink("out", numbers.source("numbers", int))
    hr.run(numbers, {"numbers": range(8)}, {"out": Changelog(tmp_path / "out")}, tick_rows=1)
    assert commanded("compact", tmp_path / "out") == "nothing to merge, 8 ticks kept\n"
    assert commanded("compact", tmp_path / "out", "--keep", 2) == "nothing to merge, 8 ticks kept\n"
    monkeypatch.setattr(compaction, "SETTLED_SECONDS", 0.0)
    assert commanded("compact", tmp_path / "out", "--keep", 2) == "6 folders merged into 1, 2 ticks kept\n"
    assert "is not a changelog" in commanded("compact", tmp_path, code=2)
    assert "--keep" in commanded("compact", tmp_path / "out", "--keep", 0, code=2)


def test_reshard_needs_a_checkpoint_of_spark(checkpoint: Path) -> None:
    pytest.importorskip("pyspark")
    flow = f"{__file__}:flow"
    assert "of a run on one process" in commanded("reshard", checkpoint, 2, flow, code=2)
    assert commanded("reshard", checkpoint, 0, flow, code=2)


def test_values_that_look_like_markup_are_shown_as_they_are(tmp_path: Path) -> None:
    flow = Flow("odd")
    flow.sink("best", flow.source("bids", Bid).group_by(col.price).agg(item=hr.max(col.item), name="[/by]"))
    hr.run(flow, {"bids": [Bid("[/b] :warning:", 1)]}, checkpoint=tmp_path / "[red]")
    assert "[/by]" in told(tmp_path / "[red]")
    assert "[/b] :warning:" in told(tmp_path / "[red]", "-o", "[/by]", "-k", "1")
