"""`truelike recommend`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from truelike.cli.inputs import open_model, open_part, read_exclude, read_ids
from truelike.cli.messages import say, warn
from truelike.cli.options import (
    PARTS,
    Group,
    Jobs,
    OnCluster,
    OutputTable,
    Read,
    SeenByKind,
    listed,
    option,
    read_options,
    refuse,
    seen_by,
)
from truelike.cli.output import check_output, emit, put
from truelike.errors import ParameterError

if TYPE_CHECKING:
    from truelike.cluster import Cluster
    from truelike.models.base import Recommender

FOR_WHOM = "For whom"
OTHERS = ("time", "weight", "k_core", "kind", "kinds", "target", *PARTS)  # options of reading without a use here


def recommend(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="Directory of a saved model.", show_default=False)
    ],
    read: Annotated[Read, Group(read_options, OTHERS)],
    users: Annotated[
        str | None, option("Users; -: read ids from stdin.", "ID,ID,...", "--users", "-u", panel=FOR_WHOM)
    ] = None,
    users_file: Annotated[
        Path | None, option("Users: one id a line, or a table with a user column.", "FILE", panel=FOR_WHOM)
    ] = None,
    all_users: Annotated[
        bool, option("All users of the training data.", None, "--all", "--all-users", panel=FOR_WHOM)
    ] = False,
    from_items: Annotated[
        str | None, option("A new user who interacted with these items.", "ID,ID,...", panel=FOR_WHOM)
    ] = None,
    histories: Annotated[
        str | None, option("Many new users: a log of their interactions.", "FILE", panel=FOR_WHOM)
    ] = None,
    similar_to: Annotated[
        str | None, option("Items: find items similar to each.", "ID,ID,...", panel=FOR_WHOM)
    ] = None,
    k: Annotated[int, option("Number of items in each list.", "N", "--k", "-k", min=1)] = 10,
    candidates: Annotated[
        Path | None, option("Recommend only these items: one id a line, or a table with an item column.", "FILE")
    ] = None,
    exclude: Annotated[
        Path | None,
        option(
            "Never recommend these items; a file as for --candidates. With a user column, too: the items of each "
            "user.",
            "FILE",
        ),
    ] = None,
    rules: Annotated[Path | None, option("Business rules, a TOML file.", "FILE")] = None,
    items: Annotated[
        Path | None,
        option("Table of item ids and attributes, for --rules: CSV, TSV, JSONL or Parquet.", "FILE"),
    ] = None,
    include_seen: Annotated[
        bool, option("Also recommend items that the user interacted with.", None, "--include-seen")
    ] = False,
    exclude_seen: SeenByKind = None,
    on_unknown: Annotated[
        Literal["raise", "popular", "trending", "skip"],
        option("An id that is not in the training data: stop, return popular or trending items, or skip it."),
    ] = "raise",
    probability: Annotated[
        bool,
        option(
            "Add the probability that the user likes each item, and the evidence for it.", None, "--probability"
        ),
    ] = False,
    hidden_likes: Annotated[
        bool,
        option(
            "List the items without an interaction that are most probably liked, given that there was none.",
            None,
            "--hidden-likes",
        ),
    ] = False,
    output: OutputTable = None,
    block_size: Annotated[
        int | None,
        option("Number of users that are computed and written at a time; about 500,000 rows.", "N", min=1),
    ] = None,
    n_jobs: Jobs = -1,
    cluster: OnCluster = None,
) -> None:
    """Recommend items with a saved model.

    Say for whom with one of --users, --users-file, --all, --from-items, --histories and --similar-to. A column
    `title` is added if the model has titles, or with --titles.

    Lists of users are written block by block, so that any number of users needs little memory. If the command is
    killed while it writes a Parquet file, the same command continues where it stopped.

    Models with flip probabilities, such as NBPO and ExactNBPO, have --probability and --hidden-likes. What the numbers
    rest on is printed, and is a column: they are probabilities if the model was trained with --impressions or with an
    assumption about exposure. From interactions alone they are a ranking.

    For example:
    ```
    truelike recommend model/ --users alice,bob -k 5
    truelike recommend model/ --all --candidates in-stock.txt -o lists.parquet
    truelike recommend model/ --all --rules rules.toml --items products.csv -o lists.parquet
    truelike recommend model/ --histories new-users.csv --titles items.csv
    truelike recommend model/ --users alice --hidden-likes
    ```
    """
    whom = (users, users_file, all_users or None, from_items, histories, similar_to)
    is_of_users = any(each is not None for each in whom[:3])
    hidden = (
        "--hidden-likes lists items without an interaction for users of the training data: {} cannot be used "
        "with it"
    )
    refuse({
        "expected one of --users, --users-file, --all, --from-items, --histories and --similar-to":
            sum(each is not None for each in whom) != 1,
        "--cluster is for lists of users in a file: give --all, --users or --users-file, and --output":
            cluster is not None and (output is None or not is_of_users),
        hidden.format("--from-items, --histories and --similar-to"): hidden_likes and not is_of_users,
        hidden.format("--probability"): hidden_likes and probability,
        hidden.format("--include-seen"): hidden_likes and include_seen,
        hidden.format("--exclude-seen"): hidden_likes and exclude_seen is not None,
        "--include-seen is --exclude-seen no: give one of them": include_seen and exclude_seen is not None,
        "--exclude-seen is for users of the training data": exclude_seen is not None and not is_of_users,
        hidden.format("--on-unknown"): hidden_likes and on_unknown != "raise",
        hidden.format("--cluster"): hidden_likes and cluster is not None,
        hidden.format("--rules"): hidden_likes and rules is not None,
        "--rules is for lists for users: --similar-to cannot be used with it":
            rules is not None and similar_to is not None,
        "--items is the table that --rules speak of: give --rules FILE, too": items is not None and rules is None,
        "--probability is of the model's own scores: for new users, --rules cannot be used with it":
            probability and rules is not None and not is_of_users,
        "--probability is for lists by the model: similar and popular items have none":
            probability and (similar_to is not None or on_unknown in ("popular", "trending")),
    })  # fmt: skip
    from truelike.data.frames import text_for_uuids
    from truelike.models.batch import with_probability
    from truelike.rules.rules import Rules

    check_output(output)
    encoding = read.get("encoding", "utf-8")
    allowed = {
        "candidates": None if candidates is None else read_ids(candidates, "item", encoding),
        "exclude": None if exclude is None else read_exclude(exclude, encoding),
    }
    ruled = None if rules is None else Rules.read(rules, items=items)
    loaded = open_model(model, titles=read.get("titles"), encoding=encoding)
    if probability or hidden_likes:
        _say_evidence(loaded)
    shared: dict[str, Any] = {"k": k, "titles": loaded.train_.titles is not None, **allowed}
    if is_of_users:
        asked = None if all_users else _users(users, users_file, encoding)
        seen = False if include_seen else seen_by(exclude_seen)
        shared |= {"on_unknown": on_unknown, "exclude_seen": seen, "n_jobs": n_jobs}
        shared |= {
            "rules": ruled,
            "block_size": block_size,
            "probability": probability,
            "hidden_likes": hidden_likes,
        }
        _put_lists(loaded, asked, output, cluster, **shared)
        return
    if similar_to is not None:
        found = loaded.similar_items(listed(similar_to), on_unknown=on_unknown, n_jobs=n_jobs, **shared)
    else:
        rows = listed(str(from_items)) if histories is None else open_part(histories, "--histories", read)
        shared |= {"rules": ruled, "on_unknown": on_unknown, "exclude_seen": not include_seen}
        found = loaded.recommend_from_items(rows, **shared)
    found = with_probability(loaded, found, trained=False) if probability else found
    emit(text_for_uuids(found), output=output)


def _put_lists(
    model: Recommender, users: list[str] | None, output: Path | None, cluster: Cluster | None, **options: Any
) -> None:
    """Write the lists of users, block by block."""
    import polars as pl

    from truelike.cluster import as_cluster
    from truelike.models.batch import Lists, write_lists

    lists = Lists(model, users, cluster=as_cluster(cluster), **options)
    if output is not None:
        rows = write_lists(lists, output, progress=True)
        say(f"wrote {rows:,} rows to {output}")
    elif sys.stdout.isatty():
        emit(pl.concat(lists))
    else:
        for number, frame in enumerate(lists):
            put(frame.write_csv(include_header=number == 0))


def _say_evidence(model: Any) -> None:
    """Say what the probabilities of a model are known from; raise an error for one that has none."""
    if not hasattr(model, "like_probability"):
        raise ParameterError(
            f"{model.name} has no probabilities of likes. Train a model that has, e.g. truelike train LOG --model "
            "ImpressionMF --impressions FILE."
        )
    (say if model.likes.is_identified else warn)(model.likes.note)


def _users(text: str | None, file: Path | None, encoding: str) -> list[str]:
    """Ids of users from the option, stdin or a file."""
    if file is not None:
        return read_ids(file, "user", encoding)
    if text == "-":
        return [line.strip() for line in sys.stdin if line.strip()]
    return listed(str(text))
