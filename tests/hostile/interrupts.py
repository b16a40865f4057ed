"""Ctrl-C at random moments: every fit, search and command ends soon, and leaves the previous model usable.

    python tests/hostile/interrupts.py --fits 300 --commands 60

A fit runs in a process of its own that is interrupted once. It must end within LIMIT seconds; the fitted model that
it had before must rank as before, BLAS must have its threads again, and another fit must work.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

LIMIT = 2.0  # seconds from Ctrl-C to the end of the work
PATIENCE = 60.0  # seconds after which a process counts as hanging
THREADS = (1, 2, 8)
SIZES = {"tiny": (30, 20), "larger": (1_500, 1_200)}

MODELS = [
    "ItemPop", "ItemKNN", "EASE", "EDLAE", "IALS", "IALS:solver=cholesky", "BPR", "WBPR", "NBPR", "ShiftMC", "BPO",
    "NBPO", "SampledMF:batch_size=100000000", "ExactMF", "SoftmaxMF", "ExactBPO", "ExactNBPO", "AutoRecommender:n_trials=6",
    "Blend", "ImpressionMF", "FM", "NeuMF", "ACF", "LightGCN",
]  # fmt: skip

# steps in a loop until it is interrupted: what is random is the moment
FIT = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np
import threadpoolctl
import truelike as tl
from truelike.models.registry import build

name, n_jobs, (n_users, n_items) = json.loads(sys.argv[1])
data = tl.synthetic.World(n_users=n_users, n_items=n_items).dataset()
users = list(data.users)[:5]

def new_model(**own):
    known = build(name, {}).get_params()
    model = build(name, {key: value for key, value in own.items() if key in known})
    return model.set_params(n_jobs=n_jobs) if "n_jobs" in model.get_params() else model

def blas():
    return [each["num_threads"] for each in threadpoolctl.threadpool_info() if each["user_api"] == "blas"]

def state(model):
    return model.train_.n_interactions, model.recommend(users, k=5).rows()

def first(model):
    model.fit(data, progress=False)

def second(model):
    if model.supports_partial_fit:
        model.partial_fit([(10**6, int(data.items[0])), (users[0], int(data.items[1]))], epochs=1, progress=False)

# the states that a model may be in: each step happens as a whole or not at all
model = new_model(epochs=1)
states = []
for step in (first, second):
    step(model)
    states.append(state(model))
threads, long = blas(), new_model()
print("ready", flush=True)
try:
    while True:
        first(model)
        second(model)
        long.fit(data, validation=0.2, progress=False) if long.iterative else first(long)
except KeyboardInterrupt:
    try:
        stopped = time.monotonic()
        sum(range(100))
    except KeyboardInterrupt:  # polars delivers an interrupt twice
        stopped = time.monotonic()
print(json.dumps({"stopped": stopped}), flush=True)
assert state(model) in states, "the model is neither as before nor as after the step"
assert blas() == threads, (blas(), threads)
again = new_model(epochs=1)
first(again)
assert state(again) == states[0]
print("usable", flush=True)
sys.exit(0)  # else Python ends by SIGINT, though it was handled, if it came while a string was evaluated
"""


