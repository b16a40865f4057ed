"""The compile cache is a convenience: whatever is wrong with it, the result is the same, and one line says so."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import truelike as tl
from truelike.core import compile_cache
from truelike.core.compile_cache import cached_njit

PACKAGE = Path(tl.__file__).parent
# loops that are compiled at their first call, and loops with explicit signatures
FIT = """
import truelike as tl
data = tl.synthetic.World(n_users=60, n_items=40).dataset()
print(tl.EASE().fit(data).recommend([0, 1], k=5).rows())
print(tl.SoftmaxMF(factors=8, epochs=2).fit(data).item_vectors().rows())
"""
MISSES = """
import gc
from numba.core.dispatcher import Dispatcher
cached = [each for each in gc.get_objects() if isinstance(each, Dispatcher) and each.stats.cache_path]
assert any(each.stats.cache_hits for each in cached)
print([each for each in cached if each.stats.cache_misses])
"""
posix = pytest.mark.skipif(os.name != "posix", reason="limits, FIFOs and HOME are those of POSIX")


def start(
    cache: Path | str, code: str = FIT, home: str = "/dev/null", package: Path = PACKAGE
) -> subprocess.Popen[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "XDG_"))}
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env={**kept, "HOME": home, "NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(package.parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> tuple[str, list[str]]:
    """Return what a process wrote to stdout, and the lines it wrote to stderr."""
    try:
        output, messages = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0, messages
    return output, messages.splitlines()


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A cache that was filled on a machine where nothing is wrong, and the output."""
    cache = tmp_path_factory.mktemp("good")
    output, messages = end(start(cache))
    assert not messages
    return cache, output


@pytest.fixture
def filled(good: tuple[Path, str], tmp_path: Path) -> Path:
    """A copy of the filled cache."""
    return Path(shutil.copytree(good[0], tmp_path / "cache"))


@pytest.fixture
def expected(good: tuple[Path, str]) -> str:
    return good[1]


def files(cache: Path) -> list[Path]:
    return sorted(path for path in cache.rglob("*") if not path.is_dir())


def test_a_second_process_compiles_nothing(filled: Path, expected: str) -> None:
    before = {path: path.stat().st_mtime_ns for path in files(filled)}
    output, messages = end(start(filled, FIT + MISSES))
    assert output == f"{expected}[]\n"
    assert not messages
    assert {path: path.stat().st_mtime_ns for path in files(filled)} == before


@posix
def test_no_place_for_a_cache(expected: str, tmp_path: Path) -> None:
    """As root every directory can be written, so files stand where directories are needed."""
    package = tmp_path / "site" / "truelike"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    for directory in {path.parent for path in package.rglob("*.py")}:
        (directory / "__pycache__").touch()
    (tmp_path / "file").touch()
    output, messages = end(start(tmp_path / "file" / "cache", home=str(tmp_path / "file"), package=package))
    assert output == expected
    assert len(messages) == 1
    assert messages[0].startswith("Compiled functions are not kept on disk: no directory for them can be written")
    assert "Set NUMBA_CACHE_DIR" in messages[0]


@posix
def test_a_full_disk(expected: str, tmp_path: Path) -> None:
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
    output, messages = end(start(tmp_path, limit + FIT))
    assert output == expected
    assert len(messages) == 1
    assert messages[0].startswith("Compiled functions are not kept on disk: cannot write")
    assert {path.suffix for path in files(tmp_path)} <= {".nbi"}  # an index without code is no harm
    assert end(start(tmp_path)) == (expected, [])


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def garbage(path: Path) -> None:
    path.write_bytes(np.random.default_rng(0).bytes(path.stat().st_size))


def flip_a_bit(path: Path) -> None:
    """In the machine code, where only a checksum notices it."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def make_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage",
    [truncate, empty, garbage, flip_a_bit, pytest.param(make_fifo, marks=posix)],
    ids=lambda f: f.__name__,
)
def test_damaged_files_are_replaced(damage: Callable[[Path], None], filled: Path, expected: str) -> None:
    damaged = files(filled)
    for path in damaged:
        damage(path)
    output, messages = end(start(filled))
    assert output == expected
    assert len(messages) == 1
    assert messages[0].startswith("A compiled function on disk cannot be used: ")
    assert files(filled) == damaged
    output, messages = end(start(filled, FIT + MISSES))
    assert output == f"{expected}[]\n"
    assert not messages


@pytest.mark.slow
def test_processes_that_compile_at_the_same_time(expected: str, tmp_path: Path) -> None:
    for process in [start(tmp_path) for _ in range(3)]:
        assert end(process) == (expected, [])
    assert {path.suffix for path in files(tmp_path)} == {".nbi", ".nbc"}


# --- in this process --------------------------------------------------------------------------------


def double(x: int) -> int:
    return 2 * x


@pytest.fixture
def said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> Iterator[Callable[[], list[str]]]:
    """Return the messages so far, with an empty cache, as in a new process."""
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compile_cache, "_said", False)
    with caplog.at_level("WARNING", logger="truelike"):
        yield lambda: caplog.messages


def test_old_code_under_a_new_index_is_not_used(
    said: Callable[[], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt between the two writes of numba leaves it."""
    cached_njit("int64(int64)")(double)
    [code] = [path for path in files(tmp_path) if path.suffix == ".nbc"]
    old = code.read_bytes()
    monkeypatch.setattr("numba.core.caching._SourceFileBackedLocatorMixin.get_source_stamp", lambda _: "changed")
    cached_njit("int64(int64)")(double)
    code.write_bytes(old)
    other = cached_njit("int64(int64)")(double)
    assert sum(other.stats.cache_misses.values()) == 1
    assert other(3) == 6
    [message] = said()
    assert "is damaged or incomplete" in message


def test_an_interrupt_while_saving_passes_and_leaves_no_file(
    said: Callable[[], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.replace", interrupt)
        with pytest.raises(KeyboardInterrupt):
            cached_njit("int64(int64)")(double)
    assert not files(tmp_path)
    assert cached_njit("int64(int64)")(double)(3) == 6
    assert not said()


def test_without_compilation_the_function_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numba.config.DISABLE_JIT", True)
    assert cached_njit("int64(int64)")(double) is double
