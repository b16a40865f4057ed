"""The settings of a server, which the supervisor gives to its workers and loaders. The API key is not among them."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from truelike.errors import ParameterError

KEY = "TRUELIKE_API_KEY"
SHORTEST_KEY = 16


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a server runs: the options of `truelike serve`, whose help says what they mean. Paths are absolute."""

    models: dict[str, str]
    shares: list[float]
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    events: str | None = None
    items: str | None = None
    titles: str | None = None
    rules: dict[str, Any] | None = None
    index: Literal["auto", "exact", "ivf"] = "auto"
    min_recall: float = 0.95
    slow_ms: float = 10.0
    max_body: int = 1_000_000
    max_in_flight: int = 100
    timeout: float = 10.0
    load_timeout: float = 900.0
    runtime_directory: str | None = None
    watch: float = 1.0
    events_days: float = 90.0
    salt: str = ""
    page: bool = True
    access_log: bool = False
    allowed_hosts: list[str] = field(default_factory=list)

    def dump(self) -> str:
        """The settings as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, text: str) -> Self:
        """The settings of a JSON text."""
        return cls(**json.loads(text))


def runtime_place(given: str | None) -> Path:
    """Where a server makes its runtime directory: where it is told to, where systemd says, or among temporary files."""
    of_systemd = os.environ.get("RUNTIME_DIRECTORY", "").split(":")[0]
    return Path(given or of_systemd or tempfile.gettempdir()).absolute()


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def api_key(file: Path | None, host: str) -> str | None:
    """The API key: the content of a file, or of the environment. An address that others can reach needs one."""
    key: str | None
    if file is not None:
        try:
            key = next(iter(file.read_text(encoding="utf-8").splitlines()), "").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ParameterError(f"the API key cannot be read from {str(file)!r}: {error}") from error
        where = f"the file {str(file)!r}"
    else:
        key, where = os.environ.get(KEY), f"the variable {KEY}"
    if key is None:
        if is_loopback(host):
            return None
        raise ParameterError(
            f"others can reach {host!r}, so an API key is needed: put one into a file (--key-file FILE) or into the "
            f"environment variable {KEY}. Make one with: python -c 'import secrets; print(secrets.token_urlsafe())'"
        )
    if len(key) < SHORTEST_KEY or not re.fullmatch(r"[!-~]+", key):
        raise ParameterError(
            f"the API key in {where} has {len(key)} letters; expected at least {SHORTEST_KEY} letters of ASCII, and no "
            "spaces"
        )
    return key


def named_models(arguments: list[str]) -> dict[str, str]:
    """The directories of models by their names: NAME=DIRECTORY, or a directory, whose name it is then.

    >>> named_models(["models/old", "new=models/42"])
    {'old': 'models/old', 'new': 'models/42'}
    """
    found: dict[str, str] = {}
    for argument in arguments:
        name, equals, directory = argument.partition("=")
        if not equals or Path(argument).exists() or "/" in name:
            name, directory = Path(argument).absolute().name, argument
        if not re.fullmatch(r"[\w.-]{1,100}", name):
            raise ParameterError(
                f"{name!r} cannot be the name of a model: it is made of letters, digits, '.', '_' and '-'. Write "
                "NAME=DIRECTORY."
            )
        if name in found:
            raise ParameterError(f"two models have the name {name!r}. Write NAME=DIRECTORY for one of them.")
        found[name] = directory
    return found


def shares_of(text: str | None, n: int) -> list[float]:
    """The shares of the models, e.g. "90,10"; without a text they are equal.

    >>> shares_of("90,10", 2), shares_of(None, 2)
    ([90.0, 10.0], [1.0, 1.0])
    """
    if text is None:
        return [1.0] * n
    try:
        shares = [float(part) for part in text.split(",")]
    except ValueError:
        shares = []
    if len(shares) != n or not all(0 <= share < float("inf") for share in shares) or not sum(shares) > 0:
        raise ParameterError(
            f"--shares is {text!r}; expected a number for each of the {n} models, separated by commas, e.g. 90,10"
        )
    return shares


def read_json(path: Path) -> dict[str, Any]:
    """The content of a JSON file."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON file, whole or not at all."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(json.dumps(content), encoding="utf-8")
    fresh.replace(path)
