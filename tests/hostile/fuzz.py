"""All fuzzers with new seeds, for as long as asked: no crash, no hang, no error that is not ours, nothing wrong.

    python tests/hostile/fuzz.py --minutes 60
    python tests/hostile/fuzz.py --only models,csv --minutes 5
    python tests/hostile/fuzz.py --case csv 12345

The fuzzers are those of `FUZZERS` in the modules fuzz_*.py beside this file. They run in processes of their own, so that a
crash or a hang is found and named by its seed. Afterwards come Ctrl-C, kill -9, loads beside saves, and all pairs of
models in two threads. The exit code is 1 if anything was found.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

HERE = Path(__file__).parent
CASES = 200  # of a process
PATIENCE = 120.0  # seconds without an answer, after which a case counts as hanging


def fuzzers() -> dict[str, Callable[[int], None]]:
    """All fuzzers by name."""
    modules = [import_module(path.stem) for path in sorted(HERE.glob("fuzz_*.py"))]
    return {name: case for module in modules for name, case in module.FUZZERS.items()}


def run_cases(name: str, first: int, n: int) -> None:
    """Run some cases in this process; a line for each: its seed, then "ok" or what it raised."""
    case = fuzzers()[name]
    for seed in range(first, first + n):
        os.write(1, f"\n{seed} ".encode())
        try:
            case(seed)
        except BaseException as error:  # also a PanicException of polars, which is no Exception
            text = "".join(traceback.format_exception(error)[-3:])
            os.write(1, f"{type(error).__name__}: {error}; {text}".replace("\n", " | ")[:3000].encode())
        else:
            os.write(1, b"ok")
    os.write(1, b"\n")


def run_process(name: str, first: int) -> Counter[str]:
    """Run cases in a process of its own; count them, and print those that failed."""
    command = [sys.executable, "-W", "ignore", __file__, "--cases", name, str(first), str(CASES)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        out, _ = process.communicate(timeout=PATIENCE + CASES)
        end = f"crash, exit code {process.returncode}" if process.returncode else ""
    except subprocess.TimeoutExpired:
        process.kill()
        out, end = process.communicate()[0], "hang"
    found: Counter[str] = Counter()
    lines = [line for line in out.decode(errors="replace").splitlines() if line.strip()]
    for number, line in enumerate(lines):
        seed, _, answer = line.partition(" ")
        last = number == len(lines) - 1
        if answer == "ok":
            found["passed"] += 1
        elif answer:
            found["failed"] += 1
            print(f"{name} {seed}: {answer}", flush=True)
        elif last and end:
            found["failed"] += 1
            print(f"{name} {seed}: {end}", flush=True)
    if end and not lines:
        found["failed"] += 1
        print(f"{name} from {first}: {end} before the first case", flush=True)
    return found


def fuzz(names: list[str], minutes: float, first: int, jobs: int) -> dict[str, Counter[str]]:
    """Run the fuzzers in turn until the time is over; the counts of each."""
    found: dict[str, Counter[str]] = {name: Counter() for name in names}
    until = time.monotonic() + 60 * minutes
    turns = iter([(name, first + turn * CASES) for turn in range(10**6) for name in names])

    def work(_: int) -> None:
        while time.monotonic() < until:
            name, seed = next(turns)
            found[name].update(run_process(name, seed))

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(work, range(jobs)))
    return found


def run_scripts(shares: dict[str, list[str]]) -> int:
    """Run the other trials, each a script of its own; the number of those that failed."""
    failed = 0
    for name, arguments in shares.items():
        started = time.monotonic()
        code = subprocess.run([sys.executable, str(HERE / f"{name}.py"), *arguments], check=False).returncode
        print(f"{name}: exit code {code}, {time.monotonic() - started:.0f} s", flush=True)
        failed += code != 0
    return failed


def pairs() -> int:
    """All pairs of models, fitted in two threads; the number of those that changed each other."""
    threads, failed = import_module("test_threads"), 0
    for first, second in threads.all_pairs():
        try:
            threads.check_pair(first, second, times=1)
        except AssertionError as error:
            failed += 1
            print(f"{first} beside {second}: {error}", flush=True)
    print(f"pairs of models: {len(threads.all_pairs())}, failed {failed}", flush=True)
    return failed


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--only", default="")
    parser.add_argument("--first", type=int, default=time.time_ns() // 10**9 % 10**8 * 1000, help="first seed")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--case", nargs=2, metavar=("NAME", "SEED"), help="run one case here, with its traceback")
    parser.add_argument("--cases", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument(
        "--scripts", action="store_true", help="also Ctrl-C, kill -9, loads beside saves, pairs of models"
    )
    arguments = parser.parse_args()
    if arguments.cases:
        return run_cases(arguments.cases[0], int(arguments.cases[1]), int(arguments.cases[2]))
    if arguments.case:
        return fuzzers()[arguments.case[0]](int(arguments.case[1]))
    names = arguments.only.split(",") if arguments.only else list(fuzzers())
    print(f"seeds from {arguments.first}", flush=True)
    found = fuzz(names, arguments.minutes, arguments.first, arguments.jobs)
    for name, counts in found.items():
        print(f"{name}: {counts['passed']:,} cases passed, {counts['failed']} failed", flush=True)
    failed = sum(counts["failed"] for counts in found.values())
    if arguments.scripts:
        failed += run_scripts(
            {"saves": ["--loads", "10000"], "interrupts": ["--fits", "300"], "kills": ["--kills", "100"]}
        )
        failed += pairs()
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
