"""Run a file of cases: `python -m tests.conformance KIND FILE`.

A line per case and a count; exit code 1 if a case fails, 2 for a file that can't be read.
"""

from __future__ import annotations

import sys

from tests.conformance.case_format import BadCase, Outcome
from tests.conformance.runner import KINDS, run_file


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print(f"usage: python -m tests.conformance {{{','.join(KINDS)}}} FILE", file=sys.stderr)
        return 2
    try:
        outcomes = run_file(*arguments, on_outcome=lambda outcome: print(_line(outcome)))
    except BadCase as error:
        print(error, file=sys.stderr)
        return 2
    failed, in_words = sum(each.failed for each in outcomes), sum(each.in_words for each in outcomes)
    ok = len(outcomes) - failed - in_words
    print(f"cases: {len(outcomes)}, ok: {ok}, failed: {failed}, in words: {in_words}")
    return 1 if failed else 0


def _line(outcome: Outcome) -> str:
    if outcome.in_words:
        return f"words {outcome.name}"
    return f"ok    {outcome.name}" if outcome.ok else f"FAIL  {outcome.name}: {outcome.problem}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
