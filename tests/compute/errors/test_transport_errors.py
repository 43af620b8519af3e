"""What users read when a connection is refused: `transport/*.txt` beside this file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headrace.compute.channels import ConnectionLimits, Greeting, check_version
from headrace.compute.credentials import Security, host_of
from headrace.compute.errors import ComputeError
from headrace.compute.frontier import START
from headrace.compute.protocol.commands import CreateDataflow, Dataflow, Epoch, PlanBytes, Schedule
from headrace.compute.protocol.stages import ControllerStages
from headrace.errors import HeadraceError
from tests.compute.transport.fakes import linked, run_link, served
from tests.compute.transport.test_security import Authority, secret
from tests.golden import assert_golden

GOLDEN = Path(__file__).parent / "transport"


def refused(server: Security, client: Security) -> ComputeError:
    async def story() -> ComputeError:
        async with served(server) as running:
            _, link = await run_link(running, client)
            assert link.error is not None
            return link.error

    return asyncio.run(story())


def stale() -> ComputeError:
    async def story() -> ComputeError:
        async with served() as server, linked(server, controller_epoch=5) as (controller, _):
            await controller.peek()
            _, link = await run_link(server, controller_epoch=3)
            assert link.error is not None
            return link.error

    return asyncio.run(story())


END = datetime(2030, 1, 1, tzinfo=UTC)


def load(now: datetime, mode: int = 0o600) -> Security:
    """Of files in this folder, at a time."""
    side = Authority().security("db.example", expires=END)
    secret(Path("own.pem"), side.certificate or b"")
    secret(Path("own.key"), side.key or b"", mode)
    return Security.load(certificate="own.pem", key="own.key", environment={}, clock=now.timestamp)


def raised(act: Callable[[], object]) -> HeadraceError:
    with pytest.raises(HeadraceError) as error:
        act()
    return error.value


DATAFLOW = CreateDataflow(Dataflow(PlanBytes(b"x" * 100), (), (), (), START))
MISTAKES: dict[str, Callable[[], HeadraceError]] = {
    "listening_beyond_this_machine": lambda: raised(lambda: Security().check_listen("0.0.0.0:7411")),
    "connecting_beyond_this_machine": lambda: raised(lambda: Security(token="x").target("10.0.0.9:7411")),
    "no_address": lambda: raised(lambda: host_of("localhost")),
    "certificate_of_a_client_at_a_replica": lambda: raised(
        Authority().security("127.0.0.1").check_names_controllers
    ),
    "one_token_for_clients_and_replicas": lambda: raised(
        lambda: Security(token="x").check_differs(Security(token="x"))
    ),
    "one_token_for_clients_and_operators": lambda: raised(lambda: Security(token="x", operator_token="x")),
    "names_of_controllers_without_a_ca": lambda: raised(
        lambda: Security.load(clients=["controller"], environment={})
    ),
    "names_of_operators_without_a_ca": lambda: raised(
        lambda: Security.load(operators=["ann"], environment={})
    ),
    "certificate_of_another_name": lambda: raised(
        lambda: Security(clients=("controller",)).admit({}, ["client\n"])
    ),
    "no_token": lambda: refused(Security(token="secret"), Security()),
    "wrong_token": lambda: refused(Security(token="secret"), Security(token="guess")),
    "certificate_without_key": lambda: raised(lambda: Security.load(certificate="x.pem", environment={})),
    "certificate_that_has_expired": lambda: raised(lambda: load(datetime(2031, 1, 1, tzinfo=UTC))),
    "certificate_that_is_not_valid_yet": lambda: raised(lambda: load(datetime(2029, 1, 1, tzinfo=UTC))),
    "secret_that_others_may_read": lambda: raised(lambda: load(END, mode=0o644)),
    "token_of_two_lines": lambda: raised(lambda: Security.load(environment={"HEADRACE_TOKEN": "a\nb"})),
    "another_version": lambda: raised(lambda: check_version({"x-headrace-protocol": "7"})),
    "another_replica": lambda: raised(lambda: Greeting(Epoch(1, 1), b"", "r1").check_name("r2")),
    "a_stale_controller": stale,
    "a_plan_that_is_too_large": lambda: raised(lambda: ConnectionLimits(plan=10).check(DATAFLOW)),
    "a_violation": lambda: raised(lambda: ControllerStages().check_sent(Schedule("u1"))),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_error_is_told_as_written(mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert_golden(GOLDEN / f"{mistake}.txt", f"{MISTAKES[mistake]()}\n")
