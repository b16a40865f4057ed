from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from truelike.comparison import figures
from truelike.comparison.report import further, shown
from truelike.comparison.result import Comparison


@pytest.fixture(scope="module")
def html(ran: Any) -> str:
    text: str = ran.found.page().html()
    return text


def test_the_page_stands_alone(html: str) -> None:
    fetched = re.findall(r"""(?:src|href)\s*=\s*["'](?!#)[^"']*|url\((?!#)[^)]*""", html)
    assert fetched == []
    assert "<script" not in html
    assert "@import" not in html


def test_the_page_has_every_plot_and_ends_with_the_sentence(html: str, ran: Any) -> None:
    assert html.count("<svg") == 5
    end = html[html.rindex("<h2>") :]
    assert f"Use {ran.found.best} on this log" in end
    assert ran.found.command in end
    for each in ran.found.contenders:
        assert each.model in html


def test_the_page_is_written_with_its_config_beside_it(ran: Any, tmp_path: Path) -> None:
    found = replace(ran.found, place=None, source="my log.csv")
    assert found.command.startswith("truelike train 'my log.csv' --config best.toml")
    assert found.write(tmp_path / "page.html").exists()
    assert (tmp_path / "best.toml").read_text().splitlines()[2] == 'data = "my log.csv"'


def test_the_shown_tables_hold_the_same_figures(ran: Any) -> None:
    table, rows = ran.found.table, shown(ran.found)
    assert rows["model"].to_list() == table["model"].to_list()
    assert rows["ndcg@20"][0].startswith(f"{table['ndcg@20'][0]:.4f} (")
    assert rows["="][0] == "="
    assert further(ran.found).columns == ["model", "ndcg@5", "f1@5", "f1@20"]


def contest(ran: Any, seconds: tuple[float, float], gap: float) -> Comparison:
    """The same model twice: the second is cheaper or dearer, and worse by so much for each user."""
    best = ran.found.ranked[0]

    def with_time(contender: Any, taken: float, name: str, values: Any) -> Any:
        records = [{**record, "fit": {"seconds": taken, "mb": None}} for record in contender.records]
        return replace(contender, model=name, records=records, values=values)

    noise = np.random.default_rng(0).normal(0, 0.1, best.values.shape)
    worse = best.values - gap + noise - noise.mean(axis=0)
    both = [with_time(best, seconds[0], "Dear", best.values), with_time(best, seconds[1], "Cheap", worse)]
    return replace(ran.found, contenders=both)


@pytest.mark.parametrize(
    ("seconds", "gap", "words"),
    [
        ((60.0, 1.0), 0.001, "Cheap trains in 1.0 s instead of 60.0 s"),
        ((600.0, 1.0), 0.001, "instead of 10.0 min"),
        ((60.0, 50.0), 0.001, "though Cheap is not worse beyond chance; train Dear"),
        ((60.0, 1.0), 0.1, "all others are worse beyond chance"),
        ((0.5, 0.01), 0.001, "though Cheap is not worse beyond chance; train Dear"),
    ],
)
def test_the_sentence_says_whether_a_cheaper_model_would_do(
    seconds: tuple[float, float], gap: float, words: str, ran: Any
) -> None:
    sentence = contest(ran, seconds, gap).sentence
    assert sentence.startswith("Use Dear on this log: it is the best of 2")
    assert words in sentence
    assert ("time matters" in sentence) == ("instead" in sentence)


def test_labels_do_not_cover_each_other(ran: Any) -> None:
    contenders = [
        replace(ran.found.ranked[0], model=f"Model{n}", values=ran.found.ranked[0].values * (1 + 0.02 * n))
        for n in range(6)
    ]
    figure = figures.quality_against_time(replace(ran.found, contenders=contenders))
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert len(boxes) == 6
    assert not any(a.overlaps(b) for n, a in enumerate(boxes) for b in boxes[:n])


def test_without_a_model_that_iterates_there_are_no_curves(ran: Any) -> None:
    still = [each for each in ran.found.contenders if each.model != "BPR"]
    assert figures.learning_curves(replace(ran.found, contenders=still)) is None
    assert "How the models learn" not in replace(ran.found, contenders=still).page().html()
