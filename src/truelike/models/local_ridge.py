"""Weights of EASE for catalogues that are too large for a dense inverse: ridge regressions on neighbors.

Column j of EASE's weights is the ridge regression of item j on all other items. Here it is that on its `neighbors` most
helpful ones, solved exactly. Item i is helpful for j by how much it alone would reduce the squared error:
G_ij^2 / (G_ii + ridge_i), with G = X'X.

With v_j the error that is left, -b_i / v_j estimates the entry P_ij of the symmetric inverse P = (G + ridge)^-1. The
regression of i on its own neighbors estimates it, too. The mean of both is taken, or the one that there is, and
B_ij = -P_ij v_j. Only positive weights are kept: without the many small ones, the negative ones rank worse.

Similar approximations are those of Steck ("Markov random fields for collaborative filtering", NeurIPS 2019), whose
blocks of items share an inverse, and SANSA (Spisak et al., RecSys 2023), which inverts a sparse Cholesky factor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from truelike.core.compile_cache import cached_njit
from truelike.core.parallel import for_each
from truelike.core.sorting import first_at_least, kth_smallest, sort
from truelike.models.kernels import Floats, Ints

ROWS = 256  # items that are computed together
BYTES_PER_PAIR = 8  # of items with a common user
BYTES_PER_WEIGHTED_PAIR = 12
LEAST = np.finfo(np.float32).tiny
BYTES_PER_WEIGHT = 48  # the regressions, those transposed, and twice as many weights by row and by column

Arrays = tuple[Ints, ...]
Numbers = NDArray[np.int32] | NDArray[np.float64]
Values = Any  # of X at the entries: float64, or None where they are ones


def local_weights(
    by_user: sparse.csr_array,
    ridge: NDArray[np.float64],
    neighbors: int,
    n_jobs: int | None,
    check: Callable[[int], None] = lambda needed: None,
    counts: Floats | None = None,
) -> sparse.csr_array:
    """The weights B as a CSR of float32: the scores of a user with interactions X_u are X_u B.

    `by_user` is a CSR of users x items, and `counts` are the values of X at its entries; None: ones. `ridge` is added
    to the diagonal of X'X. Each item is regressed on `neighbors` items at most, which share a user with it. `check` is
    called with the bytes that are needed, before they are allocated. If a Gram matrix is not positive definite in
    float64, LinAlgError is raised.

    >>> X = sparse.csr_array(np.array([[1, 1, 0], [1, 1, 1], [1, 0, 1]], dtype=np.float32))
    >>> local_weights(X, np.ones(3), neighbors=1, n_jobs=1).toarray().round(2)
    array([[0.  , 0.5 , 0.5 ],
           [0.67, 0.  , 0.  ],
           [0.67, 0.  , 0.  ]], dtype=float32)
    """
    regressions, errors = local_regressions(by_user, ridge, neighbors, n_jobs, check, counts)
    return _symmetric(regressions, errors, n_jobs)


def local_regressions(
    by_user: sparse.csr_array,
    ridge: NDArray[np.float64],
    neighbors: int,
    n_jobs: int | None,
    check: Callable[[int], None] = lambda needed: None,
    counts: Floats | None = None,
) -> tuple[sparse.csr_array, NDArray[np.float64]]:
    """The regressions as a CSR: row j has the coefficients b of item j on its neighbors. And the errors v_j."""
    # The most popular item is number 0. The pairs of an item are those with more popular ones: short lists.
    order = np.argsort(-np.bincount(by_user.indices, minlength=by_user.shape[1]), kind="stable")
    n_items = len(order)
    interactions, values, squares = _renumbered(by_user, order, counts)
    per_pair = BYTES_PER_PAIR if counts is None else BYTES_PER_WEIGHTED_PAIR

    def check_pairs(n: int) -> None:
        check(per_pair * n + BYTES_PER_WEIGHT * min(neighbors * n_items, 2 * n))

    pairs = _common_users(interactions, values, n_jobs, check_pairs)
    errors, ridges = np.empty(n_items), np.asarray(ridge, dtype=np.float64)[order]

    def rows(start: int) -> tuple[bool, tuple[Floats, Ints, Ints]]:
        n = min(ROWS, n_items - start)
        items = np.empty((n, min(neighbors, n_items)), dtype=np.int32)
        weights = np.empty(items.shape, dtype=np.float32)
        found = np.zeros(n, dtype=np.int64)
        given = (*interactions, *values, squares, *pairs, ridges)
        solved = regress(start, *given, items, weights, found, errors[start : start + ROWS])
        filled = np.arange(items.shape[1]) < found[:, None]
        return bool(solved), (weights[filled], items[filled], found)

    blocks = for_each(rows, range(0, n_items, ROWS), n_jobs)
    if not all(solved for solved, _ in blocks):
        raise np.linalg.LinAlgError("a Gram matrix is not positive definite")
    weights, items, found = (np.concatenate(part) for part in zip(*(part for _, part in blocks), strict=True))
    parts = (weights, order.astype(np.int32)[items], np.concatenate([[0], np.cumsum(found)]))
    place = np.argsort(order)
    by_item = sparse.csr_array(sparse.csr_array(parts, shape=(n_items, n_items))[place])
    by_item.sort_indices()
    return by_item, errors[place]


def _renumbered(
    by_user: sparse.csr_array, order: NDArray[np.int64], counts: Floats | None
) -> tuple[Arrays, tuple[Values, Values], NDArray[np.float64]]:
    """The items of each user and the users of each item, with the items numbered by their place in the order.

    Then the values of X at both, None where they are ones, and the diagonal of X'X.
    """
    number = np.argsort(order).astype(np.int32)
    # a product must not be 0: it would be taken for a pair without a common user
    data = np.ones(by_user.nnz, dtype=np.int8) if counts is None else np.maximum(counts, LEAST).astype(np.float64)
    users = sparse.csr_array((data, number[by_user.indices], by_user.indptr), shape=by_user.shape)
    users.sort_indices()
    items = sparse.csc_array(users)
    places = users.indptr, users.indices, items.indptr, items.indices
    if counts is None:
        return places, (None, None), np.diff(items.indptr).astype(np.float64)
    squares = np.bincount(users.indices, users.data**2, users.shape[1]).astype(np.float64)
    return places, (users.data, items.data), squares


def _common_users(
    interactions: Arrays, values: tuple[Values, Values], n_jobs: int | None, check: Callable[[int], None]
) -> tuple[NDArray[Any], ...]:
    """The lower triangle of X'X without its diagonal, as a CSR: indptr, items and numbers of common users."""
    n_items = len(interactions[2]) - 1
    indptr = _counted(lambda start, counts: count_pairs(start, *interactions, counts), n_items, n_jobs)
    check(int(indptr[-1]))
    kind = np.int32 if values[0] is None else np.float64
    items, common = np.empty(indptr[-1], dtype=np.int32), np.empty(indptr[-1], dtype=kind)

    def fill(start: int) -> None:
        fill_pairs(start, min(start + ROWS, n_items), *interactions, *values, indptr, items, common)

    for_each(fill, range(0, n_items, ROWS), n_jobs)
    return indptr, items, common


