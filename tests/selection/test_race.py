"""The race: who goes on, what is searched, when it ends and who wins, with results that the tests make up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest

import truelike as tl
from truelike.data.schema import seconds_of
from truelike.evaluation.significance import paired_t
from truelike.models.registry import build
from truelike.selection import race as module
from truelike.selection.race import FAMILIES, Blended, Candidate, Race, Weighted, named

USERS = 400


@pytest.fixture(scope="module")
def train() -> Any:
    return tl.synthetic.World(n_users=200, n_items=80).dataset()


class Scripted(Race):
    """A race in which a function of the candidate is its result."""

    def __init__(self, train: Any, score: Callable[[Any], float], **options: Any) -> None:
        usual: dict[str, Any] = {
            "budget": float("inf"),
            "max_trial_seconds": float("inf"),
            "deadline": None,
            "n_trials": None,
        }
        super().__init__(train, train, metric="ndcg@20", seed=0, n_jobs=1, progress=False, **{**usual, **options})
        self.scripted = score

    def _run(self, candidate: Any, model: Any) -> None:
        value, name = self.scripted(candidate), family_of(candidate)
        noise = np.random.default_rng(len(name)).normal(0, 0.01, USERS)  # of a family
        if value > 0:
            self.give(candidate, value + noise - noise.mean())
        else:
            self.trials[candidate].record["error"] = "it diverged"

    def give(self, candidate: Any, values: Any) -> None:
        self.trials[candidate].values = values
        self.trials[candidate].record["validation"] = {self.metric: float(values.mean())}


def family_of(candidate: Any) -> str:
    if isinstance(candidate, Weighted):
        return family_of(candidate.base)
    return "Blend" if isinstance(candidate, Blended) else str(candidate.family.name)


def at(candidate: Candidate) -> dict[str, Any]:
    axes = candidate.family.space.axes.items()
    return {name: values[place] for (name, values), place in zip(axes, candidate.places, strict=True)}


def counts(race: Race) -> dict[str, int]:
    names = [family_of(candidate) for candidate in race.trials]
    return {name: names.count(name) for name in [*(family.name for family in FAMILIES), "Blend"]}


def models(race: Race) -> list[str]:
    return [trial.record["model"] for trial in race.trials.values()]


def by_family(**scores: float) -> Callable[[Any], float]:
    return lambda candidate: scores.get(family_of(candidate), 0.01)


def test_families_far_below_the_best_are_not_searched_but_for_more_factors(train: Any) -> None:
    race = Scripted(train, by_family(IALS=0.3, EDLAE=0.2, ExactBPO=0.2, SoftmaxMF=0.2, ItemKNN=0.1))
    assert race.run().family.name == "IALS"  # type: ignore[union-attr]
    tried = counts(race)
    assert tried["IALS"] > 4
    assert {name: tried[name] for name in ("EDLAE", "ExactBPO", "SoftmaxMF", "ItemKNN", "ItemPop", "Blend")} == {
        "EDLAE": 1, "ExactBPO": 2, "SoftmaxMF": 2, "ItemKNN": 1, "ItemPop": 1, "Blend": 0,
    }  # fmt: skip


def test_a_family_that_lacks_factors_comes_back(train: Any) -> None:
    def score(candidate: Any) -> float:
        if family_of(candidate) == "ExactBPO":
            return 0.1 + 0.0005 * at(candidate)["factors"] + 0.01 * (at(candidate)["frequency_power"] == 1.0)
        return by_family(EDLAE=0.3)(candidate)

    winner = Scripted(train, score).run()
    assert family_of(winner) == "ExactBPO"
    assert (at(winner)["factors"], at(winner)["frequency_power"]) == (512, 1.0)  # type: ignore[arg-type]


def test_families_without_axes_do_not_take_the_place_of_those_with(train: Any) -> None:
    race = Scripted(train, by_family(ItemPop=0.3, ItemKNN=0.29, IALS=0.28, EDLAE=0.275, ExactBPO=0.27))
    race.run()
    assert min(counts(race)[name] for name in ("IALS", "EDLAE", "ExactBPO")) > 1


def test_an_axis_is_searched_up_or_down_while_it_gets_better(train: Any) -> None:
    def score(candidate: Any) -> float:
        if family_of(candidate) != "IALS":
            return 0.01
        values = at(candidate)
        return 0.3 - 0.05 * abs(np.log2(values["unobserved_weight"] / 0.125)) / 3 + 1e-5 * values["factors"]

    race = Scripted(train, score)
    found = at(race.run())  # type: ignore[arg-type]
    assert found == {"regularization": 1.0, "unobserved_weight": 0.125, "factors": 512}
    assert len(set(models(race))) == len(race.trials)  # none twice


def test_cheap_families_also_move_along_two_axes_at_once(train: Any) -> None:
    def score(candidate: Any) -> float:
        if family_of(candidate) != "IALS":
            return 0.01
        values = at(candidate)
        both = values["unobserved_weight"] == 2.0 and values["factors"] == 128
        return (
            0.4 if both else 0.3 - 0.01 * (values["unobserved_weight"] != 1.0) - 0.01 * (values["factors"] != 64)
        )

    found = at(Scripted(train, score).run())  # type: ignore[arg-type]
    assert (found["unobserved_weight"], found["factors"]) == (2.0, 128)
    dear = Scripted(train, score, budget=5.0)
    assert at(dear.run())["factors"] == 64  # type: ignore[arg-type]
    assert dear.narrow


def test_on_a_tie_a_much_cheaper_candidate_wins(train: Any) -> None:
    score = by_family(ExactBPO=0.3, ItemKNN=0.2999)
    assert Scripted(train, score).run().family.name == "ItemKNN"  # type: ignore[union-attr]
    score = by_family(ExactBPO=0.3, ItemKNN=0.297)
    assert Scripted(train, score).run().family.name == "ExactBPO"  # type: ignore[union-attr]


def test_a_blend_wins_only_if_it_is_better_beyond_noise(train: Any) -> None:
    other = np.random.default_rng(1).normal(0, 0.05, USERS)

    class Noisy(Scripted):
        def _run(self, candidate: Any, model: Any) -> None:
            super()._run(candidate, model)
            if isinstance(candidate, Blended):
                self.give(candidate, self.trials[candidate].values + other - other.mean())

    better = by_family(ExactBPO=0.3, EDLAE=0.29, Blend=0.32)
    within = by_family(ExactBPO=0.3, EDLAE=0.29, Blend=0.302)
    assert isinstance(Noisy(train, better).run(), Blended)
    assert isinstance(Noisy(train, within).run(), Candidate)


def test_what_is_beyond_the_budget_is_not_tried_and_kept(train: Any) -> None:
    score = by_family(ExactBPO=0.3, EDLAE=0.29)
    free = Scripted(train, score)
    free.run()
    assert not free.unaffordable
    race = Scripted(train, score, budget=free.spent / 2)
    race.run()
    assert race.spent <= free.spent / 2
    assert race.unaffordable
    assert not {trial.record["model"] for trial in race.unaffordable} & set(models(race))
    assert len(free.trials) > len(race.trials)


def test_one_dear_candidate_does_not_end_a_race_by_the_clock(train: Any) -> None:
    race = Scripted(
        train,
        by_family(EDLAE=0.3, IALS=0.29),
        max_trial_seconds=module.TRIAL_OVERHEAD + 0.001,
        deadline=float("inf"),
    )
    race.run()
    assert not race.stopped
    assert counts(race)["ExactBPO"] == counts(race)["SoftmaxMF"] == 0
    assert counts(race)["EDLAE"] > 1


def test_the_first_trials_do_not_depend_on_their_number(train: Any) -> None:
    score = by_family(ExactBPO=0.3, EDLAE=0.29, Blend=0.32)
    whole = Scripted(train, score)
    whole.run()
    for n in (1, 5, 12):
        race = Scripted(train, score, n_trials=n)
        race.run()
        assert models(race) == models(whole)[:n]
        assert race.stopped == f"{n} trials were run"


def test_a_candidate_that_cannot_be_trained_does_not_end_the_race(train: Any) -> None:
    race = Scripted(train, by_family(IALS=0.3, ExactBPO=0.0, EDLAE=0.0))
    assert race.run().family.name == "IALS"  # type: ignore[union-attr]
    with pytest.raises(tl.errors.DivergedError, match="no model could be trained"):
        Scripted(train, lambda candidate: 0.0).run()


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_candidate_and_its_name_give_the_same_model(family: Any, train: Any) -> None:
    start = Candidate(family, family.start)
    moved = [start.moved(name, step) for name in family.space.axes for step in (-1, 1)]
    for candidate in (start, *(each for each in moved if each is not None)):
        model = candidate.make(train, 0, None)
        assert build(named(model), {"n_jobs": None} if "n_jobs" in model.get_params() else {}).get_params() == (
            model.get_params()
        )


# --- other kinds of feedback ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def with_kinds() -> Any:
    rng, rows = np.random.default_rng(0), []
    for event, n in (("buy", 900), ("view", 700), ("cart", 500), ("dislike", 200)):
        pairs = rng.choice(60 * 40, n, replace=False)
        rows += [{"user": int(pair // 40), "item": int(pair % 40), "event": event} for pair in pairs]
    kinds = {"buy": 1, "view": 1, "cart": 1, "dislike": -1}
    return tl.read(rows, kind="event", kinds=kinds, target="buy")


class Weighed(Scripted):
    """A scripted race in which each kind adds to the score by its weight, and to the noise of each user."""

    def __init__(
        self, train: Any, added: Callable[[str, float], float], noise: float = 0.0, **options: Any
    ) -> None:
        super().__init__(train, by_family(IALS=0.3, EDLAE=0.2), **options)
        self.added, self.noise = added, noise

    def _run(self, candidate: Any, model: Any) -> None:
        super()._run(candidate, model)
        if isinstance(candidate, Weighted):
            more = sum(self.added(*each) for each in candidate.weights)
            seed = [len(name) * 1000 + round(100 * weight) + 5000 for name, weight in candidate.weights]
            noise = np.random.default_rng(seed).normal(0, self.noise, USERS)
            self.give(candidate, self.trials[candidate].values + more + noise - noise.mean())


def best_at(**best: float) -> Callable[[str, float], float]:
    """What a kind adds: most at its best weight, less the further away, and a loss on the other side of zero."""

    def added(name: str, weight: float) -> float:
        at = best.get(name, 0.0)
        if not at:
            return -0.02
        return 0.05 - 0.02 * abs(np.log(weight / at)) if weight * at > 0 else -0.02

    return added


@pytest.mark.parametrize(
    ("best", "found"), [(0.3, 0.3), (1.0, 1.0), (3.0, 3.0), (0.1, 0.1), (0.03, 0.03), (-0.3, -0.3)]
)
def test_the_weight_of_a_kind_is_searched_on_both_sides_of_zero(
    with_kinds: Any, best: float, found: float
) -> None:
    race = Weighed(with_kinds, best_at(cart=best))
    winner = race.run()
    assert isinstance(winner, Weighted)
    assert dict(winner.weights) == {"cart": best}
    assert {each.kind: each.is_kept for each in race.findings} == {"cart": True, "dislike": False, "view": False}
    cart = next(each for each in race.findings if each.kind == "cart")
    assert cart.gain == pytest.approx(0.05 / 0.3, rel=0.3)


def test_kinds_are_weighed_one_after_another_beside_those_that_are_kept(with_kinds: Any) -> None:
    race = Weighed(with_kinds, best_at(view=0.1, dislike=-0.1))
    winner = race.run()
    assert isinstance(winner, Weighted)
    assert dict(winner.weights) == {"view": 0.1, "dislike": -0.1}
    assert [each.kind for each in race.findings] == ["view", "cart", "dislike"]  # those with the most pairs first


def test_a_kind_that_is_not_better_beyond_noise_is_left_out(with_kinds: Any) -> None:
    race = Weighed(with_kinds, lambda name, weight: 0.002 if name == "cart" else -0.02, noise=0.1)
    winner = race.run()
    assert not isinstance(winner, Weighted)
    cart = next(each for each in race.findings if each.kind == "cart")
    assert cart.gain > 0
    assert cart.p_value > 0.05
    assert race.kept_weights() == ()


def test_p_values_count_all_weights_that_were_tried(with_kinds: Any) -> None:
    race = Weighed(with_kinds, lambda name, weight: 0.01 if name == "cart" else -0.02, noise=0.1)
    race.run()
    tried = [each for each in race.trials if isinstance(each, Weighted)]
    cart = next(each for each in race.findings if each.kind == "cart")
    best = max((each for each in tried if dict(each.weights).keys() == {"cart"}), key=race.score)
    alone = paired_t(race.trials[best].values, race.trials[best.base].values)
    assert cart.p_value == pytest.approx(min(1.0, alone * len(tried)))


def test_the_weights_that_are_kept_are_searched_with(with_kinds: Any) -> None:
    def score(candidate: Any) -> float:
        if family_of(candidate) != "IALS":
            return 0.01
        weighted = isinstance(candidate, Weighted)
        values = at(candidate.base if weighted else candidate)
        return 0.3 + 0.01 * np.log2(values["unobserved_weight"]) * (1 if weighted else -1)

    race = Weighed(with_kinds, best_at(cart=0.3))
    race.scripted = score
    winner = race.run()
    assert isinstance(winner, Weighted)
    assert at(winner.base)["unobserved_weight"] == 8.0  # without kinds it is lower that is better


def test_without_other_kinds_nothing_is_weighed(train: Any) -> None:
    race = Scripted(train, by_family(IALS=0.3))
    race.run()
    assert race.findings == []
    assert race.seen == "train"


def test_lists_leave_out_what_users_dislike_and_what_cannot_be_a_hit(with_kinds: Any) -> None:
    def left_out(held_out: Any) -> Any:
        race = Scripted(with_kinds, by_family(IALS=0.3))
        race.held_out = held_out
        return race.seen.csr.toarray() > 0  # type: ignore[union-attr]

    views, carts, dislikes = (with_kinds.kinds[name].csr.toarray() != 0 for name in ("view", "cart", "dislike"))
    viewed = [(int(u), int(i)) for u, i in np.argwhere(views & ~carts)]
    assert (left_out(tl.read(viewed)) == (carts | dislikes)).all()  # views can be hits
    assert (left_out(with_kinds) == dislikes).all()


def test_lists_leave_out_interactions_unless_they_were_held_out_again() -> None:
    rows = [("ann", "tea", "buy", 10**9), ("ann", "rum", "buy", 10**9), ("bob", "gin", "view", 10**9)]
    frame = pl.DataFrame(rows, schema=["user", "item", "event", "time"], orient="row")
    schema = tl.Schema({"buy": {"role": "target", "seen": "30d"}, "view": {"seen": "7d"}}, "event")
    race = Scripted(tl.read(frame, kinds=schema), by_family(IALS=0.3))
    race.held_out = tl.read([("bob", "tea")])
    assert race.exclude_seen == ["interactions"]
    again = Scripted(race.train, by_family(IALS=0.3))
    again.held_out = tl.read([("ann", "tea")])
    assert seconds_of(again.exclude_seen["interactions"]) == 30 * 86_400  # type: ignore


def test_a_model_around_a_fitted_one_is_the_one_that_fit_gives(with_kinds: Any) -> None:
    race = Race(
        with_kinds, with_kinds.with_parts(kinds={}), metric="ndcg@20", budget=1e9, max_trial_seconds=1e9, deadline=None,
        n_trials=None, seed=0, n_jobs=1, progress=False,
    )  # fmt: skip
    knn = next(Candidate(family, family.start) for family in FAMILIES if family.name == "ItemKNN")
    against = Weighted(knn, (("dislike", -0.3),))
    model = against.make(with_kinds, 0, 1)
    alone = knn.make(with_kinds, 0, 1).fit(with_kinds.with_parts(kinds={}))
    fitted = model.fit(with_kinds, progress=False).recommend(k=5)
    assert model.around(alone, with_kinds).recommend(k=5).equals(fitted)
    assert not against.trains
    assert race._cost(against) < race._cost(Weighted(knn, (("dislike", 0.3),)))
