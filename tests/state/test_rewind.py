"""Going back to a tick is as if the later ones had not happened."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace import Change, Flow, col
from headrace.errors import BadInput, CheckpointDamaged, CheckpointInUse, FlowChanged
from headrace.io import Changelog
from headrace.state import rewind as rewinding
from headrace.state.checkpoint import Checkpoint
from headrace.state.manifest import Manifest, as_it_is, exactly
from headrace.state.rewind import rewind


class Bid(NamedTuple):
    item: str
    price: int


BIDS = [Bid("ab"[n % 2], n) for n in range(12)]


def flow() -> Flow:
    flow = Flow("best")
    flow.sink("best", flow.source("bids", Bid).group_by(col.item).agg(best=hr.max(col.price)))
    return flow


def run(folder: Path, rows: list[Bid], sink: Any = None) -> list[Change[Any]]:
    changes: list[Change[Any]] = []
    hr.run(
        flow(), {"bids": rows}, {"best": changes if sink is None else sink},
        checkpoint=folder, tick_rows=2,
    )  # fmt: skip
    return changes


@pytest.mark.parametrize("back", [4, 5, 6])
def test_the_ticks_after_it_are_run_again(tmp_path: Path, back: int) -> None:
    first = run(tmp_path / "c", BIDS)
    done = rewind(tmp_path / "c", back)
    assert (done.tick, done.forgotten) == (back, 6 - back)
    again = run(tmp_path / "c", BIDS)
    assert again == (first[-4 * (6 - back) :] if back < 6 else [])


def test_a_tick_that_is_not_kept_is_refused_with_those_that_are(tmp_path: Path) -> None:
    run(tmp_path, BIDS)
    for tick in (3, 7):
        with pytest.raises(BadInput, match="are 4 to 6"):
            rewind(tmp_path, tick)
    assert run(tmp_path, BIDS) == []


def test_one_can_go_back_as_far_as_ticks_are_kept(tmp_path: Path) -> None:
    with Checkpoint.open(tmp_path, exactly(Manifest("f", [])), keep_ticks=5) as checkpoint:
        for tick in range(10):
            checkpoint.commit({}, positions=tick)
    assert len(list((tmp_path / "commit").iterdir())) == 5
    rewind(tmp_path, 8)
    rewind(tmp_path, 6)
    with Checkpoint.open(tmp_path, as_it_is, keep_ticks=1) as checkpoint:
        assert (checkpoint.tick, checkpoint.last and checkpoint.last.positions) == (6, 5)
        checkpoint.commit({})
    assert [p.name for p in (tmp_path / "commit").iterdir()] == ["000000000007.json"]


def test_at_least_the_last_tick_is_kept(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="keep_ticks is 0"):
        Checkpoint.open(tmp_path, exactly(Manifest("f", [])), keep_ticks=0)


def test_a_sink_that_holds_later_ticks_says_so_in_the_next_run(tmp_path: Path) -> None:
    run(tmp_path / "c", BIDS, Changelog(tmp_path / "out"))
    assert rewind(tmp_path / "c", 5).sinks == ("best",)
    with pytest.raises(BadInput, match="already holds tick 6"):
        run(tmp_path / "c", BIDS, Changelog(tmp_path / "out"))
    shutil.rmtree(tmp_path / "out" / "tick=000000000006", ignore_errors=True)


def test_a_checkpoint_in_use_is_left_alone(tmp_path: Path) -> None:
    with Checkpoint.open(tmp_path, exactly(Manifest("f", []))) as checkpoint:
        checkpoint.commit({})
        with pytest.raises(CheckpointInUse):
            rewind(tmp_path, 1)


def test_where_no_checkpoint_is_nothing_is_made(tmp_path: Path) -> None:
    with pytest.raises(FlowChanged, match="has no ticks"):
        rewind(tmp_path / "nothing", 1)
    assert not (tmp_path / "nothing").exists()


def test_a_run_does_not_begin_while_going_back_is_half_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(tmp_path, BIDS)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(rewinding, "_forget_after", stop)
        with pytest.raises(KeyboardInterrupt):
            rewind(tmp_path, 4)
    with pytest.raises(CheckpointDamaged, match=f"headrace rewind {tmp_path} 4"):
        run(tmp_path, BIDS)
    rewind(tmp_path, 4)
    assert run(tmp_path, BIDS) == first[-8:]


@pytest.mark.parametrize("where", ["_cut_sparks_logs", "_forget_after"])
def test_going_back_that_was_broken_off_ends_at_that_tick_or_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    first = run(tmp_path, BIDS)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(rewinding, where, stop)
        with pytest.raises(KeyboardInterrupt):
            rewind(tmp_path, 5)
    with pytest.raises(CheckpointDamaged, match=f"headrace rewind {tmp_path} 5"):
        rewind(tmp_path, 6)
    assert rewind(tmp_path, 4).tick == 4
    assert run(tmp_path, BIDS) == first[-8:]


def test_only_sinks_that_later_ticks_were_written_to_may_hold_them(tmp_path: Path) -> None:
    run(tmp_path / "c", BIDS[:8], Changelog(tmp_path / "out"))
    run(tmp_path / "c", BIDS)
    assert rewind(tmp_path / "c", 4) == rewinding.Rewound(4, 2, ())


def test_a_tick_whose_positions_spark_has_forgotten_is_refused(tmp_path: Path) -> None:
    with Checkpoint.open(tmp_path, exactly(Manifest("f", [])), keep_ticks=9) as checkpoint:
        for batch in range(5):
            checkpoint.commit({}, positions={"batch": batch, "query": None})
    (tmp_path / "source" / "offsets").mkdir(parents=True)
    for batch in (3, 4):
        (tmp_path / "source" / "offsets" / f"{batch}").write_text("")
    with pytest.raises(BadInput, match="how far its batch 2 had read"):
        rewind(tmp_path, 3)
    assert sorted(os.listdir(tmp_path / "source" / "offsets")) == ["3", "4"]
    assert rewind(tmp_path, 4).forgotten == 1


def test_the_log_of_sparks_positions_is_cut_at_the_batch_of_the_tick(tmp_path: Path) -> None:
    with Checkpoint.open(tmp_path, exactly(Manifest("f", []))) as checkpoint:
        for batch in range(12):
            checkpoint.commit({}, positions={"batch": batch, "query": None})
    for log in ("offsets", "commits"):
        (tmp_path / "source" / log).mkdir(parents=True)
        for batch in range(13 - (log == "commits")):
            for name in (f"{batch}", f".{batch}.crc"):
                (tmp_path / "source" / log / name).write_text("")
    rewind(tmp_path, 11)
    for log in ("offsets", "commits"):
        assert {*os.listdir(tmp_path / "source" / log)} == {
            name for batch in range(11) for name in (f"{batch}", f".{batch}.crc")
        }
