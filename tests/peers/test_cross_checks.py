"""The peers themselves, fitted on the same split: their scores beside ours at translated settings.

A peer that is not installed is skipped. Each test runs on a small synthetic log, and, where the files are in the
cache of `tl.datasets`, on MovieLens 100K and 1M. `pytest -s -m slow tests/peers/test_cross_checks.py` prints the
rows of the table in docs/explanation/peers.md.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from threadpoolctl import threadpool_limits

import truelike as tl

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
Scores = Callable[[tl.Split], Any]


@pytest.fixture(scope="module", params=["world", "ml-100k", "ml-1m"])
def split(request: pytest.FixtureRequest) -> tl.Split:
    """80/10/10 of each user's rows; all rows of MovieLens count, whatever their ratings."""
    if request.param == "world":
        return tl.splits.by_user(tl.synthetic.World(n_users=400, n_items=150).dataset(), seed=0)
    cache, name = Path(tl.datasets.cache_directory()), request.param
    if (cache / f"{name}.tsv").exists():
        data = tl.read(cache / f"{name}.tsv", header=False)
    elif (cache / f"{name}.zip").exists():
        data = tl.datasets.load(name, progress=False)
    else:
        pytest.skip(f"{name} is not in the cache of tl.datasets")
    return tl.splits.by_user(data, seed=0)


def ones(split: tl.Split) -> Any:
    """The training pairs."""
    matrix = sparse.csr_matrix(split.train.matrix, dtype=np.float64)
    matrix.data[:] = 1
    return matrix


def frame(split: tl.Split) -> Any:
    """The training pairs as a frame of pandas, by row numbers."""
    pandas, pairs = pytest.importorskip("pandas"), ones(split).tocoo()
    return pandas.DataFrame({"user_id": pairs.row, "item_id": pairs.col})


def quietly(fit: Callable[[], Any]) -> Any:
    with redirect_stdout(StringIO()), threadpool_limits(limits=1, user_api="blas"):
        return fit()


def irspack_linear(name: str, **settings: Any) -> Scores:
    def scores(split: tl.Split) -> Any:
        peer = getattr(pytest.importorskip("irspack"), name)(ones(split), **settings)
        quietly(peer.learn)
        return peer.get_score(np.arange(split.train.n_users))

    return scores


def cornac_ease(split: tl.Split) -> Any:
    models, data = pytest.importorskip("cornac.models"), pytest.importorskip("cornac.data")
    X = ones(split)
    rows = [(*pair, 1.0) for pair in np.argwhere(X.toarray() > 0)]
    maps = [{number: number for number in range(size)} for size in X.shape]
    peer = models.EASE(lamb=300.0, posB=False, verbose=False)
    quietly(lambda: peer.fit(data.Dataset.build(rows, "UIR", *maps)))
    return X @ peer.B


def lenskit_ease(split: tl.Split) -> Any:
    knn, data = pytest.importorskip("lenskit.knn"), pytest.importorskip("lenskit.data")
    peer = knn.EASEScorer(regularization=300.0)
    dataset = data.from_interactions_df(frame(split))
    quietly(lambda: peer.train(dataset))
    found = np.argsort(np.asarray(dataset.items.ids()))
    return ones(split) @ np.asarray(peer.weights)[np.ix_(found, found)]


def rectools_ease(split: tl.Split) -> Any:
    models, data = pytest.importorskip("rectools.models"), pytest.importorskip("rectools.dataset")
    rows = frame(split).assign(weight=1, datetime="2020-01-01")
    dataset = data.Dataset.construct(rows)
    peer = quietly(lambda: models.EASEModel(regularization=300.0).fit(dataset))
    place = np.argsort(dataset.item_id_map.external_ids)
    return ones(split) @ peer.weight[np.ix_(place, place)]


def implicit_cosine(split: tl.Split) -> Any:
    nearest = pytest.importorskip("implicit.nearest_neighbours")
    peer = nearest.CosineRecommender(K=split.train.n_items, num_threads=1)
    peer.fit(ones(split), show_progress=False)
    similarity = peer.similarity.tolil()
    similarity.setdiag(0)
    return (ones(split) @ similarity.tocsr()).toarray()


def lenskit_neighbours(split: tl.Split) -> Any:
    knn, data = pytest.importorskip("lenskit.knn"), pytest.importorskip("lenskit.data")
    dataset = data.from_interactions_df(frame(split))
    peer = knn.ItemKNNScorer(max_nbrs=split.train.n_items, feedback="implicit", min_sim=1e-12)
    quietly(lambda: peer.train(dataset))
    place = np.argsort(np.asarray(dataset.items.ids()))
    similarity = peer.sim_matrix.to_scipy() if hasattr(peer.sim_matrix, "to_scipy") else peer.sim_matrix
    similarity = sparse.csr_array(similarity)[place][:, place]
    return (ones(split) @ similarity).toarray()


