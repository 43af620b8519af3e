"""What is killed, and when; what became of the run."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.spark.killing.processes import Ended, kill
from tests.spark.killing.story import LOCAL, Story

CLUSTER = "local-cluster[2,1,512]"


@dataclass(frozen=True, slots=True)
class Kill:
    """moment: in words. went_on: whether the run did. error: what it said last, if it ended by itself."""

    moment: str
    went_on: bool
    error: str = ""


def kill_driver(story: Story) -> Kill:
    driver = story.driver()
    moment = _moment(story)
    driver.process.send_signal(signal.SIGKILL)
    story.forget()
    return Kill(moment, went_on=False)


def kill_jvm(story: Story) -> Kill:
    driver = story.driver()
    moment = _moment(story)
    kill(driver.jvm)
    return _after(story, moment)


def kill_workers(story: Story, master: str = LOCAL) -> Kill:
    driver = story.driver(master)
    moment = _moment(story)
    for worker in driver.workers():
        kill(worker)
    return _after(story, moment)


def kill_executor(story: Story) -> Kill:
    driver = story.driver(CLUSTER)
    moment = _moment(story)
    kill(story.choice.choice(driver.executors()))
    return _after(story, moment)


def die_at_a_step(story: Story) -> Kill:
    """The driver dies just before the n-th thing it does to a file: in a commit, or while it publishes."""
    operation = story.choice.randrange(1, 150)
    story.stop()
    story.supply(3)
    moment = f"before file operation {operation}"
    try:
        story.run_to_the_end(operation=operation)
    except Ended as ended:
        # It had no time for words; what it says otherwise is no part of the story.
        if ended.code != -signal.SIGKILL:
            raise
        return Kill(moment, went_on=False)
    return Kill(f"{moment}, which did not come", went_on=True)


KINDS: Mapping[str, Callable[[Story], Kill]] = {
    "driver": kill_driver,
    "JVM": kill_jvm,
    "Python workers": kill_workers,
    "workers of executors": lambda story: kill_workers(story, CLUSTER),
    "executor": kill_executor,
    "driver at a step": die_at_a_step,
}


def _moment(story: Story) -> str:
    """Let some ticks happen and some time pass, while input arrives; when that is, in words."""
    story.supply(2)
    tick = 0
    for _ in range(story.choice.randrange(3)):
        tick = story.ticked()
        story.supply()
    story.supply(2)
    pause = story.choice.uniform(0.0, 0.6)
    # The moment is to be any: nothing waits for what happens meanwhile.
    time.sleep(pause)
    return f"{pause * 1000:.0f} ms after " + (f"tick {tick}" if tick else "a start or a kill")


def _after(story: Story, moment: str) -> Kill:
    """Whether the run goes on with further ticks."""
    try:
        story.catch_up()
        story.supply(2)
        story.ticked()
        story.ticked()
    except Ended as ended:
        story.forget()
        return Kill(moment, went_on=False, error=ended.error)
    return Kill(moment, went_on=True)
