"""`tl.splits`, `tl.datasets` and `tl.synthetic` are modules that can be imported."""

import importlib
import subprocess
import sys

import pytest

PUBLIC = {
    "splits": ["by_user", "leave_one_out", "random", "temporal"],
    "datasets": [
        "cache_directory",
        "coat_truth",
        "fetch",
        "load",
        "movielens_features",
        "names",
    ],
    "synthetic": ["World"],
}


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_module_can_be_imported_and_lists_public_names_only(name: str) -> None:
    module = importlib.import_module(f"truelike.{name}")
    assert dir(module) == PUBLIC[name]
    assert all(hasattr(module, each) for each in PUBLIC[name])


def test_public_modules_are_imported_first_in_a_fresh_process_without_what_is_built_on_data() -> None:
    code = (
        "import sys, truelike.splits, truelike.datasets, truelike.synthetic, truelike.data.features\n"
        "from truelike.splits import by_user\n"
        "assert truelike.splits.by_user is by_user\n"
        "print(sorted({name.split('.')[1] for name in sys.modules if name.startswith('truelike.')}))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120)
    for above in ("storage", "models", "training", "evaluation", "ranking"):
        assert repr(above) not in done.stdout
