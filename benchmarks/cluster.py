"""Training on blocks, out of core and on Ray, beside the plain engine.

    tools/loopback python benchmarks/cluster.py bits       # one hash of the tables for all ways to train
    tools/loopback python benchmarks/cluster.py epochs     # seconds of an epoch, and the share of data movement
    tools/loopback python benchmarks/cluster.py seeds      # NDCG@20 on blocks and by the plain engine, 10 seeds
    tools/loopback python benchmarks/cluster.py costs      # measurements for the cost model: results/scale/epochs.csv
    python benchmarks/cluster.py model                     # the cost model: a fit, a check, and 10 billion interactions

MovieLens 1M and a world of 20 million interactions (200,000 users, 20,000 items). Ray runs on this machine, where
only the loopback interface may exist: tools/loopback, as root. `epochs` measures in one run, in turns; the seconds are
medians of the epochs after the first. Validation items stay candidates on test (`seen="train"`).
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from common import machine, small_dataset, world

import truelike as tl
from truelike.engines.engine import closing

B = 4
BEYOND_CACHE = 7.0  # an epoch of a billion interactions beside the model: its tables do not fit into a cache
RESULTS = Path(__file__).parents[1] / "results" / "scale"


def digest(model: Any) -> str:
    tables = model.tables_
    return hashlib.sha256(tables.users.tobytes() + tables.items.tobytes()).hexdigest()[:16]


def movielens(quick: bool) -> tl.Split:
    return tl.splits.by_user(small_dataset() if quick else tl.datasets.load("ml-1m"), seed=0)


def large(quick: bool) -> tl.Dataset:
    return world(2_000, 500, 30) if quick else world(200_000, 20_000)


def blocks_of(data: tl.Dataset, place: str, n: int = B) -> tl.blocks.Blocks:
    return tl.blocks.build(data, Path(place) / f"blocks-{n}", blocks=n, progress=False)


def ray_with(cpus: int, store: int = 2_000_000_000) -> None:
    import ray

    if {name for _, name in socket.if_nameindex()} - {"lo"}:
        sys.exit("there are interfaces beside loopback; run it by tools/loopback")
    if ray.is_initialized():
        ray.shutdown()
    ray.init(
        address="local", num_cpus=cpus, include_dashboard=False, object_store_memory=store,
        _node_ip_address="127.0.0.1", log_to_driver=False, logging_level="error",
    )  # fmt: skip


def bits(options: argparse.Namespace) -> None:
    """One hash of the tables for all ways to train, and a repetition."""
    ray_with(4)
    print(
        "| data | model | out of core | in core, 1 thread | Ray, 1 | 2 | 4 workers | repeated | hashes |\n|"
        + "---|" * 9
    )
    for name, data in (
        ("MovieLens 1M", movielens(options.quick).train),
        ("world", large(options.quick)),
    ):
        epochs = {"IALS": 4, "NBPO": 4 if name == "MovieLens 1M" else 2}
        for model in (tl.IALS(factors=64, epochs=epochs["IALS"]), tl.NBPO(epochs=epochs["NBPO"])):
            with tempfile.TemporaryDirectory() as place:
                blocks = blocks_of(data, place)
                ways: list[tuple[Any, dict[str, Any]]] = [
                    (blocks, {}),
                    (tl.blocks.open(blocks.directory, in_memory=True), {"n_jobs": 1}),
                    *((blocks, {"cluster": tl.Cluster("local", workers=n, threads=1)}) for n in (1, 2, 4)),
                    (blocks, {}),
                ]
                found = []
                for train, how in ways:
                    jobs = {name: value for name, value in how.items() if name == "n_jobs"}
                    fit = {name: value for name, value in how.items() if name != "n_jobs"}
                    found.append(digest(tl.clone(model, **jobs).fit(train, progress=False, **fit)))
            cells = " | ".join(each[:6] for each in found)
            print(f"| {name} | {model.name} | {cells} | {len(set(found))} |", flush=True)


class Clock:
    """Measures how long the driver waits for the workers of a cluster while none of them computes."""

    def __init__(self, workers: Any) -> None:
        self.workers, self.seconds, self.busy = workers, 0.0, self._busy(workers)
        for name in ("call", "sum", "rotate", "collect"):
            setattr(workers, name, self._timed(getattr(workers, name)))

    @staticmethod
    def _busy(workers: Any) -> Any:
        return np.array(workers._get([actor.busy.remote() for actor in workers._actors]))

    def _timed(self, method: Any) -> Any:
        def timed(*arguments: Any) -> Any:
            started = time.perf_counter()
            try:
                return method(*arguments)
            finally:
                self.seconds += time.perf_counter() - started

        return timed

    def moving(self) -> float:
        """The seconds since it was made."""
        return float(max(0.0, self.seconds - (self._busy(self.workers) - self.busy).max()))


def seconds_of(model: Any, train: Any, epochs: int, cluster: tl.Cluster | None = None) -> tuple[float, float]:
    """The median seconds of the epochs after the first, and the share of them in which data moves."""
    trainer = model._trainer(cluster)
    tables = trainer.initial(train)
    with closing(trainer.engine(train, tables)) as engine:
        engine.epoch(0)
        workers = getattr(engine, "workers", None)
        clock = Clock(workers) if cluster is not None and workers is not None else None
        times = []
        for number in range(1, epochs + 1):
            started = time.perf_counter()
            engine.epoch(number)
            times.append(time.perf_counter() - started)
        moving = 0.0 if clock is None else clock.moving() / sum(times)
    return statistics.median(times), moving


def epochs(options: argparse.Namespace) -> None:
    """Seconds of an epoch: plain, out of core, and on Ray with one worker."""
    ray_with(2)
    data = large(options.quick)
    print(f"{machine()}\n{data}\n")
    print("| model | plain | out of core | ratio | Ray, 1 worker | ratio | moving |\n|---|" + "---:|" * 6)
    with tempfile.TemporaryDirectory() as place:
        blocks = blocks_of(data, place)
        one = tl.Cluster("local", workers=1, threads=2)
        for model, n in ((tl.IALS(factors=64), 5), (tl.NBPO(), 3)):
            plain, outside, ray, moving = [], [], [], []
            for _ in range(1 if options.quick else 2):  # in turns
                plain.append(seconds_of(model, data, n)[0])
                outside.append(seconds_of(model, blocks, n)[0])
                seconds, share = seconds_of(model, blocks, n, one)
                ray.append(seconds)
                moving.append(share)
            a, b, c = min(plain), min(outside), min(ray)
            print(
                f"| {model.name} | {a:.2f} | {b:.2f} | {b / a:.2f} | {c:.2f} | {c / a:.2f} | {min(moving):.1%} |",
                flush=True,
            )


def seeds(options: argparse.Namespace) -> None:
    """NDCG@20 of models on blocks and by the plain engine, over seeds, with a paired test."""
    from scipy import stats

    n_seeds = 2 if options.quick else 10
    split = movielens(options.quick)
    print("| model | plain | blocks | difference | p |\n|---|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as place:
        blocks = blocks_of(split.train, place)
        for model in (tl.IALS(factors=64), tl.NBPO(), tl.BPR()):
            values = []
            for seed in range(n_seeds):
                pair = [
                    tl.clone(model, seed=seed).fit(train, validation=split.validation, progress=False)
                    for train in (split.train, blocks)
                ]
                values.append([tl.evaluate(each, split, seen="train", metrics="ndcg")["ndcg@20"] for each in pair])
            plain, mine = np.array(values).T
            p = stats.ttest_rel(mine, plain).pvalue if np.ptp(mine - plain) else 1.0
            cells = [f"{each.mean():.4f} ± {each.std(ddof=1):.4f}" for each in (plain, mine)]
            print(f"| {model.name} | {' | '.join(cells)} | {(mine - plain).mean():+.4f} | {p:.2f} |", flush=True)


def costs(options: argparse.Namespace) -> None:
    """Seconds of an epoch for some sizes, factors and workers, as measurements of the cost model."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    sizes = ((500, 200),) if options.quick else ((25_000, 5_000), (50_000, 40_000), (100_000, 10_000))
    check = () if options.quick else ((200_000, 20_000, 128),)
    runs = [(*size, factors) for size, factors in itertools.product(sizes, (32, 64))] + list(check)
    for n_users, n_items, factors in runs:
        data = world(n_users, n_items)
        for workers in (1, 2, 4):
            ray_with(workers)
            with tempfile.TemporaryDirectory() as place:
                blocks = blocks_of(data, place)
                cluster = tl.Cluster("local", workers=workers, threads=1)
                for model, n in ((tl.IALS(factors=factors), 3), (tl.BPR(factors=factors), 2)):
                    seconds, moving = seconds_of(model, blocks, n, cluster)
                    row = {
                        "model": model.name, "interactions": data.n_interactions, "users": data.n_users,
                        "items": data.n_items, "factors": factors, "blocks": B, "workers": workers,
                        "seconds": round(seconds, 4), "moving": round(moving, 4),
                        "fitted": (n_users, n_items, factors) not in check,
                    }  # fmt: skip
                    rows.append(row)
                    print(row, flush=True)
        if not options.quick:
            pl.DataFrame(rows).write_csv(RESULTS / "epochs.csv")


