"""The report: claims, figures, tables, settings and timings, as HTML and CSV."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from truelike.core.files import replacing_file
from truelike.paper import figures, tables
from truelike.paper.claims import judge
from truelike.paper.experiments import Results
from truelike.paper.protocol import BY_NAME, FULL, QUICK, SETTINGS, TITLES, UNTRAINED, Plan
from truelike.paper.verdicts import HOLDS, MISSING, NOT, PART
from truelike.report import Page, machine
from truelike.selection.grids import SLOWER
from truelike.selection.trials import METRICS

INTRODUCTION = (
    "These are the experiments of the paper's Section 5. Each model is trained with the authors' recipe: at the "
    "settings of their release, at the best settings that the paper's text names, and tuned. All models are tuned in "
    "the same way: by F1@2 on the validation part, as in the paper, and some by F1@20, too. Test metrics are those of "
    "the epoch that is best on validation. Intervals are over seeds. p is the p-value of a paired t-test over users, "
    "whose metrics are averaged over seeds first. A model whose F1@2 on test is not significantly above that of "
    "ItemPop did not train: no verdict rests on it."
)


def quick_banner(all_results: Sequence[Results]) -> str:
    """Return what makes a run a quick one, for the top of the report; empty for a full run.

    >>> quick_banner([])
    ''
    """
    parts = []
    for plan in (results.plan for results in all_results if results.plan.quick):
        full = FULL.get(plan.data, Plan(plan.data))
        parts.append(
            f"{TITLES[plan.data]}: {plan.seeds} seeds instead of {full.seeds}, {plan.epochs} epochs instead of "
            f"{full.epochs}, smaller grids"
        )
    if not parts:
        return ""
    return (
        f"This is a quick run, not a reproduction ({'; '.join(parts)}). It shows that the experiments work. Its "
        "figures and verdicts say little about the paper. For the full experiments, run truelike paper run "
        "without --quick."
    )


def plans(directory: Path) -> list[Results]:
    """Return the results on each dataset that has runs in a directory. A file `quick` marks quick plans."""
    known = QUICK if (directory / "quick").exists() else FULL
    found = [Results.read(directory, plan) for name, plan in known.items() if (directory / name).is_dir()]
    return [results for results in found if results.records]


def describe_plan(results: Results) -> str:
    """Describe the plan, how it differs from the paper's, and what is not finished."""
    plan = results.plan
    words = [f"{TITLES[plan.data]}: {len(results.records):,} runs"]
    if len(plan.rungs) > 1:
        steps = ", ".join(str(max(1, round(plan.epochs * rung))) for rung in plan.rungs)
        words.append(f"grids with successive halving ({steps} epochs, the best third is continued)")
    if plan.patience is not None:
        words.append(f"runs stop after {plan.patience} epochs without a better F1@2")
    else:
        words.append(f"complete grids, {plan.epochs} epochs")
    words.append(f"{plan.seeds} seeds on test, {plan.curve_seeds} for the curves over K, ρ and L, 1 for the grids")
    if plan.why:
        words.append(plan.why)
    missing = results.missing()
    if missing:
        words.append(f"not finished yet: {', '.join(missing)}")
    for setting, label in SETTINGS.items():
        failed = results.diverged(setting)
        if failed:
            words.append(f"diverged with {label} settings, for one or more seeds: {', '.join(failed)}")
    slower = [name for name, found in results.tuned.items() if found["stages"][0]["stage"] == SLOWER]
    if slower:
        words.append(
            f"every learning rate of the paper's grid diverged for {', '.join(slower)}; a tenth of each is used"
        )
    tuned = results.parameters("tuned", "NBPO")
    if tuned is not None and tuned.get("flip_factors") == 0:
        words.append("the tuned NBPO has L = 0, because no number of flip factors was better on validation")
    sizes = {name: sum(len(t["candidates"]) for t in found["stages"]) for name, found in results.tuned.items()}
    if sizes:
        listed = ", ".join(f"{name} {n}" for name, n in sizes.items() if n > 1 and BY_NAME[name].like is None)
        words.append(f"candidates in the grids: {listed} (NBPO has more because it has more parameters)")
    return "; ".join(words) + "."


def counts(verdicts: pl.DataFrame) -> str:
    """Return how many claims have each verdict, in words.

    >>> counts(pl.DataFrame({"settings": ["tuned alike"] * 3, "verdict": [HOLDS, NOT, HOLDS]}))
    "Verdicts on the paper's claims. Tuned alike: holds 2, does not hold 1."
    """
    parts = ["Verdicts on the paper's claims."]
    for setting in verdicts["settings"].unique(maintain_order=True):
        found = verdicts.filter(pl.col("settings") == setting)["verdict"].to_list()
        listed = ", ".join(
            f"{word} {found.count(word)}" for word in (HOLDS, PART, NOT, UNTRAINED, MISSING) if word in found
        )
        name = setting[0].upper() + setting[1:] if setting.startswith("tuned") else f"With {setting} settings"
        parts.append(f"{name}: {listed}.")
    return " ".join(parts)


def _tables(all_results: Sequence[Results]) -> dict[str, pl.DataFrame]:
    return {
        "claims": judge(all_results),
        "test": tables.on_test(all_results),
        "tuned": tables.tuned(all_results),
        "curves": tables.curves(all_results),
        "timings": tables.timings(all_results),
    }


def page(all_results: Sequence[Results]) -> Page:
    """Return the HTML page of the report."""
    frames = _tables(all_results)
    banner = quick_banner(all_results)
    made = Page(_title(all_results), machine())
    if banner:
        made.banner(banner)
    made.answer(counts(frames["claims"]))
    made.text(INTRODUCTION)
    for results in all_results:
        made.text(describe_plan(results))
    made.heading("Claims and verdicts")
    made.table(
        frames["claims"], figures.caption("The claims of the paper and our verdicts.", all_results), digits=3
    )
    made.heading("Figures 2 to 9")
    for number, draw in figures.FIGURES.items():
        made.figure(draw(all_results), figures.caption(figures.CAPTIONS[number], all_results))
    made.heading("Metrics on the test part")
    for metric in METRICS:
        text = figures.caption("Mean and standard deviation over seeds.", all_results)
        made.table(tables.with_spread(frames["test"], metric), text)
    for heading, name, text, digits in (
        ("Tuned settings", "tuned", "The best settings on validation.", 4),
        ("Curves", "curves", "The points of Figures 4, 5 and 8.", 4),
        ("Computation", "timings", "Trials, hours in all and seconds of the median trial.", 2),
    ):
        made.heading(heading).table(frames[name], figures.caption(text, all_results), digits=digits)
    return made


def _title(all_results: Sequence[Results]) -> str:
    return "Quick run of the paper's experiments" if quick_banner(all_results) else "The paper, reproduced"


def write(directory: Path, output: Path) -> list[Path]:
    """Write the report, the tables, the figures and the tuned settings of the runs in a directory."""
    all_results = plans(directory)
    written = [page(all_results).write(output / "report.html"), *figures.write(all_results, output / "figures")]
    for name, frame in _tables(all_results).items():
        written.append(output / "tables" / f"{name}.csv")
        with replacing_file(written[-1]) as fresh:
            frame.write_csv(fresh)
    written += tables.write_settings(all_results, output / "settings")
    return written
