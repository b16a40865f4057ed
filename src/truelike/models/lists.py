"""Lists of a fitted model: ids become row numbers, a `Scorer` finds the best items, and they become a frame of ids.

`Answers` has the methods of `Recommender` that answer. They ask `scorer` and `train_` alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, final, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse

from truelike.cluster import Cluster, as_cluster
from truelike.data.blocks.blocks import Blocks
from truelike.data.dataset import Dataset
from truelike.data.frames import library_of, to_native, to_series
from truelike.data.ids import Codes, Ids, normalise, one_or_many
from truelike.data.protocol import Rows
from truelike.data.seen import SeenBy, seen_of
from truelike.data.trends import check_times
from truelike.errors import DataWarning, ParameterError, some, warn
from truelike.models.availability import available_if
from truelike.models.exclusions import LeftOut, item_codes, split_exclude, union
from truelike.models.explain import explain, explanation
from truelike.models.histories import Histories, OnUnknown, codes_of, known_histories
from truelike.models.ruled import bound, top_k_by_rules
from truelike.models.scorer import DotProduct, Floats, Mask, Scorer
from truelike.ranking.factor_ranker import FactorRanker
from truelike.ranking.top_k import TopK, no_items, top_k_by_scores
from truelike.rules.arrange import BoundRules
from truelike.rules.rules import Rules

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Frame: TypeAlias = "pl.DataFrame | pd.DataFrame | pa.Table"  # of the library that the training data came in
OneOrMany = Hashable | Iterable[Hashable]  # ids
Exclude: TypeAlias = "OneOrMany | Mapping[Any, OneOrMany] | Dataset | Frame"  # for all, or the items of each user


class Answers(ABC):
    """What a fitted model answers. Methods take and return the caller's own ids."""

    scores_by_vectors: ClassVar[bool] = False  # whether the score is, or may be, a dot product

    if TYPE_CHECKING:  # a learned attribute

        @property
        def train_(self) -> Dataset:
            """The training data."""

    @property
    @abstractmethod
    def scorer(self) -> Scorer:
        """What the model answers in row numbers."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the model in tables."""

    @final
    def recommend(
        self,
        users: OneOrMany | None = None,
        k: int = 10,
        *,
        candidates: OneOrMany | None = None,
        exclude: Exclude | None = None,
        exclude_seen: SeenBy = True,
        rules: Rules | None = None,
        on_unknown: OnUnknown = "raise",
        titles: bool = False,
        n_jobs: int | None = -1,
    ) -> Frame:
        """Recommend the k best items for each user: a frame user_id, item_id, score, rank (from 1).

        Parameters
        ----------
        users
            One id or many; None: all users of the training data.
        k
            Number of items for each user. Fewer are returned if fewer are left.
        candidates
            Recommend only these items. Those that are not in the training data are skipped, with a warning.
        exclude
            Never recommend these items: one id or many, for all users. Or the items of each user: a mapping
            {user: items}, or a frame or a Dataset of (user, item) pairs. Ids that are not in the training data are
            skipped, with a warning.
        exclude_seen
            Leave out the items that the user has seen: those of interactions, or, if the training data has a schema of
            events, of the kinds that make an item seen there (dislikes, too). False: none. Or kinds of events, for
            ever; or a period such as "30d" or a timedelta in place of theirs; or one for each kind, e.g. ``{"buy":
            "30d", "dislike": True}``. "interactions" stands for the targets. Periods end at the latest time of the
            training data.
        rules
            Business rules: a filter on the items, boosts, pins, diversity, caps, a share of new items.
        on_unknown
            For a user who is not in the training data: "raise" an error, return the most "popular" items (their
            score is the share of users who interacted with them), those that are "trending" (the same share, of
            which users of long ago count less, as in `Trending`; the training data must have times), or "skip" the
            user.
        titles
            Add a column `title`.
        n_jobs
            Number of threads; -1: all cores. Never changes the result.
        """
        train = self.train_
        check(train, k, on_unknown, titles)
        asked = one_or_many(train.users if users is None else users)
        codes, ruled = codes_of(train.users, asked, on_unknown), bound(rules, train, k)
        for_all, own = split_exclude(train, exclude, asked)
        allowed = allowed_items(train, candidates, for_all, ruled)
        best = best_items(
            self.scorer, codes, k, seen=seen_of(train, exclude_seen), allowed=allowed, on_unknown=on_unknown,
            n_jobs=n_jobs, excluded=None if own is None else own.of(asked), rules=ruled,
        )  # fmt: skip
        found = frame_of({"user_id": echo(asked, train.users)}, best, train.items, titles=_titles(train, titles))
        return to_native(found, library_of(users) or train.library)

    @final
    def recommend_to(
        self,
        path: str | Path,
        users: OneOrMany | None = None,
        k: int = 10,
        *,
        candidates: OneOrMany | None = None,
        exclude: Exclude | None = None,
        exclude_seen: SeenBy = True,
        rules: Rules | None = None,
        on_unknown: OnUnknown = "raise",
        titles: bool = False,
        n_jobs: int | None = -1,
        block_size: int | None = None,
        progress: bool = True,
        cluster: str | Cluster | None = None,
    ) -> int:
        """Write the lists of `recommend` to a file, block by block, and return the number of rows.

        For many users: one block is in memory at a time. The file appears when it is complete. If the process is
        killed while it writes a Parquet file, the same call continues after the last block that was written, and
        the file is the same. The blocks are kept in a directory beside the file until then.

        Parameters
        ----------
        path
            A .parquet, .csv, .tsv or .jsonl file. UUIDs are written as text.
        users, k, candidates, exclude, exclude_seen, rules, on_unknown, titles, n_jobs
            As in `recommend`.
        block_size
            Number of users in a block; None: about 500,000 rows.
        progress
            Show progress: a bar in terminals and notebooks, lines of the logger "truelike" elsewhere.
        cluster
            Compute the blocks on a Ray cluster, as in `fit`; this process writes them. The file has the same bytes. For
            models whose score is a dot product.

        Examples
        --------
        >>> import tempfile, polars as pl, truelike as tl
        >>> model = tl.ItemPop().fit(tl.synthetic.World(n_users=50, n_items=40).dataset())
        >>> with tempfile.TemporaryDirectory() as place:
        ...     rows = model.recommend_to(place + "/lists.parquet", k=5)
        ...     pl.read_parquet(place + "/lists.parquet").equals(model.recommend(k=5)), rows
        (True, 250)
        """
        from truelike.models.batch import Lists, write_lists

        lists = Lists(
            self, users, k,
            candidates=candidates, exclude=exclude, exclude_seen=exclude_seen, rules=rules, on_unknown=on_unknown,
            titles=titles, n_jobs=n_jobs, block_size=block_size, cluster=as_cluster(cluster),
        )  # fmt: skip
        return write_lists(lists, path, progress=progress)

    @final
    def recommend_from_items(
        self,
        items: Histories,
        k: int = 10,
        *,
        candidates: OneOrMany | None = None,
        exclude: Exclude | None = None,
        exclude_seen: bool = True,
        rules: Rules | None = None,
        on_unknown: OnUnknown = "raise",
        titles: bool = False,
    ) -> Frame:
        """Recommend the k best items for new users, from the items that they interacted with.

        Parameters
        ----------
        items
            The history of one new user: a list of item ids. The result is a frame item_id, score, rank. Or the
            histories of many: a mapping from user to list of items, a list of lists (users 0, 1, ...), or a Dataset.
            The result then has a column user_id, too. Or a frame with a row for each interaction and columns item_id
            and, each optional, user_id (without it there is one new user), weight and time, named as `tl.read` knows
            them.

            Models that use weights and times use those of a Dataset or a frame: a history gets the list that a user of
            the training data with this history has. In lists an item has as weight how often it is listed, and no
            time: it is then as recent as an interaction of the training data is on average.
        k, candidates, exclude, exclude_seen, rules, titles
            As in `recommend`; "seen" is the history. The items of each user need the histories of many.
        on_unknown
            For an item of a history that is not in the training data: "raise" an error or "skip" it. With
            "popular" or "trending" it is skipped, and a history without a known item gets these items.

        Examples
        --------
        >>> import polars as pl, truelike as tl
        >>> rows = [("ann", "tea", 9), ("ann", "gin", 9), ("bob", "milk", 9), ("bob", "rum", 9)]
        >>> model = tl.ItemKNN(weighting="linear").fit(tl.read(rows, weight=2))
        >>> history = pl.DataFrame({"item_id": ["gin", "rum"], "weight": [1, 5]})
        >>> model.recommend_from_items(history)["item_id"].to_list()
        ['milk', 'tea']
        """
        train = self.train_
        check(train, k, on_unknown, titles, exclude_seen)
        known = known_histories(train.items, items, on_unknown)
        keys = known.keys
        for_all, own = split_exclude(train, exclude, keys["user_id"]) if keys else (exclude, None)
        ruled = bound(rules, train, k)
        allowed = allowed_items(train, candidates, for_all, ruled)
        best = best_of_histories(
            self.scorer, known.weights, known.times, k, exclude_seen=exclude_seen, allowed=allowed,
            on_unknown=on_unknown, excluded=None if own is None else own.of(keys["user_id"]), rules=ruled,
        )  # fmt: skip
        found = frame_of(keys, best, train.items, titles=_titles(train, titles))
        return to_native(found, library_of(items) or train.library)

    @final
    def similar_items(
        self,
        items: OneOrMany,
        k: int = 10,
        *,
        candidates: OneOrMany | None = None,
        exclude: OneOrMany | None = None,
        on_unknown: OnUnknown = "raise",
        titles: bool = False,
        n_jobs: int | None = -1,
    ) -> Frame:
        """Find the k items most similar to each of some: a frame item_id, similar_item_id, score, rank."""
        train = self.train_
        check(train, k, on_unknown, titles)
        asked = one_or_many(items)
        codes, allowed = codes_of(train.items, asked, on_unknown), allowed_items(train, candidates, exclude)
        known = self.scorer.similar(codes[codes >= 0], k, allowed=allowed, n_jobs=n_jobs)
        best = _with_popular(self.scorer, codes < 0, k, known, allowed, on_unknown)
        keys = {"item_id": echo(asked, train.items)}
        found = frame_of(keys, best, train.items, "similar_item_id", titles=_titles(train, titles))
        return to_native(found, library_of(items) or train.library)

    @final
    def explain(self, user: Hashable, items: OneOrMany, k: int = 10, *, titles: bool = False) -> Frame:
        """Explain the scores of some items by the interactions of a user.

        The result is a frame item_id, because_item_id, contribution, share, rank, method. It lists for each of
        `items` the k interactions of the user that contribute most to its score, the largest contribution first.

        The contributions of all interactions and a base add up to the score. The base is what does not depend on one
        interaction alone, such as the bias of the item. The share is the contribution, divided by the sum of the
        absolute contributions of all interactions of the user: absolute shares add up to 1, or are 0 if all
        contributions are.

        The method is "exact" where the score is a sum over the interactions: `ItemPop` (all is base), `ItemKNN`,
        `EASE`, `EDLAE`, `IALS`, and a `Blend` of two of them. For other models it is "leave_one_out": the score for a
        new user with these interactions, less the score for one without the interaction. Only the 100 interactions
        that are most similar to the item are left out; the others have the contribution 0.

        Parameters
        ----------
        user
            The id of a user. Without interactions the frame is empty.
        items
            One id or many.
        k
            Number of interactions for each item. Fewer are returned if there are fewer.
        titles
            Add the columns `title` and `because_title`.

        Examples
        --------
        >>> import truelike as tl
        >>> data = tl.read([("ann", "tea"), ("ann", "milk"), ("bob", "tea"), ("bob", "milk"), ("eve", "tea")])
        >>> model = tl.EASE(regularization=1.0).fit(data)
        >>> model.explain("eve", "milk").select("item_id", "because_item_id", "share", "method").rows()
        [('milk', 'tea', 1.0, 'exact')]
        """
        check(self.train_, k, "raise", titles)
        codes = self.train_.users.known(user)
        if len(codes) != 1:
            raise ParameterError(f"explain takes one user: {len(codes):,} were given. Call it for each of them.")
        history = self.scorer.counted(*self.train_.history_of(int(codes[0])))
        return self._explanation(history, items, int(codes[0]), k, titles)

    @final
    def explain_from_items(
        self,
        history: OneOrMany | Dataset,
        items: OneOrMany,
        k: int = 10,
        *,
        titles: bool = False,
        on_unknown: Literal["raise", "skip"] = "raise",
    ) -> Frame:
        """Explain the scores of some items for a new user, by the items that the user interacted with.

        The result is that of `explain`; the scores are those of `recommend_from_items`.

        Parameters
        ----------
        history
            The items that the new user interacted with, as in `recommend_from_items`: one id or many, or a frame or a
            Dataset of one user, which may have weights and times.
        items, k, titles
            As in `explain`.
        on_unknown
            For an item of the history that is not in the training data: "raise" an error or "skip" it.
        """
        check(self.train_, k, on_unknown, titles)
        if on_unknown not in ("raise", "skip"):
            raise ParameterError(f'on_unknown is {on_unknown!r}; for explanations it must be "raise" or "skip"')
        if isinstance(history, Mapping):
            raise ParameterError(
                f"explain_from_items takes the history of one user, a list of items; a {type(history).__name__} was "
                "given"
            )
        found = known_histories(self.train_.items, history, on_unknown)
        if found.weights.shape[0] != 1:
            raise ParameterError(
                f"explain_from_items takes the history of one user; {found.weights.shape[0]:,} users were given"
            )
        return self._explanation(self.scorer.counted(found.weights, found.times), items, None, k, titles)

    def _explanation(
        self, history: sparse.csr_array, items: OneOrMany, user: int | None, k: int, titles: bool
    ) -> Frame:
        train, asked = self.train_, self.train_.items.known(items)
        found = explanation(train, explain(self.scorer, history, asked, user), history.indices, asked, k, titles)
        return to_native(found, library_of(items) or train.library)

    @final
    def score(self, users: OneOrMany, items: OneOrMany) -> Floats:
        """The score of each pair (users[n], items[n]); one user or one item is paired with all of the other."""
        return self.scorer.score_pairs(*pair_codes(self.train_, users, items, "score"))

    @final
    @available_if(lambda model: model._has_vectors())
    def user_vectors(self) -> Frame:
        """The vectors of all users: a frame user_id, vector.

        The score of a pair is the dot product of the vectors of user and item, plus the item's bias.
        """
        return self._vector_frame("user_id", self.train_.users, self._vectors().users, None)

    @final
    @available_if(lambda model: model._has_vectors())
    def item_vectors(self) -> Frame:
        """The vectors of all items: a frame item_id, vector, and bias if the score has one."""
        return self._vector_frame("item_id", self.train_.items, self._vectors().items, self._vectors().bias)

    @final
    @available_if(lambda model: model._has_vectors())
    def export_vectors(
        self,
        path: str | Path,
        *,
        what: Literal["items", "users"] = "items",
        metric: Literal["dot", "cosine"] = "dot",
    ) -> None:
        """Write vectors for a vector database: a Parquet file item_id, vector (float32), and title if there are any.

        Unlike `item_vectors`, the vectors alone give the ranking: a bias is a dimension of them.

        Parameters
        ----------
        path
            A .parquet file. UUIDs are written as text.
        what
            "items", to be stored, or "users", to search with: user_id, vector.
        metric
            How the database compares. "dot", inner product: the inner product of a user's and an item's vector is the
            score. If the model has item biases, the last dimension of an item is its bias, and that of a user is 1.
            "cosine", cosine similarity or Euclidean distance: all vectors have length 1, and one more dimension, which
            makes the ranking that of the score.

        Notes
        -----
        The metadata of the file has the key `truelike`, a JSON object: model, what, metric, factors, bias, dimensions,
        and for "cosine" the length that the items were divided by.

        Examples
        --------
        >>> import tempfile, polars as pl, truelike as tl
        >>> model = tl.IALS(factors=8, epochs=2).fit(tl.synthetic.World(n_users=50, n_items=40).dataset())
        >>> with tempfile.TemporaryDirectory() as place:
        ...     model.export_vectors(place + "/items.parquet")
        ...     dict(pl.read_parquet(place + "/items.parquet").schema)
        {'item_id': Int64, 'vector': Array(Float32, shape=(8,)), 'title': String}
        """
        from truelike.models.vectors import write_vectors

        write_vectors(self.train_, self._vectors(), path, what, metric, model=self._written().name)

    @abstractmethod
    def _written(self) -> Answers:
        """The model that is saved in place of this one."""

    def _has_vectors(self) -> bool:
        """Whether the score is a dot product, as far as it is known before fitting."""
        return self.scorer.vectors is not None if hasattr(self, "scorer") else self.scores_by_vectors

    def _vectors(self) -> DotProduct:
        found = self.scorer.vectors
        assert found is not None
        return found

    def _vector_frame(self, column: str, ids: Ids, vectors: Floats, bias: Floats | None) -> Frame:
        columns = [
            ids.take(np.arange(len(ids), dtype=np.int32)).alias(column),
            pl.Series("vector", np.ascontiguousarray(vectors), dtype=pl.Array(pl.Float32, vectors.shape[1])),
        ]
        if bias is not None:
            columns.append(pl.Series("bias", bias))
        return to_native(pl.DataFrame(columns), self.train_.library)


