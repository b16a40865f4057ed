"""The commands on a cluster: run by `test_on_cluster.py` where only the loopback interface exists."""

from __future__ import annotations

import sys
from pathlib import Path

import polars as pl

import truelike as tl
from truelike.cli import main as truelike

CLUSTER = ("--cluster", "local", "--workers", "2", "--threads", "1")


def run(*arguments: object) -> None:
    sys.argv = ["truelike", *map(str, arguments)]
    code: object = None
    try:
        truelike()
    except SystemExit as stop:
        code = stop.code
    assert not code, f"{arguments} ended with {code}"


def main() -> None:
    files, blocks, place = map(Path, sys.argv[1:])
    small = ("--model", "IALS", "--set", "factors=4", "--set", "epochs=2")
    with tl.Cluster("local", workers=2, threads=1).connected():  # which the commands use
        for name, more in (("own", ()), ("cluster", CLUSTER)):
            train = (blocks / "several", *small, "--validation", files / "validation.csv")
            run("train", *train, "-o", place / f"{name}-model", *more)
            model = place / f"{name}-model"
            run("evaluate", model, files / "split", "-o", place / f"{name}.csv", *more)
            run("evaluate", model, blocks / "test", "-o", place / f"{name}-blocks.csv", *more)
            lists = ("--all", "--block-size", "50", "-o", place / f"{name}.parquet")
            run("recommend", model, *lists, *more)
            search = ("--model", "ItemKNN", "--trials", "3", "-o", place / f"{name}-tune.csv")
            run("tune", files / "split", *search, *more)
            compared = ("--models", "ItemPop,ItemKNN", "--trials", "2", "-d", place / f"{name}-compare")
            run("compare", files / "split", *compared, "--table", place / f"{name}-compare.csv", *more)
    models = [tl.load(place / f"{name}-model") for name in ("own", "cluster")]
    assert (models[0].user_factors_ == models[1].user_factors_).all()
    assert (models[0].item_factors_ == models[1].item_factors_).all()
    for file in (".csv", "-blocks.csv", ".parquet"):
        assert (place / f"own{file}").read_bytes() == (place / f"cluster{file}").read_bytes(), file
    for file in ("-tune.csv", "-compare.csv"):
        own, found = (pl.read_csv(place / f"{name}{file}") for name in ("own", "cluster"))
        measured = [name for name in own.columns if name not in ("seconds", "mb", "search_seconds")]
        assert own.select(measured).equals(found.select(measured)), (own, found)


if __name__ == "__main__":
    main()