def _counted(
    count: Callable[[int, NDArray[np.int64]], None], n_items: int, n_jobs: int | None
) -> NDArray[np.int64]:
    """The indptr of a CSR whose rows are counted some at a time."""
    indptr = np.zeros(n_items + 1, dtype=np.int64)
    for_each(lambda start: count(start, indptr[start + 1 : start + 1 + ROWS]), range(0, n_items, ROWS), n_jobs)
    return np.cumsum(indptr)


def _symmetric(regressions: sparse.csr_array, errors: NDArray[np.float64], n_jobs: int | None) -> sparse.csr_array:
    """The positive weights by the mean of both estimates of P, as a CSR: rows are the items of a history."""
    n_items, other = len(errors), sparse.csr_array(regressions.T)
    estimates = [array for each in (regressions, other) for array in (each.indptr, each.indices, each.data)]
    none = (np.empty(0, dtype=np.int32), np.empty(0, dtype=np.float32))
    indptr = _counted(lambda start, counts: merge(start, *estimates, errors, counts, True, *none), n_items, n_jobs)
    items, weights = np.empty(indptr[-1], dtype=np.int32), np.empty(indptr[-1], dtype=np.float32)

    def fill(start: int) -> None:
        places = indptr[start : min(start + ROWS, n_items)].copy()
        merge(start, *estimates, errors, places, False, items, weights)

    for_each(fill, range(0, n_items, ROWS), n_jobs)
    return sparse.csr_array((weights, items, indptr), shape=(n_items, n_items))


@cached_njit(nogil=True)
def count_pairs(
    first: int, indptr: Ints, indices: Ints, item_indptr: Ints, item_users: Ints, counts: Ints
) -> None:
    """Count for each item the items before it that share a user with it."""
    last = np.full(len(item_indptr) - 1, -1, dtype=np.int32)
    for row in range(len(counts)):
        item = first + row
        for entry in range(item_indptr[item], item_indptr[item + 1]):
            user = item_users[entry]
            for at in range(indptr[user], indptr[user + 1]):
                other = indices[at]
                if other >= item:
                    break
                if last[other] != item:
                    last[other] = item
                    counts[row] += 1


