"""`--cluster` and block directories on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.ray_helper import run_isolated

import truelike as tl

Run = Callable[..., Any]
SMALL = ("--set", "factors=4", "--set", "epochs=2")
NOWHERE = "127.0.0.1:1"  # no test here may start Ray outside a network namespace


@pytest.fixture(scope="session")
def blocks(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with block directories of the training part: of several blocks, and of one."""
    place = tmp_path_factory.mktemp("blocks")
    train, test = tl.read(files / "train.csv"), tl.read(files / "test.csv")
    tl.blocks.build(train, place / "several", blocks=3, progress=False)
    tl.blocks.build(train, place / "one", blocks=1, progress=False)
    tl.blocks.build(test, place / "test", blocks=2, progress=False)
    return place


def test_several_blocks_are_trained_with_ials_and_the_reason_is_said(
    run: Run, files: Path, blocks: Path, tmp_path: Path
) -> None:
    done = run("train", blocks / "several", *SMALL, "--validation", files / "validation.csv", "-o", tmp_path / "m")
    assert done.code == 0, done.err
    assert "has 3 blocks, and AutoRecommender needs all interactions in memory, so IALS is trained" in done.err
    model = tl.load(tmp_path / "m")
    assert model.name == "IALS"
    assert model.train_.n_interactions == tl.read(files / "train.csv").n_interactions
    assert "validation ndcg@20" in json.loads((tmp_path / "m" / "model.json").read_text())["metrics"]
    own = run("evaluate", tmp_path / "m", files / "test.csv")
    of_blocks = run("evaluate", tmp_path / "m", blocks / "test")
    assert own.code == of_blocks.code == 0
    assert own.out == of_blocks.out


def test_one_block_is_trained_as_a_log(run: Run, files: Path, blocks: Path, tmp_path: Path) -> None:
    for source, name in ((blocks / "one", "blocks"), (files / "train.csv", "log")):
        done = run("train", source, "--model", "IALS", *SMALL, "-o", tmp_path / name)
        assert done.code == 0, done.err
    own, other = (tl.load(tmp_path / name) for name in ("blocks", "log"))
    assert (own.user_factors_ == other.user_factors_).all()
    chosen = run("train", blocks / "one", "--set", "n_trials=2", "-o", tmp_path / "auto")
    assert chosen.code == 0, chosen.err
    assert "chosen by AutoRecommender" in chosen.err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("train", "several", "--validation", "0.1"), 2, "of which --validation cannot hold out a share"),
        (("train", "several", "--events", "events"), 2, "to which --events cannot be added"),
        (("train", "several", "--budget", "quick"), 2, "which is not made for several blocks"),
        (("train", "several", "--user", "name"), 1, "is a block directory, which --user cannot change"),
        (("train", "several", "--k-core", "3"), 1, "is a block directory, of which --k-core cannot be taken"),
        (("train", "several", "-m", "EASE", "--cluster", NOWHERE), 1, "EASE is trained in one process"),
        (("train", "LOG", "--cluster", NOWHERE), 2, "--cluster trains on a block directory, and LOG is none"),
        (("train", "several", "--cluster", "nowhere"), 1, "expected \"local\", \"auto\" or HOST:PORT"),
        (("train", "several", "--workers", "2"), 2, "--workers is for a cluster: give --cluster"),
        (("tune", "several"), 1, "is a block directory; `truelike train` and `truelike evaluate` take one"),
        (("compare", "several"), 1, "is a block directory; `truelike train` and `truelike evaluate` take one"),
        (("tune", "LOG", "--threads", "2"), 2, "--threads is for a cluster: give --cluster"),
        (("compare", "LOG", "--workers", "0", "--cluster", NOWHERE), 2, "Invalid value for '--workers'"),
        (("evaluate", "MODEL", "SPLIT", "--cluster", NOWHERE), 1, "the score of ItemKNN is no dot product"),
        (("recommend", "MODEL", "--all", "--cluster", NOWHERE), 2, "--cluster is for lists of users in a file"),
        (
            ("recommend", "MODEL", "--similar-to", "1", "-o", "x.csv", "--cluster", NOWHERE),
            2,
            "--cluster is for lists of users in a file",
        ),
    ],
)  # fmt: skip
def test_wrong_combinations(
    run: Run, files: Path, blocks: Path, tmp_path: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    known = {
        "several": blocks / "several",
        "LOG": files / "log.csv",
        "MODEL": files / "model",
        "SPLIT": files / "split",
    }
    place = ("-o", tmp_path / "m") if arguments[0] == "train" else ()
    done = run(*(known.get(each, each) for each in arguments), *place)
    assert done.code == code
    assert words in (done.usage_error if code == 2 else done.err)


def test_the_commands_on_a_cluster(files: Path, blocks: Path, tmp_path: Path) -> None:
    script = Path(__file__).with_name("cluster_checks.py")
    run_isolated([str(script), str(files), str(blocks), str(tmp_path)], timeout=180)
