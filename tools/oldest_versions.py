"""Write the constraints of `make test-oldest`: the oldest version that pyproject.toml allows of every dependency.

A package that pyproject.toml names is pinned to its lower bound. All others stay at the version of constraints.txt,
so that a new release of one of them does not break an old commit.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
LEFT_OUT = ("docs", "schemas")  # extras that are not installed with the oldest versions
NEWEST = {"torch"}  # the CPU build of constraints.txt is the one that can be had everywhere
PINNED_BY_ANOTHER = {"llvmlite", "polars-runtime-32", "pydantic-core"}  # by numba, polars and pydantic


def lower_bounds() -> dict[str, str]:
    """Return the lower bound of every package that pyproject.toml names, `[docs]` and `[schemas]` left out."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    named = [*project["dependencies"], *(line for name in extras if name not in LEFT_OUT for line in extras[name])]
    bounds = {}
    for line in named:
        if line.startswith(f"{project['name']}["):
            continue
        found = re.fullmatch(r"([\w.-]+)>=([\w.]+)(,<[\w.]+)?(; .+)?", line)
        if found is None:
            raise SystemExit(f"pyproject.toml has {line!r}; expected name>=version[,<version][; marker]")
        bounds[normal(found[1])] = found[2]
    return bounds


def tested_versions() -> dict[str, str]:
    """Return the versions of constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {normal(name): version for name, version in pairs}


def normal(name: str) -> str:
    """Return the normalized name of a package: lower case, with hyphens."""
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> None:
    """Write one pin per line."""
    oldest = {name: version for name, version in lower_bounds().items() if name not in NEWEST}
    others = {name: version for name, version in tested_versions().items() if name not in PINNED_BY_ANOTHER}
    sys.stdout.writelines(f"{name}=={version}\n" for name, version in sorted({**others, **oldest}.items()))


if __name__ == "__main__":
    main()
