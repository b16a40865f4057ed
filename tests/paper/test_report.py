from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import polars as pl

from truelike.paper import figures, report, tables
from truelike.paper.claims import CLAIMS, judge
from truelike.paper.experiments import Results
from truelike.paper.protocol import UNTRAINED, Plan
from truelike.paper.verdicts import HOLDS, MISSING, NOT, PART


def test_every_claim_has_a_verdict_for_each_of_its_settings(results: Results) -> None:
    found = judge([results])
    assert len(found) == sum(len(claim.settings) for claim in CLAIMS)
    assert set(found["verdict"]) <= {HOLDS, PART, NOT, MISSING, UNTRAINED}
    assert "" not in found.filter(pl.col("verdict") != MISSING)["runs"].to_list()
    tuned = found.filter((pl.col("settings") == "tuned alike") & pl.col("claim").str.contains("above ShiftMC"))
    assert MISSING not in set(tuned["verdict"])
    assert tuned["runs"].str.contains("Synthetic world 2 seeds").all()


def test_the_claims_refer_to_all_figures_and_numbers_of_the_paper() -> None:
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


def test_a_figure_shows_every_model_and_every_seed(results: Results) -> None:
    figure = figures.FIGURES[4]([results])
    [axes] = figure.axes
    labels = axes.get_legend_handles_labels()[1]
    assert labels == ["BPR", "WBPR", "ShiftMC", "BPO", "NBPO"]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["10", "50", "100"]
    assert [axes.get_xlabel() for axes in figures.FIGURES[5]([results]).axes] == ["ρ, λ ~ ρ", "ρ, λ fixed"]
    points = figures.curve_points(results, "factors")
    assert all(len(seeds) == 2 for seeds in points.values())


def test_an_unfinished_run_has_figures_and_verdicts(runs: Path, tmp_path: Path) -> None:
    begun = Results(Plan("amazon"), {}, {}, tmp_path)
    assert set(judge([begun])["verdict"]) == {MISSING}
    for draw in figures.FIGURES.values():
        draw([begun])
    assert begun.missing()[0] == "the release's settings"
    assert "not finished yet" in report.describe_plan(begun)


def test_the_report_is_one_page_with_all_claims_and_figures(runs: Path, tmp_path: Path, tiny: Any) -> None:
    written = report.write(runs, tmp_path)
    assert {path.name for path in written} >= {"report.html", "claims.csv", "test.csv", "figure-2.png"}
    html = (tmp_path / "report.html").read_text()
    assert html.count("<svg") == 8
    assert "http://" not in re.sub(r'xmlns[:a-z]*="[^"]*"|<!DOCTYPE[^>]*>|"http://[^"]*"', "", html)
    table = pl.read_csv(tmp_path / "tables" / "test.csv")
    nbpo = table.filter((pl.col("model") == "NBPO") & (pl.col("settings") == "tuned alike"))
    assert nbpo["seeds"].to_list() == [2]


def test_each_tuned_model_of_a_public_dataset_has_a_settings_file(results: Results, tmp_path: Path) -> None:
    assert tables.write_settings([results], tmp_path) == []  # a synthetic world cannot be loaded by name
    public = Results(Plan("amazon", seeds=1), results.records, results.searched, results.directory)
    written = tables.write_settings([public], tmp_path)
    assert {path.name for path in written} >= {"amazon-nbpo.toml", "amazon-nbpo-l=0.toml", "amazon-itemknn.toml"}


def test_a_quick_run_says_so_at_the_top_and_in_every_caption(results: Results) -> None:
    page = report.page([results])
    assert page.parts[0]["kind"] == "banner"
    assert "quick run" in page.parts[0]["text"]
    assert "2 seeds instead of 10, 3 epochs instead of 200" in page.parts[0]["text"]
    assert page.title == "Quick run of the paper's experiments"
    captions = [part["caption"] for part in page.parts if part["kind"] in ("figure", "table")]
    assert len(captions) == 8 + 6
    assert all("Quick run" in caption for caption in captions)
    assert set(judge([results])["run"]) == {"quick"}
    html = page.html()
    assert html.index('class="banner"') < html.index('class="answer"') < html.index("<table")


def test_a_quick_run_says_so_in_tables_and_settings(
    runs: Path, results: Results, tmp_path: Path, tiny: Any
) -> None:
    report.write(runs, tmp_path)
    assert pl.read_csv(tmp_path / "tables" / "claims.csv")["run"].unique().to_list() == ["quick"]
    public = Results(Plan("amazon", seeds=1, quick=True), results.records, results.searched, results.directory)
    assert "# A quick run" in tables.write_settings([public], tmp_path)[0].read_text()


def test_a_full_run_has_no_word_of_a_quick_one(results: Results) -> None:
    full = Results(
        Plan("world", seeds=2, curve_seeds=2, epochs=3), results.records, results.searched, results.directory
    )
    page = report.page([full])
    assert page.title == "The paper, reproduced"
    assert page.parts[0]["kind"] == "answer"
    assert "quick" not in re.sub("<svg.*?</svg>", "", page.html(), flags=re.DOTALL).lower()
    assert "run" not in judge([full]).columns
