"""Generated code of loops within a tick, which evaluates cyclic operators to a fixpoint.

**Without retractions**, evaluation is semi-naive: each round runs over the rows that the previous one found
(Bancilhon and Ramakrishnan, SIGMOD 1986). As no row is ever retracted, only new rows lead to further ones.

**With retractions**, it is differential: each stream of the loop is a sequence of bags, one per round. Input
from outside is the same in every round; a feedback is empty in round 0 and then equals the closing stream of
the previous round. The result is the bag at which the sequence becomes constant. Between ticks, each operator
stores how its input changed from round to round, summed over all past ticks; a tick supplies the change of
these differences. Rounds run in ascending order, and only those in which something changes. This is
differential dataflow (McSherry, Murray, Isaacs, Isard: CIDR 2013) with one process and one order of ticks, so
that all past ticks are one; see also DBSP (Budiu et al.: VLDB 2023).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from headrace.lowering.row_code import tuple_source
from headrace.lowering.step import LoopStep, RowStep
from headrace.operators.feedback import RoundFeedbackStep

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.lowering.step_writer import StepWriter

SHOWN_ROUNDS = 8
"""Number of most recent rounds shown in the error for a loop that does not end."""


LARGE_ROUND = 300
"""New rows of a round from which `x_loops` may go on with the loop, if it can."""


def write_rounds(
    writer: StepWriter, loop: Sequence[int], steps: Mapping[int, RowStep], *, begun: bool = False
) -> None:
    """Write a loop as rounds of its body, collecting the rows that leave.

    begun: the variables of the round and of the rows that feedbacks hand out are there already.

    The steps of the body are written like any others, and see the rows of one round at a time: variables from
    `begin` belong to the round, while slots persist.
    """
    code, graph = writer.code, writer.graph
    closing = {n: step for n in loop if isinstance(step := steps[n], RoundFeedbackStep)}
    body = [n for n in loop if n not in closing]
    buffers = [n for n in body if writer.is_buffered(n)]
    leaving = [n for n in (*closing, *buffers) if writer.is_read_outside(n, loop)]
    entering = sorted({s for n in loop for s in graph.nodes[n].inputs if s not in loop})
    rounds = writer.round_variable(loop[0])
    for node in leaving:
        code.line(f"all_{node} = []")
    growth, large = writer.fresh("growth"), writer.fresh("large")
    if not begun:
        for node in closing:
            code.line(f"{writer.buffer(node)} = []")
        code.line(f"{rounds} = 0")
    code.line(f"{growth} = []")
    code.line(f"{large} = {LARGE_ROUND}")
    with code.block("while True:"):
        for node in closing:
            code.line(f"{writer.feedback_variable(node)} = []")
        for node in body:
            with code.attribute_lines(node):
                steps[node].write_start()
        # What closes a feedback may stand in a buffer, which the round's body fills.
        for node in (*body, *closing):
            steps[node].write()
        for node in leaving:
            code.line(f"all_{node}.extend({writer.buffer(node)})")
        for node in closing:
            code.line(f"{writer.buffer(node)} = {writer.feedback_variable(node)}")
        # Whatever else reads what enters is not in this region: a loop is a junction.
        for node in entering:
            code.line(f"{writer.buffer(node)} = ()")
        news = " or ".join(writer.feedback_variable(n) for n in closing)
        with code.block(f"if not ({news}):"):
            code.line("break")
        code.line(f"{rounds} += 1")
        writer.write_count(*(writer.feedback_variable(n) for n in closing))
        bound = writer.most_rounds(step.operator.max_iterations for step in closing.values())
        with code.block(f"if {rounds} > {bound - SHOWN_ROUNDS}:"):
            code.line(
                f"{growth}.append({' + '.join(f'len({writer.feedback_variable(n)})' for n in closing)})"
            )
            with code.attribute_lines(next(iter(closing))), code.block(f"if {rounds} > {bound}:"):
                sizes = ", ".join(f"{n}: len({writer.feedback_variable(n)})" for n in closing)
                code.line(f"x_no_fixpoint({rounds}, {growth}, {{{sizes}}})")
        _write_going_on(writer, loop[0], tuple(closing), leaving, large)
    for node in leaving:
        code.line(f"{writer.buffer(node)} = all_{node}")


def _write_going_on(
    writer: StepWriter, loop: int, closing: Sequence[int], leaving: Sequence[int], large: str
) -> None:
    """Write code that hands large rounds to `x_loops`, and resumes here once rounds are small."""
    code, rounds = writer.code, writer.round_variable(loop)
    gone, left = writer.fresh("gone"), writer.fresh("left")
    news = [writer.buffer(n) for n in closing]
    with code.block(f"if {' + '.join(f'len({rows})' for rows in news)} >= {large}:"):
        code.line(f"{gone} = {loop} in x_loops and x_loops[{loop}]({', '.join((rounds, *news))})")
        with code.block(f"if {gone}:"):
            code.line(f"{rounds}, {tuple_source(news)}, {left} = {gone}")
            for at, node in enumerate(leaving):
                code.line(f"all_{node}.extend({left}[{at}])")
            with code.block(f"if not ({' or '.join(news)}):"):
                code.line("break")
        with code.block("else:"):
            code.line(f"{large} = {sys.maxsize}")


_SHOWN_ROUNDS = 10
"""Number of most recent rounds whose growth an error shows."""


def write_nested(writer: StepWriter, loop: Sequence[int], steps: Mapping[int, RowStep]) -> None:
    """Write the code of a loop.

    Afterwards, the buffers of the loop's nodes hold the rows that leave the loop, with weights.
    """
    code = writer.code
    round_, next_, times = (
        writer.round_variable(loop[0]),
        writer.next_round(loop[0]),
        writer.round_heap(loop[0]),
    )
    growth = writer.fresh("growth")
    nested = {n: step for n in loop if isinstance(step := steps[n], LoopStep)}
    feedbacks = {n: step for n, step in nested.items() if step.is_feedback}
    buffers = [n for n in loop if any(writer.reads_buffer(e) for e in writer.readers(n, loop))]
    leaving = [n for n in loop if writer.is_read_outside(n, loop)]
    summed = [n for n in leaving if n not in nested or not nested[n].makes_set]
    for step in nested.values():
        step.prepare(steps)
    for line in (f"{round_} = 0", f"{next_} = 1", f"{times} = []", f"{growth} = []"):
        code.line(line)
    for node in summed:
        code.line(f"all_{node} = {{}}")
    for node in buffers:
        code.line(f"{writer.buffer(node)} = []")
    for node, step in nested.items():
        with code.attribute_lines(node):
            step.begin_loop()
    with writer.at_round(round_):
        for node in loop:
            _write_entering(writer, loop, steps[node])
        with code.block("while True:"):
            for node in loop:
                _write_turn(writer, loop, steps[node], drains=node not in feedbacks)
            for step in feedbacks.values():
                _write_drain(writer, loop, step)
            for node in summed:
                _write_sum(writer, node)
            for node in buffers:
                writer.write_count(writer.buffer(node))
                code.line(f"{writer.buffer(node)}.clear()")
            for step in nested.values():
                step.end_round()
            with code.block(f"if not {times}:"):
                code.line("break")
            code.line(f"{round_} = x_heappop({times})")
            with code.block(f"while {times} and {times}[0] == {round_}:"):
                code.line(f"x_heappop({times})")
            code.line(f"{next_} = {round_} + 1")
            for step in nested.values():
                step.begin_round()
            _write_bound(writer, feedbacks, round_, growth)
    for node in leaving:
        code.line(f"{writer.buffer(node)} = []")
        with code.attribute_lines(node):
            if node in summed:
                row, weight = writer.fresh("row"), writer.fresh("weight")
                with code.block(f"for {row}, {weight} in all_{node}.items():"), code.block(f"if {weight}:"):
                    code.line(f"{writer.buffer(node)}.append({row} + ({weight},))")
            else:
                nested[node].write_changes(writer.buffer(node))


def _write_entering(writer: StepWriter, loop: Sequence[int], step: RowStep) -> None:
    """Write the loop-invariant inputs, which are present from round 0 on."""
    node = step.node
    with writer.code.attribute_lines(node.id):
        for port, source in enumerate(node.inputs):
            if source in loop:
                continue
            writer.count_activations(node.id, [source])
            if isinstance(step, LoopStep):
                step.write_outside_rows(port)
            else:
                step.consume_buffer(port)


def _write_drain(writer: StepWriter, loop: Sequence[int], step: RowStep) -> None:
    for edge in writer.entries(step.node.id):
        if edge.source in loop and writer.reads_buffer(edge):
            writer.count_activations(step.node.id, [edge.source])
            step.consume_buffer(edge.port)


def _write_turn(writer: StepWriter, loop: Sequence[int], step: RowStep, *, drains: bool) -> None:
    with writer.code.attribute_lines(step.node.id):
        if drains:
            _write_drain(writer, loop, step)
        if isinstance(step, LoopStep):
            step.write_round()


def _write_sum(writer: StepWriter, node: int) -> None:
    """Write code that sums the rows leaving the loop over all rounds."""
    code, row, weight = writer.code, writer.fresh("row"), writer.fresh("weight")
    with code.block(f"for *{row}, {weight}, _ in {writer.buffer(node)}:"):
        code.line(f"{row} = tuple({row})")
        code.line(f"all_{node}[{row}] = all_{node}.get({row}, 0) + {weight}")


def _write_bound(writer: StepWriter, feedbacks: dict[int, LoopStep], round_: str, growth: str) -> None:
    code = writer.code
    bound = writer.most_rounds(step.operator.max_iterations for step in feedbacks.values())
    news = {n: f"{writer.node_variable('pending', n)}.get({round_}, ())" for n in feedbacks}
    sizes = {n: f"len({rows})" for n, rows in news.items()}
    writer.write_count(*news.values())
    with code.block(f"if {round_} > {bound - _SHOWN_ROUNDS}:"):
        code.line(f"{growth}.append({' + '.join(sizes.values())})")
        with code.attribute_lines(next(iter(feedbacks))), code.block(f"if {round_} > {bound}:"):
            closing = ", ".join(f"{n}: {size}" for n, size in sizes.items())
            code.line(f"x_no_fixpoint({round_}, {growth}, {{{closing}}})")
