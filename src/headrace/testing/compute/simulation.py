"""Simulated world: one controller at a time, replicas, links, a store, and users who check everything."""

from __future__ import annotations

import itertools
import random
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TypeAlias

from headrace.compute.collections.memory import MemoryCollections, SharedStore
from headrace.compute.controller.controller import Controller
from headrace.compute.controller.durable_catalog import DurableCatalog
from headrace.compute.controller.status import ControllerSettings
from headrace.compute.errors import ComputeError, ConnectionBroken, ProtocolViolation, StaleEpoch
from headrace.compute.protocol.commands import InstanceConfig, Parameters, TimelyConfig
from headrace.compute.replica.building import PlanDecoder
from headrace.compute.replica.in_process.runtime import InProcessRuntime
from headrace.compute.replica.replica import Replica
from headrace.testing.compute.network import Link, Process
from headrace.testing.compute.reader_checks import ReaderViolation, SimulationTrace
from headrace.testing.compute.users import Users
from headrace.testing.compute.workload import GroundTruth, Recipe, Workload

Action: TypeAlias = "Callable[[Simulation], None]"


def requires_controller(act: Callable[[Simulation, Controller], None]) -> Action:
    """Wrap an action that needs a controller; without one, nothing happens."""

    def action(world: Simulation) -> None:
        if world.controller is not None:
            act(world, world.controller)

    return action


def _deliver(world: Simulation, *, down: bool) -> None:
    links = [link for link in world.links if (link.down if down else link.up)]
    if links:
        world.deliver(world.random.choice(links), down=down)


def _send(world: Simulation) -> None:
    if world.links:
        link = world.random.choice(world.links)
        world.send(link, down=world.random.random() < 0.5)


def _work(world: Simulation) -> None:
    alive = [process for process in world.processes.values() if process is not None]
    if alive:
        world.work(world.random.choice(alive))


def _cut(world: Simulation) -> None:
    """Cut a link at one end. The other end notices at its next chance, or much later."""
    if world.links:
        link = world.random.choice(world.links)
        world.note(f"  {link}")
        world.random.choice([link.tell_controller, link.tell_replica])()
        if world.random.random() < 0.5:
            link.tell_controller()
            link.tell_replica()
        world.forget_closed_links()


def _notice(world: Simulation) -> None:
    """Let one end of a link notice that the other is gone."""
    for link in list(world.links):
        if not link.replica_side_open and world.random.random() < 0.5:
            link.tell_controller()
        elif not link.controller_side_open and world.random.random() < 0.5:
            link.tell_replica()
    world.forget_closed_links()


def _kill_replica(world: Simulation) -> None:
    world.kill_process(world.random.choice(list(world.processes)))


def _start_replica(world: Simulation) -> None:
    for name, process in world.processes.items():
        if process is None or process.ended is not None:
            world.kill_process(name)
            world.start_process(name)
            return


def _start_controller(world: Simulation) -> None:
    if world.controller is None:
        world.start_controller()


def _stale_write(world: Simulation) -> None:
    if world.stale is not None:
        world.users.write_by_stale(world.stale, world.store)


def _stale_connect(world: Simulation) -> None:
    if world.stale is not None:
        world.connect(world.stale)


def _time(world: Simulation) -> None:
    world.now += world.random.choice([1, 10, 100, 1000])


def _starve(world: Simulation, controller: Controller) -> None:
    """Write faster than the replicas get to work, until far more has been written than any view keeps."""
    for _ in range(world.random.randint(5, 30)):
        world.users.begin_write(controller)
        world.users.append(controller, world.store)
        world.users.end_write(controller)
        world.now += world.random.choice([10, 100, 300])
        for act in world.random.choices([_work, _send, lambda w: _deliver(w, down=False)], k=2):
            act(world)
        controller.maintain()


def _add_replica(world: Simulation) -> None:
    free = [name for name in ("r0", "r1", "r2", "r3") if name not in world.processes]
    if world.controller is not None and free:
        world.add_replica(world.random.choice(free))


def _drop_replica(world: Simulation) -> None:
    if world.controller is not None and len(world.processes) > 1:
        world.drop_replica(world.random.choice(list(world.processes)))


def _peek(world: Simulation, controller: Controller) -> None:
    users = world.users
    if users.views:
        at = world.random.choice([None, None, users.acknowledged, max(0, users.acknowledged - 100)])
        replica = world.random.choice([None, None, None, *world.processes])
        users.ask(controller, world.random.choice(users.views), at=at, replica=replica)


def _subscribe(world: Simulation, controller: Controller) -> None:
    world.users.subscribe(controller, world.random.choice([None, None, None, *world.processes]))


def _copy(world: Simulation, controller: Controller) -> None:
    world.users.copy(controller, world.random.choice([None, None, None, *world.processes]))


