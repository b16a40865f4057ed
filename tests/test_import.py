"""Importing truelike is quick: heavy packages are imported when they are first used."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

import pytest

import truelike as tl

HEAVY = ("numba", "polars", "scipy", "pandas", "pyarrow", "torch", "matplotlib", "numpy", "mlflow")


PUBLIC = {
    "splits": {"at_date", "by_user", "k_fold", "last_n", "leave_one_out", "new_users", "random", "temporal"},
    "datasets": {"cache_directory", "coat_truth", "fetch", "load", "movielens_features", "names"},
    "parameters": {"choice", "flag", "jobs", "number", "whole_number"},
    "synthetic": {"World"},
}


def in_a_fresh_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.strip()


def test_importing_truelike_its_version_and_the_list_of_names_import_nothing_heavy() -> None:
    code = f"import sys, truelike; truelike.__version__, dir(truelike); print(set({HEAVY}) & set(sys.modules))"
    assert in_a_fresh_python(code) == "set()"


@pytest.mark.parametrize("name", tl.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(tl, name) is getattr(tl, name) is not None


def test_the_public_names_are_listed_once() -> None:
    assert dir(tl) == sorted(tl.__all__)
    assert len(set(tl.__all__)) == len(tl.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    assert not hasattr(tl, "Recomender")
    with pytest.raises(AttributeError, match="attribute Recomender"):
        tl.Recomender  # noqa: B018


@pytest.mark.parametrize(
    "module", ["datasets", "errors", "mlflow", "negatives", "objectives", "parameters", "splits", "synthetic"]
)
def test_public_modules_can_be_imported_and_list_public_names_only(module: str) -> None:
    public = importlib.import_module(f"truelike.{module}")
    assert getattr(tl, module) is public
    assert set(dir(public)) == set(public.__all__) == PUBLIC.get(module, set(public.__all__))
    assert all(getattr(public, name) is not None for name in public.__all__)


def test_every_exception_is_in_tl_errors() -> None:
    defined = {
        name
        for module in pkgutil.walk_packages(truelike_path(), "truelike.")
        if not module.name.endswith("__main__")
        for name, value in vars(importlib.import_module(module.name)).items()
        if isinstance(value, type) and issubclass(value, (tl.errors.TruelikeError, UserWarning))
        if value.__module__.startswith("truelike.")
    }
    assert defined == set(tl.errors.__all__)


def truelike_path() -> list[str]:
    return list(importlib.import_module("truelike").__path__)


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None  # as if it were not installed
import truelike as tl
from truelike import *
from truelike.models.registry import REGISTRY, model_class
data = tl.synthetic.World(n_users=60, n_items=40).dataset()
tl.BPR(epochs=2).fit(data).recommend(0)
assert tl.compare(data, ["ItemPop", "ItemKNN"], n_trials=1, n_workers=1).best
for name in ("FM", "NeuMF", "ACF", "LightGCN", "DeepRecommender"):
    try:
        getattr(tl, name)()
    except tl.errors.MissingExtraError as error:
        print(error)
"""


def test_without_pytorch_all_else_works_and_networks_say_what_to_install() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    names = ("FM", "NeuMF", "ACF", "LightGCN", "DeepRecommender")
    assert done.stdout.splitlines() == [f"{name} needs PyTorch: pip install 'truelike[deep]'" for name in names]


def test_pytorch_is_not_imported_before_a_network_is_asked_for() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'truelike[deep]'")
    before = "import sys, truelike as tl; tl.BPR; tl.compare; print('torch' in sys.modules)"
    assert in_a_fresh_python(before) == "False"
    assert in_a_fresh_python(f"{before}; tl.NeuMF; print('torch' in sys.modules)").split() == ["False", "True"]
