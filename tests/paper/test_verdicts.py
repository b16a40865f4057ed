"""Verdicts on synthetic results with known answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from truelike.paper import gains, hidden, verdicts
from truelike.paper.experiments import SCALED, Results
from truelike.paper.protocol import BY_NAME, UNTRAINED, Plan
from truelike.paper.verdicts import HOLDS, MISSING, NOT, PART, Claim, Verdict
from truelike.selection.trials import METRICS

MEASURES = [f"{metric}@{k}" for metric in METRICS for k in (2, 5, 10, 20)]
BASE = {"recipe": "paper", "epochs": 200, "patience": None, "metric": "f1@2"}


def synthetic_results(
    tmp_path: Path, levels: dict[str, float], *, data: str = "amazon", noise: float = 0.0
) -> Results:
    """Return results of contenders, tuned and with five seeds, whose users have these levels on every measure."""
    plan = Plan(data, seeds=5, curve_seeds=5)
    results = Results(plan, {}, {}, tmp_path / data)
    (tmp_path / data / "final" / "users").mkdir(parents=True)
    rng = np.random.default_rng(1)
    users = rng.uniform(0, 0.2, size=(400, len(MEASURES)))
    for name, level in levels.items():
        learns = BY_NAME[name].learns
        results.tuned[name] = {"parameters": {**BASE, "factors": 10 + len(results.tuned)} if learns else {}}
        for trial in results.finals("tuned", name):
            values = np.clip(users * level + noise * rng.normal(size=users.shape), 0, None).astype(np.float32)
            np.save(tmp_path / data / "final" / "users" / f"{trial.key}.npy", values)
            means = dict(zip(MEASURES, map(float, values.mean(axis=0)), strict=True))
            record = {"parameters": trial.parameters, "test": means, "validation": means, "version": "1.2"}
            results.records[trial.key] = {"key": trial.key, **record}
    return results


def decide(rule: str, results: Results, *models: str, **more: Any) -> Verdict:
    return verdicts.decide(Claim(rule=rule, models=models, **more), [results], "tuned")


@pytest.mark.parametrize(
    ("level", "paper", "expected"),
    [(1.10, 0.08, HOLDS), (1.02, 0.08, PART), (1.02, None, HOLDS), (0.95, 0.08, NOT), (1.0, None, NOT)],
)
def test_a_gain_holds_if_it_is_significant_and_large_enough(
    level: float, paper: float | None, expected: str, tmp_path: Path
) -> None:
    results = synthetic_results(tmp_path, {"NBPO": level, "BPO": 1.0}, noise=1e-4)
    found = decide("better", results, "NBPO", "BPO", values=() if paper is None else (paper,))
    assert found.verdict == expected, found
    if level > 1:
        [gain, *_] = gains.gains(results, "tuned", "NBPO", "BPO")
        assert gain.low < gain.gain < gain.high
        assert gain.gain == pytest.approx(level - 1, abs=0.01)


def test_a_gain_that_is_not_significant_does_not_hold(tmp_path: Path) -> None:
    results = synthetic_results(tmp_path, {"NBPO": 1.002, "BPO": 1.0}, noise=0.2)
    assert decide("better", results, "NBPO", "BPO").verdict in (NOT, PART)
    assert max(g.p for g in gains.gains(results, "tuned", "NBPO", "BPO")) > 0.05


def test_a_gain_that_is_significant_over_seeds_only_holds_in_part(tmp_path: Path) -> None:
    results = synthetic_results(tmp_path, {"NBPO": 1.03, "BPO": 1.0}, noise=1e-4)
    assert decide("better", results, "NBPO", "BPO").verdict == HOLDS
    results.p_value = lambda *_: 0.3  # type: ignore[method-assign]
    assert decide("better", results, "NBPO", "BPO").verdict == PART


def test_a_contender_that_was_not_run_gives_no_verdict(tmp_path: Path) -> None:
    results = synthetic_results(tmp_path, {"NBPO": 1.0})
    assert decide("better", results, "NBPO", "BPO").verdict == MISSING
    assert decide("in_order", results, "NBPO-o", "BPO").verdict == MISSING


def test_a_contender_that_diverged_is_named(tmp_path: Path) -> None:
    results = synthetic_results(tmp_path, {"NBPO": 1.0, "ShiftMC": 1.0})
    for trial in results.finals("tuned", "ShiftMC"):
        results.records[trial.key] = {"key": trial.key, "error": "diverged"}
    found = decide("better", results, "NBPO", "ShiftMC")
    assert (found.verdict, found.measured) == (MISSING, "ShiftMC diverges at these settings")


def test_an_order_holds_if_every_step_is_significant(tmp_path: Path) -> None:
    results = synthetic_results(tmp_path, {"NBPO": 1.2, "NBPO-o": 1.1, "NBPO-s": 1.0}, noise=1e-4)
    assert decide("in_order", results, "NBPO", "NBPO-o", "NBPO-s").verdict == HOLDS
    assert decide("in_order", results, "NBPO-s", "NBPO-o", "NBPO").verdict == NOT
    assert decide("all_above", results, "NBPO", "NBPO-o", "NBPO-s").verdict == HOLDS
    assert decide("all_above", results, "NBPO-s", "NBPO-o", "NBPO").verdict == NOT


def test_a_value_holds_if_it_is_best_and_in_part_if_it_is_not_significantly_worse() -> None:
    rng = np.random.default_rng(1)
    level: Any = {10: 1.0, 50: 1.2, 100: 1.199}
    points = {value: level[value] + 0.01 * rng.normal(size=10) for value in level}
    best = max(points, key=lambda value: points[value].mean())
    near = ({50, 100} - {best}).pop()
    assert verdicts.best_of(points, best).verdict == HOLDS
    assert verdicts.best_of(points, near).verdict == PART
    assert verdicts.best_of(points, 10).verdict == NOT
    assert verdicts.best_of(points, 7).verdict == NOT
    assert verdicts.best_of({10: np.array([1.0]), 20: np.array([2.0])}, 10).verdict == NOT
    assert verdicts.best_of({10: np.array([1.99]), 20: np.array([2.0])}, 10).verdict == PART


def test_the_best_of_many_values_is_significantly_better_only_after_a_correction() -> None:
    noise = 0.01 * np.linspace(-1.5, 1.5, 10)
    two: Any = {10: 1.0 + noise, 20: 1.012 + noise[::-1]}
    found = verdicts.best_of(two, 10)
    assert found.verdict == NOT
    nine = two | {30 + n: 1.0 + noise for n in range(7)}
    assert verdicts.best_of(nine, 10).p == pytest.approx(8 * (found.p or 0))
    assert verdicts.best_of(nine, 10).verdict == PART


def test_without_metrics_per_user_there_is_no_verdict(tmp_path: Path) -> None:
    results = synthetic_results(tmp_path, {"NBPO": 1.2, "NBPO-o": 1.1, "NBPO-s": 1.0})
    for path in (tmp_path / "amazon" / "final" / "users").iterdir():
        path.unlink()
    for rule in ("better", "in_order", "all_above"):
        assert decide(rule, results, "NBPO", "NBPO-o").verdict == MISSING


def test_an_unfinished_curve_gives_no_verdict(tmp_path: Path) -> None:
    results = synthetic_results(tmp_path, {"NBPO": 1.0})
    planned = [trial for seed in range(5) for _, _, trial in results.curve("factors", seed)]
    for trial in planned[:-1]:
        level = 0.03 if trial.parameters["factors"] == 50 else 0.02
        results.records[trial.key] = {"key": trial.key, "peaks": {"f1@2": level}}
    about: Any = {"data": "amazon", "on": ("factors",), "values": (50.0,)}
    assert decide("best_value", results, "NBPO", **about).verdict == MISSING
    results.records[planned[-1].key] = {"key": planned[-1].key, "peaks": {"f1@2": 0.02}}
    assert decide("best_value", results, "NBPO", **about).verdict == HOLDS


def test_tuned_values_hold_if_equal_and_in_part_if_near(tmp_path: Path) -> None:
    results = synthetic_results(tmp_path, {"BPR": 1.0})
    results.tuned["BPR"]["parameters"] |= {"learning_rate": 0.02, "regularization": 2.0}
    for paper, expected in (((0.02, 2.0), HOLDS), ((0.02, 1.0), PART), ((0.05, 2.0), NOT)):
        about: Any = {"on": ("learning_rate", "regularization"), "values": paper}
        assert decide("tuned_to", results, "BPR", data="amazon", **about).verdict == expected


def test_the_interval_covers_the_true_ratio_about_as_often_as_its_confidence() -> None:
    rng = np.random.default_rng(2)
    covered = 0
    for _ in range(400):
        left, right = rng.normal(1.1, 0.05, 10), rng.normal(1.0, 0.05, 10)
        gain, width = left.mean() / right.mean(), gains.half_width(left, right)
        covered += abs(gain - 1.1) < width
    assert 0.9 < covered / 400 < 0.99


@pytest.mark.parametrize("level", [0.99, 1.0, 1.001], ids=["below", "level", "above, not significantly"])
def test_a_contender_that_is_not_above_item_pop_did_not_train_and_is_no_evidence(
    level: float, tmp_path: Path
) -> None:
    results = synthetic_results(tmp_path, {"ItemPop": 1.0, "BPR": level, "NBPO": 1.5, "WBPR": 1.2}, noise=0.1)
    assert [results.trained("tuned", name) for name in ("ItemPop", "BPR", "NBPO")] == [True, False, True]
    found = decide("better", results, "NBPO", "BPR")
    assert (found.verdict, found.measured) == (UNTRAINED, "did not train, not counted: BPR on Amazon")
    assert decide("better", results, "NBPO", "WBPR").verdict == HOLDS
    order = decide("in_order", results, "NBPO", "WBPR", "BPR")
    assert order.verdict == HOLDS
    assert order.measured.startswith("8 of 8 steps")
    assert order.measured.endswith("did not train, not counted: BPR on Amazon")
    assert decide("gaps_shrink", results, "BPR", "NBPO", data="amazon").verdict == UNTRAINED


def test_a_verdict_names_the_runs_of_its_evidence(tmp_path: Path) -> None:
    results = synthetic_results(tmp_path, {"NBPO": 1.2, "BPO": 1.0}, noise=1e-4)
    assert decide("better", results, "NBPO", "BPO").runs == "test: Amazon 5 seeds (truelike 1.2)"
    assert decide("better", results, "NBPO", "BPR").runs == "test: Amazon 5 seeds (truelike 1.2)"
    assert decide("better", results, "WBPR", "BPR").runs == ""


def test_a_value_at_the_level_of_item_pop_decides_nothing(tmp_path: Path) -> None:
    results = synthetic_results(tmp_path, {"ItemPop": 1.0, "NBPO": 1.0})
    results.tuned["NBPO"]["parameters"] |= {"learning_rate": 0.1, "regularization": 1.0}
    floor = results.floor()
    for seed in range(5):
        for _, value, trial in results.curve(SCALED, seed):
            level = floor * (2 + 0.1 * seed if value == 4 else 0.9 + 0.02 * seed)
            results.records[trial.key] = {"key": trial.key, "peaks": {"f1@2": level}, "version": "1.2"}
    about: Any = {"data": "amazon", "on": (SCALED,)}
    assert decide("best_value", results, "NBPO", values=(3.0,), **about).verdict == UNTRAINED
    held = decide("best_value", results, "NBPO", values=(4.0,), **about)
    assert (held.verdict, held.runs) == (HOLDS, "validation: Amazon 5 seeds (truelike 1.2)")


@pytest.mark.parametrize(("best", "expected"), [(1.1, HOLDS), (1.004, NOT)])
def test_a_model_gains_most_from_tuning_only_if_it_gains_at_all(
    best: float, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)

    def curve(_: Any, __: str, name: str) -> dict[float, list[float]]:
        levels = {1: 1.0, 3: best if name == "NBPO" else 1.001}
        return {value: list(level + rng.normal(0, 0.01, 5)) for value, level in levels.items()}

    monkeypatch.setattr(verdicts, "_curve", curve)
    claim = Claim(rule="gains_most_by", models=("NBPO",), on=(SCALED,))
    found = verdicts.gains_most_by(claim, [synthetic_results(tmp_path, {"NBPO": 1.0})], "tuned")
    assert found.verdict == expected


def test_flips_find_hidden_likes_if_the_posterior_is_above_the_score(tmp_path: Path) -> None:
    results = synthetic_results(tmp_path, {"NBPO": 1.0})
    claim = Claim(rule="finds_hidden_likes", models=("NBPO",))
    assert verdicts.decide(claim, [results], "defaults").verdict == MISSING
    for lift, expected in ((0.1, HOLDS), (-0.1, NOT)):
        rows = [("world", "truelike's defaults", seed, 0.7 + lift + seed / 1000, 0.7) for seed in range(3)]
        rows += [("world", "the release's", 0, 0.1, 0.9)]
        hidden._table(rows).write_csv(tmp_path / hidden.FILE)
        found = verdicts.decide(claim, [results], "defaults")
        assert found.verdict == expected
    assert found.runs == "synthetic worlds, 3 seeds"