def check(
    train: Dataset | Blocks, k: int, on_unknown: str, titles: bool = False, exclude_seen: bool = True
) -> None:
    """Raise if the arguments of a list are wrong."""
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
        raise ParameterError(f"k is {some([repr(k)])}; it must be a whole number, at least 1")
    if not isinstance(on_unknown, str) or on_unknown not in get_args(OnUnknown):
        found = some([repr(on_unknown)])
        raise ParameterError(f'on_unknown is {found}; it must be "raise", "popular", "trending" or "skip"')
    if on_unknown == "trending":
        check_times(train.carries)
    for name, value in (("titles", titles), ("exclude_seen", exclude_seen)):
        if not isinstance(value, (bool, np.bool_)):
            raise ParameterError(f"{name} is {some([repr(value)])}; it must be True or False")
    if titles and train.titles is None:
        raise ParameterError(
            "the training data has no titles: give them with tl.read(..., titles=...) or model.set_titles(...)"
        )


def pair_codes(train: Dataset | Blocks, users: OneOrMany, items: OneOrMany, asking: str) -> tuple[Codes, Codes]:
    """The row numbers of pairs; one user or one item is paired with all of the other."""
    user_codes, item_codes = train.users.known(users), train.items.known(items)
    try:
        user_codes, item_codes = np.broadcast_arrays(user_codes, item_codes)
    except ValueError:
        raise ParameterError(
            f"{asking} takes pairs: {len(user_codes)} users and {len(item_codes)} items were given"
        ) from None
    return user_codes, item_codes


