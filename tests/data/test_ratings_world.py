from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.special import logit

import truelike as tl
from truelike.data.sources import cache_directory
from truelike.errors import DataError, ParameterError

USERS, ITEMS = 120, 60
EVERYONE, EVERYTHING = (each.ravel() for each in np.indices((USERS, ITEMS)))


def ratings() -> pl.DataFrame:
    """Two kinds of users, of whom each likes one half of the items; later users and items have more ratings."""
    rng = np.random.default_rng(0)
    users, items = np.indices((USERS, ITEMS))
    rated = rng.random(users.shape) < (0.2 + 0.6 * users / USERS) * (0.3 + 0.7 * items / ITEMS)
    mean = np.where(users % 2 == items % 2, 4.2, 2.2)
    stars = np.clip(np.rint(mean + rng.normal(0, 0.7, users.shape)), 1, 5)
    return pl.DataFrame({"user": users[rated], "item": items[rated], "rating": stars[rated]})


WORLD = tl.synthetic.RatingsWorld(ratings(), impressions_per_user=25, like_rate=0.3, exposure_skew=2.0)


def test_the_model_of_ratings_finds_who_likes_what() -> None:
    p = WORLD.like_probability(EVERYONE, EVERYTHING)
    same = EVERYONE % 2 == EVERYTHING % 2
    assert abs(p.mean() - 0.3) < 1e-3
    assert p[same].mean() > 3 * p[~same].mean()
    assert ((p > 0) & (p < 1)).all()


def test_without_a_rate_probabilities_are_those_of_ratings() -> None:
    table = ratings()
    p = WORLD.varied(like_rate=None).like_probability(table["user"].to_numpy(), table["item"].to_numpy())
    liked = table["rating"].to_numpy() >= 4
    assert abs(p.mean() - liked.mean()) < 0.05
    assert abs(p[p > 0.7].mean() - liked[p > 0.7].mean()) < 0.1


def test_a_pair_is_observed_exactly_if_it_is_liked_and_shown() -> None:
    liked = WORLD.true_likes().matrix.toarray() > 0
    shown = WORLD.impressions().matrix.toarray() > 0
    assert np.array_equal(WORLD.dataset().matrix.toarray() > 0, liked & shown)
    assert np.array_equal(liked.ravel(), WORLD.likes(EVERYONE, EVERYTHING))
    assert abs(liked.mean() - 0.3) < 0.02
    assert WORLD.truth().likes.n_interactions == liked.sum()


def test_exposure_follows_the_numbers_of_ratings() -> None:
    never = WORLD.flip_probability(EVERYONE, EVERYTHING).reshape(USERS, ITEMS)
    by_user, by_item = WORLD.exposure_counts()
    assert np.array_equal(np.argsort(never.mean(axis=0), kind="stable"), np.argsort(-by_item, kind="stable"))
    assert np.corrcoef(by_user, never.mean(axis=1))[0, 1] < -0.9
    shown = WORLD.impressions().matrix.toarray() > 0
    assert abs((1 - never).sum() - shown.sum()) < 5 * np.sqrt((never * (1 - never)).sum())
    equal = WORLD.varied(exposure_skew=0.0).flip_probability([3] * ITEMS, np.arange(ITEMS))
    assert np.ptp(equal) < 1e-12


def test_the_seed_decides_likes_and_impressions_but_no_probability() -> None:
    other, same = (
        WORLD.varied(seed=1),
        tl.synthetic.RatingsWorld(ratings(), impressions_per_user=25, like_rate=0.3, exposure_skew=2.0),
    )
    assert same.dataset().to_frame().equals(WORLD.dataset().to_frame())
    assert not other.dataset().to_frame().equals(WORLD.dataset().to_frame())
    pairs = (EVERYONE, EVERYTHING)
    assert np.array_equal(other.like_probability(*pairs), WORLD.like_probability(*pairs))
    assert np.array_equal(other.flip_probability(*pairs), WORLD.flip_probability(*pairs))


def test_it_takes_those_with_most_ratings() -> None:
    small = tl.synthetic.RatingsWorld(ratings(), n_users=30, n_items=20)
    assert (small.n_users, small.n_items) == (30, 20)
    table = ratings()
    most = table["item"].value_counts(sort=True).head(20)["item"]
    assert len(set(most) - set(small.ratings.items)) <= 2  # equal counts
    assert small.dataset().n_users == 30
    assert WORLD.n_users == USERS


def test_factors_reduce_the_tastes() -> None:
    def rank(world: Any) -> int:
        p = world.varied(like_rate=None).like_probability(EVERYONE, EVERYTHING).reshape(USERS, ITEMS)
        centred = logit(p)
        return int(np.linalg.matrix_rank(centred, tol=1e-2))

    assert rank(WORLD.varied(factors=2)) <= 4  # and two for the biases
    assert rank(WORLD) > 20


def test_a_dataset_of_ratings_and_its_titles() -> None:
    data = tl.read(ratings(), weight="rating").with_titles({n: f"film {n}" for n in range(ITEMS)})
    world = tl.synthetic.RatingsWorld(data, impressions_per_user=25, like_rate=0.3, exposure_skew=2.0)
    assert world.dataset().matrix.toarray().tolist() == WORLD.dataset().matrix.toarray().tolist()
    titles = world.dataset().titles
    assert titles is not None
    assert titles[7] == "film 7"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"like_rate": 0.0}, "like_rate"),
        ({"exposure_skew": -1}, "exposure_skew"),
        ({"factors": 0}, "factors"),
        ({"n_users": 1}, "n_users"),
        ({"seed": 0.5}, "seed"),
    ],
)
def test_wrong_parameters_are_rejected(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        tl.synthetic.RatingsWorld(ratings(), **settings)
    with pytest.raises(ParameterError, match=message):
        WORLD.varied(**settings)


def test_other_mistakes_are_named() -> None:
    with pytest.raises(ParameterError, match="no colour"):
        WORLD.varied(colour="red")
    with pytest.raises(DataError, match="likes and dislikes"):
        tl.synthetic.RatingsWorld(ratings(), min_rating=6)
    with pytest.raises(ParameterError, match="whole numbers from 0 to 119"):
        WORLD.likes([120], [0])


@pytest.mark.skipif(not (cache_directory() / "ml-1m.zip").is_file(), reason="MovieLens 1M is not there")
def test_movielens() -> None:
    found = tl.datasets.movielens_ratings()
    assert (found.n_interactions, found.n_rows) == (1_000_209, 3_582_313)
    world = tl.synthetic.RatingsWorld(found, n_users=300, n_items=200)
    users, items = (each.ravel() for each in np.indices((300, 200)))
    p = world.like_probability(users, items)
    assert abs(p.mean() - 0.15) < 1e-3
    # who gave a film 4 or more likes it more than who gave it less
    csr = world.ratings.matrix
    of_ratings = world.like_probability(world.ratings.user_of_entry, csr.indices)
    assert of_ratings[csr.data >= 4].mean() > 1.5 * of_ratings[csr.data < 4].mean()
