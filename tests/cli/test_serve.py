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


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("{model}", "--host", "0.0.0.0"), 1, "an API key is needed: put one into a file (--key-file FILE)"),
        (("{model}", "--shares", "1,2"), 1, "--shares"),
        (("{model}", "{model}"), 1, "two models have the name"),
        (("{model}", "--items", "nothing.csv"), 1, "no file"),
        (("{model}", "--key-file", "{short}"), 1, "expected at least 16"),
        (("{place}", "--port", "0"), 1, "there is no model in"),
        (("{model}", "--key", "0123456789abcdef"), 2, "No such option"),
        (("{model}", "--port", "99999"), 2, "65535"),
        ((), 2, "MODEL"),
    ],
)
def test_wrong_options_are_refused(
    run: Run, model: Path, tmp_path: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    short = tmp_path / "key.txt"
    short.write_text("short")
    done = run("serve", *(each.format(model=model, short=short, place=tmp_path) for each in arguments))
    assert done.code == code
    assert words in (done.usage_error if code == 2 else done.err)
    assert "Traceback" not in done.err


def test_a_port_that_is_taken_is_named(run: Run, model: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = run("serve", model, "--port", port)
    assert result.code == 1
    assert f"cannot listen on 127.0.0.1:{port}" in result.err
