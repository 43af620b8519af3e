"""Command log: shared by a controller's connections, each of which reads it from its own position.

A new connection starts with the reduced history of that moment, then reads the commands pushed since.
Commands that all connections have read are discarded. A connection that stays too far behind is cut, and its
successor starts with a reduced history, which is short. So memory is bounded by the live state plus
`most_behind` commands, however slow a replica is.

A connection reads every command after its start exactly once, in order of their numbers. A peek and its
`CancelPeek` are both left out if the `CancelPeek` was pushed before the connection took the peek.
Source: a replica's connection in the compute protocol of Materialize queues without bound; this does not
(reference, improvement 4).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping

from headrace.compute.frontier import Frontier
from headrace.compute.history import History
from headrace.compute.protocol.commands import CancelPeek, Command, Peek
from headrace.compute.protocol.dataflow import Id

_SLACK = 1_000
"""Commands that the history may hold beyond the live state before it is reduced."""


def send_every_command(_command: Command) -> bool:
    return True


class CommandLog:
    """Command history of a controller, with the log of commands not yet read by all connections.

    most_behind: number of commands that a connection may be behind before it is cut.
    """

    def __init__(self, commands: Iterable[Command] = (), *, most_behind: int = 10_000) -> None:
        self.history = History(commands, slack=_SLACK)
        self.most_behind = most_behind
        self._log: deque[Command] = deque()
        self._first = 0  # number of the first command in the log
        self._readers: list[LogCursor] = []
        self._cancelled: dict[bytes, int] = {}  # numbers of the CancelPeeks in the log, by uuid

    @property
    def end(self) -> int:
        """Number of the next command."""
        return self._first + len(self._log)

    @property
    def unread_count(self) -> int:
        """Number of commands not yet read by all connections."""
        return len(self._log)

    def push(self, command: Command) -> None:
        """Add a command for all present and future connections."""
        self.history.push(command)
        if isinstance(command, CancelPeek):
            self._cancelled[command.uuid] = self.end
        self._log.append(command)
        if len(self._log) > self.most_behind:
            for reader in [r for r in self._readers if r.unread_count > self.most_behind]:
                reader.cut = True
                reader.close()
        if not self._readers:
            self.trim()

    def open_cursor(
        self,
        wanted: Callable[[Command], bool] = send_every_command,
        uppers: Mapping[Id, Frontier] | None = None,
    ) -> LogCursor:
        """Start a connection with the current reduced history, followed by later commands.

        wanted: whether a command concerns this replica; called when it is taken. The cancellation of a peek
            follows the peek.
        uppers: current uppers of collections, put into the imports.
        """
        reader = LogCursor(self, self.history.replay(uppers or {}), wanted)
        self._readers.append(reader)
        return reader

    def command_at(self, number: int) -> Command:
        """Return the command with a number that is still in the log."""
        return self._log[number - self._first]

    def is_cancelled(self, uuid: bytes) -> bool:
        """Whether the log holds the `CancelPeek` of a peek."""
        return uuid in self._cancelled

    def remove_reader(self, reader: LogCursor) -> None:
        if reader in self._readers:
            self._readers.remove(reader)
        self.trim()

    def trim(self) -> None:
        """Discard the commands that all readers have read."""
        read = min((r.position for r in self._readers), default=self.end)
        while self._first < read:
            command = self._log.popleft()
            if isinstance(command, CancelPeek) and self._cancelled.get(command.uuid) == self._first:
                del self._cancelled[command.uuid]
            self._first += 1


class LogCursor:
    """Position of a connection in the log.

    cut: whether it was too far behind and gets no more commands; the connection must end, and the next one
        starts over.
    position: number of the next command to read from the log.
    """

    def __init__(self, log: CommandLog, start: list[Command], wanted: Callable[[Command], bool]) -> None:
        self.cut = False
        self.position = log.end
        self._log = log
        self._start = deque(start)
        self._wanted = wanted
        self._peeks: set[bytes] = set()  # handed out, and not cancelled yet
        self._closed = False

    @property
    def unread_count(self) -> int:
        """Number of unread commands in the log."""
        return self._log.end - self.position

    @property
    def has_commands(self) -> bool:
        """Whether commands may be available."""
        return not self._closed and bool(self._start or self.unread_count)

    def take_commands(self, most: int = 100) -> list[Command]:
        """Take the next commands, at most `most`; none once the cursor is closed."""
        taken: list[Command] = []
        if not self.has_commands:
            return taken
        while len(taken) < most and self.has_commands:
            command = self._next()
            if self._is_due(command):
                taken.append(command)
        self._log.trim()
        return taken

    def close(self) -> None:
        """Close the cursor, and release the commands that only it had not read."""
        self._closed = True
        self._start.clear()
        self._log.remove_reader(self)

    def _next(self) -> Command:
        if self._start:
            return self._start.popleft()
        command = self._log.command_at(self.position)
        self.position += 1
        return command

    def _is_due(self, command: Command) -> bool:
        """Whether to hand out a command: a cancellation exactly if the peek was handed out before."""
        match command:
            case CancelPeek(uuid):
                if uuid not in self._peeks:
                    return False
                self._peeks.remove(uuid)
                return True
            case Peek(uuid) if self._wanted(command) and not self._log.is_cancelled(uuid):
                self._peeks.add(uuid)
                return True
            case Peek():
                return False
            case _:
                return self._wanted(command)