# ---- the cost model


def terms(row: dict[str, Any], cores: int, cg_steps: int = 3, n_negatives: int = 3) -> np.ndarray:
    """What an epoch costs, up to the constants: work of a core, bytes that move, and calls."""
    n, users, items, k = (row[name] for name in ("interactions", "users", "items", "factors"))
    blocks, workers = row["blocks"], row["workers"]
    parallel = min(workers, cores, blocks)
    if row["model"] == "IALS":
        work = n * k * 4 * (cg_steps + 1), (users + items) * k**2 * 2 * (cg_steps + 1)
        moved = 4 * k * (items * (1 + cg_steps + (1 + cg_steps) * min(workers, blocks)) + users)
        calls = (cg_steps + 3) * workers
    else:
        work = n * (n_negatives + 1) * k * 4, n * (n_negatives + 1)
        moved = 4 * k * (items * (blocks + 2) + users)
        calls = blocks * blocks
    return np.array([work[0] / parallel, work[1] / parallel, moved, calls], dtype=float)


def fitted(rows: list[dict[str, Any]], cores: int) -> np.ndarray:
    """Constants of the cost model: non-negative, by relative errors."""
    from scipy.optimize import nnls

    seconds = np.array([row["seconds"] for row in rows])
    design = np.array([terms(row, cores) for row in rows]) / seconds[:, None]
    scale = design.max(axis=0)
    return nnls(design / scale, np.ones(len(rows)))[0] / scale


