"""Signals against hand-written loops, and the hybrid order against the two it is made of.

    python benches/signals.py [--quick]

1. The diamond (a + 1) / (a + 2), each event a tick.
2. A thousand inputs, each with its own operator, and a sum per ten of them: one input per
   event, and all inputs in every tick.
3. Two thousand operators of which a tick activates 2 to 64 %: compiled blocks scheduled by a
   heap, against single operators scheduled by a heap, and all of them looked at in each tick.

Answers are compared, in the third part also how often each operator is activated. Other
libraries are in `peers.py`.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import time
from collections.abc import Mapping
from typing import Any, Literal

import headrace as hr
from benches.measure import Table, race

INPUTS, PER_SUM = 1_000, 10
LANES, LANE = 50, 20
SCHEDULES: tuple[Literal["hybrid", "dynamic", "static"], ...] = ("hybrid", "dynamic", "static")


def diamond(events: int) -> None:
    values = [float(x) for x in range(events)]

    def by_hand() -> list[float]:
        out: list[float] = []
        for a in values:
            b = a + 1
            c = a + 2
            out.append(b / c)
        return out

    flow = hr.Flow("diamond")
    a = flow.signal("a", float)
    flow.sink("d", (a + 1) / (a + 2))
    race(
        f"diamond; {events:,} events, a tick each",
        {"by hand": by_hand, "headrace": lambda: hr.Engine(flow).replay(a=values)["d"].values},
        limits={"headrace": 2},
    )


def total(*values: int) -> int:
    return sum(values)


def wide_flow() -> hr.Flow:
    flow = hr.Flow("sums per ten")
    inputs = [flow.signal(f"i{at}", int) + 1 for at in range(INPUTS)]
    for at in range(0, INPUTS, PER_SUM):
        flow.sink(f"s{at // PER_SUM}", hr.lift(total)(*inputs[at : at + PER_SUM]))
    return flow


def sparse(events: int) -> None:
    rng = random.Random(1)
    history = [(f"i{rng.randrange(INPUTS)}", n) for n in range(events)]

    def by_hand() -> list[tuple[int, int]]:
        group = {f"i{at}": at // PER_SUM for at in range(INPUTS)}
        values: dict[str, int] = {}
        sums, known = [0] * (INPUTS // PER_SUM), [0] * (INPUTS // PER_SUM)
        out: list[tuple[int, int]] = []
        for name, value in history:
            value += 1
            before = values.get(name)
            values[name] = value
            at = group[name]
            if before is None:
                known[at] += 1
                sums[at] += value
            else:
                sums[at] += value - before
            if known[at] == PER_SUM:
                out.append((at, sums[at]))
        return summed(out)

    flow = wide_flow()

    def ours() -> list[tuple[int, int]]:
        shown = hr.Engine(flow).replay(history)  # built anew: it must not know the values before
        return summed(
            (int(name[1:]), value) for name, emissions in shown.items() for value in emissions.values
        )

    medians = race(
        f"{INPUTS:,} inputs, sums per {PER_SUM}; {events:,} events of one input, built each time",
        {"by hand": by_hand, "headrace": ours},
        repeats=3,
    )
    running: list[float] = []
    for _ in range(3):
        fresh = hr.Engine(wide_flow())
        gc.collect()
        start = time.process_time_ns()
        fresh.replay(history)
        running.append((time.process_time_ns() - start) / events)
    ratio = statistics.median(running) * events / 1e6 / medians["by hand"]
    print(f"  without building: {statistics.median(running):,.0f} ns per event, {ratio:.2f} times the loop")


def summed(pairs: Any) -> list[tuple[int, int]]:
    """Per group the sum of all that was shown."""
    sums: dict[int, int] = {}
    for group, value in pairs:
        sums[group] = sums.get(group, 0) + value
    return sorted(sums.items())


def dense(ticks: int) -> None:
    rng = random.Random(2)
    columns = {f"i{at}": [rng.randrange(100) for _ in range(ticks)] for at in range(INPUTS)}

    def by_hand() -> list[list[int]]:
        out: list[list[int]] = [[] for _ in range(INPUTS // PER_SUM)]
        for row in zip(*columns.values(), strict=True):
            for at in range(0, INPUTS, PER_SUM):
                sum = 0
                for value in row[at : at + PER_SUM]:
                    sum += value + 1
                out[at // PER_SUM].append(sum)
        return out

    engine = hr.Engine(wide_flow())
    engine.replay(**{name: column[:1] for name, column in columns.items()})

    def ours() -> list[list[int]]:
        return [emissions.values for emissions in engine.replay(**columns).values()]

    race(
        f"{INPUTS:,} inputs, sums per {PER_SUM}; {ticks:,} ticks of all inputs, loop compiled before",
        {"by hand": by_hand, "headrace": ours},
        repeats=5,
    )


# -- activity --------------------------------------------------------------------------------------------


def lane(signal: hr.Signal[int]) -> hr.Signal[int]:
    """Twenty operators: diamonds of unequal sides."""
    value = signal
    for at in range((LANE - 2) // 3):
        value = (value + at) + (value * 2) % 1009
    return value + 1


def lanes_flow() -> hr.Flow:
    """Fifty lanes, of which each opens a gate for every other value, and fifty that read two gates each."""
    flow = hr.Flow("lanes")
    gates = [
        lane(flow.signal(f"i{at}", int)).filter(lambda value: value % 2 == 0, name=f"gate{at}")
        for at in range(LANES)
    ]
    for at in range(LANES):
        flow.sink(f"o{at}", lane(gates[at] + gates[(at + 1) % LANES]))
    return flow


def activity(cycles: int) -> None:
    table = Table(
        "operators of which a tick activates some; us per tick", "active", *SCHEDULES, "dynamic/hybrid",
        "static/hybrid", "at least",
    )  # fmt: skip
    flow = lanes_flow()
    count = sum(node.operator.kind not in ("sink", "signal") for node in flow.graph().nodes)
    counted = {s: warmed_up(hr.Engine(flow, schedule=s, count_activations=True)) for s in SCHEDULES}
    timed = {s: warmed_up(hr.Engine(flow, schedule=s)) for s in SCHEDULES}
    for inputs in (1, 3, 9, 20, 35, LANES - 1):
        rng = random.Random(inputs)
        history = [
            {f"i{at}": rng.randrange(10_000) for at in rng.sample(range(LANES), inputs)}
            for _ in range(cycles)
        ]
        found = {schedule: activated(engine, history) for schedule, engine in counted.items()}
        assert found["hybrid"] == found["dynamic"] == found["static"]
        took = {
            schedule: statistics.median(replayed(engine, history) for _ in range(3))
            for schedule, engine in timed.items()
        }
        _, activations = found["hybrid"]
        share = sum(k for n, k in activations.items() if n.startswith(("lift", "gate")))
        table.add(
            f"{100 * share / cycles / count:.0f} %",
            *(took[schedule] for schedule in SCHEDULES),
            took["dynamic"] / took["hybrid"],
            took["static"] / took["hybrid"],
            "3",
        )
    print(f"\n{count:,} operators")
    table.show()


def warmed_up(engine: hr.Engine) -> hr.Engine:
    """An engine of which every operator has a value."""
    for value in (0, 1):
        engine.replay([{f"i{at}": value for at in range(LANES)}, {"i0": value}])
    return engine


def activated(engine: hr.Engine, history: list[dict[str, int]]) -> tuple[Any, Mapping[str, int]]:
    """What every sink shows, and how often each operator is activated."""
    before = engine.activations
    shown = {name: emissions.values for name, emissions in engine.replay(history).items()}
    return shown, {name: count - before[name] for name, count in engine.activations.items()}


def replayed(engine: hr.Engine, history: list[dict[str, int]]) -> float:
    """CPU microseconds per tick."""
    gc.collect()
    start = time.process_time_ns()
    engine.replay(history)
    return (time.process_time_ns() - start) / 1e3 / len(history)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the events")
    share = 10 if parser.parse_args().quick else 1
    diamond(300_000 // share)
    sparse(100_000 // share)
    dense(300 // share)
    activity(1_000 // share)


if __name__ == "__main__":
    main()
