from headrace.pull.dataflow import DataflowSource, ModuleContext, Requests, collect, pull


async def sevens(module: ModuleContext, requests: Requests) -> None:
    async for request in requests:
        request.answer.bind(7)


pull(DataflowSource.of("sevens", sevens), collect()).run()
