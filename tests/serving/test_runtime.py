"""The runtime directory and the channel to a worker: who owns them, what is full, and what is not read."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from truelike.errors import ParameterError
from truelike.serving.channel import LONGEST, Channel, State, line
from truelike.serving.runtime import KINDS, PREFIX, SIZE, Runtime


def test_servers_share_a_place_and_no_directory(tmp_path: Path) -> None:
    one, two = Runtime(tmp_path), Runtime(tmp_path)
    assert one.path != two.path
    assert one.is_there()
    assert one.path.stat().st_mode & 0o777 == 0o700
    os.close(one._lock)  # as if its server was killed
    stranger = tmp_path / f"{PREFIX}of-somebody-else"
    stranger.mkdir()
    (stranger / "file").touch()
    three = Runtime(tmp_path)
    assert not one.path.exists()
    assert two.is_there()
    assert stranger.exists()
    two.path.rename(tmp_path / "moved")
    two.path.mkdir()
    assert not two.is_there()
    two.remove()
    assert two.path.exists(), "another directory is in its place"
    three.remove()
    assert not three.path.exists()
    with pytest.raises(ParameterError, match="Choose another --runtime-directory"):
        Runtime(tmp_path / "nowhere")


def test_counts_have_all_their_bytes_or_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = Runtime(tmp_path)
    directory = Path(runtime.allocate(0))
    assert sorted(path.name for path in directory.iterdir()) == sorted(f"{kind}_0.db" for kind in KINDS)
    assert all(path.stat().st_blocks * 512 >= SIZE for path in directory.iterdir())
    (directory / "counter_0.db").write_bytes(b"counted" + bytes(SIZE))
    runtime.allocate(0)
    assert (directory / "counter_0.db").read_bytes().startswith(b"counted"), "the next worker counts on"

    def no_space(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", no_space)
    assert runtime.allocate(0) == str(directory)
    assert runtime.allocate(1) == ""
    runtime.remove()


def test_a_worker_that_does_not_read_holds_nobody_up_and_hears_whole_lines() -> None:
    channel = Channel()
    state = State(problems={"main": "x" * 50_000})
    for generation in range(100):
        state.generation = generation
        channel.say(state)
    assert len(channel._unsent) < LONGEST
    heard = b""
    channel.theirs.setblocking(False)
    for _ in range(10):  # it reads again
        try:
            while part := channel.theirs.recv(65_536):
                heard += part
        except BlockingIOError:
            channel.say(state)
    *lines, _ = heard.split(b"\n")
    assert json.loads(lines[-1])["generation"] == 99
    channel.theirs.send(line({"generation": 3, "reloads": 0}) + line({"generation": 4, "reloads": 1}) + b'{"gen')
    channel.hear()
    assert (channel.report.generation, channel.report.reloads) == (4, 1)
    channel.theirs.send(b'eration": 5, "reloads": 2}\n')
    channel.hear()
    assert channel.report.generation == 5
    channel.theirs.close()
    channel.say(state)
    channel.hear()
    channel.close()
