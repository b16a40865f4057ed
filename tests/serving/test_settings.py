"""Settings of a server: the key, the names of models and their shares."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from truelike.errors import ParameterError
from truelike.serving.settings import KEY, Settings, api_key, named_models, runtime_place, shares_of

GOOD = "a-key-that-is-long-enough"


def test_only_this_machine_needs_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY, raising=False)
    assert api_key(None, "127.0.0.1") is None
    assert api_key(None, "localhost") is None
    for host in ("0.0.0.0", "::", "192.0.2.1", "shop.example"):
        with pytest.raises(ParameterError, match="an API key is needed"):
            api_key(None, host)


def test_a_key_comes_from_a_file_or_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(KEY, GOOD)
    assert api_key(None, "127.0.0.1") == GOOD
    (tmp_path / "key").write_text(f"{GOOD}-of-file\nanother line\n")
    assert api_key(tmp_path / "key", "0.0.0.0") == f"{GOOD}-of-file"
    with pytest.raises(ParameterError, match="cannot be read"):
        api_key(tmp_path / "nothing", "127.0.0.1")
    for bad in ("short", "has spaces in the middle of it", "mit-Umlaut-ä-0123456789", ""):
        (tmp_path / "key").write_text(bad)
        with pytest.raises(ParameterError, match="expected at least 16"):
            api_key(tmp_path / "key", "127.0.0.1")


def test_names_of_models(tmp_path: Path) -> None:
    (tmp_path / "a=b").mkdir()
    assert named_models(["x/one", "two=x/one"]) == {"one": "x/one", "two": "x/one"}
    with pytest.raises(ParameterError, match="two models have the name 'one'"):
        named_models(["x/one", "y/one"])
    with pytest.raises(ParameterError, match="cannot be the name of a model"):
        named_models([str(tmp_path / "a=b")])


@pytest.mark.parametrize("text", ["90", "90,10,0", "a,b", "-1,2", "0,0", "nan,1", "inf,1", ""])
def test_wrong_shares(text: str) -> None:
    with pytest.raises(ParameterError, match="--shares"):
        shares_of(text, 2)


def test_settings_come_back_without_the_key() -> None:
    settings = Settings(models={"a": "b"}, shares=[1.0], items="items.csv")
    assert Settings.load(settings.dump()) == settings


def test_the_runtime_directory_is_where_it_is_told_or_where_systemd_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
    assert runtime_place(None) == Path(tempfile.gettempdir())
    monkeypatch.setenv("RUNTIME_DIRECTORY", "/run/one:/run/two")
    assert runtime_place(None) == Path("/run/one")
    assert runtime_place("/srv/here") == Path("/srv/here")
