from penstock.pull.dataflow import Module, Requests, Source, collect, pull


async def sevens(module: Module, requests: Requests) -> None:
    async for request in requests:
        request.answer.bind(7)


pull(Source.of("sevens", sevens), collect()).run()
