"""Checks of training on Ray, in one process: the same bits, errors that say what to do, loopback only.

`test_ray.py` runs this where only the loopback interface exists. Each check prints its name when it has passed.
"""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import socket
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

import truelike as tl
import truelike.cluster
from truelike.errors import ClusterError, StorageError

B = 4


def digest(model: Any) -> str:
    return hashlib.sha256(model.tables_.users.tobytes() + model.tables_.items.tobytes()).hexdigest()


class Sockets(threading.Thread):
    """Collects the addresses of all connections of this process and its children."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.found: set[str] = set()
        self.looks = 0
        self.done = threading.Event()

    def run(self) -> None:
        me = psutil.Process()
        while not self.done.wait(0.5):
            for process in [me, *me.children(recursive=True)]:
                try:
                    for each in process.net_connections(kind="inet"):
                        self.found |= {end.ip for end in (each.laddr, each.raddr) if end}
                except (psutil.NoSuchProcess, psutil.AccessDenied):
                    continue
            self.looks += 1


def passed(name: str) -> None:
    print(name, flush=True)


def same_bits(blocks: tl.blocks.Blocks) -> None:
    for model in (tl.IALS(factors=8, epochs=3), tl.NBPO(factors=8, flip_factors=4, epochs=3)):
        expected = tl.clone(model).fit(blocks, progress=False)
        for workers in (1, 2, 4):
            cluster = tl.Cluster("local", workers=workers, threads=1)
            found = tl.clone(model).fit(blocks, cluster=cluster, progress=False)
            assert digest(found) == digest(expected), f"{model} on {workers} workers"
            assert found.history_["loss"].to_list() == expected.history_["loss"].to_list()
        passed(f"same bits {model.name}")


def same_bits_with_impressions(blocks: tl.blocks.Blocks, shown: tl.blocks.Blocks) -> None:
    model = tl.ImpressionMF(factors=8, steps=30, samples=2, miss_rate=0.2)
    expected = tl.clone(model).fit(blocks.with_impressions(shown), progress=False)
    for workers in (1, 4):
        cluster = tl.Cluster("local", workers=workers, threads=1)
        found = tl.clone(model).fit(blocks.with_impressions(shown), cluster=cluster, progress=False)
        assert digest(found) == digest(expected), f"{model} on {workers} workers"
    passed("same bits with impressions")


def resumed(blocks: tl.blocks.Blocks, validation: tl.Dataset, place: Path) -> None:
    model, cluster = tl.NBPO(factors=8, epochs=5, learning_rate=0.1), tl.Cluster("local", workers=2, threads=1)
    whole = tl.clone(model).fit(blocks, validation=validation, progress=False)

    def stop(state: Any) -> None:
        if state.epoch == 2:
            raise KeyboardInterrupt

    options = {"validation": validation, "cluster": cluster, "checkpoint": place / "c", "progress": False}
    with contextlib.suppress(KeyboardInterrupt):
        tl.clone(model).fit(blocks, **options, checkpoint_epochs=1, callbacks=[stop])
    assert digest(tl.clone(model).fit(blocks, **options, resume=True)) == digest(whole)
    passed("resumed")


def errors(blocks: tl.blocks.Blocks, place: Path) -> None:
    import ray

    cluster = tl.Cluster("local", workers=2, threads=1)
    with pytest.raises(ClusterError, match="fewer factors"):
        tl.BPR(factors=80_000, epochs=1).fit(blocks, cluster=cluster)
    passed("too little object store")
    damaged = tl.blocks.open(blocks.directory)
    file = place / "blocks" / "block-00002.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[:-5] + bytes([content[-5] ^ 255]) + content[-4:])
    with pytest.raises(StorageError, match="block 2"):
        tl.IALS(factors=8, epochs=1).fit(damaged, cluster=cluster, progress=False)
    file.write_bytes(content)
    passed("damaged block")
    ray.shutdown()
    for address, words in (
        ("127.0.0.1:9", "can be reached at 127.0.0.1:9"),
        ("auto", "belongs to no Ray cluster"),
    ):
        with pytest.raises(ClusterError, match=words):
            tl.IALS().fit(blocks, cluster=address)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        truelike.cluster.ANSWER_SECONDS = 6.0
        with pytest.raises(ClusterError, match="no Ray cluster answers"):
            tl.IALS().fit(blocks, cluster=address)
    passed("no cluster")
    model = tl.IALS(factors=8, epochs=2)
    assert digest(tl.clone(model).fit(blocks, cluster="local", progress=False)) == digest(
        model.fit(blocks, progress=False)
    )
    assert not ray.is_initialized()
    passed("a local cluster is started and ended")


def main() -> None:
    import ray

    sockets = Sockets()
    sockets.start()
    ray.init(
        address="local", num_cpus=4, include_dashboard=False, object_store_memory=200_000_000,
        _node_ip_address="127.0.0.1", log_to_driver=False,
    )  # fmt: skip
    world = tl.synthetic.World(n_users=900, n_items=250)
    split = tl.splits.by_user(world.dataset(), seed=0)
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        blocks = tl.blocks.build(split.train, place / "blocks", blocks=B, progress=False)
        same_bits(blocks)
        shown = tl.blocks.build(world.impressions(), place / "shown", blocks=3, progress=False)
        same_bits_with_impressions(blocks, shown)
        resumed(blocks, split.validation, place)
        errors(blocks, place)
    sockets.done.set()
    sockets.join()
    beyond = {each for each in sockets.found if not ipaddress.ip_address(each.removeprefix("::ffff:")).is_loopback}
    assert not beyond - {"0.0.0.0", "::"}, f"addresses beyond loopback: {beyond}"
    assert sockets.looks > 10
    assert sockets.found
    passed("loopback only")
    sys.exit(0)


if __name__ == "__main__":
    main()