@cached_njit(nogil=True)
def fill_pairs(
    first: int, stop: int, indptr: Ints, indices: Ints, item_indptr: Ints, item_users: Ints,
    values: Values, item_values: Values, pair_indptr: Ints, pair_items: Ints, pair_common: Numbers,
) -> None:  # fmt: skip
    """Write for each item the items before it that share users with it, in order, and the number of these users.

    With values a user counts their product. This is compiled once with values and once without.
    """
    common = np.zeros(len(item_indptr) - 1, dtype=pair_common.dtype)
    for item in range(first, stop):
        place = pair_indptr[item]
        for entry in range(item_indptr[item], item_indptr[item + 1]):
            user = item_users[entry]
            for at in range(indptr[user], indptr[user + 1]):
                other = indices[at]
                if other >= item:
                    break
                if common[other] == 0:
                    pair_items[place] = other
                    place += 1
                if values is None:
                    common[other] += 1
                else:
                    common[other] += values[at] * item_values[entry]
        mine = pair_items[pair_indptr[item] : place]
        sort(mine)
        for n in range(len(mine)):
            pair_common[pair_indptr[item] + n] = common[mine[n]]
            common[mine[n]] = 0


@cached_njit(nogil=True)
def regress(
    first: int, indptr: Ints, indices: Ints, item_indptr: Ints, item_users: Ints,
    values: Values, item_values: Values, squares: NDArray[np.float64],
    pair_indptr: Ints, pair_items: Ints, pair_common: Numbers, ridge: NDArray[np.float64],
    out_items: Ints, out_weights: Floats, out_found: Ints, out_errors: NDArray[np.float64],
) -> bool:  # fmt: skip
    """Write the neighbors of some items, their coefficients and the error; returns whether all could be solved."""
    n_items, most = len(item_indptr) - 1, out_items.shape[1]
    common = np.zeros(n_items, dtype=pair_common.dtype)  # users of the item and of every other one
    number = np.full(n_items, -1, dtype=np.int32)  # of a neighbor among the neighbors
    touched = np.empty(n_items, dtype=np.int32)
    gram, right = np.empty((most, most), dtype=np.float64), np.empty(most, dtype=np.float64)
    for row in range(len(out_items)):
        item = first + row
        n_touched = count_all(item, indptr, indices, item_indptr, item_users, values, item_values, common, touched)
        near = touched[:n_touched]
        sort(near)
        k = choose(item, near, common, squares, ridge, out_items[row])
        chosen = out_items[row, :k]
        for n in range(k):
            right[n] = common[chosen[n]]
        read_gram(chosen, squares, pair_indptr, pair_items, pair_common, ridge, number, gram)
        if not factor(gram, k):
            return False
        substitute(gram, right, k)
        left = squares[item] + ridge[item]
        for n in range(k):
            out_weights[row, n] = right[n]
            left -= right[n] * common[chosen[n]]
        out_found[row], out_errors[row] = k, left
        for n in range(n_touched):
            common[near[n]] = 0
    return True


@cached_njit(nogil=True)
def count_all(
    item: int, indptr: Ints, indices: Ints, item_indptr: Ints, item_users: Ints,
    values: Values, item_values: Values, common: Numbers, touched: Ints,
) -> int:  # fmt: skip
    """Count the users of an item and every other one; writes and counts those that have any. common must be zeros."""
    n_touched = 0
    for entry in range(item_indptr[item], item_indptr[item + 1]):
        user = item_users[entry]
        for at in range(indptr[user], indptr[user + 1]):
            other = indices[at]
            if common[other] == 0:
                touched[n_touched] = other
                n_touched += 1
            if values is None:
                common[other] += 1
            else:
                common[other] += values[at] * item_values[entry]
    return n_touched


@cached_njit(nogil=True)
def choose(
    item: int, near: Ints, common: Numbers, squares: NDArray[np.float64], ridge: NDArray[np.float64], out: Ints
) -> int:
    """Write the most helpful of some items, in their order; returns how many. Of equal ones, the first are taken."""
    helpful = np.empty(len(near), dtype=np.float64)
    for n in range(len(near)):
        other = near[n]
        helpful[n] = float(common[other]) ** 2 / (squares[other] + ridge[other])
        if other == item:
            helpful[n] = 0.0
    least, ties = 0.0, 0  # all above the least are taken, and as many of those equal to it
    if len(near) > len(out):
        least = kth_smallest(helpful, len(near) - len(out))
        ties = len(out)
        for n in range(len(near)):
            ties -= helpful[n] > least
    k = 0
    for n in range(len(near)):
        tie = helpful[n] == least and ties > 0 and near[n] != item
        ties -= tie
        if helpful[n] > least or tie:
            out[k] = near[n]
            k += 1
    return k


