"""The Dockerfile, the unit of systemd and the wheel: checked as far as it is possible without a daemon."""

from __future__ import annotations

import configparser
import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCKERFILE, UNIT = ROOT / "deploy" / "Dockerfile", ROOT / "deploy" / "truelike.service"
if not DOCKERFILE.exists():
    pytest.skip("deploy/ is not beside these tests", allow_module_level=True)


def script(name: str) -> str:
    """The path of a console script of this environment, or of the system; skips the test if there is none."""
    own = Path(sys.executable).parent / name
    found = str(own) if own.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    done = subprocess.run(
        [script("hadolint"), DOCKERFILE], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_runs_as_another_user_and_checks_its_health() -> None:
    text = DOCKERFILE.read_text()
    final = text[text.rindex("\nFROM ") :]
    assert re.search(r"^USER (?!0\b|root\b)\S+", final, re.MULTILINE)
    assert "/healthz" in final
    assert "EXPOSE 8000" in final
    cache = re.search(r"NUMBA_CACHE_DIR=(\S+)", final)
    assert cache is not None
    assert cache[1].startswith("/tmp/"), "the rest of the file system may be read-only"
    assert "RUNTIME_DIRECTORY=/run/truelike\n" in final
    for page in (text, (ROOT / "docs" / "howto" / "deploy.md").read_text()):
        assert re.search(r"--read-only --memory \S+ --tmpfs /tmp --tmpfs /run/truelike:uid=10001", page)


def context() -> list[str]:
    """The files of the repository that .dockerignore lets into the build."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in lines
    return [line.removeprefix("!") for line in lines if line.startswith("!")]


def test_the_wheel_is_built_from_what_dockerignore_lets_in_and_holds_all_files(tmp_path: Path) -> None:
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("hatchling is not installed: pip install 'truelike[dev]'")
    source = tmp_path / "source"
    source.mkdir()
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in context():
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, source / name)
    code = f"from hatchling.build import build_wheel; print(build_wheel({str(tmp_path)!r}))"
    subprocess.run([sys.executable, "-c", code], cwd=source, check=True, capture_output=True, timeout=120)
    (wheel,) = tmp_path.glob("truelike-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("truelike/")}
    package = source / "src"
    expected = {each.relative_to(package).as_posix() for each in package.rglob("*") if each.is_file()}
    assert packed == expected
    assert {
        "truelike/__init__.pyi",
        "truelike/py.typed",
        "truelike/report/page.html.jinja",
        "truelike/paper/claims.csv",
    } <= packed
    for line in DOCKERFILE.read_text().splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            assert line == "COPY . .", "the build stage copies what .dockerignore lets in"


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None, comment_prefixes=("#",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(UNIT.read_text())
    return parser


def test_the_unit_is_hardened() -> None:
    service = unit()["Service"]
    assert service["Restart"] == "on-failure"
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
    for name, value in {"DynamicUser": "yes", "NoNewPrivileges": "yes", "ProtectSystem": "strict"}.items():
        assert service[name] == value
    assert service["StateDirectory"] == service["CacheDirectory"] == service["RuntimeDirectory"] == "truelike"
    assert (service["Type"], service["NotifyAccess"]) == ("notify", "main")
    assert int(service["WatchdogSec"]) > 20, "a worker is replaced before"
    assert "MemoryMax" in service
    credential = service["LoadCredential"].partition(":")[0]
    assert f"--key-file ${{CREDENTIALS_DIRECTORY}}/{credential}" in service["ExecStart"]
    assert "MemoryDenyWriteExecute" not in service, "numba could not compile"
    assert unit()["Install"]["WantedBy"] == "multi-user.target"


def test_systemd_verifies_the_unit(tmp_path: Path) -> None:
    analyze = script("systemd-analyze")
    copy = tmp_path / "truelike.service"
    copy.write_text(UNIT.read_text().replace("/opt/truelike/bin/truelike", "/bin/true"))
    done = subprocess.run(
        [analyze, "verify", "--man=no", copy], capture_output=True, text=True, check=False, timeout=60
    )
    if "Failed to" in done.stderr and "initialize" in done.stderr:
        pytest.skip(f"systemd-analyze does not run here: {done.stderr.strip()}")
    assert (done.returncode, done.stderr) == (0, "")


def commands() -> dict[str, list[str]]:
    """The arguments of `truelike` in the Dockerfile and in the unit."""
    in_docker = re.search(r"^CMD (\[.*\])$", DOCKERFILE.read_text(), re.MULTILINE)
    assert in_docker is not None
    return {"Dockerfile": json.loads(in_docker[1]), "unit": shlex.split(unit()["Service"]["ExecStart"])[1:]}


@pytest.mark.parametrize("place", ["Dockerfile", "unit"])
def test_only_options_of_truelike_serve_are_used(place: str) -> None:
    from typer.main import get_command

    from truelike.cli import app

    command, *arguments = commands()[place]
    assert command == "serve"
    known = get_command(app).commands  # type: ignore[attr-defined]
    if "serve" not in known:
        pytest.skip("this version has no command `truelike serve`")
    options = {name for each in known["serve"].params for name in each.opts}
    used = [argument for argument in arguments if argument.startswith("-")]
    assert used
    assert set(used) <= options
