"""An approximate index of the items, for catalogues that are too large to score whole at each request.

It is an IVF-Flat index of faiss: items are grouped by k-means, and a request looks into the groups nearest to the user.
Graph indexes lose most of their recall on inner products of vectors that are not normalised. A bias is one more
dimension. How many groups are looked into is decided by the recall that is measured against exact lists.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truelike.data.ids import Codes
from truelike.errors import MissingExtraError
from truelike.ranking.factor_ranker import FactorRanker

Floats = NDArray[np.float32]

K = 20  # recall is that of the best 20
SAMPLE = 200  # users for whom recall is measured
POINTS_PER_GROUP = 50  # items that k-means is trained on
MARGIN = 0.01  # recall above the floor that is aimed at: other users are not those of the sample


def require_faiss() -> Any:
    """The library faiss; an error that says how to install it."""
    try:
        import faiss
    except ImportError as error:
        raise MissingExtraError('an approximate index needs faiss: pip install "truelike[ann]"') from error
    return faiss


class ApproximateIndex:
    """The items nearest to a user by inner product, found without scoring all of them.

    Several threads may use one index. `probes` is the number of groups that are looked into; if the index is `biased`,
    the last dimension is the bias.
    """

    def __init__(self, index: Any, probes: int, *, biased: bool) -> None:
        self._faiss = require_faiss()
        self._faiss.omp_set_num_threads(1)  # a request has one core; the cores are shared by requests
        self.index, self.probes, self.biased = index, probes, biased

    @classmethod
    def build(cls, item_factors: Floats, item_bias: Floats | None, *, seed: int = 0) -> ApproximateIndex:
        """Group the items. It takes about a minute for a million."""
        faiss = require_faiss()
        vectors = _with_bias(item_factors, item_bias)
        groups = max(1, int(2 * np.sqrt(len(vectors))))
        quantizer = faiss.IndexFlatIP(vectors.shape[1])
        index = faiss.IndexIVFFlat(quantizer, vectors.shape[1], groups, faiss.METRIC_INNER_PRODUCT)
        index.cp.seed = 1 + seed
        index.cp.niter = 10
        index.cp.spherical = False
        rows = np.random.default_rng(seed).permutation(len(vectors))[: POINTS_PER_GROUP * groups]
        index.train(np.ascontiguousarray(vectors[rows]))
        index.add(vectors)
        return cls(index, 1, biased=item_bias is not None)

    def write(self, path: Path) -> None:
        """Write the index in the format of faiss."""
        self._faiss.write_index(self.index, str(path))

    @classmethod
    def read(cls, path: Path, probes: int, *, biased: bool) -> ApproximateIndex:
        """Map an index into memory."""
        faiss = require_faiss()
        index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP)
        # 32 threads at each search otherwise, which take longer than the search
        faiss.downcast_InvertedLists(index.invlists).prefetch_nthread = 0
        return cls(index, probes, biased=biased)

    def nearest(self, vector: Floats, n: int, allowed: NDArray[np.bool_] | None = None) -> Codes:
        """The row numbers of about the n items with the highest scores, among the allowed ones."""
        faiss, parameters = self._faiss, {"nprobe": self.probes}
        if allowed is not None:
            bits = np.packbits(allowed, bitorder="little")
            parameters["sel"] = faiss.IDSelectorBitmap(bits)
        query = np.append(vector, np.float32(1.0))[None] if self.biased else vector[None]
        query = np.ascontiguousarray(query, dtype=np.float32)
        _, found = self.index.search(query, n, params=faiss.SearchParametersIVF(**parameters))
        rows: Codes = found[0][found[0] >= 0].astype(np.int32)
        return rows

    def tune(self, users: Floats, ranker: FactorRanker, floor: float) -> dict[str, float]:
        """Find the number of groups to look into for a recall above `floor`, and measure it on other users."""
        half, groups = len(users) // 2, self.index.nlist
        exact, exact_milliseconds = _exact(users, ranker)
        self.probes = max(1, groups // 256)
        while self.probes < groups and self._recall(users[:half], exact[:half])[0] < min(floor + MARGIN, 1.0):
            self.probes = min(groups, max(self.probes + 1, self.probes * 5 // 4))
        recall, milliseconds = self._recall(users[half:], exact[half:])
        return {
            "recall_at_20": round(recall, 4),
            "index_milliseconds": milliseconds,
            "exact_milliseconds": exact_milliseconds,
            "probes": self.probes,
            "groups": groups,
        }

    def _recall(self, users: Floats, exact: list[set[int]]) -> tuple[float, float]:
        started = time.perf_counter()
        found = [set(self.nearest(user, K).tolist()) for user in users]
        milliseconds = 1_000 * (time.perf_counter() - started) / max(1, len(users))
        shares = [len(mine & best) / max(1, len(best)) for mine, best in zip(found, exact, strict=True)]
        return float(np.mean(shares)), milliseconds


def _exact(users: Floats, ranker: FactorRanker) -> tuple[list[set[int]], float]:
    """The best items of some users, and the milliseconds that they take for one."""
    ranker.top_k(users[:1], K)  # compiles
    started = time.perf_counter()
    lists = [set(ranker.top_k(user[None], K).items[0].tolist()) for user in users]
    return lists, 1_000 * (time.perf_counter() - started) / max(1, len(users))


def _with_bias(factors: Floats, bias: Floats | None) -> Floats:
    parts = [factors] if bias is None else [factors, bias[:, None]]
    return np.ascontiguousarray(np.concatenate(parts, axis=1), dtype=np.float32)
