"""Fuzzers of parameters, arguments and command lines: the answer is right, or an error of truelike names the mistake."""

from __future__ import annotations

import contextlib
import io
import os
import random
import sys
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from fuzz_directories import quiet

import truelike as tl
from truelike.core.parameters import parameter_fields
from truelike.errors import TruelikeError
from truelike.models.registry import REGISTRY, model_class

NUMBERS: list[Any] = [
    0, 1, -1, 2, 3, 0.5, 1.0, -0.5, 1e-300, 1e300, 1e-9, 10**9, 2**31, 2**63, 10**30, -(10**30), float("nan"),
    float("inf"), np.float32(0.25), np.int64(3), np.float64("nan"), np.uint8(200),
]  # fmt: skip
ODD: list[Any] = [None, True, False, "", "x", "uniform", "hard:3", "popularity^0.5", "ndcg@5", "ndcg@0"]
ODD += [[], {}, (), object(), b"x"]
# what is possible but takes long is left out: loops of that many steps
TOO_LONG = {"epochs": 4, "cg_steps": 50, "n_negatives": 50, "factors": 64, "flip_factors": 64, "neighbors": 10**6}
# slow to build; their parameters are the same kinds
SKIPPED = {"DeepRecommender", "FM", "NeuMF", "ACF", "LightGCN"}


@lru_cache(maxsize=8)
def small(seed: int) -> Any:
    return tl.synthetic.World(n_users=25, n_items=15 + seed, seed=seed).dataset()


def long(name: str, value: Any) -> bool:
    number = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    return number and TOO_LONG.get(name, value) < value and (name == "epochs" or value < 2**40)


def any_log(draw: random.Random) -> Any:
    """A random log, with ids of one kind or another."""
    n_users, n_items, n = draw.randint(3, 40), draw.randint(2, 40), draw.randint(4, 200)
    kind = draw.choice((int, lambda value: f"id {value}", lambda value: f"{value:03}"))
    return tl.read([(kind(draw.randrange(n_users)), kind(draw.randrange(n_items))) for _ in range(n)])


def parameters_case(seed: int) -> None:
    """Any parameters, on any log: fitted and ranked as a brute-force ranking does, or refused."""
    draw = random.Random(seed)
    name = draw.choice([each for each in REGISTRY if each not in SKIPPED])
    kind = model_class(name)
    fields = parameter_fields(kind)
    given: dict[str, Any] = {"epochs": 2} if any(field.name == "epochs" for field in fields) else {}
    for field in draw.sample(fields, min(len(fields), draw.choice((1, 1, 2, 4)))):
        choices = field.metadata.get("choices")
        value = draw.choice(choices) if choices and draw.random() < 0.7 else draw.choice(NUMBERS + ODD)
        if not long(field.name, value):
            given[field.name] = value
    with quiet():
        try:
            model = kind(**given)
            model.fit(small(draw.randrange(3)) if draw.random() < 0.5 else any_log(draw), progress=False)
        except (TruelikeError, MemoryError):
            return
        if len(model.train_.users) >= 3 and len(model.train_.items) >= 7:
            check_lists(model, draw)
        assert model.get_params().keys() == kind().get_params().keys()
        tl.clone(model)


def check_lists(model: Any, draw: random.Random) -> None:
    """Lists against a brute-force ranking of the model's own scores."""
    train = model.train_
    users = draw.sample(list(train.users), 3)
    items = list(train.items)
    candidates = draw.choice((None, draw.sample(items, 7)))
    exclude = draw.choice((None, draw.sample(items, 2)))
    exclude_seen, k = draw.random() < 0.7, draw.choice((1, 3, 10, 200))
    frame = model.recommend(
        users, k, candidates=candidates, exclude=exclude, exclude_seen=exclude_seen, n_jobs=draw.choice((1, 2))
    )
    place = model.scorer.ties
    for user in users:
        found = [(row[1], np.float32(row[2])) for row in frame.iter_rows() if row[0] == user]
        scores = model.score(user, items)
        seen = set(train.seen(user).to_list()) if exclude_seen else set()
        allowed = [
            (-score, place[n], item, score)
            for n, (item, score) in enumerate(zip(items, scores, strict=True))
            if item not in seen
            and (candidates is None or item in candidates)
            and (exclude is None or item not in exclude)
            and score > -np.inf
        ]
        best = [(item, score) for _, _, item, score in sorted(allowed)[:k]]
        assert found == best, (user, found, best)


ARGUMENTS: list[Any] = [*NUMBERS, *ODD, "raise", "skip", "popular", [0], [0, 1], [[0, 1], [2]], {"a": [0, 1]}, [None], np.array([0, 1]),
                        np.array([[0]]), np.array(3), np.ma.masked_array([0, 1], [True, False]), range(3), {0, 1}, "0"]  # fmt: skip