ACTIONS: Mapping[str, tuple[float, Action]] = {
    "a command arrives": (30, lambda w: _deliver(w, down=True)),
    "a response arrives": (30, lambda w: _deliver(w, down=False)),
    "something is sent": (40, _send),
    "a replica works": (30, _work),
    "time goes by": (6, _time),
    "connect": (10, lambda w: w.connect(w.controller)),
    "maintain": (8, requires_controller(lambda w, c: void(c.maintain()))),
    "a write begins": (8, requires_controller(lambda w, c: w.users.begin_write(c))),
    "a write is durable": (8, requires_controller(lambda w, c: void(w.users.append(c, w.store)))),
    "a write ends": (8, requires_controller(lambda w, c: w.users.end_write(c))),
    "replicas are starved": (1, requires_controller(_starve)),
    "a view is made": (4, requires_controller(lambda w, c: w.users.create_view(c))),
    "a view is dropped": (0.7, requires_controller(lambda w, c: w.users.drop_view(c))),
    "a peek": (9, requires_controller(_peek)),
    "a peek is cancelled": (2, requires_controller(lambda w, c: w.users.cancel(c))),
    "a subscription": (3, requires_controller(_subscribe)),
    "a copy": (0.5, requires_controller(_copy)),
    "a subscription goes on": (2, requires_controller(lambda w, c: w.users.resume(c))),
    "a subscription ends": (1, requires_controller(lambda w, c: w.users.unsubscribe(c))),
    "a link is cut": (2, _cut),
    "an end notices": (5, _notice),
    "a replica is killed": (0.8, _kill_replica),
    "a replica starts": (4, _start_replica),
    "the controller is killed": (0.6, lambda w: w.kill_controller()),
    "a controller starts": (5, _start_controller),
    "a second controller starts": (0.3, lambda w: w.supersede_controller()),
    "a stale controller writes": (1, _stale_write),
    "a stale controller connects": (1, _stale_connect),
    "a replica is added": (0.4, _add_replica),
    "a replica is dropped": (0.3, _drop_replica),
}


def void(_: object) -> None:
    """Ignore an answer."""


SETTLING_ROUNDS = 2000
"""Limit on the steps for a world without failures to run out of work."""
_databases = itertools.count()


