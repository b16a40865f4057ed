from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from truelike.selection import comparison_figures as figures
from truelike.selection.comparison import Comparison
from truelike.selection.comparison_page import further, shown
from truelike.selection.variants import variant

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def html(ran: Any) -> str:
    text: str = ran.found.page().html()
    return text


def test_the_page_loads_nothing(html: str) -> None:
    fetched = re.findall(r"""(?:src|href)\s*=\s*["'](?!#)[^"']*|url\((?!#)[^)]*""", html)
    assert fetched == []
    assert "<script" not in html
    assert "@import" not in html


def test_the_page_starts_with_the_answer_and_has_every_plot(html: str, ran: Any) -> None:
    assert html.count("<svg") == 5
    answer = html.partition("<h2>")[0]
    assert f"Use {ran.found.best} on this dataset" in answer
    assert ran.found.command in answer
    for each in ran.found.results:
        assert each.model in html


def test_the_page_is_written_with_its_config_beside_it(ran: Any, tmp_path: Path) -> None:
    found = replace(ran.found, directory=None, source="my log.csv")
    assert found.command.startswith("truelike train 'my log.csv' --config best.toml")
    assert found.write(tmp_path / "page.html").exists()
    assert (tmp_path / "best.toml").read_text().splitlines()[2] == 'data = "my log.csv"'


def test_the_shown_tables_hold_the_same_figures(ran: Any) -> None:
    table, rows = ran.found.table, shown(ran.found)
    assert rows["model"].to_list() == table["model"].to_list()
    assert rows["ndcg@20"][0].startswith(f"{table['ndcg@20'][0]:.4f} (")
    assert rows["against the best"].to_list() == table["against_best"].to_list()
    assert further(ran.found).columns == ["model", "ndcg@5", "f1@5", "f1@20"]


def pair(ran: Any, seconds: tuple[float, float], gap: float) -> Comparison:
    """The same model twice with different training times; the second is worse by `gap` for each user."""
    best = ran.found.ranked[0]

    def with_time(result: Any, taken: float, name: str, values: Any) -> Any:
        records = [{**record, "fit": {"seconds": taken, "mb": None}} for record in result.records]
        return replace(result, variant=replace(result.variant, name=name), records=records, values=values)

    noise = np.random.default_rng(0).normal(0, 0.1, best.values.shape)
    worse = best.values - gap + noise - noise.mean(axis=0)
    slow = replace(with_time(best, seconds[0], "Slow", best.values), score=best.score + 0.01)
    both = [slow, with_time(best, seconds[1], "Fast", worse)]
    return replace(ran.found, results=both)


@pytest.mark.parametrize(
    ("seconds", "gap", "words"),
    [
        ((60.0, 1.0), 0.001, "Fast trains in 1.0 s instead of 60.0 s"),
        ((600.0, 1.0), 0.001, "instead of 10.0 min"),
        ((60.0, 50.0), 0.001, "Fast is not distinguishable from it. Train it with"),
        ((60.0, 1.0), 0.1, "all others are significantly below it"),
        ((0.5, 0.01), 0.001, "Fast is not distinguishable from it. Train it with"),
    ],
)
def test_the_sentence_says_whether_a_faster_model_is_as_good(
    seconds: tuple[float, float], gap: float, words: str, ran: Any
) -> None:
    sentence = pair(ran, seconds, gap).sentence
    assert sentence.startswith("Use Slow on this dataset: it is the best of 2 models on validation (")
    assert words in sentence
    assert ("training time matters" in sentence) == ("instead" in sentence)


def test_labels_do_not_cover_each_other(ran: Any) -> None:
    results = [
        replace(
            ran.found.ranked[0],
            variant=variant(f"BPR:factors={n + 1}"),
            values=ran.found.ranked[0].values * (1 + 0.02 * n),
        )
        for n in range(6)
    ]
    figure = figures.quality_against_time(replace(ran.found, results=results))
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert len(boxes) == 6
    assert not any(a.overlaps(b) for n, a in enumerate(boxes) for b in boxes[:n])


def test_without_a_model_with_epochs_there_are_no_learning_curves(ran: Any) -> None:
    others = [each for each in ran.found.results if each.model != "BPR"]
    assert figures.learning_curves(replace(ran.found, results=others)) is None
    assert "Learning curves" not in replace(ran.found, results=others).page().html()


def test_repr_and_notebooks_lead_with_the_answer(ran: Any) -> None:
    assert repr(ran.found).startswith(f"Comparison(best: {ran.found.best}; ndcg@20 on test: {ran.found.best} 0.")
    html = replace(ran.found, source="<my> log.csv")._repr_html_()
    assert html.startswith(f"<div><p><strong>Use {ran.found.best} on this dataset")
    assert html.count("<tr>") == 4
    assert "&lt;my&gt; log.csv" in html
