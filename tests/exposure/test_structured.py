import numpy as np
import polars as pl
import pytest
from scipy.special import expit
from threadpoolctl import threadpool_limits

import truelike as tl
from truelike.exposure.structured import LIKING_SHARE, _Cells, _Model, structured


def simulated(seed: int, visibility_spread: float) -> tuple[tl.Dataset, np.ndarray, np.ndarray]:
    """Interactions drawn from the model itself, and its rates."""
    rng = np.random.default_rng(seed)
    z = rng.normal(-0.4, 0.9, (1_500, 1))
    b = np.exp(rng.normal(-1.2, visibility_spread, 600))
    quality = rng.normal(-2.2, 0.8, 600)
    a = np.exp((1 - LIKING_SHARE) * z)
    p = expit(quality + LIKING_SHARE * z) * -np.expm1(-a * b)
    users, items = np.nonzero(rng.random(p.shape) < p)
    data = tl.read(pl.DataFrame({"user": users, "item": items}))
    return data, a[np.array(data.users), 0], b[np.array(data.items)]


@pytest.mark.parametrize("seed", [0, 1])
def test_it_recovers_the_parameters_of_data_from_the_model_itself(seed: int) -> None:
    data, a, b = simulated(seed, 1.6)
    model = _Model(_Cells.of(data))
    true = np.array([-1.2, np.log(1.6), -2.2, np.log(0.8), np.log(0.9)])
    fitted = model.fitted()
    assert np.abs(fitted - true).max() < 0.2
    truth, rates = -np.expm1(-np.outer(a, b)), structured(data)
    found = rates.propensity(np.arange(data.n_users)[:, None], np.arange(data.n_items))
    user, item = model.rates(true, data.interactions_per_user(), data.popularity())
    best = -np.expm1(-np.outer(user, item))  # that of one who knows the parameters
    assert 0.8 < found.mean() / truth.mean() < 1.2
    assert np.corrcoef(truth.ravel(), found.ravel())[0, 1] > np.corrcoef(truth.ravel(), best.ravel())[0, 1] - 0.01
    assert np.corrcoef(np.log(b), np.log(rates.item))[0, 1] > 0.8


def test_it_tells_equal_from_skewed_visibility() -> None:
    equal, skewed = (structured(simulated(2, spread)[0]) for spread in (0.05, 1.6))
    assert np.log(equal.item).std() < 0.35
    assert np.log(skewed.item).std() > 1.0


def test_it_finds_the_exposure_of_a_world() -> None:
    world = tl.synthetic.World(n_users=1_000, n_items=500, impressions_per_user=150, exposure_skew=1.8, seed=1)
    users, items = (each.ravel() for each in np.indices((1_000, 500)))
    truth = 1 - world.flip_probability(users, items)
    rates = structured(world.dataset())
    found = rates.propensity(users, items)
    assert np.corrcoef(truth, found)[0, 1] > 0.75
    assert 0.5 < found.mean() / truth.mean() < 2


def test_more_interactions_mean_more_exposure() -> None:
    data = tl.synthetic.World(n_users=300, n_items=100, impressions_per_user=40).dataset()
    rates = structured(data)
    for rate, counts in ((rates.user, data.interactions_per_user()), (rates.item, data.popularity())):
        assert (np.diff(rate[np.argsort(counts, kind="stable")]) > -1e-6).all()


def test_the_bits_do_not_depend_on_threads() -> None:
    data = tl.synthetic.World(n_users=400, n_items=200, impressions_per_user=60).dataset()
    digests = set()
    for threads in (1, 2):
        with threadpool_limits(threads):
            digests.add(b"".join(array.tobytes() for array in structured(data).arrays().values()))
    assert len(digests) == 1


@pytest.mark.parametrize(
    "pairs",
    [
        [(0, 0), (1, 1)],
        [(0, 0), (0, 1), (1, 0), (1, 1)],
        [(user, 0) for user in range(50)] + [(0, 1)],
    ],
)
def test_tiny_datasets_get_finite_rates(pairs: list[tuple[int, int]]) -> None:
    rates = structured(tl.read(pairs))
    found = rates.propensity(np.arange(len(rates.user))[:, None], np.arange(len(rates.item)))
    assert ((found > 0) & (found < 1)).all()


def test_users_and_items_without_interactions_have_the_least_exposure() -> None:
    data = tl.synthetic.World(n_users=200, n_items=100, impressions_per_user=30).dataset()
    none = data.select(data.matrix.indices != 7).select(data.user_of_entry[data.matrix.indices != 7] != 5)
    rates = structured(none)
    assert rates.item[7] == rates.item.min() > 0
    assert rates.user[5] == rates.user.min() > 0


def test_a_higher_rate_of_likes_means_less_exposure() -> None:
    data = tl.synthetic.World(n_users=300, n_items=100, impressions_per_user=40).dataset()
    everyone = np.arange(300)
    shown = [
        structured(data, rate).propensity(everyone[:, None], np.arange(data.n_items)).mean()
        for rate in (0.05, 0.1, 0.3)
    ]
    assert shown[0] > 1.2 * shown[1] > 1.2**2 * shown[2]
