from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import polars as pl

from truelike.paper import figures, report, tables
from truelike.paper.claims import CLAIMS, judge
from truelike.paper.experiments import Results
from truelike.paper.protocol import Plan
from truelike.paper.verdicts import HOLDS, MISSING, NOT, PART


def test_every_claim_gets_a_verdict_under_each_of_its_settings(results: Results) -> None:
    found = judge([results])
    assert len(found) == sum(len(claim.settings) for claim in CLAIMS)
    assert set(found["verdict"]) <= {HOLDS, PART, NOT, MISSING}
    tuned = found.filter((pl.col("settings") == "tuned alike") & pl.col("claim").str.contains("above ShiftMC"))
    assert MISSING not in set(tuned["verdict"])


def test_the_figures_that_the_issue_of_the_claims_names_are_all_there() -> None:
    numbers = {number for claim in CLAIMS for number in re.findall(r"Figure (\d)", claim.where)}
    assert numbers == {str(number) for number in figures.FIGURES}
    words = " ".join(claim.paper for claim in CLAIMS)
    for value in ("7.28", "6.79", "6.26", "4.66", "3.75", "4.05", "8.08", "16.49"):
        assert value in words


def test_figures_are_written_as_svg_and_png(results: Results, tmp_path: Path) -> None:
    written = figures.write([results], tmp_path)
    assert len(written) == 16
    for path in written:
        start = path.read_bytes()[:200]
        assert b"<?xml" in start if path.suffix == ".svg" else start.startswith(b"\x89PNG")


def test_a_figure_shows_every_model_with_its_spread(results: Results) -> None:
    figure = figures.FIGURES[4]([results])
    [axes] = figure.axes
    labels = axes.get_legend_handles_labels()[1]
    assert labels == ["BPR", "WBPR", "ShiftMC", "BPO", "NBPO"]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["10", "50", "100"]
    points = figures.curve_points(results, "factors")
    assert all(len(seeds) == 2 for seeds in points.values())


def test_a_run_that_has_only_begun_can_be_drawn_and_judged(runs: Path, tmp_path: Path) -> None:
    begun = Results(Plan("amazon"), {}, {}, tmp_path)
    assert set(judge([begun])["verdict"]) == {MISSING}
    for draw in figures.FIGURES.values():
        draw([begun])
    assert begun.missing()[0] == "the authors' settings"
    assert "not finished yet" in report.what_was_cut(begun)


def test_the_report_is_one_page_with_all_of_it(runs: Path, tmp_path: Path, tiny: Any) -> None:
    written = report.write(runs, tmp_path)
    assert {path.name for path in written} >= {"report.html", "index.md", "claims.csv", "test.csv", "figure-2.png"}
    html = (tmp_path / "report.html").read_text()
    assert html.count("<svg") == 8
    assert "http://" not in re.sub(r'xmlns[:a-z]*="[^"]*"|<!DOCTYPE[^>]*>|"http://[^"]*"', "", html)
    text = (tmp_path / "index.md").read_text()
    assert "## Every claim" in text
    assert "figures/figure-9.svg" in text
    table = pl.read_csv(tmp_path / "tables" / "test.csv")
    nbpo = table.filter((pl.col("model") == "NBPO") & (pl.col("settings") == "tuned alike"))
    assert nbpo["seeds"].to_list() == [2]


def test_markdown_tables_have_a_cell_for_each_value() -> None:
    text = tables.markdown(pl.DataFrame({"a": [0.12345, None], "b": ["x|y", "z"]}))
    assert text.splitlines() == ["| a | b |", "|---|---|", "| 0.1235 | x\\|y |", "|  | z |"]


def test_a_settings_file_for_each_tuned_model_of_public_data(results: Results, tmp_path: Path) -> None:
    assert tables.write_settings([results], tmp_path) == []  # a world of our own has no name to load it by
    public = Results(Plan("amazon", seeds=1), results.records, results.tuned, results.directory)
    written = tables.write_settings([public], tmp_path)
    assert {path.name for path in written} >= {"amazon-nbpo.toml", "amazon-nbpo-l=0.toml", "amazon-itemknn.toml"}
