"""Comparisons on several datasets: table, ranks, their test, LaTeX and the page."""

from __future__ import annotations

import json
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.report.test_latex import check
from tests.selection.test_comparison import comparison, measured, with_seeds

import truelike as tl
from truelike.errors import DataError, ParameterError, StorageError, UnknownIdError
from truelike.evaluation.ranks import RankTest
from truelike.selection.comparison_figures import by_activity, quality_against_time
from truelike.selection.comparisons import Comparisons

MODELS = {"few": tl.ItemKNN(neighbors=3), "BPR, 5% drawn": tl.BPR(n_negatives=2), "pop": "ItemPop"}
QUICK: dict[str, Any] = {"epochs": 2, "batch_size": 200, "n_trials": 2, "seeds": 2, "n_workers": 1}


def several(table: dict[str, list[float]], validation: dict[str, list[float]] | None = None) -> Comparisons:
    """Comparisons whose models have these means on the test part of each dataset; None: not trained."""
    datasets = len(next(iter(table.values())))
    spread = np.random.default_rng(0).normal(0, 0.01, 400)
    found = {}
    for n in range(datasets):
        results = [
            measured(model, (validation or table)[model][n], means[n] + spread - spread.mean())
            for model, means in table.items()
            if means[n] is not None
        ]
        found[f"data {n}"] = comparison(*results)
        found[f"data {n}"].split = tl.Split([("ann", "tea")])
    everything = comparison(*(measured(model, 0.0, spread) for model in table))
    return Comparisons(found, everything.plan)


def falling(k: int, n: int) -> dict[str, list[float]]:
    return {f"M{i}": [0.9 - 0.1 * i] * n for i in range(k)}


def test_the_ranks_and_their_test_are_those_of_the_means() -> None:
    table = {"A": [0.3, 0.1, 0.3, 0.3], "B": [0.2, 0.2, 0.2, 0.2], "C": [0.1, 0.1, 0.1, 0.1]}
    found = several(table)
    assert found.ranked == ["A", "B", "C"]
    ranks = {row["model"]: row for row in found.ranks.to_dicts()}
    assert [ranks["A"][f"data {n} rank"] for n in range(4)] == [1.0, 2.5, 1.0, 1.0]
    assert ranks["A"]["rank"] == 1.375
    test = RankTest.of(np.array(list(table.values())).T)
    assert (ranks["A"]["p"], ranks["A"]["against_best"]) == (None, "best")
    assert [ranks[model]["p"] for model in "BC"] == [test.p_of_pairs[0, n] for n in (1, 2)]
    assert found.table["rank"].to_list() == found.ranks["rank"].to_list()
    assert f"Friedman p = {test.p:.2g}" in found.sentence


def test_models_are_compared_with_the_best_mean_rank_on_validation() -> None:
    table, validation = falling(3, 5), {"M0": [0.1] * 5, "M1": [0.5, 0.3, 0.5, 0.5, 0.5], "M2": [0.4] * 5}
    found = several(table, validation)
    assert found.reference == "M1"
    assert found.best == {"data 0": "M1", "data 1": "M2", "data 2": "M1", "data 3": "M1", "data 4": "M1"}
    assert found.against_best == {"M0": "not distinguishable", "M1": "best", "M2": "not distinguishable"}
    reverse = several(table, {"M0": [0.1] * 5, "M1": [0.2] * 5, "M2": [0.3] * 5})
    assert reverse.against_best == {"M0": "above", "M1": "not distinguishable", "M2": "best"}
    assert "M0 is significantly above it; M1 is not distinguishable from it" in reverse.sentence


def test_two_datasets_are_ranked_and_not_tested() -> None:
    found = several(falling(3, 2))
    assert found.rank_test is None
    assert found.ranks["p"].to_list() == [None] * 3
    assert found.ranks["against_best"].to_list() == ["best", "not tested", "not tested"]
    assert found.ranks["rank"].to_list() == [1.0, 2.0, 3.0]
    assert found.sentence.endswith(
        "The ranks are not tested: two datasets cannot show a difference over datasets; 3 or more are needed"
    )
    assert "one dataset cannot show" in several(falling(3, 1)).sentence


def test_it_is_said_where_no_p_value_can_be_small_enough() -> None:
    assert several(falling(2, 3)).sentence.endswith(
        "No test can tell 2 models apart by 3 datasets: the smallest p-value that two can have is 0.25"
    )
    assert "M1 is significantly below it" in several(falling(2, 6)).sentence


