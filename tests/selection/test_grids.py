from __future__ import annotations

from truelike.selection.grids import paper_stages

START = {"learning_rate": 0.1, "regularization": 1.0, "flip_regularization": 1.0}


def test_the_grids_are_those_of_the_paper() -> None:
    grids = {stage.name: stage.candidates(START) for stage in paper_stages(flips=True)}
    assert [len(grid) for grid in grids.values()] == [9, 25, 25, 5, 7, 5, 10]
    assert set(grids) - {stage.name for stage in paper_stages(flip_rate=True)} == {"priors", "flip_factors"}
    assert {(c["learning_rate"], c["regularization"]) for c in grids["coarse"]} == {
        (rate, strength) for rate in (0.001, 0.01, 0.1) for strength in (0.01, 0.1, 1.0)
    }
    assert sorted({c["learning_rate"] for c in grids["fine"]}) == [0.02, 0.05, 0.1, 0.2, 0.5]
    assert [c["batch_size"] for c in grids["batch_size"]] == [1_000, 2_000, 3_000, 4_000, 5_000]
    assert [c["n_negatives"] for c in grids["n_negatives"]] == [1, 2, 3, 4, 5, 6, 7]
    assert [c["factors"] for c in grids["factors"]] == [10, 20, 50, 100, 200]
    assert [c["flip_factors"] for c in grids["flip_factors"]] == [0, 1, 2, 5, 10, 20, 50, 100, 200, 500]


def test_both_tables_share_lambda_until_the_grid_over_both() -> None:
    stages = {stage.name: stage for stage in paper_stages(flips=True)}
    for name in ("coarse", "fine"):
        assert all(c["regularization"] == c["flip_regularization"] for c in stages[name].candidates(START))
    two = stages["priors"].candidates({**START, "flip_regularization": 5.0})
    assert {c["regularization"] for c in two} == {0.2, 0.5, 1.0, 2.0, 5.0}
    assert {c["flip_regularization"] for c in two} == {1.0, 2.5, 5.0, 10.0, 25.0}