@cached_njit(nogil=True)
def read_gram(
    chosen: Ints, squares: NDArray[np.float64], pair_indptr: Ints, pair_items: Ints, pair_common: Numbers,
    ridge: NDArray[np.float64], number: Ints, out: NDArray[np.float64],
) -> None:  # fmt: skip
    """The upper triangle of X'X + ridge for some items in ascending order; number must be -1, and is again then."""
    for n in range(len(chosen)):
        item = chosen[n]
        start, stop = pair_indptr[item], pair_indptr[item + 1]
        out[:n, n] = 0.0
        if stop - start <= 8 * n:  # a short list is read, a long one is searched
            for at in range(start, stop):
                if number[pair_items[at]] >= 0:
                    out[number[pair_items[at]], n] = pair_common[at]
        else:
            for before in range(n):
                start = first_at_least(pair_items, start, stop, chosen[before])  # the next one comes later
                if start < stop and pair_items[start] == chosen[before]:
                    out[before, n] = pair_common[start]
        out[n, n] = squares[item] + ridge[item]
        number[item] = n
    for n in range(len(chosen)):
        number[chosen[n]] = -1


@cached_njit(nogil=True)
def factor(matrix: NDArray[np.float64], k: int) -> bool:
    """Replace the first k rows and columns by Cholesky's U, A = U'U; returns whether A is positive definite.

    Only the upper triangle is read. The loop subtracts four rows at a time, so that a value is loaded and stored once
    per four subtractions.
    """
    for i in range(k):
        row = matrix[i, i:k]
        whole = i // 4 * 4
        for n in range(0, whole, 4):
            a, b, c, d = matrix[n, i:k], matrix[n + 1, i:k], matrix[n + 2, i:k], matrix[n + 3, i:k]
            a0, b0, c0, d0 = a[0], b[0], c[0], d[0]
            for j in range(k - i):
                row[j] = (((row[j] - a0 * a[j]) - b0 * b[j]) - c0 * c[j]) - d0 * d[j]
        for n in range(whole, i):
            a = matrix[n, i:k]
            a0 = a[0]
            for j in range(k - i):
                row[j] -= a0 * a[j]
        if not row[0] > 0.0:
            return False
        scale = 1.0 / np.sqrt(row[0])
        for j in range(k - i):
            row[j] *= scale
    return True


@cached_njit(nogil=True)
def substitute(upper: NDArray[np.float64], right: NDArray[np.float64], k: int) -> None:
    """Solve U'U b = right for the first k rows and columns, in place."""
    for i in range(k):
        right[i] /= upper[i, i]
        for j in range(i + 1, k):
            right[j] -= upper[i, j] * right[i]
    for i in range(k - 1, -1, -1):
        for j in range(i + 1, k):
            right[i] -= upper[i, j] * right[j]
        right[i] /= upper[i, i]


@cached_njit(nogil=True)
def merge(
    first: int, indptr: Ints, indices: Ints, data: Floats, other_indptr: Ints, other_indices: Ints, other_data: Floats,
    errors: NDArray[np.float64], places: Ints, count: bool, out_items: Ints, out_weights: Floats,
) -> None:  # fmt: skip
    """Merge rows of the regressions with those of their transpose, and write the positive weights B_ij of rows i.

    Row n is written from places[n] on. With `count` nothing is written but the number of weights, to places[n].
    """
    for n in range(len(places)):
        i = first + n
        a, b = indptr[i], other_indptr[i]
        while a < indptr[i + 1] or b < other_indptr[i + 1]:
            mine = indices[a] if a < indptr[i + 1] else len(errors)
            theirs = other_indices[b] if b < other_indptr[i + 1] else len(errors)
            j = min(mine, theirs)
            total, estimates = 0.0, 0
            if mine == j:  # of i on j
                total += data[a] / errors[i]
                estimates += 1
                a += 1
            if theirs == j:  # of j on i
                total += other_data[b] / errors[j]
                estimates += 1
                b += 1
            if total > 0.0:
                if not count:
                    out_items[places[n]] = j
                    out_weights[places[n]] = total / estimates * errors[j]
                places[n] += 1
