"""Compiled loops of ranking. numba compiles them at the first call and caches them on disk."""

from __future__ import annotations

import numpy as np

from truelike.core.compile_cache import cached_njit

TILE = 1024  # items whose scores fit in the first-level cache
_FUSE = {"contract"}  # a * b + c may be one instruction; the order of a sum may not change


@cached_njit(nogil=True)
def mask_seen(scores, users, indptr, indices):
    """Set the scores of seen items to -inf."""
    for row in range(len(users)):
        user = users[row]
        for entry in range(indptr[user], indptr[user + 1]):
            scores[row, indices[entry]] = -np.inf


@cached_njit(nogil=True, inline="always")
def _insert(score, item, items, scores, ties):
    """Insert an item into a list sorted by score, and by `ties` among items with an equal score."""
    at = len(scores) - 1
    while at > 0 and (
        scores[at - 1] < score
        or (scores[at - 1] == score and items[at - 1] >= 0 and ties[items[at - 1]] > ties[item])
    ):
        scores[at] = scores[at - 1]
        items[at] = items[at - 1]
        at -= 1
    scores[at] = score
    items[at] = item


@cached_njit(nogil=True)
def _insert_best(candidates, first, items, scores, ties):
    """Insert the best of consecutive items, the first of which has the row number `first`, into a sorted list.

    Of equal scores, the item with the smaller number in `ties` is the better one.
    """
    last = len(scores) - 1
    worst = scores[last]
    for i in range(len(candidates)):
        score = candidates[i]
        # a place that is not filled has the score -inf, which no item gets
        if score >= worst and (score > worst or (items[last] >= 0 and ties[first + i] < ties[items[last]])):
            _insert(score, first + i, items, scores, ties)
            worst = scores[last]


@cached_njit(nogil=True)
def select_rows(scores, ties, items_out, scores_out):
    """Select the best items of each row of scores. The outputs must be filled with -1 and -inf."""
    for row in range(scores.shape[0]):
        _insert_best(scores[row], 0, items_out[row], scores_out[row], ties)


@cached_njit(nogil=True, fastmath=_FUSE)
def _score_tile(a, b, by_factor, start, out_a, out_b):
    """Add the products of two users with a tile of items, four factors at a time and in order."""
    n = len(out_a)
    for f in range(0, len(a), 4):
        a0, a1, a2, a3 = a[f], a[f + 1], a[f + 2], a[f + 3]
        b0, b1, b2, b3 = b[f], b[f + 1], b[f + 2], b[f + 3]
        v0 = by_factor[f, start : start + n]
        v1 = by_factor[f + 1, start : start + n]
        v2 = by_factor[f + 2, start : start + n]
        v3 = by_factor[f + 3, start : start + n]
        for i in range(n):
            out_a[i] = out_a[i] + a0 * v0[i] + a1 * v1[i] + a2 * v2[i] + a3 * v3[i]
            out_b[i] = out_b[i] + b0 * v0[i] + b1 * v1[i] + b2 * v2[i] + b3 * v3[i]


@cached_njit(nogil=True, fastmath=_FUSE)
def _score_tile_of_one(a, by_factor, start, out):
    """Add the products of one user with a tile of items: the same sums as `_score_tile`."""
    n = len(out)
    for f in range(0, len(a), 4):
        a0, a1, a2, a3 = a[f], a[f + 1], a[f + 2], a[f + 3]
        v0 = by_factor[f, start : start + n]
        v1 = by_factor[f + 1, start : start + n]
        v2 = by_factor[f + 2, start : start + n]
        v3 = by_factor[f + 3, start : start + n]
        for i in range(n):
            out[i] = out[i] + a0 * v0[i] + a1 * v1[i] + a2 * v2[i] + a3 * v3[i]


@cached_njit(nogil=True)
def factor_scores(vectors, by_factor, bias, out):
    """Compute all scores of a block of users, with the same sums as `factor_top_k`."""
    n_users, n_items = len(vectors), by_factor.shape[1]
    for start in range(0, n_items, TILE):
        n = min(TILE, n_items - start)
        for row in range(0, n_users, 2):
            out_a = out[row, start : start + n]
            out_a[:] = bias[start : start + n]
            if row + 1 == n_users:
                _score_tile_of_one(vectors[row], by_factor, start, out_a)
                continue
            out_b = out[row + 1, start : start + n]
            out_b[:] = bias[start : start + n]
            _score_tile(vectors[row], vectors[row + 1], by_factor, start, out_a, out_b)


@cached_njit(nogil=True, fastmath=_FUSE)
def factor_pairs(users, items, out):
    """Add to out[n] the dot product of two rows, factor by factor: the same sums as `factor_scores`."""
    for n in range(len(out)):
        total = out[n]
        for f in range(users.shape[1]):
            total = total + users[n, f] * items[n, f]
        out[n] = total


@cached_njit(nogil=True)
def factor_top_k(vectors, by_factor, bias, ties, users, indptr, indices, items_out, scores_out):
    """Score a tile of items for two users at a time and keep the best items that are not seen."""
    n_users, n_items = len(vectors), by_factor.shape[1]
    tiles = np.empty((2, TILE), dtype=np.float32)
    cursor = np.empty(n_users, dtype=np.int64)  # the next seen item of each user
    for row in range(n_users):
        cursor[row] = indptr[users[row]]
    for start in range(0, n_items, TILE):
        n = min(TILE, n_items - start)
        for row in range(0, n_users, 2):
            pair = min(row + 1, n_users - 1)
            tiles[0, :n] = bias[start : start + n]
            if pair == row:
                _score_tile_of_one(vectors[row], by_factor, start, tiles[0, :n])
            else:
                tiles[1, :n] = bias[start : start + n]
                _score_tile(vectors[row], vectors[pair], by_factor, start, tiles[0, :n], tiles[1, :n])
            for which in range(1 + pair - row):
                at = row + which
                end = indptr[users[at] + 1]
                while cursor[at] < end and indices[cursor[at]] < start + n:
                    tiles[which, indices[cursor[at]] - start] = -np.inf
                    cursor[at] += 1
                _insert_best(tiles[which, :n], start, items_out[at], scores_out[at], ties)
