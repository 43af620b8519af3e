"""Actions of a simulation step, with their weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from headrace.compute.controller.controller import Controller

if TYPE_CHECKING:
    from headrace.testing.compute.simulation import Simulation

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