def allowed_items(
    train: Dataset | Blocks,
    candidates: OneOrMany | None,
    exclude: OneOrMany | None,
    rules: BoundRules | None = None,
) -> Mask | None:
    """A mask of the items that may be returned; None: all. Unknown items are skipped and counted."""
    allowed = _allowed_by_name(train, candidates, exclude)
    if rules is None:
        return allowed
    if rules.fitting is not None and allowed is not None and not (rules.fitting & allowed).any() and allowed.any():
        warn("rules: no item that may be listed fits the filter", DataWarning)
    return rules.allow(allowed)


def _allowed_by_name(
    train: Dataset | Blocks, candidates: OneOrMany | None, exclude: OneOrMany | None
) -> Mask | None:
    if candidates is None and exclude is None:
        return None
    allowed = np.full(train.n_items, candidates is None)
    if candidates is not None:
        allowed[item_codes(train, candidates, "candidates")] = True
    if exclude is not None:
        allowed[item_codes(train, exclude, "exclude")] = False
    return allowed


def best_items(
    scorer: Scorer,
    codes: Codes,
    k: int,
    *,
    seen: Rows | None,
    allowed: Mask | None,
    on_unknown: OnUnknown,
    n_jobs: int | None,
    ranker: FactorRanker | None = None,
    ranked: TopK | None = None,
    excluded: sparse.csr_array | None = None,
    rules: BoundRules | None = None,
) -> TopK:
    """The lists of users by their row numbers, where -1 is a user who is not known.

    `seen` is what is left out of them; None: nothing. `ranked` are the lists of the others, where they are computed
    already. `ranker` is as in `Scorer.top_k`. `excluded` has the items that are left out for each user beside `seen`.
    """
    if ranked is None:
        known = codes[codes >= 0]
        left_out = seen if excluded is None else LeftOut(seen, known, excluded[codes >= 0])
        if rules is None or not rules.arranges:
            ranked = scorer.top_k(
                known, k, exclude_seen=left_out is not None, seen=left_out, allowed=allowed, n_jobs=n_jobs,
                ranker=ranker,
            )  # fmt: skip
        else:
            ranked = top_k_by_rules(
                rules, scorer, _scores_of(scorer, known, ranker), len(known), k,
                left_out=None if left_out is None else left_out.rows(known),
                allowed=allowed, n_jobs=n_jobs,
            )  # fmt: skip
    return _with_popular(scorer, codes < 0, k, ranked, allowed, on_unknown, excluded, rules)


