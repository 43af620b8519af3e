"""Installed size of each extra: `python -m tests.project.install_sizes`, which prints a table of Markdown.

Each extra is installed from the wheel into a virtual environment of its own that holds nothing else, no pip
either.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_NOT_FOR_USERS = ("bench", "dev")


def main() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    print("| installed | packages | MB |\n|---|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        wheel = build_wheel(Path(folder))
        for extra in ("", *(name for name in extras if name not in _NOT_FOR_USERS)):
            with tempfile.TemporaryDirectory() as environment:
                packages, size = installed(f"{wheel}[{extra}]" if extra else str(wheel), Path(environment))
            name = f"headrace[{extra}]" if extra else "headrace"
            print(f"| `{name}` | {packages} | {size / 1e6:,.0f} |", flush=True)


def build_wheel(folder: Path) -> Path:
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = folder.glob("*.whl")
    return wheel


def installed(requirement: str, folder: Path) -> tuple[int, int]:
    """Return the number of packages and the bytes that a requirement takes in an empty environment."""
    venv.create(folder, with_pip=False, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet"]
    subprocess.run([*pip, requirement], check=True, stdout=subprocess.DEVNULL)
    (packages,) = folder.glob("lib/*/site-packages")
    size = sum(file.lstat().st_size for file in packages.rglob("*") if file.is_file())
    return len(list(packages.glob("*.dist-info"))), size


if __name__ == "__main__":
    main()
