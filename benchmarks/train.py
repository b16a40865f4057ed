"""Training speed of the sampled engine: truelike beside implicit's and cornac's BPR, in one run, on the same data.

    python benchmarks/train.py --defaults         # the public classes as a user calls them, at their defaults
    python benchmarks/train.py                    # the engine: batches of 5,000 and 50,000 in file order
    python benchmarks/train.py --world 20000000   # the same on a synthetic dataset of about so many interactions
    python benchmarks/train.py --spread           # 20 times the users and items, the same interactions
    python benchmarks/train.py --large            # an epoch of 100 million interactions, and its memory
    python benchmarks/train.py --quick            # with any of these: small data, to check that it runs

The data are MovieLens 1M unless said otherwise. A pair is a positive and a sampled negative: truelike's BPR samples 3
negatives for each positive, its NBPO 8, and the peers one. Times are of whole epochs, the minimum of several.

--defaults measures `tl.BPR(factors=64)`, `tl.BPR(factors=200)` and `tl.NBPO()` with 5 epochs, by the shortest epoch in
`history_` after the first, beside implicit's and cornac's BPR with as many factors and otherwise their defaults. Then
it measures the time to quality: seconds of training until test NDCG@20 reaches the best value of implicit's BPR within
its 100 iterations, for implicit and for `tl.BPR`. Evaluations are not timed;
validation items stay candidates on test (`seen="train"`).
The other modes measure the engine alone, with three negatives, and a lower bound: the same row reads, dot products
and row additions in a loop that does nothing else.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # implicit asks for this

import resource
import time
from collections.abc import Callable
from itertools import product
from typing import Any

import numba
import numpy as np
from common import EpochOfFit, PeakMemory, arguments, machine, model_of, small_dataset, start
from scipy.sparse import csr_matrix

import truelike as tl
from truelike.data.ids import Ids
from truelike.engines.sgd.engine import SampledEngine
from truelike.engines.sgd.samples import SGDSettings
from truelike.engines.tables import Tables
from truelike.negatives import Uniform
from truelike.objectives import BPR, NBPO

NEGATIVES = 3
EPOCHS = 3
ROUNDS = 3
PEER_ITERATIONS = 100  # implicit's default


def engine_settings(batch_size: int, order: str) -> SGDSettings:
    return SGDSettings(
        learning_rate=0.01 * min(1.0, 5_000 / batch_size), decay=1.0, regularization=0.1, flip_regularization=0.1,
        l2_schedule="batch", n_negatives=NEGATIVES, batch_size=batch_size, order=order,
        positive_weight="once",
    )  # type: ignore[arg-type]  # fmt: skip


def engine_epoch(
    data: tl.Dataset, objective: Any, factors: int, flips: int, threads: int, batch: int, order: str = "file"
) -> float:
    """Seconds per epoch of the engine."""
    tables = Tables.zeros(data.n_users, data.n_items, factors, flips)
    tables.initialise("normal", 0.1, -1.0, 0)
    settings = engine_settings(batch, order)
    engine = SampledEngine(data, tables, objective, Uniform(), settings, seed=0, n_jobs=threads)
    engine.epoch(0)
    return shortest(lambda n: engine.epoch(n + 1))


def shortest(epoch: Callable[[int], Any]) -> float:
    """Seconds of the shortest of several epochs."""
    seconds = float("inf")
    for n in range(EPOCHS):
        started = time.perf_counter()
        epoch(n)
        seconds = min(seconds, time.perf_counter() - started)
    return seconds


def implicit_seconds(matrix: Any, factors: int, threads: int, iterations: int) -> float:
    """Seconds of a fit of implicit's BPR, at its defaults: it verifies that negatives are no positives."""
    from implicit.cpu.bpr import BayesianPersonalizedRanking

    model = BayesianPersonalizedRanking(
        factors=factors, iterations=iterations, num_threads=threads, random_state=0
    )
    started = time.perf_counter()
    model.fit(matrix, show_progress=False)
    return time.perf_counter() - started


def cornac_seconds(data: Any, factors: int, threads: int, iterations: int) -> float:
    """Seconds of a fit of cornac's BPR."""
    from cornac import models

    model = models.BPR(k=factors, max_iter=iterations, num_threads=threads, verbose=False)
    started = time.perf_counter()
    model.fit(data)
    return time.perf_counter() - started