def test_a_model_that_was_not_trained_on_all_datasets_has_no_rank() -> None:
    table: Any = {**falling(2, 3), "New": [0.95, None, 0.95]}
    found = several(table)
    assert found.ranked == ["M0", "M1"]
    [row] = found.table.filter(found.table["model"] == "New").to_dicts()
    assert (row["rank"], row["data 1 ndcg@20"], row["data 0 ndcg@20"]) == (None, None, pytest.approx(0.95))
    check(found.to_latex())
    assert "New" not in found.ranks["model"].to_list()
    alone: Any = {"M0": [0.9, 0.9, None], "New": [0.95, None, 0.95]}
    none = several(alone)
    assert none.sentence.endswith(
        "fewer than two models were trained on all 3 datasets, so there is nothing to rank"
    )
    assert len(none.table) == 2
    assert "nothing to rank" in none._repr_html_()
    assert none.ranks.shape == (0, 8)
    check(none.to_latex())


def test_latex_has_a_column_for_each_dataset_with_deviations_and_marks() -> None:
    found = several(falling(3, 5))
    first = found["data 0"]
    first.results = [with_seeds(each, [0.1, 0.3]) for each in first.results]
    text = found.to_latex()
    check(text)
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert rows[0] == r"Model & data 0 & data 1 & data 2 & data 3 & data 4 & Mean rank \\"
    assert rows[1].startswith(r"M0 & \textbf{0.9000 $\pm$ 0.1414}$^\ast$ & \textbf{0.9000}$^\ast$ &")
    assert rows[3].endswith(r"0.7000$^\downarrow$ & 3.00$^\downarrow$ \\")
    assert "2 seeds" in text
    assert found.table["data 0 std"].to_list() == [pytest.approx(np.std([0.1, 0.3], ddof=1))] * 3


def test_the_plot_has_each_model_and_dataset_and_the_band() -> None:
    [axes] = several(falling(3, 5)).plot().axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["M0 (best on validation)", "M1", "M2"]
    assert len(axes.lines) == 6
    at = np.array([line.get_ydata() for line in axes.lines]) - np.arange(3)
    assert np.abs(at).max() <= 1 / 8  # within a quarter of the row
    assert at[:5].mean() == pytest.approx(0)
    [band] = axes.patches
    assert band.get_label() == "means with p ≥ 0.05"
    [axes] = several(falling(3, 2)).plot().axes
    assert len(axes.patches) == 0


