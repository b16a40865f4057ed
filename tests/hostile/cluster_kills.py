"""Kill workers, and nodes, of a Ray cluster while models are trained on it: the result must have the same bits.

    tools/loopback python tests/hostile/cluster_kills.py --kills 20

Starts a cluster of three nodes on this machine, trains IALS and NBPO on blocks, and at random moments kills a worker
process (SIGKILL) or removes a whole node without notice. Runs only where there is no interface but loopback.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import hashlib
import os
import random
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Any

QUICKLY_NOTICED = {
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "3000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",
}
NODES = 3
AT_ONCE = 5  # kills in one training, at most


def interfaces() -> set[str]:
    return {name for _, name in socket.if_nameindex()}


def digest(model: Any) -> str:
    tables = model.tables_
    return hashlib.sha256(tables.users.tobytes() + tables.items.tobytes()).hexdigest()


class Killer:
    """Kills something every now and then while a training runs on another thread.

    Ray starts nodes on the main thread only.
    """

    def __init__(self, cluster: Any, what: str, kills: int, seed: int) -> None:
        self.cluster, self.what, self.left, self.random = cluster, what, kills, random.Random(seed)
        self.killed = 0

    def run(self, work: Callable[[], Any]) -> Any:
        """The result of `work`."""
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(work)
            while not running.done():
                wait([running], self.random.uniform(0.2, 2.0))
                if self.left and not running.done():
                    killed = self.kill_worker() if self.what == "worker" else self.kill_node()
                    self.left, self.killed = self.left - killed, self.killed + killed
            return running.result()

    def kill_worker(self) -> bool:
        import psutil

        mine = []
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):  # it has ended meanwhile
                if "BlockActor" in " ".join(child.cmdline()):
                    mine.append(child.pid)
        if not mine:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.random.choice(sorted(mine)), signal.SIGKILL)
            return True
        return False

    def kill_node(self) -> bool:
        from ray._private.worker import _global_node

        # not the one that this driver is connected to: Ray would disconnect the driver
        own = getattr(_global_node, "raylet_socket_name", None)
        nodes = [node for node in self.cluster.worker_nodes if node.raylet_socket_name != own]
        if not nodes:
            return False
        self.cluster.remove_node(self.random.choice(nodes), allow_graceful=False)
        self.cluster.add_node(num_cpus=1, node_ip_address="127.0.0.1", object_store_memory=100_000_000)
        return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="of workers, and of nodes, for all models together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=40)
    options = parser.parse_args()
    faulthandler.dump_traceback_later(60 + 30 * options.kills, exit=True)
    if interfaces() - {"lo"}:
        sys.exit("there are interfaces beside loopback; run it by tools/loopback")
    os.environ.update(QUICKLY_NOTICED)
    import ray
    from ray.cluster_utils import Cluster

    import truelike as tl

    data = tl.synthetic.World(n_users=4_000, n_items=1_000).dataset()
    with tempfile.TemporaryDirectory() as place:
        blocks = tl.blocks.build(data, Path(place) / "blocks", blocks=6, progress=False)
        models = {
            "IALS": tl.IALS(factors=16, epochs=options.epochs, relaxation=1.0),
            "NBPO": tl.NBPO(factors=16, epochs=options.epochs),
        }
        expected = {name: digest(tl.clone(model).fit(blocks, progress=False)) for name, model in models.items()}
        cluster = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 1, "node_ip_address": "127.0.0.1", "object_store_memory": 200_000_000,
                            "include_dashboard": False},
        )  # fmt: skip
        for _ in range(NODES - 1):
            cluster.add_node(num_cpus=1, node_ip_address="127.0.0.1", object_store_memory=100_000_000)
        ray.init(address=cluster.address, log_to_driver=False, _node_ip_address="127.0.0.1")
        wrong = 0
        try:
            for what in ("worker", "node"):
                left, round_ = options.kills, 0
                while left:
                    name = list(models)[round_ % 2]
                    killer = Killer(cluster, what, min(left, AT_ONCE), options.seed + round_)
                    started = time.monotonic()
                    fit = partial(tl.clone(models[name]).fit, blocks, progress=False)
                    model = killer.run(partial(fit, cluster=tl.Cluster("auto", workers=3, threads=1)))
                    same = digest(model) == expected[name]
                    wrong += not same
                    left, round_ = left - killer.killed, round_ + 1
                    print(
                        f"{name}: {killer.killed} {what}s killed, {time.monotonic() - started:.1f} s, "
                        f"{'the same bits' if same else 'OTHER BITS'}",
                        flush=True,
                    )
        finally:
            ray.shutdown()
            cluster.shutdown()
    print(f"{2 * options.kills} kills, {wrong} wrong results")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
