"""Functions of the user's modules travel whole, also where several threads pickle at once."""

from __future__ import annotations

import threading

from pyspark import cloudpickle

from headrace.spark.ticks.plan import by_value, users_modules


def test_a_thread_that_is_done_takes_no_module_from_one_that_is_not() -> None:
    first_in, second_in, first_may_leave, first_left = (threading.Event() for _ in range(4))
    registered: list[set[str]] = []

    def first() -> None:
        with by_value(cloudpickle):
            first_in.set()
            first_may_leave.wait()
        first_left.set()

    def second() -> None:
        first_in.wait()
        with by_value(cloudpickle):
            second_in.set()
            first_left.wait()
            registered.append(set(cloudpickle.list_registry_pickle_by_value()))

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    for thread in threads:
        thread.start()
    second_in.wait(0.5)  # it may come in while the first is there, or wait for it: either is right
    first_may_leave.set()
    for thread in threads:
        thread.join()
    assert registered == [{module.__name__ for module in users_modules()}]
    assert not cloudpickle.list_registry_pickle_by_value()