def _scores_of(scorer: Scorer, users: Codes, ranker: FactorRanker | None) -> Callable[[slice], Floats]:
    """A function that gives the scores of all items for a part of some users."""
    vectors, used = scorer.vectors, ranker or scorer.ranker()
    if vectors is None or used is None:
        return lambda block: scorer.score_users(users[block])
    return lambda block: used.scores(vectors.users[users[block]])


def best_of_histories(
    scorer: Scorer,
    weights: sparse.csr_array,
    times: NDArray[np.int64] | None,
    k: int,
    *,
    exclude_seen: bool,
    allowed: Mask | None,
    on_unknown: OnUnknown,
    excluded: sparse.csr_array | None = None,
    rules: BoundRules | None = None,
) -> TopK:
    """The lists of new users, each of whom is a row of a CSR of weights; those without one are not known."""
    empty = np.diff(weights.indptr) == 0
    given, seen = weights[~empty], None
    if excluded is not None:
        seen = union(given, excluded[~empty]) if exclude_seen else excluded[~empty]
    if rules is None or not rules.arranges:
        left_out = exclude_seen or seen is not None
        known = scorer.top_k_of_histories(given, k, times=times, exclude_seen=left_out, seen=seen, allowed=allowed)
    else:
        out, counted = given if seen is None else seen, scorer.counted(given, times)
        rows = np.arange(given.shape[0], dtype=np.int32)
        known = top_k_by_rules(
            rules, scorer, lambda block: scorer.score_histories(counted[block]), len(rows), k,
            left_out=(out, rows) if exclude_seen or seen is not None else None, allowed=allowed, n_jobs=1,
        )  # fmt: skip
    return _with_popular(scorer, empty, k, known, allowed, on_unknown, excluded, rules)


