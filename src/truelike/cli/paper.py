"""`truelike paper`: run, figures, report, claims."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from truelike.cli.messages import say
from truelike.cli.options import OutputTable, Workers, command, option
from truelike.cli.output import check_output, emit
from truelike.errors import DataError, ParameterError, TruelikeError

if TYPE_CHECKING:
    from truelike.paper.experiments import Results

Output = Annotated[
    Path | None, option("Directory to write to. Default: that of the runs.", "DIRECTORY", "--output", "-o")
]
Directory = Annotated[Path, option("Directory of the runs.", "DIRECTORY", "--directory", "-d")]
QUICK_RUN = (
    "This is a quick run, not a reproduction: fewer seeds and epochs, smaller grids. Its figures and verdicts say "
    "little about the paper. For the full experiments, run without --quick."
)


def run(
    directory: Directory = Path("paper"),
    quick: Annotated[
        bool, option("Check in minutes that the experiments work; not a reproduction.", None, "--quick")
    ] = False,
    data: Annotated[
        str | None, option("amazon or movielens; with --quick also world. Default: the first two.")
    ] = None,
    n_workers: Workers = -1,
) -> None:
    """Run the experiments of the paper. A stopped run continues where it was.

    For example:
    ```
    truelike paper run --quick -d quick/
    truelike paper run -d paper/
    ```
    """
    from truelike.core.files import check_place
    from truelike.paper import experiments, hidden
    from truelike.paper.protocol import FULL, QUICK, TITLES, load

    plans = QUICK if quick else FULL
    if data is not None and data not in plans:
        raise ParameterError(f"--data is {data!r}; expected one of {', '.join(plans)}")
    check_place(directory)
    _mark(directory, quick)
    if quick:
        say(QUICK_RUN)
    has_run = False
    for name in [data] if data is not None else [name for name in plans if name != "world"]:
        try:
            split = load(name)
        except TruelikeError as error:
            say(f"{TITLES[name]} is left out: {error}")
            continue
        experiments.run(plans[name], split, directory, n_workers=n_workers, say=say)
        has_run = True
    if not has_run and quick and data is None:
        say("none of the paper's datasets is available: a synthetic dataset is used instead")
        experiments.run(QUICK["world"], load("world"), directory, n_workers=n_workers, say=say)
        has_run = True
    if not has_run:
        raise DataError(
            "none of the paper's datasets is available. Fetch them: truelike data fetch amazon-electronics-14core; "
            "truelike data fetch ml-1m"
        )
    say("hidden likes, where the truth is known")
    hidden.run(directory, next(iter(plans.values())), say=say)
    if quick:
        say(QUICK_RUN)
    say(f"the runs are in {directory}; next: truelike paper report -d {directory}")


def _mark(directory: Path, quick: bool) -> None:
    """Create the directory of quick or full runs; raise an error if it has runs of the other kind."""
    mark = directory / "quick"
    if directory.is_dir() and any(directory.iterdir()) and mark.exists() != quick:
        found = "quick" if mark.exists() else "full"
        raise ParameterError(f"{str(directory)!r} has the results of a {found} run: name another --directory")
    directory.mkdir(parents=True, exist_ok=True)
    if quick:
        mark.touch()


def figures(directory: Directory = Path("paper"), output: Output = None) -> None:
    """Draw Figures 2 to 9 of the paper from the runs, each as SVG and PNG.

    For example:
    ```
    truelike paper figures -d paper/ -o figures/
    ```
    """
    from truelike.paper import figures as drawing

    for path in drawing.write(_results(directory), output or directory / "figures"):
        say(f"wrote {path}")


def report(directory: Directory = Path("paper"), output: Output = None) -> None:
    """Write the report: an HTML page, and its tables, figures and tuned settings as files.

    For example:
    ```
    truelike paper report -d paper/
    ```
    """
    from truelike.paper import report as writing

    _results(directory)
    output = output or directory
    written = writing.write(directory, output)
    say(f"wrote {len(written)} files; open {output / 'report.html'}")


def claims(directory: Directory = Path("paper"), output: OutputTable = None) -> None:
    """Print the claims of the paper with a verdict on each.

    For example:
    ```
    truelike paper claims -d paper/
    ```
    """
    from truelike.paper.claims import judge

    check_output(output)
    emit(judge(_results(directory)), output=output, digits=3)


def _results(directory: Path) -> list[Results]:
    """The results in a directory; a line is printed if they are of a quick run."""
    from truelike.paper.report import plans

    found = plans(directory)
    if not found:
        raise DataError(f"there are no runs in {str(directory)!r}: truelike paper run -d {directory}")
    if (directory / "quick").exists():
        say(QUICK_RUN)
    return found


app = typer.Typer(
    help="Run the paper's experiments and judge its claims.", no_args_is_help=True, rich_markup_mode="markdown"
)
for each in (run, figures, report, claims):
    app.command()(command(each))
