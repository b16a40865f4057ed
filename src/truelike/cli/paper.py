"""`truelike paper`: run, figures, report, claims."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from truelike.cli.output import emit, say
from truelike.errors import DataError, ParameterError, TruelikeError

app = typer.Typer(no_args_is_help=True, help="The paper's experiments: run them, draw them, judge its claims.")
OUTPUT = typer.Option("--output", "-o", help="Where to write; beside the runs if not given.")
DIRECTORY = typer.Option("--directory", "-d", help="Where the runs are kept.")


@app.command()
def run(
    directory: Annotated[Path, DIRECTORY] = Path("paper"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Minutes instead of hours: fewer seeds and grids.")
    ] = False,
    data: Annotated[
        str | None, typer.Option(help="amazon or movielens (both if not given); with --quick also world.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(help="Processes; one for each core.")] = None,
    nice: Annotated[
        int, typer.Option(min=0, max=19, help="How much the runs give way to other work, 0 to 19.")
    ] = 0,
) -> None:
    """Run the experiments; called again, it goes on where it was.

    Example: `truelike paper run --quick`
    """
    from truelike.files import check_place
    from truelike.paper import experiments
    from truelike.paper.protocol import FULL, QUICK, TITLES, load

    plans = QUICK if quick else FULL
    if data is not None and data not in plans:
        raise ParameterError(f"--data is {data!r}; it is one of {', '.join(plans)}")
    ran = False
    check_place(directory)
    mark = directory / "quick"
    if directory.is_dir() and any(directory.iterdir()) and mark.exists() != quick:
        other = "quick" if mark.exists() else "full"
        raise ParameterError(f"{str(directory)!r} holds the runs of a {other} plan; name another --directory")
    directory.mkdir(parents=True, exist_ok=True)
    if quick:
        mark.touch()
    for name in [data] if data is not None else [name for name in plans if name != "world"]:
        try:
            split = load(name)
        except TruelikeError as error:
            say(f"{TITLES[name]} is left out: {error}")
            continue
        experiments.run(plans[name], split, directory, jobs=jobs, nice=nice, say=say)
        ran = True
    if not ran and quick and data is None:
        say("none of the data is here; running on a synthetic world instead")
        experiments.run(QUICK["world"], load("world"), directory, jobs=jobs, nice=nice, say=say)
        ran = True
    if not ran:
        raise DataError("none of the paper's data is here: truelike data fetch amazon-electronics-14core ml-1m")
    say(f"the runs are in {directory}; next: truelike paper report -d {directory}")


@app.command()
def figures(
    directory: Annotated[Path, DIRECTORY] = Path("paper"),
    output: Annotated[Path | None, OUTPUT] = None,
) -> None:
    """Draw Figures 2 to 9 of the paper from the runs, each as SVG and PNG."""
    from truelike.paper import figures as drawing

    for path in drawing.write(_results(directory), output or directory / "figures"):
        say(f"wrote {path}")


@app.command()
def report(
    directory: Annotated[Path, DIRECTORY] = Path("paper"),
    output: Annotated[Path | None, OUTPUT] = None,
) -> None:
    """Write the report: one HTML page, and its tables, figures and tuned settings as files."""
    from truelike.paper import report as writing

    _results(directory)
    output = output or directory
    written = writing.write(directory, output)
    say(f"wrote {len(written)} files; open {output / 'report.html'}")


@app.command()
def claims(
    directory: Annotated[Path, DIRECTORY] = Path("paper"),
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the table here.")] = None,
) -> None:
    """Say of each claim of the paper whether it holds."""
    from truelike.paper.claims import judge

    emit(judge(_results(directory)), output=output, digits=3)


def _results(directory: Path) -> Any:
    from truelike.paper.report import plans

    found = plans(directory)
    if not found:
        raise DataError(f"there are no runs in {str(directory)!r}: truelike paper run -d {directory}")
    return found