CALLS: dict[str, list[str]] = {
    "recommend": [
        "users",
        "k",
        "candidates",
        "exclude",
        "exclude_seen",
        "rules",
        "on_unknown",
        "titles",
        "n_jobs",
    ],
    "recommend_from_items": [
        "items",
        "k",
        "candidates",
        "exclude",
        "exclude_seen",
        "rules",
        "on_unknown",
        "titles",
    ],
    "similar_items": ["items", "k", "candidates", "exclude", "on_unknown", "titles", "n_jobs"],
    "score": ["users", "items"],
    "explain": ["user", "items", "k", "titles"],
    "explain_from_items": ["history", "items", "k", "titles", "on_unknown"],
    "set_titles": ["titles"],
    "partial_fit": ["more", "epochs"],
    "fit": ["train", "validation", "callbacks", "checkpoint_epochs", "checkpoint_minutes"],
}


def calls_case(seed: int) -> None:
    """Any arguments of any method: an answer or an error of truelike; the model stays as it was."""
    draw = random.Random(seed)
    with quiet():
        data = small(draw.randrange(3))
        model: Any = draw.choice(
            (tl.ItemPop(), tl.ItemKNN(), tl.IALS(factors=3, epochs=1), tl.ExactNBPO(factors=3, epochs=1))
        )
        model.fit(data, progress=False)
        before = model.recommend(k=3).rows()
        method = draw.choice(list(CALLS))
        good = {"user": 0, "train": data, "more": [(0, 1)], "titles": False}
        given = {name: good.get(name, [0, 1]) for name in CALLS[method][:1]}
        if method in ("score", "explain", "explain_from_items"):
            given["items"] = [0, 1]
        for name in draw.sample(CALLS[method], min(len(CALLS[method]), draw.randint(1, 2))):
            given[name] = draw.choice(ARGUMENTS)
        if any(long(name, value) for name, value in given.items()):
            return
        try:
            getattr(model, method)(**given)
        except (TruelikeError, MemoryError):
            assert model.recommend(k=3).rows() == before, f"{method} failed and changed the model"


# --- command lines --------------------------------------------------------------------------------

WORDS = [
    "log.csv", "split", "model", "nothing.csv", "", ".", "/", "/dev/null", "a" * 300, "-", "--", "é", "0", "-1", "0.1", "1e308",
    "nan", "10" * 11, "NBPO", "ItemPop", "ItemKNN", "IALS:factors=2", "x", "ndcg@5", "user", "item", "1,2", "3", "drop", "csv", "latin-1",
    "factors=4", "epochs=1", "=", "seed=1e9", "config.toml", "nested.toml", "out", "out.csv", "out.parquet",
]  # fmt: skip
COMMANDS: dict[str, list[str]] = {
    "train": ["-o", "-m", "-s", "-c", "--validation", "--checkpoint", "--resume", "--n-jobs", "--user", "--item", "--min-rating", "--k-core",
              "--format", "--separator", "--no-header", "--encoding", "--on-bad-rows", "--titles", "--impressions", "--item-features"],
    "evaluate": ["-o", "--metrics", "-k", "--n-jobs"],
    "recommend": ["--users", "-k", "-o", "--from-items", "--candidates", "--exclude", "--titles", "--on-unknown", "--n-jobs"],
    "data split": ["-o", "--by", "--validation", "--test", "--seed", "--item-guard", "--k-core", "--min-rating"],
    "data describe": ["--user", "--k-core", "--separator"],
    "data list": [],
}  # fmt: skip


def commands_case(seed: int) -> None:
    """Any command line: exit code 0, 1 or 2 and no traceback."""
    from truelike.cli import main

    draw = random.Random(seed)
    command = draw.choice(list(COMMANDS))
    first = {"evaluate": ["model", "split"], "recommend": ["model"], "data list": []}.get(command, ["log.csv"])
    given = [draw.choice(WORDS) if draw.random() < 0.15 else word for word in first]
    for option in draw.sample(COMMANDS[command], min(len(COMMANDS[command]), draw.choice((0, 1, 1, 2, 3)))):
        given += [option, draw.choice(WORDS)] if draw.random() < 0.9 else [option]
    if command == "train" and "-m" not in given and "-c" not in given:
        given += ["-m", "ItemPop"]
    here = Path.cwd()
    out, errors = io.StringIO(), io.StringIO()
    with tempfile.TemporaryDirectory() as folder, quiet():
        os.chdir(folder)
        try:
            write_files(Path(folder))
            arguments = ["truelike", *command.split(), *given]
            with (
                mock.patch.object(sys, "argv", arguments),
                contextlib.redirect_stdout(out),
                contextlib.redirect_stderr(errors),
            ):
                try:
                    main()
                    code: Any = 0
                except SystemExit as stop:
                    code = stop.code
        finally:
            os.chdir(here)
    assert code in (0, 1, 2, None), (arguments, code)
    assert "Traceback" not in errors.getvalue(), (arguments, errors.getvalue())


def write_files(place: Path) -> None:
    data = small(0)
    data.to_frame().select("user_id", "item_id").write_csv(place / "log.csv")
    split = tl.splits.by_user(data, seed=0)
    split.save(place / "split")
    tl.ItemPop().fit(split.train).save(place / "model")
    (place / "config.toml").write_text('data = "log.csv"\nmodel = "ItemKNN"\n[parameters]\nneighbors = 3\n')
    (place / "nested.toml").write_text("data = " + "[" * 5000 + "]" * 5000)


FUZZERS: dict[str, Callable[[int], None]] = {
    "parameters": parameters_case,
    "arguments": calls_case,
    "command lines": commands_case,
}
