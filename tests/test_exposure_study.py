"""The exposure study: its measures and verdicts, and that it runs and continues."""

from __future__ import annotations

import importlib
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def study() -> Any:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        yield importlib.import_module("exposure")
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


def test_graded_measures_follow_the_papers_definition(study: Any) -> None:
    ratings = np.array([[5, 0, 1, 4, 3], [1, 1, 0, 0, 0]])
    scores = np.array([[0.1, 9.0, 0.9, 0.8, 0.5], [0.0, 0.0, 0.0, 0.0, 0.0]])
    found = study.graded(scores, ratings, np.array([False, False, True, True, False]))
    # the list of the first user has the ratings 1, 4, 3, 5; the second user likes nothing and counts 0
    relevant = np.array([0, 7, 3, 15]) / 15
    assert found["recall@3"] == pytest.approx((relevant[:3].sum() / relevant.sum()) / 2)
    gain = relevant[1] + relevant[2] / np.log2(3)
    assert found["dcg@3"] == pytest.approx(gain / relevant.sum() / 2)
    precision = relevant[1] / 2 + relevant[1:3].sum() / 3
    assert found["map@3"] == pytest.approx(precision / relevant.sum() / 2)
    assert found["five_recall@3"] == 0  # the five is the last of four
    assert found["five_recall@5"] == found["five_dcg@5"] * 2 == 0.5
    assert found["rare_dcg@3"] == pytest.approx(0.5)  # the ratings 1 and 4: the two first places count 1


def test_lists_of_likes_follow_the_release_of_mf_du(study: Any) -> None:
    ratings = np.array([[5, 0, 1, 4, 3], [1, 1, 0, 0, 0]])
    scores = np.array([[0.1, 9.0, 0.9, 0.8, 0.5], [0.0, 0.0, 0.0, 0.0, 0.0]])
    found = study.listed(scores, ratings)  # the first user likes the second and the fourth of the list
    assert found["listed_recall@1"] == 0
    assert found["listed_recall@3"] == pytest.approx(1 / 2 / 2)
    assert found["listed_map@3"] == pytest.approx((1 / 2) / 2 / 2)
    assert found["listed_ndcg@3"] == pytest.approx((1 / np.log2(3)) / (1 + 1 / np.log2(3)) / 2)


def test_published_figures_are_of_models_and_measures_of_the_study(study: Any) -> None:
    names = {each.name for each in study.CONTENDERS}
    for setting in tomllib.loads(study.PUBLISHED.read_text())["setting"]:
        for figure in setting["figures"]:
            assert figure["model"] in names
            assert {setting["prefix"] + name for name in figure["published"]} <= {
                *study.GRADED, *study.FIVES, *study.LISTED
            }  # fmt: skip


@pytest.mark.parametrize(
    ("shift", "expected"), [(0.1, "confirmed"), (-0.1, "contradicted"), (0.0, "not confirmed")]
)
def test_a_claim_gets_the_verdict_of_its_tests(study: Any, shift: float, expected: str) -> None:
    noise = np.random.default_rng(0).normal(size=(2, 10)) / 100
    rows = [
        {"bed": "coat", "model": model, "seed": seed, "truth_ndcg@20": value, "truth_auc": value}
        for model, values in (("new", noise[0] + shift), ("old", noise[1]))
        for seed, value in enumerate(values)
    ]
    assert study.verdict(pl.DataFrame(rows), "coat", "new", ["old"])[0] == expected


def test_claims_name_models_of_the_study(study: Any) -> None:
    claims = tomllib.loads((ROOT / "results" / "exposure" / "claims.toml").read_text())["claim"]
    names = {each.name for each in study.CONTENDERS}
    assert {name for claim in claims for name in (claim["better"], *claim["than"])} <= names


def test_the_study_runs_and_continues(study: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = ("ExactNBPO, impressions", "ItemPop", "IALS", "ExactNBPO, true propensities")
    few = [each for each in study.CONTENDERS if each.name in kept]
    monkeypatch.setattr(study, "CONTENDERS", few)
    log = study.Log(tmp_path / "runs.jsonl")
    study.run(log, quick=True, seeds=2)
    rows = dict(log.rows)
    again = study.Log(tmp_path / "runs.jsonl")
    monkeypatch.setattr(study.Contender, "build", None)  # nothing is left to fit
    study.run(again, quick=True, seeds=2)
    assert list(again.rows) == list(rows)
    study.report(again, tmp_path)
    table = pl.read_csv(tmp_path / "scores.csv")
    assert set(table["model"]) == {*kept, *study.WORLDS}
    assert (table["seeds"] == 2).all()
    for name in ("strengths", "reliability", "real"):
        assert (tmp_path / f"{name}.svg").exists()