def _with_popular(
    scorer: Scorer,
    unknown: NDArray[np.bool_],
    k: int,
    ranked: TopK,
    allowed: Mask | None,
    on_unknown: OnUnknown,
    excluded: sparse.csr_array | None = None,
    rules: BoundRules | None = None,
) -> TopK:
    """Lists of those who are known, and for the others popular or trending items, if they are asked for, or none."""
    if not unknown.any():
        return ranked
    best = no_items(len(unknown), min(k, scorer.train.n_items))
    best.items[~unknown], best.scores[~unknown] = ranked
    if on_unknown in ("popular", "trending"):
        counts = scorer.trending if on_unknown == "trending" else scorer.train.popularity()
        own = None if excluded is None else excluded[unknown]
        best.items[unknown], best.scores[unknown] = popular_items(scorer, counts, k, allowed, own, rules)
    return best


def popular_items(
    scorer: Scorer,
    counts: NDArray[np.number],
    k: int,
    allowed: Mask | None,
    excluded: sparse.csr_array | None = None,
    rules: BoundRules | None = None,
) -> TopK:
    """The items with the most users, by a count of them, and the share of users who interacted with them.

    There is a list for each row of `excluded`, the items that are left out; without it, one list for all.
    """
    train = scorer.train
    share = (counts / train.n_users).astype(np.float32)
    rows = np.arange(1 if excluded is None else excluded.shape[0], dtype=np.int32)
    if rules is not None and rules.arranges:
        return top_k_by_rules(
            rules, scorer, lambda block: np.tile(share, (len(rows[block]), 1)), len(rows), k,
            left_out=None if excluded is None else (excluded, rows), allowed=allowed, n_jobs=1,
        )  # fmt: skip
    return top_k_by_scores(
        lambda block: np.tile(share, (len(block), 1)), rows, k,
        n_items=train.n_items, seen=excluded, allowed=allowed, ties=scorer.ties, n_jobs=1,
    )  # fmt: skip