def peer_epoch(seconds: Callable[[int], float], n_interactions: int) -> float:
    """Seconds per epoch of a peer, given a function that returns the seconds of a fit."""
    is_large = n_interactions > 5_000_000
    measure = EpochOfFit(seconds, 2 if is_large else 5)
    for _ in range(1 if is_large else ROUNDS):
        found = measure()
    return found


def cornac_data(data: tl.Dataset) -> Any:
    """The data for cornac; None if it is not installed."""
    try:
        from cornac.data import Dataset
    except ImportError:
        return None
    return Dataset.from_uir(zip(data.user_of_entry, data.matrix.indices, data.matrix.data, strict=True))


def defaults(data: tl.Dataset, factors: list[int]) -> None:
    """The public classes at their defaults, beside the peers at theirs, with as many factors."""
    matrix, n = csr_matrix(data.matrix, copy=True), data.n_interactions
    of_cornac = cornac_data(data)

    def truelike_epoch(model: tl.SampledMF) -> float:
        history = tl.clone(model).fit(data, progress=False).history_
        return float(history["seconds"][1:].min())

    print(f"{'':44}{'threads':>8}{'pairs/epoch':>13}{'s/epoch':>9}{'ns/pair':>9}{'ratio':>7}")
    for threads, width in product((1, 2), factors):
        models = {f"truelike BPR(factors={width})": tl.BPR(factors=width)}
        if width == factors[0]:
            models["truelike NBPO()"] = tl.NBPO()
        # name -> pairs per epoch, and a function that measures an epoch
        runs: dict[str, tuple[int, Callable[[], float]]] = {
            f"implicit BayesianPersonalizedRanking({width})": (
                n,
                EpochOfFit(lambda i, w=width, t=threads: implicit_seconds(matrix, w, t, i)),
            ),
            f"cornac BPR(k={width})": (
                n,
                EpochOfFit(lambda i, w=width, t=threads: cornac_seconds(of_cornac, w, t, i)),
            ),
        }
        if of_cornac is None:
            del runs[f"cornac BPR(k={width})"]
        for name, model in models.items():
            model.set_params(epochs=2 + EPOCHS, n_jobs=threads)
            runs[name] = (n * model.n_negatives, lambda model=model: truelike_epoch(model))
        seconds = dict.fromkeys(runs, float("inf"))
        for _ in range(ROUNDS):  # they alternate, so that a slow phase of the machine affects all
            for name, (_, epoch) in runs.items():
                found = epoch()
                seconds[name] = found if isinstance(epoch, EpochOfFit) else min(seconds[name], found)
        ns = {name: seconds[name] / pairs * 1e9 for name, (pairs, _) in runs.items()}
        base = next(iter(ns.values()))
        for name, (pairs, _) in runs.items():
            ratio = base / ns[name]
            print(f"{name:44}{threads:8}{pairs:13,}{seconds[name]:9.3f}{ns[name]:9.0f}{ratio:7.2f}", flush=True)
    print("ratio: implicit's ns/pair divided by these, on as many threads")


