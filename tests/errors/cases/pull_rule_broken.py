from headrace.pull import Recorder, collect, probe, pull, source


def echo(abort, answer):
    answer(None, 1)
    answer(None, 2)


pull(source(echo), probe(Recorder()), collect()).run()
