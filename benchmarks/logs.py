"""The public logs that the defaults are made and judged on, each as a split."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl

import truelike as tl
from truelike.datasets import cache_directory

SEED = 0


def amazon() -> tl.Split:
    """The paper authors' split of the 14-core of Amazon Electronics."""
    return tl.datasets.load("amazon-electronics-14core", progress=False)


def movielens_1m() -> tl.Split:
    return tl.splits.by_user(tl.datasets.load("ml-1m", progress=False), seed=SEED)


def movielens_100k() -> tl.Split:
    columns = {"has_header": False, "new_columns": ["user", "item", "rating", "time"], "separator": "\t"}
    return tl.splits.by_user(
        five_core(tl.read(pl.read_csv(cache_directory() / "ml-100k.tsv", **columns))), seed=SEED
    )


def coat() -> tl.Split:
    """The self-selected ratings of at least 4; the randomly exposed ones of the original test part are not used."""
    return tl.splits.by_user(tl.datasets.load("coat", progress=False).train, validation=0.15, test=0.15, seed=SEED)


def lastfm() -> tl.Split:
    def part(name: str) -> tl.Dataset:
        lines = (cache_directory() / "lastfm" / f"{name}.txt").read_text().splitlines()
        pairs = [(user, item) for user, *items in map(str.split, lines) for item in items]
        return tl.read(np.array(pairs, dtype=np.int64))

    return tl.Split(part("train"), part("valid"), part("test"))


def citeulike() -> tl.Split:
    def part(name: str) -> tl.Dataset:
        return tl.read(np.loadtxt(cache_directory() / "citeulike" / f"{name}.txt", dtype=np.int64)[:, :2])

    return tl.Split(part("train"), part("valid"), part("test"))


def ciao_5core() -> tl.Split:
    return tl.splits.by_user(five_core(tl.read(ciao())), seed=SEED)


def ciao_likes() -> tl.Split:
    """Ratings of 4 and 5; no user and no item is left out."""
    return tl.splits.by_user(tl.read(ciao().filter(pl.col("rating") >= 4)), seed=SEED)


def ciao() -> pl.DataFrame:
    columns = {"has_header": False, "new_columns": ["user", "item", "rating", "time"]}
    return pl.read_csv(cache_directory() / "ciao.csv", **columns)


def five_core(data: tl.Dataset) -> tl.Dataset:
    return tl.k_core(data, user=5, item=5).dataset


LOGS: dict[str, Callable[[], tl.Split]] = {
    "coat": coat,
    "ml-100k": movielens_100k,
    "ciao-5core": ciao_5core,
    "amazon": amazon,
    "ciao-likes": ciao_likes,
    "lastfm": lastfm,
    "citeulike": citeulike,
    "ml-1m": movielens_1m,
}


def sample(split: tl.Split, users: float = 1.0, items: float = 1.0, seed: int = 0) -> tl.Split:
    """A split of some of the users and items of another."""
    rng = np.random.default_rng(seed)
    kept_users = rng.random(split.train.n_users) < users
    kept_items = rng.random(split.train.n_items) < items

    def part(data: tl.Dataset) -> Any:
        rows = kept_users[data.user_of_entry] & kept_items[data.matrix.indices]
        return np.stack([data.user_of_entry[rows], data.matrix.indices[rows]], axis=1).astype(np.int64)

    return tl.Split(*(tl.read(part(each)) for each in split.parts))


def synthetic(
    n_users: int = 30_000, n_items: int = 41_000, n_interactions: int = 800_000, groups: int = 400, seed: int = 0
) -> tl.Dataset:
    """A log with the shape of a large one: activity and popularity have long tails, and users stay near a few groups.

    A user takes most items from four groups of items and the others from all items, both by popularity.
    """
    rng = np.random.default_rng(seed)
    popularity = 1 / np.arange(20, n_items + 20) ** 0.9
    group_of = rng.integers(0, groups, n_items)
    members = [np.flatnonzero(group_of == g) for g in range(groups)]
    cumulated = [np.cumsum(popularity[m]) for m in members]
    everything = np.cumsum(popularity)
    activity = rng.lognormal(0.0, 0.8, n_users)
    counts = np.maximum(5, 1.25 * n_interactions * activity / activity.sum()).astype(int)
    pairs = []
    for user, count in enumerate(counts):
        own = rng.integers(0, groups, 4)
        at = np.searchsorted(everything, rng.random(count) * everything[-1])
        near = rng.random(count) < 0.7
        for g in own:
            mine = near & (rng.random(count) < 0.4)
            at[mine] = members[g][np.searchsorted(cumulated[g], rng.random(mine.sum()) * cumulated[g][-1])]
        pairs.append(np.stack([np.full(count, user), np.minimum(at, n_items - 1)], axis=1))
    rows = np.unique(np.concatenate(pairs), axis=0)
    return tl.read(rows[np.sort(rng.permutation(len(rows))[:n_interactions])])
