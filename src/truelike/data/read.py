"""`read`: rows of any kind, and what else is known, become a Dataset."""

from __future__ import annotations

from typing import Any, Literal

from scipy import sparse

from truelike.core.forks import check_not_forked
from truelike.data.checks import check_not_empty, check_number
from truelike.data.columns import Name, chooser
from truelike.data.dataset import Dataset, joined
from truelike.data.features import FeatureTable, ReadFeatures, read_features
from truelike.data.files import Form, refuse_address
from truelike.data.ids import Ids
from truelike.data.impressions import read_shown
from truelike.data.interactions import from_matrix, read_rows
from truelike.data.kinds import Kinds, dataset_of_kinds, schema_of, without_negative
from truelike.data.titles import titles_of
from truelike.data.written_dates import DateOrder
from truelike.errors import ParameterError


def read(
    source: Any,
    *,
    user: Name = None,
    item: Name = None,
    rating: Name = None,
    time: Name = None,
    weight: Name = None,
    min_rating: float | None = None,
    kind: Name | Literal[False] = None,
    kinds: Kinds | None = None,
    target: str | None = None,
    items: Any = None,
    users: Any = None,
    impressions: Any = None,
    titles: Any = None,
    dates: DateOrder | None = None,
    on_bad_rows: Literal["raise", "drop"] = "raise",
    format: Literal["csv", "tsv", "jsonl", "parquet"] | None = None,
    separator: str | None = None,
    header: bool = True,
    encoding: str = "utf-8",
    name: str | None = None,
) -> Dataset:
    """Read interactions, one row for each (user, item), into a Dataset, with what else is known.

    Rows of the same user and item are merged into one pair, which keeps the sum of their weights (without
    `weight`, the number of rows) and the latest time.

    What counts: models train on pairs, so by default a pair that occurs often, or has a large weight, counts as much
    as any other. `Dataset.has_weights` tells whether there are such pairs. Weights count in models with a parameter
    `weighting`, such as ``tl.IALS(weighting="log")``.

    Parameters
    ----------
    source
        The path of a CSV, TSV, JSONL or Parquet file (also gzipped, with .gz); a pandas, polars or pyarrow frame;
        a SciPy sparse matrix (users x items; its values are weights, or ratings where `min_rating` is given); a
        NumPy array with two to four columns; a tuple of arrays, series or lists, one for each column; a list or a
        tuple of tuples (user, item[, rating[, time]]) or of dicts, one for each row. Or a Dataset, to which items,
        users, impressions or titles are added.
    user, item, rating, time
        The name or the position of each column. By default they are recognised by common names such as `user_id`.
    weight
        The name or the position of a column of weights. By default it is the column `weight`, if there is one and no
        `kind`. A row of weight 0 is not an interaction, and a warning counts such rows. One of negative weight takes
        back earlier rows of its user and item, as a refund does. One whose weight is not finite or beyond float32 is
        bad.
    min_rating
        Only rows rated at least this much are interactions. By default every row is one, whatever its rating.
    kind
        The name or the position of the column that says what a row is, e.g. a view or a purchase. By default a column
        of words that has a common name such as `event`. False: there is none.
    kinds
        What each kind means: a `tl.Schema`, the path of a TOML file that has one, or what `tl.Schema` takes, e.g.
        ``{"view": 0.2, "buy": 1, "refund": "cancels", "shown": "shown"}``. A kind that is not declared is an error. By
        default usual words have their usual meaning (`tl.Schema.usual`), which is said by the logger "truelike".
    target
        The kind that is the interactions, in short. The others are in `Dataset.kinds`. By default all kinds with a
        number above 0 are the interactions.
    items, users
        Tables of features: a frame, or the path of a CSV or Parquet file, with a column of ids and others of words,
        lists of words, numbers, vectors or text. Users and items without interactions are in the dataset, too. A
        column `title` or `name` of items has their titles.
    impressions
        What was shown to whom: anything that this function takes as `source`. A table may have a column `count` (how
        often the pair was shown), `propensity` (how likely it was shown), `position` (where in a list, from 1) and a
        time; a Dataset has counts as weights. Impressions of other users and items are left out, with a warning.
    titles
        Names of the items for people to read: a mapping {item: title}, a pair of columns (items, titles), a frame,
        or the path of a file. `Dataset.with_titles` sets them later.
    dates
        "day-first" or "month-first", for dates such as 03/04/2026 in text. By default a value above 12 tells, such as
        in 13/04/2026; without one such dates are an error. 03.04.2026 begins with the day.
    on_bad_rows
        What to do with a row without an id, or one that cannot be read: "raise" an error that names the rows, or
        "drop" them and warn how many there were.
    format
        "csv", "tsv", "jsonl" or "parquet", for a file whose name does not tell.
    separator
        The separator of a CSV file. By default comma, tab, semicolon or bar, whichever the first line has most of.
    header
        False for a CSV file whose first line is a row. Columns are then named by position: user=0, item=1, ...
    encoding
        The encoding of a CSV, TSV or JSONL file, and of a file of titles, e.g. "latin-1" or "cp1252".
    name
        The name of the dataset in tables. By default that of the file.

    Returns
    -------
    Dataset
        The interactions. It may have a single user or item; models need at least two of each to train.

    Examples
    --------
    >>> import truelike as tl
    >>> tl.read([("ann", "tea", 5), ("bob", "tea", 4), ("bob", "milk", 1)])
    Dataset(3 interactions, 2 users, 2 items, sparsity 25.0000%)
    >>> import numpy as np
    >>> list(tl.read(np.array([[7, 1], [7, 2], [9, 1]])).users)
    [7, 9]
    >>> tl.read([("ann", 7), ("bob", 9)], titles={7: "Green tea", 9: "Milk"}).titles.to_list()
    ['Green tea', 'Milk']

    What else is known:

    >>> import polars as pl
    >>> rows = [("ann", "tea", "buy"), ("bob", "tea", "view"), ("bob", "milk", "buy"), ("ann", "milk", "seen")]
    >>> log = pl.DataFrame(rows, schema=["user", "item", "event"], orient="row")
    >>> prices = pl.DataFrame({"item": ["milk", "rum"], "price": [1.0, 9.0]})
    >>> data = tl.read(log, kind="event", kinds={"buy": 1, "view": 0.2, "seen": "shown"}, target="buy", items=prices)
    >>> data
    Dataset(2 interactions, 2 users, 3 items, sparsity 66.6667%, with item_features, kinds, shown)
    >>> data.to_frame("view").rows(), data.to_frame("shown").rows()
    ([('bob', 'tea', 0.20000000298023224)], [('ann', 'milk', 1)])
    """
    check_not_forked()
    if on_bad_rows not in ("raise", "drop"):
        raise ParameterError(f'on_bad_rows is {on_bad_rows!r}; expected "raise" or "drop"')
    if min_rating is not None:
        check_number("min_rating", min_rating)
    schema = schema_of(kind, kinds, target)
    refuse_address(source)
    form: Form = {"format": format, "separator": separator, "header": header, "encoding": encoding}
    if isinstance(source, Dataset):
        dataset = source
    elif sparse.issparse(source):
        dataset = from_matrix(source, min_rating, name or "matrix")
    else:
        settle = chooser(
            header=header,
            min_rating=min_rating,
            user=user,
            item=item,
            rating=rating,
            time=time,
            weight=weight,
            kind=kind if schema is None else schema.column,
            quantities=() if schema is None else schema.columns,
        )
        rows = read_rows(
            source, settle,
            on_bad_rows=on_bad_rows, any_weight=False, min_rating=min_rating, name=name, dates=dates, **form,
        )  # fmt: skip
        dataset = (
            without_negative(rows).to_dataset()
            if rows.kinds is None
            else dataset_of_kinds(rows, schema, on_bad_rows)
        )
    check_not_empty(dataset)
    dataset = _with_features(dataset, items, users)
    if impressions is not None:
        shown = read_shown(
            impressions, dataset.users, dataset.items,
            user=user, item=item, on_bad_rows=on_bad_rows, dates=dates, **form,
        )  # fmt: skip
        dataset = dataset.with_parts(shown=shown if dataset.shown is None else dataset.shown.merge(shown))
    return dataset if titles is None else dataset.with_titles(titles, encoding=encoding)


def _with_features(data: Dataset, items: Any, users: Any) -> Dataset:
    """A dataset with tables of features, and with the users and items of these."""
    of_items = None if items is None else read_features(items, data.items)
    of_users = None if users is None else read_features(users, data.users)
    if of_items is None and of_users is None:
        return data
    all_users = data.users if of_users is None else data.users.union(of_users.ids)
    all_items = data.items if of_items is None else data.items.union(of_items.ids)
    whole = data.recode(all_users, all_items)[0]
    whole = whole.with_parts(
        item_features=_features(whole.item_features, of_items, all_items),
        user_features=_features(whole.user_features, of_users, all_users),
    )
    if of_items is None or of_items.titles is None:
        return whole
    titled = whole.with_parts(titles=titles_of(all_items, (of_items.ids.values, of_items.titles)))
    return (
        titled
        if whole.titles is None
        else titled.with_parts(titles=joined(titled.titles, whole.titles, all_items))
    )


def _features(known: FeatureTable | None, read: ReadFeatures | None, ids: Ids) -> FeatureTable | None:
    """The features that are known of some ids, with those that were read."""
    if read is None or read.table is None:
        return known
    table = read.table.recode(read.ids.codes(ids.values))
    return table if known is None else known.merge(table)
