"""`truelike serve`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

import typer

from truelike.cli.messages import say
from truelike.cli.options import option

LIMITS = "Limits"


def serve(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...",
            help="Directory of a saved model, or NAME=DIRECTORY. With several, each user has one of them (A/B).",
            show_default=False,
        ),
    ],
    host: Annotated[str, option("Address. Any but that of this machine itself needs an API key.")] = "127.0.0.1",
    port: Annotated[int, option("Port; 0: any that is free.", min=0, max=65_535)] = 8000,
    workers: Annotated[
        int | None, option("Number of processes. Default: one for each core, at most 4.", min=1, max=256)
    ] = None,
    key_file: Annotated[
        Path | None,
        option("File with the API key. Without it, the environment variable TRUELIKE_API_KEY is read.", "FILE"),
    ] = None,
    events: Annotated[
        Path | None, option("Keep clicks and purchases (POST /v1/events) in a file here.", "DIRECTORY")
    ] = None,
    events_days: Annotated[
        float, option("Days for which an event counts in lists.", "DAYS", min=0.0, max=36_500)
    ] = 90.0,
    items: Annotated[
        Path | None, option("Table of item ids and attributes, for filters: CSV, TSV, JSONL or Parquet.", "FILE")
    ] = None,
    titles: Annotated[Path | None, option("File with item ids and titles.", "FILE")] = None,
    rules: Annotated[Path | None, option("Business rules for every list, a TOML file.", "FILE")] = None,
    shares: Annotated[
        str | None, option("Share of the users of each model, e.g. 90,10. Default: equal.", "N,N,...")
    ] = None,
    salt: Annotated[
        str, option("Another text gives other users to each model: one for each A/B test.", "TEXT")
    ] = "",
    index: Annotated[
        Literal["auto", "exact", "ivf"],
        option("Exact lists, an approximate index, or an index only where exact lists are slow."),
    ] = "auto",
    min_recall: Annotated[
        float, option("Recall@20 of an index below which it is not used.", min=0.0, max=1.0)
    ] = 0.95,
    slow_ms: Annotated[
        float, option("Milliseconds of an exact list above which `auto` builds an index.", min=0.0)
    ] = 10.0,
    watch: Annotated[
        float, option("Seconds between two looks for a new model in the directories; 0: never.", min=0.0)
    ] = 1.0,
    runtime_directory: Annotated[
        Path | None,
        option(
            "Where the server makes a directory of its own for copies of models. Default: $RUNTIME_DIRECTORY, or "
            "among temporary files.",
            "DIRECTORY",
        ),
    ] = None,
    page: Annotated[bool, option("Serve the page for people at /.", None, "--page/--no-page")] = True,
    access_log: Annotated[bool, option("Print a line for each request.", None, "--access-log")] = False,
    allowed_host: Annotated[
        list[str] | None, option("Another name by which a server without a key may be called.", "NAME")
    ] = None,
    max_body: Annotated[int, option("Bytes of the body of a request.", min=1_000, panel=LIMITS)] = 1_000_000,
    max_in_flight: Annotated[int, option("Requests that a worker handles at once.", min=1, panel=LIMITS)] = 100,
    timeout: Annotated[float, option("Seconds of a request.", min=0.1, max=3_600, panel=LIMITS)] = 10.0,
    load_timeout: Annotated[
        float, option("Seconds in which a model is loaded.", min=1, max=86_400, panel=LIMITS)
    ] = 900.0,
) -> None:
    """Serve models by HTTP, with a page for people.

    The page is at /, the API at /v1/, its documentation at /docs. A model directory that is replaced is loaded beside
    the old one and switched to between two requests; so it is at SIGHUP and at POST /v1/admin/reload.

    For example:
    ```
    truelike serve model/ --events events/
    truelike serve old=models/1 new=models/2 --shares 90,10
    truelike serve model/ --host 0.0.0.0 --key-file key.txt --items items.parquet --rules rules.toml
    ```
    """
    from truelike.core.parallel import cores
    from truelike.data.files import check_file
    from truelike.errors import MissingExtraError, ParameterError
    from truelike.rules.rules import Rules
    from truelike.serving.settings import Settings, api_key, named_models, shares_of

    if not all(find_spec(name) for name in ("orjson", "prometheus_client", "pydantic", "starlette", "uvicorn")):
        raise MissingExtraError('truelike serve needs more packages: pip install "truelike[serve]"')
    from truelike.serving.supervisor import serve as run

    found = named_models(models)
    for file, flag in ((items, "--items"), (titles, "--titles"), (rules, "--rules")):
        if file is not None and not file.is_file():
            raise ParameterError(f"{flag} is {str(file)!r}, which is no file")

    def absolute(path: Path | None) -> str | None:
        return None if path is None else str(path.absolute())

    settings = Settings(
        models={name: str(Path(directory).absolute()) for name, directory in found.items()},
        shares=shares_of(shares, len(found)), events=absolute(events), items=absolute(items), titles=absolute(titles),
        rules=None if rules is None else Rules.read(rules).plain,
        workers=workers or min(4, cores()), allowed_hosts=allowed_host or [], host=host, port=port, page=page,
        events_days=events_days, salt=salt, index=index, min_recall=min_recall, slow_ms=slow_ms, watch=watch,
        max_body=max_body, max_in_flight=max_in_flight, timeout=timeout, access_log=access_log,
        load_timeout=load_timeout, runtime_directory=absolute(runtime_directory),
    )  # fmt: skip
    if key_file is not None:
        check_file(key_file, empty=True)
    run(settings, api_key(key_file, host), say)
