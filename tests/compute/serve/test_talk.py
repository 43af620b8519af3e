"""Requests that no client of ours makes, and mistakes of ours: each has an answer and hurts nobody else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.compute import AsyncClient
from headrace.compute.client.generated import client_pb2 as pb
from headrace.compute.errors import BadMessage, ComputeError
from headrace.compute.protocol import rows
from headrace.compute.protocol.client_messages import CreateView, Description
from headrace.compute.protocol.serialization import problem_from_bytes
from headrace.compute.serve.client_session import ClientSession
from headrace.compute.serve.controller_process import Options, run_controller
from headrace.errors import BadInput
from headrace.expr.types import Schema
from tests.compute.serve.processes import totals
from tests.compute.serve.test_roles import LOCAL, running


def refusal(describe: Callable[[str], Any], request: pb.Request) -> str:
    """The code of the problem that a request is answered with, where the controller describes views so."""

    async def story() -> str:
        around: Any = SimpleNamespace(controller=SimpleNamespace(describe=describe), writing=None)
        talk = ClientSession(around, operator=True)
        talk.handle_request(request)
        call = SimpleNamespace(written=asyncio.Queue[pb.Answer]())
        call.write = call.written.put
        writing = asyncio.create_task(talk.send_answers(call))
        answer = await call.written.get()
        writing.cancel()
        assert answer.number == 7
        return problem_from_bytes(answer.problem).code

    return asyncio.run(story())


def test_keys_that_nothing_can_be_looked_up_by_go_no_further() -> None:
    asked = pb.Peek(view="v", id="u1", keys=rows.encode([({},)]))
    code = refusal(lambda _: Description("u1", True, Schema(())), pb.Request(number=7, peek=asked))
    assert code == BadMessage.code


def test_a_mistake_of_ours_is_logged_and_a_refusal_is_not(caplog: pytest.LogCaptureFixture) -> None:
    def mistake(_: str) -> Any:
        raise ZeroDivisionError("mistake")

    def refused(_: str) -> Any:
        raise BadMessage("no")

    request = pb.Request(number=7, describe=pb.Describe(name="v"))
    with caplog.at_level(logging.INFO):
        assert refusal(refused, request) == BadMessage.code
        assert not caplog.records
        assert refusal(mistake, request) == ComputeError.code
        assert [type(record.exc_info[1]) for record in caplog.records if record.exc_info] == [
            ZeroDivisionError
        ]


@pytest.mark.parametrize("limit", ["tick_rows", "rounds", "state_bytes", "tick_seconds"])
def test_limits_of_a_view_are_positive_numbers_of_64_bits(tmp_path: Path, limit: str) -> None:
    async def story() -> None:
        async with (
            running(lambda ready: run_controller(Options(LOCAL, tmp_path), ready)) as address,
            AsyncClient(address, patience="0s") as client,
        ):
            given: Any
            for given in (0, -1, 2.5, True, 2**63, "1"):
                with pytest.raises(BadInput, match=limit):
                    await client.create_view("totals", totals(), **{limit: given})
            for sent in (0, 2**63):
                request = CreateView("totals", b"", b"", (), 0, None, **{limit: sent})
                with pytest.raises(BadMessage, match=limit):
                    await client._conversation.ask(request)  # pyright: ignore[reportPrivateUsage]
            await client.create_view("totals", totals(), **{limit: 2**63 - 1})  # type: ignore[arg-type]

    asyncio.run(story())
