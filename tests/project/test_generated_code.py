"""Generated code is what its messages make of it."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from tests.project.generated_code import ROOT, SRC, generate, messages


def test_generated_code_is_fresh(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools", reason="grpcio-tools is not installed, protoc is missing")
    if not version("grpcio-tools").startswith("1.85."):
        pytest.skip("grpcio-tools is not 1.85: another protoc writes other code")
    for source in messages():
        for made in generate(source, tmp_path):
            kept = SRC / made.relative_to(tmp_path)
            assert kept.read_text() == made.read_text(), f"{kept.relative_to(ROOT)} is old: make proto"
