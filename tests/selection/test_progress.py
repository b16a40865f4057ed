from __future__ import annotations

from typing import Any

from truelike.selection.progress import TrialLog


def record(model: str, value: float, seconds: float) -> Any:
    return {"model": model, "validation": {"ndcg@20": value}, "seconds": seconds}


def test_a_line_has_the_number_of_trials_and_the_best_score_of_the_model() -> None:
    log = TrialLog("ndcg@20", n_workers=1)
    log.expect("BPR", [1.0] * 3)
    assert log.line(record("BPR", 0.13, 1.0)).startswith("trial 1 of 3: BPR, ndcg@20 0.1300 (best), 1.0 s")
    assert log.line(record("BPR", 0.12, 1.0)).startswith("trial 2 of 3: BPR, ndcg@20 0.1200 (best 0.1300), 1.0 s")
    error = {"model": "BPR", "error": "BPR diverged.", "seconds": 2.0}
    assert log.line(error) == "trial 3 of 3: BPR, BPR diverged, 2.0 s"


def test_the_time_left_follows_from_whole_trials_of_the_same_model_and_their_lengths() -> None:
    log = TrialLog("ndcg@20", n_workers=2)
    log.expect("slow", [1 / 3, 1 / 3, 1.0])
    log.expect("fast", [1.0, 1.0])
    # of "fast" nothing is known yet: 300 s for a whole trial as of "slow"
    assert log.line(record("slow", 0.1, 100.0)).endswith("; about 8 min left")  # (100 + 300 + 2 * 300) / 2
    assert log.line(record("fast", 0.1, 2.0)).endswith("; about 3 min left")  # (100 + 300 + 2) / 2


def test_trials_from_disk_count_and_trials_left_out_do_not() -> None:
    log = TrialLog("ndcg@20", n_workers=1)
    log.expect("BPR", [1.0] * 4)
    log.skip("BPR", finished=True)
    log.skip("BPR", finished=False)
    assert log.line(record("BPR", 0.1, 1.0)).startswith("trial 2 of 3:")


def test_final_runs_are_counted_from_the_start() -> None:
    log = TrialLog("ndcg@20", n_workers=1)
    log.expect("BPR", [1.0])
    log.expect("BPR", [1.0, 1.0], final=True)
    assert log.line(record("BPR", 0.1, 1.0)).startswith("trial 1 of 3:")
    final = {**record("BPR", 0.1, 1.0), "test": {"ndcg@20": 0.09}}
    assert log.line(final, final=True).startswith("trial 2 of 3: BPR, ndcg@20 0.0900 on test")
