"""A loop over rows that stay: rounds, each over the rows that the one before found.

This is semi-naive evaluation (Bancilhon and Ramakrishnan, SIGMOD 1986): as no row
is ever taken back, what a round makes of its new rows alone is all that it can add.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.steps.feedback import ClosingStep

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.engine.step_writer import StepWriter
    from penstock.engine.steps.step import Step

_SHOWN_ROUNDS = 8
"""How many of the last rounds an error about a loop without end tells of."""


def write_rounds(writer: StepWriter, loop: Sequence[int], steps: Mapping[int, Step]) -> None:
    """Write a loop as rounds of its body; what leaves is gathered over the rounds.

    The steps of the body are written as anywhere, and see the rows of one round at a
    time: variables that they `begin` are of the round, slots last.
    """
    code, graph = writer.code, writer.graph
    closing = {n: step for n in loop if isinstance(step := steps[n], ClosingStep)}
    body = [n for n in loop if n not in closing]
    buffers = [n for n in body if writer.has_buffer(n)]
    leaving = [n for n in (*closing, *buffers) if writer.leaves(n, loop)]
    entering = sorted({s for n in loop for s in graph.nodes[n].inputs if s not in loop})
    rounds = writer.round(loop[0])
    for node in leaving:
        code.line(f"all_{node} = []")
    for node in closing:
        code.line(f"{writer.buffer(node)} = []")
    growth = writer.fresh("growth")
    code.line(f"{rounds} = 0")
    code.line(f"{growth} = []")
    with code.block("while True:"):
        for node in closing:
            code.line(f"{writer.news(node)} = []")
        for node in body:
            with code.working_for(node):
                steps[node].write_start()
        # What closes a feedback may stand in a buffer, which the round's body fills.
        for node in (*body, *closing):
            steps[node].write()
        for node in leaving:
            code.line(f"all_{node}.extend({writer.buffer(node)})")
        for node in closing:
            code.line(f"{writer.buffer(node)} = {writer.news(node)}")
        # Whatever else reads what enters is not in this region: a loop is a junction.
        for node in entering:
            code.line(f"{writer.buffer(node)} = ()")
        news = " or ".join(writer.news(n) for n in closing)
        with code.block(f"if not ({news}):"):
            code.line("break")
        code.line(f"{rounds} += 1")
        bound = min(step.operator.max_iterations for step in closing.values())
        with code.block(f"if {rounds} > {bound - _SHOWN_ROUNDS}:"):
            code.line(f"{growth}.append({' + '.join(f'len({writer.news(n)})' for n in closing)})")
            with code.working_for(next(iter(closing))), code.block(f"if {rounds} > {bound}:"):
                sizes = ", ".join(f"{n}: len({writer.news(n)})" for n in closing)
                code.line(f"x_no_fixpoint({rounds}, {growth}, {{{sizes}}})")
    for node in leaving:
        code.line(f"{writer.buffer(node)} = all_{node}")
