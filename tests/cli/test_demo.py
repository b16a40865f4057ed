from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

import truelike as tl

Run = Callable[..., Any]


def test_the_demo_prints_rounded_tables_and_writes_all_figures_and_a_report(run: Run, tmp_path: Path) -> None:
    done = run("demo", "--users", 150, "--items", 90, "-o", tmp_path / "demo")
    assert done.code == 0, done.err
    assert "ImpressionMF" in done.out
    assert not re.search(r"\d\.\d{5}", done.out)
    assert "Items that ImpressionMF recommends" in done.out
    assert {"yes", "no"} & set(done.out.split())
    table = pl.read_csv(tmp_path / "demo" / "models.csv")
    assert table["model"][-1] == "ImpressionMF"
    with_flips = table.filter(pl.col("P(like) ECE").is_not_null())["model"].to_list()
    assert with_flips == ["NBPO", "ExactNBPO", "ImpressionMF"]
    page = (tmp_path / "demo" / "report.html").read_text()
    assert "<svg" in page
    assert "ItemKNN" in page
    allowed = ("http://www.w3.org", "http://purl.org", "http://creativecommons.org", "https://matplotlib.org")
    for address in allowed:
        page = page.replace(address, "")
    assert "http" not in page
    assert "truelike serve" in done.err
    for name, kind in (("with-impressions", tl.ImpressionMF), ("ials", tl.IALS)):
        model = tl.load(tmp_path / "demo" / "models" / name)
        assert isinstance(model, kind)
        assert model.train_.titles is not None


def test_too_few_interactions_for_a_demo_are_an_error(run: Run, tmp_path: Path) -> None:
    done = run("demo", "--users", 2, "--items", 2, "-o", tmp_path / "demo")
    assert done.code == 1
    assert "too few" in done.err
