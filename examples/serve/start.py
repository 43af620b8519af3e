"""A controller and two replicas, each a process of its own; one that dies is started again.

python -m examples.serve.start                       # everything in a temporary folder
python -m examples.serve.start --state /var/serve    # it is all there the next time
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

CONTROLLER = os.environ.get("HEADRACE_CONTROLLER", "127.0.0.1:7411")


class Processes:
    """Commands of Headrace that run, by name. What a service manager would do with them."""

    def __init__(self) -> None:
        self._commands: dict[str, list[str]] = {}
        self._running: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str, *arguments: str) -> str:
        """The address at which it listens."""
        command = [sys.executable, "-m", "headrace.cli", *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1:]
        if not address:
            raise SystemExit(f"{name} did not start")
        self._commands[name], self._running[name] = list(arguments), process
        print(f"{name:<12} pid {process.pid:<8} {address[0]}", flush=True)
        return address[0]

    def keep_running(self) -> None:
        """Start again what dies, until this process is told to end."""
        while True:
            pid, _ = os.wait()
            for name, process in list(self._running.items()):
                if process.pid == pid:
                    print(f"{name} has died", flush=True)
                    self.start(name, *self._commands[name])

    def end(self) -> None:
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="Start a controller and two replicas.")
    parser.add_argument("--state", type=Path, metavar="FOLDER")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    processes = Processes()
    with TemporaryDirectory(prefix="headrace-serve-") as temporary:
        folder = given.state or Path(temporary)
        try:
            replicas = [_replica(processes, folder, name) for name in ("replica-a", "replica-b")]
            processes.start(
                "controller",
                "controller",
                "--listen",
                CONTROLLER,
                "--state",
                str(folder / "controller"),
                *replicas,
            )
            print("kill -9 any of them: it is started again. Ctrl-C ends all.", flush=True)
            processes.keep_running()
        except KeyboardInterrupt:
            pass
        finally:
            processes.end()


def _replica(processes: Processes, folder: Path, name: str) -> str:
    """Start a replica. What the controller is told of it."""
    arguments = ("replica", "--name", name, "--state", str(folder / name))
    address = processes.start(name, *arguments, "--listen", "127.0.0.1:0")
    processes._commands[name] = [*arguments, "--listen", address]  # the same the next time
    return f"--replica={name}={address}"


if __name__ == "__main__":
    main()
