"""The engine of lists takes the gradient of the sampled likelihood, with the same bits on any number of threads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from tests.engines.data import make_dataset

import truelike as tl
from truelike.engines.lists import engine as lists
from truelike.engines.lists.correction import Correction
from truelike.engines.lists.engine import ListEngine, ListSettings, list_steps
from truelike.engines.score_functions import Cosine, Dot
from truelike.engines.tables import Tables
from truelike.errors import ParameterError, TooLargeError
from truelike.negatives import Negatives, Uniform, parse
from truelike.objectives import Listwise, Softmax, log, sigmoid, softmax

DOT = Dot()
SETTINGS = ListSettings(0.05, 3, 0.5, 0.75, n_negatives=7, batch_size=10_000)


class PairwiseSum(Listwise):
    """The sum of ln sigma(r_i - r_j) over the negatives of a list."""

    name = "pairwise sum"

    @staticmethod
    def steps(r: Any, observed: Any) -> Any:
        positive = (r * observed).sum(-1)[..., None]
        wrong = (1 - observed) * sigmoid(r - positive)
        return observed * wrong.sum(-1)[..., None] - wrong

    @staticmethod
    def likelihood(r: Any, observed: Any) -> Any:
        positive = (r * observed).sum(-1)[..., None]
        return ((1 - observed) * log(sigmoid(positive - r))).sum(-1)


def make_engine(
    train: Any,
    objective: Any = Softmax,
    score: Any = DOT,
    negatives: str = "uniform",
    **options: Any,
) -> ListEngine:
    settings = options.get("settings", SETTINGS)
    tables = Tables.zeros(train.n_users, train.n_items, 5, 0, biased=score == DOT)
    tables.initialise("normal", 0.6, 0.0, 1)
    if tables.item_bias is not None:
        tables.item_bias[:] = np.linspace(-1, 1, train.n_items)
    sampler = parse(negatives)
    correction = Correction.of(train, sampler, settings.n_negatives) if options.get("corrected", True) else None
    return ListEngine(
        train, tables, objective, sampler, settings,
        score=score, correction=correction, seed=3, n_jobs=options.get("n_jobs", 1),
    )  # fmt: skip


def gradients(engine: ListEngine) -> dict[str, Any]:
    """The gradients of the first batch with respect to the rows, which are left as they are."""
    found = {}
    for name in ("users", "items", "bias"):
        rows, whole = getattr(engine, name), np.zeros_like(getattr(engine, name).table)
        found[name] = whole

        def record(chosen: Any, gradient: Any, rate: float, rows: Any = rows, whole: Any = whole) -> None:
            whole[chosen] = rows.score.gradient(rows.table[chosen], gradient)

        rows.update = record
    engine.epoch(0)
    return found


@dataclass(frozen=True)
class Soft(Negatives):
    """One of three candidates, in proportion to exp(r_j)."""

    draws: int = 3

    def priority(self, r_i: Any, r_j: Any, u: Any) -> Any:
        return r_j - log(-log(u))


def lists_of(engine: ListEngine) -> list[tuple[int, int, Any]]:
    """The lists of an epoch of one batch: user, positive, negatives."""
    samples, n = engine.samples, engine.train.n_interactions
    entries = samples.entries(0, 0, n)
    users, items = samples.source.users[entries], samples.source.items[entries]
    first = [int(np.flatnonzero(users == user)[0]) for user in users]
    drawn = samples.draw(samples.key(0), entries[first])
    numbers = samples.numbers(samples.choice_key(0), entries[first])
    found = []
    for user, item, row, u in zip(users, items, drawn, numbers, strict=True):
        by_negative = row.reshape(engine.settings.n_negatives, -1)
        r_i, r_j = (
            engine.items.table[each] @ engine.users.table[user] + engine.bias.table[each, 0]
            for each in (item, by_negative)
        )
        best = engine.negatives.priority(r_i, r_j, u.reshape(by_negative.shape)).argmax(axis=1)
        found.append((user, item, np.take_along_axis(by_negative, best[:, None], 1)[:, 0]))
    return found


@pytest.mark.parametrize(
    ("score", "negatives", "corrected"),
    [
        (DOT, "uniform", True),
        (DOT, "popularity", True),
        (Cosine(0.3), "popularity^0.5", True),
        (Cosine(0.3), "uniform", False),
        (DOT, "hard:3", False),
        (DOT, "ahns:3", False),
        (DOT, Soft(), False),
    ],
)
@pytest.mark.parametrize("objective", [Softmax, PairwiseSum])
def test_the_gradient_is_that_of_the_likelihood_of_the_drawn_lists(
    objective: Any, score: Any, negatives: Any, corrected: bool
) -> None:
    train = make_dataset(8, 12)
    engine = make_engine(train, objective, score, negatives, corrected=corrected)
    found, drawn = gradients(engine), lists_of(engine)
    start = {name: getattr(engine, name).table.astype(np.float64) for name in found}
    chances = [parse(negatives).probabilities(train.popularity(), train.csr[[user]].indices) for user in range(8)]

    def likelihood(users: Any, items: Any, bias: Any) -> float:
        U, V, total = score.rows(users), score.rows(items), 0.0
        for user, positive, others in drawn:
            r = V[[positive, *others]] @ U[user] + bias[[positive, *others], 0]
            r[1:] -= np.log(7 * chances[user][others]) if corrected else 0.0
            observed = np.eye(1, len(r))
            total += float(objective.likelihood(r[None], observed)[0])
        return total

    for name, gradient in found.items():
        if name == "bias" and engine.tables.item_bias is None:
            assert not gradient.any()
            continue
        expected = np.zeros_like(start[name])
        for place in np.ndindex(expected.shape):
            moved = {side: table.copy() for side, table in start.items()}
            values = []
            for move in (-1e-5, 1e-5):
                moved[name][place] = start[name][place] + move
                values.append(likelihood(**moved))
            expected[place] = (values[1] - values[0]) / 2e-5
        assert_allclose(gradient, expected, atol=2e-4)


def test_with_all_other_items_as_negatives_the_step_is_that_of_the_softmax_over_all_items() -> None:
    n = 9
    train = tl.read([(user, user % n) for user in range(20)])
    settings = ListSettings(0.05, 3, 0.5, 0.75, n_negatives=n - 1, batch_size=64)
    engine = make_engine(train, settings=settings, corrected=False)
    others = np.array([[item for item in range(n) if item != own] for own in range(n)], dtype=np.int32)
    engine.samples.draw = lambda key, entries: others[train.csr.indices[entries]]  # type: ignore[method-assign]
    U, V, b = engine.users.table.copy(), engine.items.table.copy(), engine.bias.table[:, 0].copy()
    steps = Softmax.steps(U @ V.T + b, train.csr.toarray())
    found = gradients(engine)
    assert_allclose(found["users"], steps @ V, atol=1e-5)
    assert_allclose(found["items"], steps.T @ U, atol=1e-5)
    assert_allclose(found["bias"][:, 0], steps.sum(axis=0), atol=1e-5)


def test_the_expected_corrected_step_is_that_of_the_softmax_over_all_items() -> None:
    rng, n = np.random.default_rng(0), 300
    r = rng.normal(0, 1.5, 7)  # of a positive, and of all unobserved items
    q = Uniform().probabilities(np.arange(6), np.zeros(0, int)) * np.array([6, 1, 1, 2, 4, 10]) / 4

    def mean_step(corrected: bool) -> Any:
        total = np.zeros(7)
        for _ in range(400):
            drawn = rng.choice(6, n, p=q)
            seen = r[1:][drawn] - (np.log(n * q[drawn]) if corrected else 0.0)
            steps = list_steps(Softmax, np.concatenate([r[:1], seen])[None])[0]
            total += np.concatenate([steps[:1], np.bincount(drawn, steps[1:], minlength=6)])
        return total / 400

    expected = np.eye(1, 7)[0] - softmax(r)
    assert_allclose(mean_step(True), expected, atol=0.01)
    assert np.abs(mean_step(False) - expected).max() > 0.1


def test_the_correction_is_ln_of_n_times_the_probability() -> None:
    train = make_dataset(6, 10)
    sampler = parse("popularity^0.7")
    correction, items = Correction.of(train, sampler, 5), np.arange(10, dtype=np.int32)
    for user in range(6):
        own = train.csr[[user]].indices
        q = sampler.probabilities(train.popularity(), own)
        found = correction.of_pairs(np.array([user], dtype=np.int32), items[None])[0]
        others = np.setdiff1d(items, own)
        assert_allclose(found[others], np.log(5 * q[others]), rtol=1e-4)


@pytest.mark.parametrize("score", [DOT, Cosine(0.2)])
def test_the_number_of_threads_does_not_change_the_bits(score: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    train = make_dataset(60, 40)
    monkeypatch.setattr(lists, "PIECE", 2_000)
    monkeypatch.setattr(lists, "ROWS", 7)
    monkeypatch.setattr(lists, "COLUMNS", 2)
    settings = ListSettings(0.05, 3, 0.5, 0.75, n_negatives=90, batch_size=100)  # more negatives than items

    def trained(n_jobs: int) -> list[bytes]:
        engine = make_engine(train, score=score, settings=settings, n_jobs=n_jobs)
        for epoch in range(2):
            engine.epoch(epoch)
        return [array.tobytes() for array in engine.state().values()]

    assert trained(1) == trained(2) == trained(8)


def test_an_epoch_increases_the_likelihood_and_cosines_keep_their_length() -> None:
    engine = make_engine(make_dataset(), score=Cosine(0.25), settings=ListSettings(0.05, 8, 0.0, 0.75, 20, 50))
    before = engine.loss()
    for epoch in range(8):
        engine.epoch(epoch)
    assert engine.loss() < before - 0.1
    for table in (engine.tables.user_factors, engine.tables.item_factors):
        assert_allclose(np.linalg.norm(table, axis=1), 2.0, rtol=1e-5)


def test_a_list_of_steps_of_another_shape_is_an_error() -> None:
    class Short(Softmax):
        @staticmethod
        def steps(r: Any, observed: Any) -> Any:
            return r[:, 1:]

    with pytest.raises(ParameterError, match=r"Short.steps returned an array of shape \(\d+, 7\); .* \(\d+, 8\)"):
        make_engine(make_dataset(), Short).epoch(0)


def test_a_batch_that_does_not_fit_into_memory_is_refused() -> None:
    with pytest.raises(TooLargeError, match="smaller batch_size, or fewer negatives"):
        make_engine(make_dataset(), settings=ListSettings(0.05, 3, 0.5, 0.75, 10**10, 100))