def test_names_with_dollar_signs_are_drawn_as_they_are() -> None:
    found = several({"$a{$": [0.3, 0.2], "B, $5": [0.2, 0.1]})
    found.comparisons = {f"{name} $_$": each for name, each in found.items()}
    figures = [found.plot(), *(draw(found["data 0 $_$"]) for draw in (quality_against_time, by_activity))]
    for figure in figures:
        figure.draw_without_rendering()  # a formula that is none would be an error
    assert figures[0].axes[0].get_yticklabels()[1].get_text() == r"B, \$5"


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        ({}, DataError, "no dataset is given"),
        ({"a": [("ann", "tea")]}, DataError, "a: compare takes a Dataset or a Split, not list"),
        ({3: None}, ParameterError, "the name of a dataset is 3"),
        ({" ": None, "a": None}, ParameterError, "the name of a dataset is ' '"),
        ({"": None}, ParameterError, "the name of a dataset is ''"),
    ],
)
def test_what_is_no_mapping_of_datasets_is_an_error(data: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        tl.compare(data, "ItemPop")


def test_a_missing_dataset_is_said_before_other_mistakes() -> None:
    with pytest.raises(DataError, match="no dataset is given"):
        tl.compare({}, "no model", manifest="none.json")


def test_an_unknown_dataset_is_an_error_that_names_the_known_ones() -> None:
    found = several(falling(2, 2))
    with pytest.raises(UnknownIdError, match=r"^there is no dataset 'Z'; there are data 0, data 1$"):
        found["Z"]
    assert "Z" not in found
    assert found.get("Z") is None


@pytest.mark.parametrize("name", ["x.pdf", "x"])
def test_a_page_is_html(name: str, tmp_path: Path) -> None:
    found = several(falling(2, 2))
    for each in (found, found["data 0"]):
        with pytest.raises(ParameterError, match=f"{name}'; a page is HTML: give a path that ends in .html"):
            each.write(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_lists_need_a_directory_and_ids_without_spaces(split: Any, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="lists is 5, and they are kept in the directory: pass directory="):
        tl.compare(split, "ItemPop", lists=5)
    with pytest.raises(ParameterError, match="lists is 0"):
        tl.compare(split, "ItemPop", lists=0, directory=tmp_path)
    data = tl.synthetic.World(n_users=60, n_items=40).dataset().to_frame()
    named = tl.read(data.with_columns(item_id="item " + data["item_id"].cast(str)))
    with pytest.raises(DataError, match="item ids are empty or have a space"):
        tl.compare(named, "ItemPop", lists=5, directory=tmp_path)
    with pytest.raises(DataError, match=r"^second: .*item ids are empty"):  # before the work on the first
        tl.compare({"first": split, "second": named}, "ItemPop", lists=5, directory=tmp_path)
    with pytest.raises(ParameterError, match=r"'qrels'; qrels\.txt has the relevant items"):
        tl.compare(split, {"qrels": "ItemPop"}, lists=5, directory=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_split_without_validation_is_refused_before_the_work(split: Any, tmp_path: Path) -> None:
    untuned = tl.Split(split.train, None, split.test)
    with pytest.raises(
        DataError, match=r"^b: the validation part .* 0 users .* tuned on validation .* both parts$"
    ):
        tl.compare({"a": split, "b": untuned}, "ItemPop", directory=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def data() -> Any:
    worlds = {"shop": (100, 60, 1), "b/c": (120, 50, 2), "third": (90, 70, 3)}
    return {name: tl.synthetic.World(n_users=u, n_items=i, seed=s).dataset() for name, (u, i, s) in worlds.items()}


@pytest.mark.slow
def test_each_dataset_is_compared_as_alone_and_a_stopped_one_continues(data: Any, tmp_path: Path) -> None:
    ran: list[Any] = []

    def stop(record: Any) -> None:
        ran.append(record["key"])
        if len(ran) == 9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tl.compare(data, MODELS, directory=tmp_path, report=stop, **QUICK)
    records: list[Any] = []
    found = tl.compare(data, MODELS, directory=tmp_path, report=records.append, lists=20, **QUICK)
    assert sum("test" in record for record in records) >= 4
    alone = tl.compare(data["b/c"], MODELS, **QUICK)
    quality = ["model", "ndcg@20", "ndcg@20 low", "ndcg@20 std", "ndcg@20 validation", "p_holm", "against_best"]
    assert found["b/c"].table.select(quality).equals(alone.table.select(quality))
    assert set(found.table["model"]) == set(MODELS)
    by_model = {row["model"]: row for row in found.table.to_dicts()}
    assert by_model["BPR, 5% drawn"]["shop std"] > 0
    assert by_model["pop"]["shop std"] is None
    check(found.to_latex())

    # the page, the manifest, and the same table from it
    html = unescape(found.write(tmp_path / "report.html").read_text())
    assert html.count("<svg") == 1
    assert all(text in html for text in (*data, *MODELS, found["shop"].verdict, found.sentence))
    again = tl.compare(data, manifest=tmp_path / "manifest.json", directory=tmp_path, n_workers=1)
    assert again.table.equals(found.table)
    assert again.manifest.content == found.manifest.content == json.loads((tmp_path / "manifest.json").read_text())
    with pytest.raises(DataError, match="the train part of shop is not that of the manifest"):
        tl.compare({**data, "shop": data["third"]}, manifest=tmp_path / "manifest.json")
    single = tl.compare(data["third"], manifest=tmp_path / "third" / "manifest.json", n_workers=1)
    assert single.table.select(quality).equals(found["third"].table.select(quality))

    # the lists of the final runs
    place = tmp_path / "b%2Fc" / "trec"
    assert {path.name for path in place.iterdir()} == {
        "qrels.txt", "few.txt", "pop.txt", "BPR, 5%25 drawn seed 0.txt", "BPR, 5%25 drawn seed 1.txt"
    }  # fmt: skip
    check_lists(place, found["b/c"], tmp_path / "by hand")
    with pytest.raises(StorageError, match="another dataset or split"):
        tl.compare({**data, "shop": data["third"]}, MODELS, directory=tmp_path, **QUICK)


def check_lists(place: Path, found: Any, other: Path) -> None:
    """The lists of the final runs are those of the fitted models, and have the figures of the table."""
    for each in found.ranked:
        means = []
        for record in each.records:
            seed = f" seed {record['settings']['seed']}" if "seed" in record["settings"] else ""
            path = place / f"{each.model.replace('%', '%25')}{seed}.txt"
            lines = [line.split() for line in path.read_text().splitlines()]
            rows = [(int(line[0]), int(line[2]), float(line[4])) for line in lines]
            frame = pl.DataFrame(rows, schema=["user_id", "item_id", "score"], orient="row")
            means.append(tl.evaluate_lists(frame, found.split, ks=20)["ndcg@20"])
            assert means[-1] == pytest.approx(record["test"]["ndcg@20"], abs=1e-9)
        assert np.mean(means) == pytest.approx(each.of("ndcg@20").mean(), abs=1e-6)
    pop = tl.ItemPop().fit(found.split.train)
    for path in tl.write_trec(pop, found.split, other, k=20, name="pop"):
        assert path.read_bytes() == (place / path.name).read_bytes()
