"""Tasks of the runtime: one that is cancelled answers nothing, however far it is."""

from __future__ import annotations

import asyncio
from typing import Any

from headrace.pull.pipeline_runtime import Runtime


def test_a_task_that_is_cancelled_when_it_has_its_result_answers_nothing() -> None:
    answered: list[Any] = []

    async def main() -> None:
        runtime = Runtime(asyncio.get_running_loop())

        async def quick() -> int:
            asyncio.get_running_loop().call_soon(task.cancel)  # before what is called when it is done
            return 7

        task = runtime.spawn(quick(), lambda error, result: answered.append((error, result)))
        for _ in range(5):
            await asyncio.sleep(0)
        assert runtime.outstanding == 0

    asyncio.run(main())
    assert answered == []
