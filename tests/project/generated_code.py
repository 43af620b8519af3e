"""Makes the Python code of the messages (`*.proto`) under `src`, as `python -m tests.project.generated_code`.

A file `headrace/compute/x/x.proto` becomes `headrace/compute/x/generated/x_pb2.py`. To protobuf it has
the name of that folder: names are one for all libraries in a process, and `x.proto` could be anybody's.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"


def messages() -> list[Path]:
    """All files of messages."""
    return sorted(SRC.glob("headrace/**/*.proto"))


def generate(proto: Path, into: Path) -> list[Path]:
    """Make the code of one file, in the same folders as under `src`. Needs grpcio-tools."""
    folder = proto.parent.relative_to(SRC) / "generated"
    made = [into / folder / f"{proto.stem}{ending}" for ending in ("_pb2.py", "_pb2.pyi")]
    made[0].parent.mkdir(parents=True, exist_ok=True)
    tool = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={folder}={proto.parent}"]
    subprocess.run([*tool, f"--python_out={into}", f"--pyi_out={into}", str(folder / proto.name)], check=True)
    return made


if __name__ == "__main__":
    for source in messages():
        for path in generate(source, SRC):
            print(path.relative_to(ROOT))