EASE, EDLAE = tl.EASE(regularization=300.0), tl.EDLAE(regularization=100.0, dropout=0.5)
KNN, SHRUNK = (tl.ItemKNN(neighbors=None, shrinkage=shrinkage) for shrinkage in (0.0, 20.0))
LINEAR: dict[str, tuple[Any, Scores]] = {
    "EASE, irspack DenseSLIM": (EASE, irspack_linear("DenseSLIMRecommender", reg=300.0)),
    "EASE, cornac EASE": (EASE, cornac_ease),
    "EASE, LensKit EASEScorer": (EASE, lenskit_ease),
    "EASE, RecTools EASEModel": (EASE, rectools_ease),
    "EDLAE, irspack EDLAE": (EDLAE, irspack_linear("EDLAERecommender", reg=100.0, dropout_p=0.5)),
    "ItemKNN, implicit Cosine": (KNN, implicit_cosine),
    "ItemKNN, LensKit ItemKNNScorer": (KNN, lenskit_neighbours),
    "ItemKNN, irspack CosineKNN": (
        SHRUNK,
        irspack_linear("CosineKNNRecommender", shrinkage=20.0, normalize=True, top_k=100_000, n_threads=1),
    ),
}


def compared(split: tl.Split, what: str, ours: Any, scores: Any, ranked: Any) -> tuple[float, float, float]:
    """The largest difference of scores in units of their deviation, the share of equal lists, that of NDCG@20."""
    users = np.arange(split.train.n_users, dtype=np.int32)
    scores, mine = np.asarray(scores, dtype=np.float32), ours.scorer.score_users(users)
    apart = float(np.abs(scores - mine).max() / mine.std())
    lists = [model.scorer.top_k(users, 20).items for model in (ours, ranked(split.train, scores))]
    same = float((lists[0] == lists[1]).all(axis=1).mean())
    figures = [
        tl.evaluate(model, split.test, ks=20, metrics="ndcg", notes=False)["ndcg@20"]
        for model in (ranked(split.train, scores), ours)
    ]
    row = (f"{figures[0]:.6f}", f"{figures[1]:.6f}", f"{apart:.1e}", f"{same:.2%}")
    print("\n|", " | ".join((f"{split.train.n_interactions:,}", what, *row)), "|")  # noqa: T201 - a row of the table
    return apart, same, abs(figures[0] - figures[1])


@pytest.mark.parametrize("what", LINEAR)
def test_linear_models(what: str, split: tl.Split, ranked: Any) -> None:
    model, peer = LINEAR[what]
    scores = peer(split)
    apart, same, gap = compared(split, what, tl.clone(model).fit(split.train), scores, ranked)
    assert apart < 1e-3
    assert same > 0.97
    assert gap < 2e-4


# One epoch of a peer from given tables of users and items, and the scores after it; an observed pair has confidence 5.
def irspack_epoch(split: tl.Split, U: Any, V: Any) -> Any:
    peers = pytest.importorskip("irspack")
    peer = peers.IALSRecommender(
        ones(split), U.shape[1], alpha0=0.3, reg=0.02, solver_type="CHOLESKY", n_threads=1
    )
    trainer = peer._create_trainer()
    trainer.core_trainer.user, trainer.core_trainer.item = U, V
    trainer.run_epoch()
    return trainer.core_trainer.user @ np.asarray(trainer.core_trainer.item).T


def implicit_epoch(split: tl.Split, U: Any, V: Any) -> Any:
    als = pytest.importorskip("implicit.cpu.als")
    peer = als.AlternatingLeastSquares(U.shape[1], regularization=50.0, alpha=5.0, iterations=1, use_cg=False)
    peer.user_factors, peer.item_factors = U, V
    peer.fit(ones(split).astype(np.float32), show_progress=False)
    return peer.user_factors @ peer.item_factors.T


def lenskit_epoch(split: tl.Split, U: Any, V: Any) -> Any:
    als, data = pytest.importorskip("lenskit.als"), pytest.importorskip("lenskit.data")
    options = pytest.importorskip("lenskit.training").TrainingOptions()
    dataset = data.from_interactions_df(frame(split))
    users, items = np.asarray(dataset.users.ids()), np.asarray(dataset.items.ids())
    peer = als.ImplicitMFScorer(embedding_size=U.shape[1], weight=4.0, regularization=50.0)
    trainer = peer.create_trainer(dataset, options)
    trainer.load_parameters({"user_embeddings": U[users], "item_embeddings": V[items]})
    trainer.train_epoch()
    scores = np.empty((len(users), len(items)), dtype=np.float32)
    scores[np.ix_(users, items)] = np.asarray(peer.user_embeddings) @ np.asarray(peer.item_embeddings).T
    return scores


SAME = {"unobserved_weight": 0.3, "regularization": 0.02}
FIVE = {"unobserved_weight": 1 / 4, "regularization": 50.0 / 5, "frequency_power": 0.0}
EPOCHS: dict[str, tuple[dict[str, float], float, Any]] = {
    "IALS, irspack IALS": (SAME, 1.0, irspack_epoch),
    "IALS, implicit ALS": (FIVE, 5 / 4, implicit_epoch),
    "IALS, LensKit ImplicitMF": (FIVE, 5 / 4, lenskit_epoch),
}


@pytest.mark.parametrize("what", EPOCHS)
def test_an_epoch_of_least_squares(what: str, split: tl.Split, ranked: Any) -> None:
    """From our tables after four epochs, at translated settings, it gives ours after five."""
    settings, times, epoch = EPOCHS[what]
    start, after = (
        tl.IALS(factors=32, solver="cholesky", relaxation=1.0, epochs=epochs, **settings).fit(split.train)
        for epochs in (4, 5)
    )
    tables = [np.float32(np.sqrt(times)) * table for table in (start.user_factors_, start.item_factors_)]
    scores = quietly(lambda: epoch(split, *tables)) / times
    apart, same, gap = compared(split, what, after, scores, ranked)
    assert apart < 1e-3
    assert same > 0.97
    assert gap < 2e-4
