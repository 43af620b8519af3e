"""What a replica says of itself, for people."""

from __future__ import annotations

from dataclasses import replace

from headrace.compute.protocol.commands import CancelPeek
from headrace.compute.replica.work_watch import memory_of_process
from tests.compute.replica.flows import BID, all_bids, shares
from tests.compute.replica.rig import CONFIG, Rig


def test_a_replica_tells_now_and_then_how_it_is() -> None:
    rig = Rig(config=replace(CONFIG, introspection=1000)).connect()
    rig.collection("s1", BID, (("a", 5), 3, 2), upper=10).index("u1", all_bids(), as_of=5)
    rig.run()
    rig.now += 1000
    rig.run()
    assert [status.text for status in rig.statuses("u1")] == ["hydrated"]
    values = dict(rig.statuses(None)[-1].values)
    assert (values["rows"], values["dataflows"], values["peeks"]) == (2, 1, 0)
    told = len(rig.statuses(None))
    rig.run()
    assert len(rig.statuses(None)) == told


def test_it_tells_how_long_cancelling_took() -> None:
    rig = Rig(config=replace(CONFIG, introspection=1000)).connect()
    rig.collection("s1", BID, upper=10).index("u1", all_bids(), as_of=5).run()
    asked = rig.ask("u1", 50)
    rig.run()
    rig.tell(CancelPeek(asked))
    rig.now += 1000
    rig.run()
    assert 0 <= dict(rig.statuses(None)[-1].values)["cancel_ms_max"] < 100


def test_it_tells_of_a_failure_once() -> None:
    rig = Rig(config=replace(CONFIG, introspection=1000)).connect()
    rig.collection("s1", BID, (("a", 0), 3, 1), upper=10).index("u1", shares(), as_of=5)
    for _ in range(3):
        rig.run()
        rig.now += 1000
    assert ["failed" in status.text for status in rig.statuses("u1")].count(True) == 1


def test_the_memory_of_the_process_is_known() -> None:
    assert memory_of_process() > 1_000_000