def model(options: argparse.Namespace) -> None:
    """Fit the cost model, check it on a run that it was not fitted to, and carry it to 10 billion interactions."""
    rows = pl.read_csv(RESULTS / "epochs.csv").to_dicts()
    cores = 2
    found = {}
    for name in ("IALS", "BPR"):
        own = [row for row in rows if row["model"] == name]
        constants = found[name] = fitted([row for row in own if row["fitted"]], cores)
        print(f"\n{name}: {constants[0] * 1e9:.3f} ns a product, {constants[1] * 1e9:.3f} ns, "
              f"{1e-9 / max(constants[2], 1e-15):.2f} GB/s, {constants[3] * 1e3:.1f} ms a call")  # fmt: skip
        print("| interactions | users | items | factors | workers | measured | model | error | |\n|" + "---:|" * 9)
        for row in own:
            expected = float(terms(row, cores) @ constants)
            print(
                f"| {row['interactions']:,} | {row['users']:,} | {row['items']:,} | {row['factors']} "
                f"| {row['workers']} | {row['seconds']:.2f} | {expected:.2f} | {expected / row['seconds'] - 1:+.0%} "
                f"| {'fitted' if row['fitted'] else 'checked'} |"
            )
    draw(rows, found, cores)
    print(
        "\n| model | machines | cores each | compute s | moving s | epoch s | epochs | hours |\n|---|"
        + "---:|" * 7
    )
    for name, epochs_needed in (("IALS", 8), ("BPR", 40)):
        for machines in (4, 16, 64):
            big = {"model": name, "interactions": 10**10, "users": 2 * 10**8, "items": 10**7, "factors": 64,
                   "blocks": 64, "workers": machines}  # fmt: skip
            compute, moving = carried(big, found[name], machines, cores_each=16, network=1.25e9)
            epoch = compute + moving
            print(
                f"| {name} | {machines} | 16 | {compute:,.0f} | {moving:,.0f} | {epoch:,.0f} | {epochs_needed} "
                f"| {epoch * epochs_needed / 3600:.1f} |"
            )


def carried(
    row: dict[str, Any], constants: np.ndarray, machines: int, cores_each: int, network: float
) -> tuple[float, float]:
    """Seconds of computing and of moving data in an epoch on machines with a network of so many bytes a second.

    The machine that drives the training sends each table to every other, and receives what they return, so its own
    network is the bottleneck; a table that goes to all is passed on among them, as Ray does.
    """
    work = BEYOND_CACHE * terms({**row, "workers": 1}, 1)[:2] / (machines * cores_each)
    moved = terms(row, machines)[2]
    return float(work @ constants[:2]), float(moved / network + terms(row, machines)[3] * 0.005)


def draw(rows: list[dict[str, Any]], found: dict[str, np.ndarray], cores: int) -> None:
    """Measured and modelled seconds of an epoch."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, FormatStrFormatter, NullLocator

    figure = Figure(figsize=(9, 3.8), layout="constrained")
    for axes, (name, constants) in zip(figure.subplots(1, 2), found.items(), strict=True):
        own = [row for row in rows if row["model"] == name]
        for flag, label, colour in ((True, "fitted", "#2f6fdb"), (False, "checked: not fitted", "#e08a1e")):
            chosen = [row for row in own if row["fitted"] == flag]
            measured = [row["seconds"] for row in chosen]
            expected = [float(terms(row, cores) @ constants) for row in chosen]
            axes.scatter(measured, expected, s=26, color=colour, label=label)
        ends = np.array([min(row["seconds"] for row in own), max(row["seconds"] for row in own)]) * [0.7, 1.4]
        axes.plot(ends, ends, color="#94a3b8", linewidth=1, linestyle="--")
        axes.set(
            xscale="log", yscale="log", title=name, xlabel="measured seconds of an epoch", ylabel="by the model"
        )
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(FixedLocator([0.1, 0.2, 0.5, 1, 2, 5]))
            axis.set_major_formatter(FormatStrFormatter("%g"))
            axis.set_minor_locator(NullLocator())
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, loc="upper left", fontsize=8.5)
    figure.savefig(RESULTS / "cost-model.svg", metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["bits", "epochs", "seeds", "costs", "model"])
    parser.add_argument("--quick", action="store_true", help="small data: checks that the script runs")
    options = parser.parse_args()
    {"bits": bits, "epochs": epochs, "seeds": seeds, "costs": costs, "model": model}[options.what](options)


if __name__ == "__main__":
    main()
