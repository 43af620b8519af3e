"""Record of the dataflows that a replica worked on when it died, kept in its folder.

A dataflow that takes the memory of the machine ends the process without a chance to say why. So a long piece
of work is noted in a file while it lasts. An entry found at start names the dataflow that ended the previous
process; one named twice is not computed again, until it is dropped and created anew under another id. One
that comes past the time at which it did so is forgiven.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

from headrace.compute.errors import ViewQuarantined
from headrace.compute.frontier import Frontier
from headrace.compute.protocol.dataflow import Dataflow
from headrace.private_files import make_private_file

MAX_DEATHS = 2
MAX_RECORDED = 100
"""Dataflows in a record. The one whose last death is longest ago is forgotten first: most likely it was
dropped, perhaps while the replica was away."""


class _Deaths(NamedTuple):
    """Deaths of one dataflow. time: greatest time of the dataflow at which it ended the process."""

    number: int
    time: int


_NONE = _Deaths(0, 0)


class DeathRecord:
    """Deaths by dataflow. folder: of the replica's process; None: nothing is recorded."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._deaths: dict[str, _Deaths] = {}
        if folder is not None:
            self._take_over(folder)

    def begin_work(self, dataflow: str, time: int = 0) -> None:
        """Note that the process may die of what it does now, at a time of the dataflow."""
        if self._folder is not None and dataflow:
            with suppress(OSError):  # a full disk is no reason to fail
                _replace(self._at_work(self._folder), json.dumps([dataflow, time]))

    def end_work(self) -> None:
        """Clear the note."""
        if self._folder is not None:
            with suppress(OSError):
                self._at_work(self._folder).unlink(missing_ok=True)

    def forget_before(self, dataflow: str, upper: Frontier) -> None:
        """Forget the deaths of a dataflow that has come past the time at which it ended the process."""
        death = self._deaths.get(dataflow)
        if death is not None and upper.has_passed(death.time):
            del self._deaths[dataflow]
            if self._folder is not None:
                with suppress(OSError):
                    self._save(self._folder)

    def check(self, dataflow: Dataflow) -> None:
        """Raise `ViewQuarantined` for a dataflow that crashed this replica twice."""
        deaths = self._deaths.get(name_of(dataflow), _NONE).number
        if deaths >= MAX_DEATHS:
            times = "twice" if deaths == 2 else f"{deaths} times"
            raise ViewQuarantined(
                f"this replica crashed {times} while it computed {dataflow.name or name_of(dataflow)!r}",
                why="It is not computed here again, so that the other views are served.",
                fix="drop it, then create it with a flow or with limits that need less",
                deaths=deaths,
            )

    def _take_over(self, folder: Path) -> None:
        with suppress(OSError, ValueError, TypeError):
            found: object = json.loads(self._known(folder).read_text())
            if isinstance(found, dict):
                known = cast("dict[str, Any]", found)
                self._deaths = {
                    name: _Deaths(number, time)
                    for name, (number, time) in cast("dict[str, list[int]]", known).items()
                }
        with suppress(OSError, ValueError, TypeError):
            died_of, time = json.loads(self._at_work(folder).read_text())
            earlier = self._deaths.pop(died_of, _NONE)
            self._deaths[died_of] = _Deaths(earlier.number + 1, max(earlier.time, time))
            self._deaths = dict(list(self._deaths.items())[-MAX_RECORDED:])
            self._save(folder)
        self.end_work()

    def _save(self, folder: Path) -> None:
        _replace(self._known(folder), json.dumps(self._deaths))

    @staticmethod
    def _at_work(folder: Path) -> Path:
        return folder / "at-work.txt"

    @staticmethod
    def _known(folder: Path) -> Path:
        return folder / "deaths.json"


def _replace(path: Path, text: str) -> None:
    """Replace a file as a whole, readable by its owner only. Raises OSError."""
    part = path.with_name(f"{path.name}.part")
    make_private_file(part)
    part.write_text(text)
    os.replace(part, path)


def name_of(dataflow: Dataflow) -> str:
    """Return the name under which the deaths of a dataflow are counted."""
    return f"{min(dataflow.export_ids, default='')} {dataflow.plan.hash[:16]}"
