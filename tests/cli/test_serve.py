"""`truelike serve`: what is refused before anything is served. `tests/serving` has the rest."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from truelike.serving.settings import KEY

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY, raising=False)


def test_an_address_that_others_can_reach_needs_a_key(run: Run, model: Path) -> None:
    result = run("serve", model, "--host", "0.0.0.0")
    assert result.code == 1
    assert "an API key is needed" in result.err
    assert "--key-file" in result.err


def test_there_is_no_option_for_the_key_itself(run: Run, model: Path) -> None:
    assert run("serve", model, "--key", "0123456789abcdef").code == 2


def test_wrong_options_are_refused(run: Run, model: Path, tmp_path: Path) -> None:
    assert "--shares" in run("serve", model, "--shares", "1,2").err
    assert "two models have the name" in run("serve", model, model).err
    assert "no file" in run("serve", model, "--items", tmp_path / "nothing.csv").err
    assert "expected at least 16" in run("serve", model, "--key-file", _file(tmp_path, "short")).err
    assert run("serve", model, "--port", "99999").code == 2
    assert run("serve").code == 2


def test_a_port_that_is_taken_is_named(run: Run, model: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = run("serve", model, "--port", port)
    assert result.code == 1
    assert f"cannot listen on 127.0.0.1:{port}" in result.err


def test_a_directory_without_a_model_is_an_error(run: Run, tmp_path: Path) -> None:
    result = run("serve", tmp_path, "--port", "0")
    assert result.code == 1
    assert "there is no model in" in result.err
    assert "Traceback" not in result.err


def _file(place: Path, text: str) -> Path:
    path = place / "key.txt"
    path.write_text(text)
    return path
