"""What is computed on a cluster: run by `test_cluster.py` where only the loopback interface exists."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import truelike as tl
from truelike.cluster import map_on
from truelike.errors import ClusterError, DataError
from truelike.evaluation import measure as evaluation
from truelike.models import batch

CLUSTER = tl.Cluster("local", workers=2, threads=1)


def add(table: Any, number: int, mark: str, *, n_jobs: int) -> Any:
    """Work whose worker ends once, at piece 3."""
    assert n_jobs == 1
    assert table.flags.writeable
    if number == 3 and not Path(mark).exists():
        Path(mark).touch()
        os._exit(1)
    return table + number


def refuse(number: int, *, n_jobs: int) -> int:
    if number == 2:
        raise DataError("two is not for us")
    if number == 4:
        raise ZeroDivisionError("four is broken")
    return number


def check_map(place: Path) -> None:
    """Results are in order, a lost piece is computed again, and an error of the work is raised here."""
    table = np.arange(5)
    found = list(map_on(CLUSTER, add, ((n, str(place / "killed")) for n in range(9)), (table,)))
    assert (place / "killed").exists()
    assert [each.tolist() for each in found] == [(table + n).tolist() for n in range(9)]
    assert list(map_on(CLUSTER, refuse, [])) == []
    for pieces, kind, words in (
        ([1, 2, 3], DataError, "two is not for us"),
        ([1, 4], ClusterError, "ZeroDivisionError: four is broken"),
    ):
        results = map_on(CLUSTER, refuse, [(n,) for n in pieces])
        assert next(results) == 1
        with pytest.raises(kind, match=words):
            next(results)


def check_evaluate(model: Any, split: Any, place: Path) -> None:
    """The same figures as in this process, to the bit."""
    blocks = tl.blocks.build(split.test, place / "test", blocks=3, progress=False)
    for ks in ((2, 20), (150,)):
        own = tl.evaluate(model, split.test, ks=ks)
        whole = tl.evaluate(model, split, ks=ks)
        evaluation.USERS_AT_ONCE = 61
        for test in (split.test, blocks):
            found = tl.evaluate(model, test, ks=ks, cluster=CLUSTER)
            assert found.users.equals(own.users)
            assert found.totals == own.totals
            for name, values in own.values.items():
                assert (found.values[name] == values).all(), name
        assert tl.evaluate(model, split, ks=ks, cluster=CLUSTER).means() == whole.means() != own.means()
        evaluation.USERS_AT_ONCE = 50_000


def check_lists(model: Any, place: Path) -> None:
    """The same bytes as without a cluster, also after a run that was stopped."""
    asked = [*list(model.train_.users)[:150:2], -1]
    for ending in ("parquet", "csv"):
        for number, options in enumerate(
            (
                {"k": 5},
                {"k": 5, "exclude_seen": False, "exclude": list(model.train_.items)[:9]},
                {"k": 3, "users": asked, "on_unknown": "popular"},
            )
        ):
            own, found = (place / f"{number}-{name}.{ending}" for name in ("own", "cluster"))
            model.recommend_to(own, block_size=40, **options)
            model.recommend_to(found, block_size=40, cluster=CLUSTER, **options)
            assert found.read_bytes() == own.read_bytes()
    write, path = batch._Parts.write, place / "stopped.parquet"

    def write_some(parts: Any, number: int, frame: Any) -> None:
        if number == 3:
            raise KeyboardInterrupt
        write(parts, number, frame)

    batch._Parts.write = write_some  # type: ignore[method-assign]
    try:
        model.recommend_to(path, k=5, block_size=40, cluster=CLUSTER)
    except KeyboardInterrupt:
        assert len(list((place / ".stopped.parquet.parts").glob("*.parquet"))) == 3
    batch._Parts.write = write  # type: ignore[method-assign]
    model.recommend_to(path, k=5, block_size=40, cluster=CLUSTER)
    assert path.read_bytes() == (place / "0-own.parquet").read_bytes()


def main() -> None:
    place = Path(sys.argv[1])
    split = tl.splits.by_user(tl.synthetic.World(n_users=400, n_items=120, seed=2).dataset(), seed=0)
    model = tl.IALS(factors=6, epochs=2).fit(split.train, progress=False)
    blocks = tl.blocks.build(split.train, place / "train", blocks=3, progress=False)
    on_blocks = tl.IALS(factors=6, epochs=2).fit(blocks, progress=False)
    with CLUSTER.connected():
        check_map(place)
        check_evaluate(model, split, place / "first")
        check_evaluate(on_blocks, split, place / "second")
        for number, each in enumerate((model, on_blocks)):
            (place / f"lists{number}").mkdir()
            check_lists(each, place / f"lists{number}")
    print("all checks passed")  # noqa: T201


if __name__ == "__main__":
    main()