def _interruptible() -> None:
    """A process that a shell started in the background ignores Ctrl-C, and so would its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def interrupt_fit(name: str, n_jobs: int, size: str, delay: float) -> tuple[str, float]:
    """Run fits, interrupt them after `delay` seconds, and return what happened and how long it took."""
    process = subprocess.Popen(
        [sys.executable, "-c", FIT, json.dumps([name, n_jobs, SIZES[size]])],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=_interruptible,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        if process.stdout.readline().strip() != "ready":
            return f"did not start: {process.communicate()[1][-500:]}", 0.0
        time.sleep(delay)
        sent = time.monotonic()
        process.send_signal(signal.SIGINT)
        try:
            out, errors = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            return "hangs", PATIENCE
    finally:
        process.kill()
        process.wait()
    lines = out.splitlines()
    if not lines or "stopped" not in lines[0]:
        return f"ended with {process.returncode}: {errors[-500:]}", time.monotonic() - sent
    took = json.loads(lines[0])["stopped"] - sent
    if lines[-1] != "usable" or process.returncode:
        return f"not usable: {errors[-500:]}", took
    return ("ended" if took <= LIMIT else "late"), took


COMMANDS = {
    "train": ["train", "{log}", "-o", "{out}/model"],
    "train-nbpo": ["train", "{log}", "-m", "NBPO", "-o", "{out}/model"],
    "train-checkpoint": ["train", "{log}", "-m", "BPR", "--checkpoint", "{out}/checkpoint", "-o", "{out}/model"],
    "tune": ["tune", "{log}", "-m", "BPR", "--trials", "20", "-d", "{out}/tune"],
    "compare": ["compare", "{log}", "-d", "{out}/compare"],
    "split": ["data", "split", "{log}", "-o", "{out}/split"],
    "recommend": ["recommend", "{model}", "-k", "50"],
    "evaluate": ["evaluate", "{model}", "{split}"],
    "demo": ["demo"],
}


def prepare(place: Path) -> dict[str, str]:
    """A log, a split and a model for the commands."""
    import truelike as tl

    world = tl.synthetic.World(n_users=600, n_items=400)
    data = world.dataset()
    data.to_frame().select("user_id", "item_id").write_csv(place / "log.csv")
    split = tl.splits.by_user(data, seed=0)
    split.save(place / "split")
    tl.ItemKNN().fit(split.train).save(place / "model")
    return {"log": str(place / "log.csv"), "split": str(place / "split"), "model": str(place / "model")}


def interrupt_command(name: str, places: dict[str, str], delay: float) -> tuple[str, float]:
    """Run a command, interrupt it after `delay` seconds, and return what happened and how long it took."""
    with tempfile.TemporaryDirectory() as out:
        given = [part.format(**places, out=out) for part in COMMANDS[name]]
        process = subprocess.Popen(
            [sys.executable, "-m", "truelike", *given],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=out,
            preexec_fn=_interruptible,
        )  # fmt: skip
        try:
            time.sleep(delay)
            if process.poll() is not None:
                return f"was over ({process.returncode})", 0.0
            sent = time.monotonic()
            process.send_signal(signal.SIGINT)
            try:
                _, errors = process.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                return "hangs", PATIENCE
        finally:
            process.kill()
            process.wait()
        took = time.monotonic() - sent
        if process.returncode == 0 and took < LIMIT:  # it had nearly ended
            return "was over (0)", took
        if process.returncode == -signal.SIGINT and "truelike" not in errors.replace("truelike/__main__.py", ""):
            return "ended", took  # Python itself was starting
        if process.returncode != 130 or "Traceback" in errors:
            return f"ended with {process.returncode}: {errors[-800:]}", took
        return ("ended" if took <= LIMIT else "late"), took


def main() -> None:
    """Interrupt as often as asked, and print what happened."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fits", type=int, default=300)
    parser.add_argument("--commands", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--models", default=",".join(MODELS))
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    found: Counter[str] = Counter()
    longest: dict[str, float] = {}
    models = arguments.models.split(",")
    for number in range(arguments.fits):
        name, n_jobs = models[number % len(models)], THREADS[number // len(models) % len(THREADS)]
        size = draw.choice(list(SIZES))
        what, took = interrupt_fit(name, n_jobs, size, delay=draw.uniform(0.0, 0.4))
        record(found, longest, f"fit {name} n_jobs={n_jobs} {size}", what, took)
    with tempfile.TemporaryDirectory() as place:
        places = prepare(Path(place)) if arguments.commands else {}
        for number in range(arguments.commands):
            name = list(COMMANDS)[number % len(COMMANDS)]
            what, took = interrupt_command(name, places, delay=draw.uniform(0.05, 3.0))
            record(found, longest, f"command {name}", what, took)
    print(dict(found))
    print("longest:", sorted(((round(took, 2), what) for what, took in longest.items()), reverse=True)[:8])
    sys.exit(any(what not in ("ended", "was over") for what in found))


def record(found: Counter[str], longest: dict[str, float], subject: str, what: str, took: float) -> None:
    """Count what happened, and print what should not."""
    kind = what.partition(" (")[0].partition(":")[0]
    found[kind] += 1
    longest[subject] = max(took, longest.get(subject, 0.0))
    if kind not in ("ended", "was over"):
        print(f"{subject}: {what} ({took:.1f} s)", flush=True)


if __name__ == "__main__":
    main()
