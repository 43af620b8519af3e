"""Record of the dataflows that a replica worked on when it died, kept in its folder.

A dataflow that takes the memory of the machine ends the process without a chance to say why. So a long piece
of work is noted in a file while it lasts. An entry found at start names the dataflow that ended the previous
process; one named twice is not computed again, until it is dropped and created anew under another id.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import cast

from penstock.compute.errors import ViewQuarantined
from penstock.compute.protocol.dataflow import Dataflow

MAX_DEATHS = 2


class DeathRecord:
    """Deaths by dataflow. folder: of the replica's process; None: nothing is recorded."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._deaths: dict[str, int] = {}
        if folder is not None:
            self._take_over(folder)

    def begin_work(self, dataflow: str) -> None:
        """Note that the process may die of what it does now."""
        if self._folder is not None and dataflow:
            with suppress(OSError):  # a full disk is no reason to fail
                self._at_work(self._folder).write_text(dataflow)

    def end_work(self) -> None:
        """Clear the note."""
        if self._folder is not None:
            with suppress(OSError):
                self._at_work(self._folder).unlink(missing_ok=True)

    def check(self, dataflow: Dataflow) -> None:
        """Raise `ViewQuarantined` for a dataflow that crashed this replica twice."""
        deaths = self._deaths.get(name_of(dataflow), 0)
        if deaths >= MAX_DEATHS:
            times = "twice" if deaths == 2 else f"{deaths} times"
            raise ViewQuarantined(
                f"this replica crashed {times} while it computed {dataflow.name or name_of(dataflow)!r}",
                why="It is not computed here again, so that the other views are served.",
                fix="drop it, then create it with a flow or with limits that need less",
                deaths=deaths,
            )

    def _take_over(self, folder: Path) -> None:
        with suppress(OSError, ValueError):
            found: object = json.loads(self._known(folder).read_text())
            if isinstance(found, dict):
                known = cast("dict[str, object]", found)
                self._deaths = {name: n for name, n in known.items() if isinstance(n, int)}
        with suppress(OSError, ValueError):
            if died_of := self._at_work(folder).read_text():
                self._deaths[died_of] = self._deaths.get(died_of, 0) + 1
                self._known(folder).write_text(json.dumps(self._deaths))
            self.end_work()

    @staticmethod
    def _at_work(folder: Path) -> Path:
        return folder / "at-work.txt"

    @staticmethod
    def _known(folder: Path) -> Path:
        return folder / "deaths.json"


def name_of(dataflow: Dataflow) -> str:
    """Return the name under which the deaths of a dataflow are counted."""
    return f"{min(dataflow.export_ids, default='')} {dataflow.plan.hash[:16]}"
