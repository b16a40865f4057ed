"""The service uses what other packages offer, and no private member of theirs."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import truelike.serving

FILES = sorted(Path(truelike.serving.__file__).parent.glob("*.py"))


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in ("_fields", "_replace", "_version")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_private_member_is_used(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and not (isinstance(node.value, ast.Name) and node.value.id == "self"):
            assert not is_private(node.attr), f"{path.name}, line {node.lineno}: .{node.attr}"
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("truelike"):
            names = [*str(node.module).split("."), *(each.name for each in node.names)]
            assert not any(map(is_private, names)), f"{path.name}, line {node.lineno}: {names}"