def time_to_quality(split: tl.Split, factors: list[int], iterations: int) -> None:
    """Seconds of training until test NDCG@20 reaches the best value of implicit's BPR."""
    from implicit.cpu.bpr import BayesianPersonalizedRanking

    train, matrix = split.train, csr_matrix(split.train.matrix, copy=True)

    def quality(user_factors: Any, item_factors: Any) -> float:
        model = model_of(train, user_factors, item_factors)
        return tl.evaluate(model, split, seen="train", ks=(20,), metrics=["ndcg"])["ndcg@20"]

    print(f"\n{split}\n{'':44}{'threads':>8}{'ndcg@20':>9}{'epochs':>8}{'seconds':>9}{'ratio':>7}")
    for threads, width in product((1, 2), factors):
        step = max(1, iterations // 20)
        peer = BayesianPersonalizedRanking(factors=width, iterations=step, num_threads=threads, random_state=0)
        seconds, best, base, needed = 0.0, 0.0, 0.0, 0
        for done in range(step, iterations + 1, step):  # a further fit continues from the factors
            started = time.perf_counter()
            peer.fit(matrix, show_progress=False)
            seconds += time.perf_counter() - started
            if (value := quality(peer.user_factors, peer.item_factors)) > best:
                best, base, needed = value, seconds, done
        name = f"implicit BayesianPersonalizedRanking({width})"
        print(f"{name:44}{threads:8}{best:9.4f}{needed:8}{base:9.2f}{1:7.2f}", flush=True)

        model = tl.BPR(factors=width, n_jobs=threads)
        started = time.perf_counter()
        tables, engine = start(model._trainer(), train)
        seconds, value, epoch = time.perf_counter() - started, 0.0, 0
        while value < best and epoch < model.epochs:
            started = time.perf_counter()
            engine.epoch(epoch)
            seconds, epoch = seconds + time.perf_counter() - started, epoch + 1
            value = quality(tables.user_factors, tables.item_factors)
        ratio = base / seconds if value >= best else float("nan")
        name = f"truelike BPR(factors={width})"
        print(f"{name:44}{threads:8}{value:9.4f}{epoch:8}{seconds:9.2f}{ratio:7.2f}", flush=True)
    print("ratio: implicit's seconds divided by these, on as many threads")


@numba.njit(nogil=True, fastmath=True)
def bound_loop(users: Any, items: Any, u: Any, i: Any, width: Any) -> Any:
    """For each sample: read an item's row, one dot product, one addition to the user's gradient and one to the item's
    row. Nothing is sampled, regularized, grouped or stored."""
    total = np.float32(0.0)
    gradient = np.zeros(width, dtype=np.float32)
    for n in range(len(i)):
        item, user = np.uint64(i[n]) * np.uint64(width), np.uint64(u[n]) * np.uint64(width)
        r = np.float32(0.0)
        for k in range(np.uint64(width)):
            r += users[user + k] * items[item + k]
        step = r * np.float32(1e-6)
        for k in range(np.uint64(width)):
            gradient[k] += step * items[item + k]
        for k in range(np.uint64(width)):
            items[item + k] += step * users[user + k]
        total += r
    return total + gradient[0]


def bound_epoch(data: tl.Dataset, factors: int) -> float:
    """Seconds per epoch of the lower bound."""
    rng = np.random.default_rng(0)
    users = rng.normal(0, 0.1, data.n_users * factors).astype(np.float32)
    items = rng.normal(0, 0.1, data.n_items * factors).astype(np.float32)
    n = data.n_interactions * (1 + NEGATIVES)
    u = np.repeat(data.user_of_entry, 1 + NEGATIVES)
    i = rng.integers(0, data.n_items, n).astype(np.int32)
    i[:: 1 + NEGATIVES] = data.matrix.indices
    bound_loop(users, items, u[:10], i[:10], factors)
    return shortest(lambda _: bound_loop(users, items, u, i, factors))


def compare(data: tl.Dataset, factors: list[int], peers: bool) -> None:
    """The engine beside the peers, with the same number of factors."""
    n = data.n_interactions
    pairs = n * NEGATIVES
    matrix = csr_matrix(data.matrix, copy=True)
    of_cornac = cornac_data(data) if peers and n < 5_000_000 else None
    print(f"{'':34}{'threads':>8}{'ns/pair':>9}{'ratio':>8}{'extra MB':>10}")

    def line(name: str, threads: int, ns: float, base: float | None, memory: PeakMemory | None) -> None:
        ratio = "" if base is None else f"{base / ns:8.2f}"
        extra = "" if memory is None else f"{memory.extra_mb:10.0f}"
        print(f"{name:34}{threads:8}{ns:9.0f}{ratio:>8}{extra:>10}", flush=True)

    for width in factors:
        bound = bound_epoch(data, width) / pairs * 1e9
        line(f"lower bound {width}", 1, bound, None, None)
        for threads in (1, 2):
            base = None
            if peers:
                with PeakMemory() as memory:
                    base = peer_epoch(lambda i, w=width, t=threads: implicit_seconds(matrix, w, t, i), n) / n * 1e9
                line(f"implicit BPR {width}", threads, base, base, memory)
            if of_cornac is not None:
                with PeakMemory() as memory:
                    ns = peer_epoch(lambda i, w=width, t=threads: cornac_seconds(of_cornac, w, t, i), n) / n * 1e9
                line(f"cornac BPR {width}", threads, ns, base, memory)
            for objective, flips in ((BPR, 0), (NBPO, width)):
                for batch in (5_000, 50_000):
                    with PeakMemory() as memory:
                        ns = engine_epoch(data, objective, width, flips, threads, batch) / pairs * 1e9
                    name = f"truelike {objective.name} {width}{f'+{flips}' * bool(flips)} batch {batch:,}"
                    line(name, threads, ns, base, memory)
                    if objective is BPR and threads == 1 and batch == 5_000:
                        print(f"{'':34}{bound / ns:.0%} of the speed of the lower bound")


def spread(data: tl.Dataset) -> None:
    """The same interactions spread over 20 times the users and items: tables far larger than the caches."""
    rng = np.random.default_rng(0)
    wide = tl.Dataset.from_pairs(
        Ids.range(20 * data.n_users, "user"),
        Ids.range(20 * data.n_items, "item"),
        (data.user_of_entry * 20 + rng.integers(0, 20, data.n_interactions)).astype(np.int32),
        (data.matrix.indices * 20 + rng.integers(0, 20, data.n_interactions)).astype(np.int32),
    )
    for name, each in (("the data", data), ("20 times users and items", wide)):
        seconds = engine_epoch(each, BPR, 64, 0, 1, 5_000)
        print(f"{name:28}{each.n_users:>10,} x {each.n_items:<10,}{seconds:8.2f} s/epoch", flush=True)


def large(n_users: int = 1_000_000, n_items: int = 200_000, per_user: int = 107) -> None:
    """An epoch of about 100 million interactions in blocks of users; items have a Zipf distribution."""
    rng = np.random.default_rng(0)
    edges = np.cumsum(1.0 / np.arange(10, n_items + 10))
    blocks = []
    for first in range(0, n_users, 50_000):
        users = np.repeat(np.arange(first, min(first + 50_000, n_users)), per_user)
        items = np.searchsorted(edges, rng.random(len(users)) * edges[-1])
        blocks.append(np.unique(users * n_items + items))
    pairs = np.concatenate(blocks)
    codes = (pairs // n_items).astype(np.int32), (pairs % n_items).astype(np.int32)
    del blocks, pairs
    data = tl.Dataset.from_pairs(Ids.range(n_users, "user"), Ids.range(n_items, "item"), *codes)
    print(data, flush=True)
    del codes
    for objective, flips in ((BPR, 0), (NBPO, 64)):
        tables = Tables.zeros(data.n_users, data.n_items, 64, flips)
        tables.initialise("normal", 0.1, -1.0, 0)
        settings = engine_settings(50_000, "blocks")
        engine = SampledEngine(data, tables, objective, Uniform(), settings, seed=0, n_jobs=-1)
        started = time.perf_counter()
        engine.epoch(0)
        seconds = time.perf_counter() - started
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        name, n_pairs = f"{objective.name} 64{f'+{flips}' * bool(flips)}", data.n_interactions * NEGATIVES
        speed = f"{seconds:.0f} s/epoch on {engine.threads} threads, {seconds / n_pairs * 1e9:.0f} ns/pair"
        print(f"{name}: {speed}, peak memory of the process {peak:.1f} GB", flush=True)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--defaults", action="store_true", help="the public classes at their defaults")
    parser.add_argument("--world", type=int, help="interactions of a synthetic dataset, instead of MovieLens 1M")
    parser.add_argument("--spread", action="store_true", help="20 times the users and items")
    parser.add_argument("--large", action="store_true", help="100 million interactions")
    parser.add_argument("--factors", type=int, nargs="*", default=[64, 200])
    parser.add_argument("--no-peers", action="store_true")
    given = parser.parse_args()
    print(machine())
    if given.large:
        large(10_000, 2_000) if given.quick else large()
        return
    if given.quick:
        data = small_dataset()
    elif given.world:
        n_users = max(1_000, given.world // 100)
        data = tl.synthetic.World(
            n_users=n_users, n_items=max(500, n_users // 5), impressions_per_user=1_020.0
        ).dataset()
    else:
        data = tl.datasets.load("ml-1m")
    print(data)
    if given.defaults:
        defaults(data, given.factors)
        split = tl.splits.by_user(data, seed=0)
        time_to_quality(split, given.factors, 2 if given.quick else PEER_ITERATIONS)
    elif given.spread:
        spread(data)
    else:
        compare(data, given.factors, not given.no_peers)


if __name__ == "__main__":
    main()
