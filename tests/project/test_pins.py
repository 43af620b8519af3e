"""The pinned versions are those that pyproject.toml allows, and there are no others."""

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]


def wanted() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    # What is only compared with is not installed to develop.
    extras = {name: group for name, group in project["optional-dependencies"].items() if name != "bench"}
    groups = [project["dependencies"], *extras.values()]
    listed = [Requirement(text) for group in groups for text in group]
    return [r for r in listed if r.name != "headrace"]


def pinned() -> dict[str, Version]:
    lines = (ROOT / "requirements" / "dev.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): Version(version) for name, version in pairs}


@pytest.mark.parametrize("requirement", wanted(), ids=str)
def test_every_requirement_is_pinned_to_a_version_it_allows(requirement: Requirement) -> None:
    assert requirement.specifier.contains(pinned()[canonicalize_name(requirement.name)])
