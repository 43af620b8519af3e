"""Semi-naive evaluation of loops without retractions.

Each round runs over the rows that the previous one found (Bancilhon and Ramakrishnan, SIGMOD 1986): as
no row is ever retracted, new rows alone can lead to further ones.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from headrace.lowering.row_code import tuple_source
from headrace.lowering.step import Step
from headrace.operators.feedback import RoundFeedbackStep

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.lowering.step_writer import StepWriter


SHOWN_ROUNDS = 8
"""Number of most recent rounds shown in the error for a loop that does not end."""


LARGE_ROUND = 300
"""New rows of a round from which `x_loops` may go on with the loop, if it can."""


def write_rounds(
    writer: StepWriter, loop: Sequence[int], steps: Mapping[int, Step], *, begun: bool = False
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
    """Write code that lets large rounds run elsewhere, from where they come back when they are small."""
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
