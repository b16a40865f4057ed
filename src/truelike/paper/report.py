"""The whole of it in one place: claims, figures, tables, settings and timings, as HTML, Markdown and CSV."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from truelike.files import replacing_file
from truelike.paper import figures, tables
from truelike.paper.claims import judge
from truelike.paper.experiments import MEASURES, Results
from truelike.paper.protocol import BY_NAME, FULL, QUICK, TITLES
from truelike.report import Page
from truelike.report.machine import machine
from truelike.tuning.grids import SLOWER

INTRODUCTION = (
    "The experiments of the paper's Section 5, run anew: every model by the authors' recipe, once at their own "
    "settings and once tuned alike, each on the validation part by F1@2 as in the paper; the figures on the test "
    "part are of the epoch that was best on validation. Intervals are over seeds; p is of a paired t-test over "
    "users, their figures averaged over the seeds. The authors' settings are those of their release, with the "
    "number of negatives that the paper's text calls best; of what the release lacks, those of the text."
)


def plans(directory: Path) -> list[Results]:
    """The data sets of which there are runs; how much was planned follows from where they stand."""
    known = QUICK if (directory / "quick").exists() else FULL
    found = [Results.read(directory, plan) for name, plan in known.items() if (directory / name).is_dir()]
    return [results for results in found if results.records]


def what_was_cut(results: Results) -> str:
    """In words, how the plan differs from the paper's own, and how much of it is there."""
    plan = results.plan
    words = [f"{TITLES[plan.data]}: {len(results.records):,} runs"]
    if len(plan.rungs) > 1:
        steps = ", ".join(str(max(1, round(plan.epochs * rung))) for rung in plan.rungs)
        words.append(f"grids by successive halving ({steps} epochs, the best third goes on)")
    if plan.patience is not None:
        words.append(f"a run ends after {plan.patience} epochs without a better F1@2")
    else:
        words.append(f"all grids whole, {plan.epochs} epochs")
    words.append(f"{plan.seeds} seeds on test, {plan.curve_seeds} for the curves of K, ρ and L, one for the grids")
    if plan.why:
        words.append(plan.why)
    missing = results.missing()
    if missing:
        words.append(f"not finished yet: {', '.join(missing)}")
    for setting, label in tables.SETTINGS:
        failed = results.diverged(setting)
        if failed:
            words.append(
                f"with {label} settings these diverged, with all or some of the seeds: {', '.join(failed)}"
            )
    slower = [name for name, found in results.tuned.items() if found["stages"][0]["stage"] == SLOWER]
    if slower:
        words.append(
            f"every learning rate of the paper's grid diverged for {', '.join(slower)}: a tenth of each there"
        )
    tuned = results.parameters("tuned", "NBPO")
    if tuned is not None and tuned.get("flip_factors") == 0:
        words.append("tuned NBPO has L = 0: no number of flip factors was better on validation")
    sizes = {name: sum(len(t["candidates"]) for t in found["stages"]) for name, found in results.tuned.items()}
    if sizes:
        told = ", ".join(f"{name} {n}" for name, n in sizes.items() if n > 1 and BY_NAME[name].like is None)
        words.append(f"candidates of the grids: {told} (NBPO has more, as it has more parameters)")
    return "; ".join(words) + "."


def counts(verdicts: pl.DataFrame) -> str:
    """How many claims hold."""
    parts = []
    for setting in verdicts["settings"].unique(maintain_order=True):
        mine = verdicts.filter(pl.col("settings") == setting)["verdict"].value_counts().rows()
        told = ", ".join(f"{n} {word}" for word, n in sorted(mine))
        parts.append(f"with {setting} settings {told}" if setting != "tuned alike" else f"tuned alike {told}")
    return "; ".join(parts)


def page(all_results: Sequence[Results]) -> Page:
    """The page with all of it."""
    verdicts = judge(all_results)
    made = Page("The paper, reproduced", machine())
    made.text(INTRODUCTION)
    for results in all_results:
        made.text(what_was_cut(results))
    made.heading("Every claim, and what we found").text(f"Of the paper's claims: {counts(verdicts)}.")
    made.table(verdicts, digits=3)
    made.heading("Figures 2 to 9")
    for number, draw in figures.FIGURES.items():
        made.figure(draw(all_results), figures.CAPTIONS[number])
    made.heading("Figures on the test part").table(tables.on_test(all_results))
    made.heading("Tuned settings").table(tables.tuned(all_results))
    made.heading("The curves in numbers").table(tables.curves(all_results))
    made.heading("What it took").table(tables.timings(all_results), digits=2)
    return made


def write(directory: Path, output: Path) -> list[Path]:
    """Write the report, the tables, the figures and the settings of the runs in a directory."""
    all_results = plans(directory)
    for results in all_results:
        results.keep_tests()
    written = [page(all_results).write(output / "report.html"), *figures.write(all_results, output / "figures")]
    verdicts = judge(all_results)
    frames = {
        "claims": verdicts,
        "test": tables.on_test(all_results),
        "tuned": tables.tuned(all_results),
        "curves": tables.curves(all_results),
        "timings": tables.timings(all_results),
    }
    for name, frame in frames.items():
        written.append(output / "tables" / f"{name}.csv")
        with replacing_file(written[-1]) as fresh:
            frame.write_csv(fresh)
    written += tables.write_settings(all_results, output / "settings")
    written.append(output / "index.md")
    with replacing_file(written[-1]) as fresh:
        fresh.write_text(_markdown(all_results, frames), encoding="utf-8")
    return written


def _markdown(all_results: Sequence[Results], frames: dict[str, pl.DataFrame]) -> str:
    short = frames["test"].select("data", "settings", "model", "seeds", *MEASURES)
    shown = frames["claims"].with_columns(pl.format("**{}**", "verdict").alias("verdict")).drop("p")
    parts = [
        "# The paper, reproduced",
        "Written by `truelike paper report`; the same as one page: [report.html](report.html). Tables as CSV are "
        "in `tables/`, a TOML file for each tuned model in `settings/`, and a line for each run in `runs/`.",
        INTRODUCTION,
        *(what_was_cut(results) for results in all_results),
        machine() + ".",
        "## Every claim, and what we found",
        f"Of the paper's claims: {counts(frames['claims'])}.",
        tables.markdown(shown),
        "## Figures",
        *(
            f"![{caption}](figures/figure-{number}.svg)\n\n*{caption}*"
            for number, caption in figures.CAPTIONS.items()
        ),
        "## On the test part",
        tables.markdown(short),
        "## Tuned settings",
        tables.markdown(frames["tuned"]),
        "## What it took",
        tables.markdown(frames["timings"], digits=2),
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"
