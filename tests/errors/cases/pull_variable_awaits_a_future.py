from collections.abc import Generator

from headrace.pull.dataflow import DataflowSource, ModuleContext, Requests, collect, pull


class Request:
    """Of another library, for another loop."""

    def __await__(self) -> Generator[object, None, None]:
        yield self


async def fetching(module: ModuleContext, requests: Requests) -> None:
    async for _request in requests:
        await Request()


pull(DataflowSource.of("fetching", fetching), collect()).run()
