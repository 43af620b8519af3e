"""The simulated world: one controller at a time, replicas, links, a store, and users who watch all of it."""

from __future__ import annotations

import itertools
import random
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping

from penstock.compute.collections.memory import MemoryCollections, Shared
from penstock.compute.controller.controller import Controller
from penstock.compute.controller.durable import ControllerState
from penstock.compute.controller.settings import Settings
from penstock.compute.errors import ComputeError, ConnectionBroken, ProtocolViolation, StaleEpoch
from penstock.compute.protocol.commands import InstanceConfig, Parameters, TimelyConfig
from penstock.compute.replica.in_process_runtime import InProcessRuntime
from penstock.compute.replica.plans import Plans
from penstock.compute.replica.replica import Replica
from penstock.testing.compute.actions import ACTIONS
from penstock.testing.compute.network import Link, Process
from penstock.testing.compute.readers import Violation
from penstock.testing.compute.recipes import Recipe, Workload
from penstock.testing.compute.trace import Trace
from penstock.testing.compute.truth import Truth
from penstock.testing.compute.users import Users
from penstock.testing.compute.views import default_workload

SETTLING_ROUNDS = 2000
"""How long a world without failures may take until nothing is left to do."""
_databases = itertools.count()


class Simulation:
    """A schedule made from a seed. The same seed makes the same schedule, in every process.

    steps:   how many random actions, before failures stop and everything must come to rest.
    recipes: the views, by name; None: some that try everything.
    allow_callables: whether their flows may hold Python functions. Each replica calls its own copies.
    trace: all that has happened, in order: actions with their time, what users asked and were told, messages
        as they were sent and as they arrived. Equal traces are equal runs.
    """

    def __init__(
        self,
        seed: int,
        *,
        steps: int = 300,
        recipes: Mapping[str, Recipe] | None = None,
        allow_callables: bool = False,
    ) -> None:
        self.steps = steps
        self._allow_callables = allow_callables
        workload = default_workload()
        if recipes is not None:
            workload = Workload.of(recipes, allow_callables=allow_callables)
        self.random = random.Random(seed)
        self.now = 1000
        self._parameters = Parameters(hydration_concurrency=self.random.choice([1, 2, 4]))
        self._settings = self._some_settings()
        self.trace = Trace()
        self.users = Users(workload, Truth(workload), self.random, self.clock, self.trace.note)
        self._shared = Shared()
        self.store = MemoryCollections(self._shared)
        self.happened: Counter[str] = Counter()
        self.controller: Controller | None = None
        self.stale: Controller | None = None
        self._superseded: list[ControllerState] = []
        self.processes: dict[str, Process | None] = {}
        self._left: dict[str, Process] = {}
        self.links: list[Link] = []
        self._plans = Plans(allow_callables)
        # As long as one connection is open, the database is there: it is what a disk would be.
        self._state = f"file:penstock-simulation-{next(_databases)}?mode=memory&cache=shared"
        self._disk = sqlite3.connect(self._state, uri=True)
        self.start_controller()
        for _ in range(self.random.randint(1, 3)):
            self.add_replica(f"r{len(self.processes)}")

    def run(self) -> None:
        """Make the schedule, then let everything come to rest. Once. Raises `Violation`."""
        try:
            self._make_schedule()
            self.come_to_rest()
        finally:
            self.close()

    def _make_schedule(self) -> None:
        names = list(ACTIONS)
        weights = [weight for weight, _ in ACTIONS.values()]
        for step in range(self.steps):
            (name,) = self.random.choices(names, weights)
            self.note(f"{step} at {self.now}: {name}")
            self.happened[name] += 1
            ACTIONS[name][1](self)
            self.check()

    def close(self) -> None:
        """End all processes."""
        for name in self.processes:
            self.kill_process(name)
        self.kill_controller()
        for process in self._left.values():
            process.replica.close()
        for state in self._superseded:
            state.close()
        self._disk.close()

    def note(self, *said: object) -> None:
        """Add a line to the trace."""
        self.trace.note(*said)

    def check(self) -> None:
        """What must hold after every step, beyond what those who read have checked."""
        if self.controller is not None:
            self.controller.check()
        for process in self.processes.values():
            if process is not None and process.ended is not None:
                raise Violation(f"{process.name} has ended itself: {process.ended}")

    # -- processes --------------------------------------------------------------------

    def clock(self) -> int:
        return self.now

    def _some_settings(self) -> Settings:
        """Quick with what is slow in life, so that it happens here."""
        choice = self.random.choice
        return Settings(
            keep=choice([0, 1_000, 10_000]),
            compaction=choice([0, 1_000]),
            careful_after=1,
            quarantine_after=choice([2, 8]),
            quarantine=choice([500, 5_000]),
            steady=choice([500, 60_000]),
            patience=choice([500, 60_000]),
            most_behind=choice([20, 10_000]),
        )

    def start_controller(self) -> None:
        """A controller from what the one before has left."""
        connection = sqlite3.connect(self._state, uri=True, isolation_level=None)
        self._durable = ControllerState.on(connection, self._state)
        self.controller = Controller(
            self._durable,
            MemoryCollections(self._shared),
            clock=self.clock,
            random=random.Random(self.random.random()),
            parameters=self._parameters,
            settings=self._settings,
            allow_callables=self._allow_callables,
        )
        self.users.meet_controller()
        self.note(f"  a controller of epoch {self.controller.epoch}")

    def supersede_controller(self) -> None:
        """Another controller starts on the same state, while the one before goes on without knowing it."""
        if self.controller is None:
            return
        self.stale = self.controller
        self._superseded.append(self._durable)
        self.users.forget_controller()
        self.users.superseding = True
        self.start_controller()

    def kill_controller(self) -> None:
        """All that it had not written down is gone. The other ends of its links do not know it yet."""
        if self.controller is None:
            return
        for link in self.links:
            link.controller_side_open = False
            link.up.clear()
        self._durable.close()
        self.controller = None
        self.users.forget_controller()

    def add_replica(self, name: str) -> None:
        """A replica that the controller knows, and its process."""
        assert self.controller is not None
        self.controller.add_replica(name, f"{name}:1")
        if name in self._left and self.random.random() < 0.5:
            self.processes[name] = self._left.pop(name)
        else:
            self.start_process(name)

    def drop_replica(self, name: str) -> None:
        """The controller is told to forget it. Its process is left alone for a while, as it would be."""
        assert self.controller is not None
        self.controller.drop_replica(name)
        for link in self.links:
            if link.process.name == name:
                link.controller_side_open = False
                link.up.clear()
        process = self.processes.pop(name)
        if process is not None:
            self._left[name] = process

    def start_process(self, name: str) -> None:
        self.processes[name] = Process(name, self._replica)
        self.note(f"  {name} starts")

    def _replica(self, process: Process) -> Replica:
        def halt(error: ComputeError) -> None:
            process.ended = error

        return Replica(
            self._runtime,
            clock=self.clock,
            wake=lambda: None,
            halt=halt,
        )

    def _runtime(
        self, timely: TimelyConfig, config: InstanceConfig, wake: Callable[[], None]
    ) -> InProcessRuntime:
        store = MemoryCollections(self._shared)
        # A timer that stands still would never end a slice; one that jumps ends each after its first piece.
        timer = itertools.count().__next__
        return InProcessRuntime(
            config, wake, collections=store, clock=self.clock, timer=timer, plans=self._plans
        )

    def kill_process(self, name: str) -> None:
        """Its memory is gone; the controller does not know it yet."""
        process = self.processes[name]
        if process is not None:
            for link in self.links:
                if link.process is process:
                    link.replica_side_open = False
                    link.down.clear()
            process.replica.close()
            self.processes[name] = None
            self.note(f"  {name} dies")

    # -- what is under way ------------------------------------------------------------

    def connect(self, controller: Controller | None) -> None:
        """Make the connections that a controller wants now."""
        if controller is None:
            return
        for name, _ in controller.due():
            process = self.processes.get(name)
            if process is None:
                controller.unreachable(name, ConnectionBroken("nobody listens", address=name))
                self.note(f"  {name} cannot be reached")
                continue
            try:
                connection = controller.connected(name)
            except StaleEpoch:
                continue  # it is told by its own state that there is another
            self._open(Link(connection, process))

    def _open(self, link: Link) -> None:
        try:
            link.process.accept(link)
        except StaleEpoch as error:
            link.connection.failed(error)
            self.note(f"  {link} is refused", error)
            if self.controller is not None and link.epoch.controller == self.controller.epoch:
                raise Violation(f"the present controller was refused: {error}") from error
            return
        self.links.append(link)
        self.note(f"  {link} is connected")

    def send(self, link: Link, *, down: bool) -> None:
        """One end of a link writes what it has to say, as far as the link takes it."""
        for message in link.send_commands() if down else link.send_responses():
            self.note(f"  {link} {'takes' if down else 'gives'}", message)

    def work(self, process: Process) -> None:
        """A replica does one step of work."""
        busy = process.replica.step(0.0)
        self.note(f"  {process.name} works{', and has more to do' if busy else ''}")

    def deliver(self, link: Link, *, down: bool) -> None:
        """One message of a link reaches its end."""
        try:
            message = link.deliver_command() if down else link.deliver_response()
        except ProtocolViolation as error:
            raise Violation(f"{'command' if down else 'response'} against the protocol: {error}") from error
        if message is not None:
            self.note(f"  {link} {'<-' if down else '->'}", message)

    def forget_closed_links(self) -> None:
        self.links = [link for link in self.links if link.controller_side_open or link.replica_side_open]

    # -- the end ----------------------------------------------------------------------

    def come_to_rest(self) -> None:
        """No failures any more: what was asked is answered, and each replica by itself says what is right."""
        self.note("failures stop")
        if self.controller is None:
            self.start_controller()
        assert self.controller is not None
        for name, process in self.processes.items():
            self.controller.release_replica(name)
            if process is None:
                self.start_process(name)
        for link in self.links:
            if not (link.controller_side_open and link.replica_side_open):
                link.tell_controller()
                link.tell_replica()
        self.forget_closed_links()
        self.users.append(self.controller, self.store)
        self.users.end_write(self.controller)
        self._until(lambda: not self.users.unrest() and not self._unconnected())
        self._readers_come_back()
        for name in self.processes:
            for view in self.users.views:
                self.users.ask(self.controller, view, replica=name)
        self._until(lambda: not self.users.unrest())

    def _readers_come_back(self) -> None:
        """It was quiet for longer than any view keeps its past; then its readers are away for a moment, maybe
        with the controller, and the next write comes before they are back."""
        self.now += 5_000
        self.everything_moves()
        assert self.controller is not None
        if self.random.random() < 0.5:
            self.kill_controller()
            self.start_controller()
        else:
            self.users.leave(self.controller)
        self.users.begin_write(self.controller)
        self.users.append(self.controller, self.store)
        self.users.end_write(self.controller)
        for _ in range(10):
            self.everything_moves()
        self.users.resume(self.controller)
        self._until(lambda: not self.users.unrest() and not self._unconnected())

    def _until(self, done: Callable[[], bool]) -> None:
        for _ in range(SETTLING_ROUNDS):
            self.everything_moves()
            if done():
                return
        raise Violation(f"it does not come to rest: {self.users.unrest()} {self._unconnected()}")

    def _unconnected(self) -> list[str]:
        connected = {link.process.name for link in self.links}
        return [name for name in self.processes if name not in connected]

    def everything_moves(self) -> None:
        """Each message arrives, each process does one step of work."""
        assert self.controller is not None
        self.now += 50
        self.note(f"at {self.now}")
        self.controller.maintain()
        self.connect(self.controller)
        for link in self.links:
            self.send(link, down=True)
            while link.down and link.replica_side_open:
                self.deliver(link, down=True)
        for process in self.processes.values():
            if process is not None:
                self.work(process)
        for link in self.links:
            self.send(link, down=False)
            # A connection that has fallen behind meanwhile is over: what is under way reaches nobody.
            while link.up and link.controller_side_open and not link.connection.over:
                self.deliver(link, down=False)
        self.forget_closed_links()
        self.check()
