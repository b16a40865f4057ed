"""Git tracks sources, settings, final tables and figures: no ignored file, no data, no path of a machine."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WRITTEN = (".py", ".pyi", ".md", ".js", ".css", ".html", ".toml", ".yml")  # text that people write
MOST_BYTES = 1_200_000  # of all other files: figures, tables, pictures
LARGEST_FILE = 120_000
# a home directory or a working directory at the start of a path, not inside a URL or a relative path
PATH_OF_A_MACHINE = re.compile(rb"(?<![\w.~/:)}\]-])/(?:home|root|work|Users)/[\w.]|\b[A-Z]:\\Users\\")


def git(*arguments: str) -> list[str]:
    answer = subprocess.run(["git", *arguments, "-z"], cwd=ROOT, capture_output=True, check=True)
    return [name for name in answer.stdout.decode().split("\0") if name]


@pytest.fixture(scope="module")
def tracked() -> list[Path]:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    if not (ROOT / ".git").exists():
        pytest.skip("this is not a clone: there is no .git beside the sources")
    paths = [ROOT / name for name in git("ls-files")]
    assert Path(__file__).resolve() in {path.resolve() for path in paths}
    return [path for path in paths if path.is_file()]  # a deletion may not be staged yet


@pytest.mark.usefixtures("tracked")
def test_no_ignored_file_is_tracked() -> None:
    assert git("ls-files", "--cached", "--ignored", "--exclude-standard") == []


def test_tracked_files_other_than_text_written_by_people_are_small_together(tracked: list[Path]) -> None:
    sizes = {path.relative_to(ROOT).as_posix(): path.stat().st_size for path in tracked}
    assert max(sizes.values()) < LARGEST_FILE, f"the largest: {max(sizes, key=sizes.__getitem__)}"
    made = {name: size for name, size in sizes.items() if not name.endswith(WRITTEN)}
    largest = sorted(made, key=made.__getitem__)[-5:]
    assert sum(made.values()) < MOST_BYTES, f"the largest: {', '.join(largest)}"


def test_no_tracked_file_names_a_path_of_a_machine(tracked: list[Path]) -> None:
    found = [
        f"{path.relative_to(ROOT).as_posix()}:{number}: {line.strip().decode(errors='replace')[:100]}"
        for path in tracked
        for number, line in enumerate(path.read_bytes().splitlines(), start=1)
        if PATH_OF_A_MACHINE.search(line)
    ]
    assert found == []


def test_every_promise_names_a_test_that_exists() -> None:
    page = (ROOT / "docs" / "explanation" / "promises.md").read_text().partition("## Trials")[0]
    rows = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| promise")]
    assert len(rows) > 20
    for row in rows:
        named = re.findall(r"`([\w/]+\.py)`", row.rpartition(" | ")[2])
        assert named, row
        for path in named:
            assert (ROOT / "tests" / path).is_file(), path


def test_no_dependency_may_be_of_a_version_with_a_known_vulnerability(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "tools"), *sys.path])
    oldest = importlib.import_module("oldest_versions")

    def numbers(version: str) -> tuple[int, ...]:
        return tuple(map(int, version.split("."))) + (0,) * (3 - version.count(".") - 1)

    allowed = oldest.lower_bounds()
    known = tomllib.loads((ROOT / "tools" / "advisories.toml").read_text("utf-8"))["advisory"]
    assert known
    for each in known:
        bound = allowed[each["package"]]
        assert numbers(bound) >= numbers(each["fixed"]), (
            f"{each['package']}>={bound}: {each['id']}, {each['what']}"
        )