def frame_of(
    keys: Mapping[str, pl.Series],
    best: TopK,
    ids: Ids,
    column: str = "item_id",
    *,
    titles: pl.Series | None = None,
) -> pl.DataFrame:
    """A frame with one row for each filled place of each list."""
    row, rank = np.nonzero(best.items >= 0)
    codes = best.items[row, rank]
    columns = [series.gather(row).alias(name) for name, series in keys.items()]
    columns += [
        ids.take(codes).alias(column),
        pl.Series("score", best.scores[row, rank]),
        pl.Series("rank", rank + 1, dtype=pl.Int32),
    ]
    if titles is not None:
        columns.append(titles.gather(codes).alias("title"))
    return pl.DataFrame(columns)


def echo(asked: Iterable[Hashable], known: Ids) -> pl.Series:
    """The ids that were asked for, in the type of the training data if possible."""
    codes = known.codes(asked)
    if (codes >= 0).all():
        return known.take(codes)
    if known.kind == "uuid":
        return pl.Series(list(asked), dtype=pl.Object)
    series, _ = normalise(to_series(asked), known.what)
    typed = series.cast(known.dtype, strict=False)
    same = (typed.cast(pl.String) == series.cast(pl.String)).fill_null(False)
    return typed if same.all() else series.cast(pl.String)


def _titles(train: Dataset | Blocks, wanted: bool) -> pl.Series | None:
    return train.titles if wanted else None
