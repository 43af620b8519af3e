from headrace.pull.dataflow import ModuleContext, Requests, Source, collect, pull


async def sevens(module: ModuleContext, requests: Requests) -> None:
    async for request in requests:
        request.answer.bind(7)


pull(Source.of("sevens", sevens), collect()).run()
