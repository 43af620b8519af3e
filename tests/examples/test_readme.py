"""The output that the READMEs of the examples show is what their commands print (`readme.py` writes it)."""

from pathlib import Path

import pytest

from tests.examples.readme import READMES, blocks, run

BLOCKS = [
    pytest.param(readme, block, id=f"{readme.parent.name}-{block.splitlines()[0].split()[-1]}")
    for readme in READMES
    for block in blocks(readme)
]


@pytest.mark.parametrize(("readme", "block"), BLOCKS)
def test_a_command_prints_what_the_readme_says(
    readme: Path, block: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folders = {f"/tmp/{readme.parent.name}": tmp_path / "files"}
    if "DATA" in block:
        folders["DATA"] = request.getfixturevalue("shared") / "data"
    assert run(block, folders).rstrip() == block.rstrip()