class Simulation:
    """Schedule generated from a seed. The same seed gives the same schedule in every process.

    steps:   number of random actions, before failures stop and everything must settle.
    recipes: the views, by name; or the workload made of them, which many simulations can share.
    allow_callables: whether flows may contain Python functions. Each replica calls its own copies.
    trace: all events in order: actions with their time, requests and answers of users, messages as sent and
        as received. Equal traces mean equal runs.
    """

    def __init__(
        self,
        seed: int,
        *,
        recipes: Mapping[str, Recipe] | Workload,
        steps: int = 300,
        allow_callables: bool = False,
    ) -> None:
        self.steps = steps
        self._allow_callables = allow_callables
        workload = recipes
        if not isinstance(workload, Workload):
            workload = Workload.of(workload, allow_callables=allow_callables)
        self.random = random.Random(seed)
        self.now = 1000
        self._parameters = Parameters(hydration_concurrency=self.random.choice([1, 2, 4]))
        self._settings = self._some_settings()
        self._page = self.random.choice([1, 2, 10_000])
        self.trace = SimulationTrace()
        self.users = Users(workload, GroundTruth(workload), self.random, self.clock, self.trace.note)
        self._shared = SharedStore()
        self.store = MemoryCollections(self._shared)
        self.happened: Counter[str] = Counter()
        self.controller: Controller | None = None
        self.stale: Controller | None = None
        self._superseded: list[DurableCatalog] = []
        self.processes: dict[str, Process | None] = {}
        self._left: dict[str, Process] = {}
        self.links: list[Link] = []
        self._plans = PlanDecoder(allow_callables)
        # An open connection keeps the in-memory database alive, in place of a disk.
        self._state = f"file:headrace-simulation-{next(_databases)}?mode=memory&cache=shared"
        self._disk = sqlite3.connect(self._state, uri=True)
        self.start_controller()
        for _ in range(self.random.randint(1, 3)):
            self.add_replica(f"r{len(self.processes)}")

    def run(self) -> None:
        """Run the schedule, then let everything settle. Call once. Raises `ReaderViolation`."""
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
        """Check the invariants after a step, beyond the checks of readers."""
        if self.controller is not None:
            self.controller.check()
        for process in self.processes.values():
            if process is not None and process.ended is not None:
                raise ReaderViolation(f"{process.name} has ended itself: {process.ended}")

    def clock(self) -> int:
        return self.now

    def _some_settings(self) -> ControllerSettings:
        """Draw settings with short delays, so that slow events occur in the simulation."""
        choice = self.random.choice
        return ControllerSettings(
            keep=choice([0, 1_000, 10_000]),
            compaction=choice([0, 1_000]),
            careful_after=1,
            quarantine_after=choice([2, 8]),
            quarantine=choice([500, 5_000]),
            steady=choice([500, 60_000]),
            patience=choice([500, 60_000]),
            max_lag=choice([500, 5_000, 600_000]),
            most_behind=choice([20, 10_000]),
        )

    def start_controller(self) -> None:
        """Start a controller on the state of the previous one."""
        connection = sqlite3.connect(self._state, uri=True, isolation_level=None)
        self._durable = DurableCatalog.open_on_connection(connection, self._state)
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
        """Start another controller on the same state, while the previous one continues unaware."""
        if self.controller is None:
            return
        self.stale = self.controller
        self._superseded.append(self._durable)
        self.users.forget_controller()
        self.users.superseding = True
        self.start_controller()

    def kill_controller(self) -> None:
        """Kill the controller, losing its memory. The replicas do not know yet."""
        if self.controller is None:
            return
        for link in self.links:
            link.controller_side_open = False
            link.up.clear()
        self._durable.close()
        self.controller = None
        self.users.forget_controller()

    def add_replica(self, name: str) -> None:
        """Add a replica and its process to the controller."""
        assert self.controller is not None
        self.controller.add_replica(name, f"{name}:1")
        if name in self._left and self.random.random() < 0.5:
            self.processes[name] = self._left.pop(name)
        else:
            self.start_process(name)

    def drop_replica(self, name: str) -> None:
        """Remove a replica from the controller. Its process keeps running for a while."""
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
        store = MemoryCollections(self._shared, page=self._page)
        # A stopped timer would never end a slice; one that jumps ends each slice after its first step.
        timer = itertools.count().__next__
        return InProcessRuntime(
            config, wake, collections=store, clock=self.clock, timer=timer, plans=self._plans
        )

    def kill_process(self, name: str) -> None:
        """Kill a replica's process, losing its memory. The controller does not know yet."""
        process = self.processes[name]
        if process is not None:
            for link in self.links:
                if link.process is process:
                    link.replica_side_open = False
                    link.down.clear()
            process.replica.close()
            self.processes[name] = None
            self.note(f"  {name} dies")

    def connect(self, controller: Controller | None) -> None:
        """Open the connections that a controller wants."""
        if controller is None:
            return
        for name, _ in controller.replicas_to_connect():
            process = self.processes.get(name)
            if process is None:
                controller.record_unreachable(name, ConnectionBroken("nobody listens", address=name))
                self.note(f"  {name} cannot be reached")
                continue
            try:
                connection = controller.accept_connection(name)
            except StaleEpoch:
                continue  # its own state shows that another controller took over
            self._open(Link(connection, process))

    def _open(self, link: Link) -> None:
        try:
            link.process.accept(link)
        except StaleEpoch as error:
            link.connection.record_stream_end(error)
            self.note(f"  {link} is refused", error)
            if self.controller is not None and link.epoch.controller == self.controller.epoch:
                raise ReaderViolation(f"the present controller was refused: {error}") from error
            return
        self.links.append(link)
        self.note(f"  {link} is connected")

    def send(self, link: Link, *, down: bool) -> None:
        """Send one end's pending messages on a link, up to its capacity."""
        for message in link.send_commands() if down else link.send_responses():
            self.note(f"  {link} {'takes' if down else 'gives'}", message)

    def work(self, process: Process) -> None:
        """Let a replica do one step of work."""
        busy = process.replica.step(0.0)
        self.note(f"  {process.name} works{', and has more to do' if busy else ''}")

    def deliver(self, link: Link, *, down: bool) -> None:
        """Deliver one message of a link."""
        try:
            message = link.deliver_command() if down else link.deliver_response()
        except ProtocolViolation as error:
            raise ReaderViolation(
                f"{'command' if down else 'response'} against the protocol: {error}"
            ) from error
        if message is not None:
            self.note(f"  {link} {'<-' if down else '->'}", message)

    def forget_closed_links(self) -> None:
        self.links = [link for link in self.links if link.controller_side_open or link.replica_side_open]

    def come_to_rest(self) -> None:
        """Stop failures, and check that all requests are answered and each replica by itself is correct."""
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
        for view in self.controller.status().views:
            if broken := [on.replica for on in view.replicas if on.broken]:
                raise ReaderViolation(f"{view.name} is broken on {broken}")

    def _readers_come_back(self) -> None:
        """Disconnect readers briefly after a long quiet period, and let them resume.

        The quiet period is longer than any view keeps its history. The controller may restart too, and the
        next write arrives before the readers are back.
        """
        self.now += 5_000
        self.deliver_everything()
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
            self.deliver_everything()
        self.users.resume(self.controller)
        self._until(lambda: not self.users.unrest() and not self._unconnected())

    def _until(self, done: Callable[[], bool]) -> None:
        for _ in range(SETTLING_ROUNDS):
            self.deliver_everything()
            if done():
                return
        raise ReaderViolation(f"it does not come to rest: {self.users.unrest()} {self._unconnected()}")

    def _unconnected(self) -> list[str]:
        connected = {link.process.name for link in self.links}
        return [name for name in self.processes if name not in connected]

    def deliver_everything(self) -> None:
        """Deliver every message, and let each process do one step of work."""
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
            # A connection that fell behind meanwhile is closed, and its messages in flight are lost.
            while link.up and link.controller_side_open and not link.connection.is_over:
                self.deliver(link, down=False)
        self.forget_closed_links()
        self.check()
