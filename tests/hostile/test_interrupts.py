"""Ctrl-C at random moments; `interrupts.py` does the same hundreds of times."""

from __future__ import annotations

import random
from pathlib import Path

import interrupts
import pytest

PATIENT = 10.0  # seconds: the machine may be busy; `interrupts.py` measures against its own limit


@pytest.mark.parametrize("n_jobs", [1, 2, 8])
@pytest.mark.parametrize("name", ["NBPO", "IALS", "SoftmaxMF", "EASE"])
def test_an_interrupted_fit_ends_and_leaves_the_model(name: str, n_jobs: int) -> None:
    delay = random.Random(f"{name} {n_jobs}").uniform(0.0, 0.3)
    what, took = interrupts.interrupt_fit(name, n_jobs, "tiny" if n_jobs == 8 else "larger", delay)
    assert what in ("ended", "late"), what
    assert took < PATIENT


@pytest.mark.parametrize("command", ["train", "tune", "compare"])
def test_an_interrupted_command_ends_with_130(command: str, tmp_path: Path) -> None:
    what, took = interrupts.interrupt_command(command, interrupts.prepare(tmp_path), delay=1.5)
    assert what in ("ended", "late", "was over (0)"), what
    assert took < PATIENT
