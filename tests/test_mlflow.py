"""`truelike.mlflow`: models in MLflow, without pickle and without a network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import truelike as tl
from truelike.errors import DataError, NotFittedError, NotFoundError, ParameterError, StorageError, UnknownIdError

# MLflow reports its use to its makers unless it is told not to, and keeps runs in files only if it is told to
os.environ.update(MLFLOW_DISABLE_TELEMETRY="true", DO_NOT_TRACK="true", MLFLOW_ALLOW_FILE_STORE="true")
mlflow: Any = pytest.importorskip("mlflow", reason="MLflow is not installed: pip install 'truelike[mlflow]'")
pd = pytest.importorskip("pandas")

pytestmark = [
    pytest.mark.filterwarnings("ignore::Warning:mlflow.*"),
    pytest.mark.filterwarnings("ignore:Series.ravel:FutureWarning"),  # of mlflow with an old pandas
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def model() -> Any:
    data = tl.synthetic.World(n_users=50, n_items=40).dataset().with_titles({n: f"title {n}" for n in range(40)})
    return tl.IALS(factors=4, epochs=2).fit(data, progress=False)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Path]:
    """A store of runs and registered models in files."""
    before = mlflow.get_tracking_uri(), mlflow.get_registry_uri()
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    mlflow.set_registry_uri((tmp_path / "runs").as_uri())
    yield tmp_path / "runs"
    mlflow.set_tracking_uri(before[0])
    mlflow.set_registry_uri(before[1])


def as_pandas(frame: Any) -> list[tuple[Any, ...]]:
    return list(frame.to_pandas().itertuples(index=False, name=None))


def rows(frame: Any) -> list[tuple[Any, ...]]:
    assert isinstance(frame, pd.DataFrame)
    return list(frame.itertuples(index=False, name=None))


def test_a_saved_model_has_no_pickle_and_is_loaded_to_the_bit(model: Any, tmp_path: Path) -> None:
    tl.mlflow.save_model(model, tmp_path / "model", metadata={"owner": "shop"})
    files = {
        str(each.relative_to(tmp_path / "model")) for each in (tmp_path / "model").rglob("*") if each.is_file()
    }
    assert {f"data/truelike/{name}" for name in ("model.json", "arrays.safetensors", "users.parquet")} <= files
    assert not [name for name in files if name.endswith((".pkl", ".pickle", ".cloudpickle", ".joblib", ".py"))]
    for name in files:
        assert not (tmp_path / "model" / name).read_bytes().startswith(b"\x80"), f"{name} may be a pickle"
    about = (tmp_path / "model" / "MLmodel").read_text()
    assert "loader_module: truelike.mlflow" in about
    assert "cloudpickle" not in about
    requirements = (tmp_path / "model" / "requirements.txt").read_text()
    assert f"truelike[mlflow]=={tl.__version__}" in requirements
    again = tl.mlflow.load_model(tmp_path / "model")
    assert again.recommend(k=5).equals(model.recommend(k=5))
    with pytest.raises(Exception, match="exists"):
        tl.mlflow.save_model(model, tmp_path / "model")


def test_a_pyfunc_recommends_to_the_users_of_a_frame(model: Any, tmp_path: Path) -> None:
    tl.mlflow.save_model(model, tmp_path / "model")
    function = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    users = [7, 3, 7]
    found = function.predict(pd.DataFrame({"age": [1, 2, 3], "user_id": users}))
    assert list(found.columns) == ["user_id", "item_id", "score", "rank"]
    assert rows(found) == as_pandas(model.recommend(users))
    found = function.predict({"user_id": users}, params={"k": 3, "exclude_seen": False, "titles": True})
    assert rows(found) == as_pandas(model.recommend(users, k=3, exclude_seen=False, titles=True))
    unknown = pd.DataFrame({"user_id": [3, 999]})
    with pytest.raises(UnknownIdError):
        function.predict(unknown)
    for how in ("popular", "skip"):
        found = function.predict(unknown, params={"on_unknown": how})
        assert rows(found) == as_pandas(model.recommend([3, 999], on_unknown=how))
    with pytest.raises(Exception, match="user_id"):
        function.predict(pd.DataFrame({"customer": [3]}))
    wrapper = tl.mlflow._Predictor(model)
    with pytest.raises(DataError, match="the columns are 'a'; expected one with the name user_id"):
        wrapper.predict(pd.DataFrame({"a": [1]}))
    with pytest.raises(ParameterError, match="params has n"):
        wrapper.predict({"user_id": [7]}, {"n": 3})


def test_text_and_uuids_as_ids(tmp_path: Path) -> None:
    for name, make in (("text", lambda n: f"u{n}"), ("uuid", lambda n: uuid.UUID(int=n))):
        pairs = [(make(n), f"i{m}") for n in range(12) for m in range(n % 4, 8)]
        model = tl.ItemPop().fit(tl.read(pairs))
        tl.mlflow.save_model(model, tmp_path / name)
        function = mlflow.pyfunc.load_model(str(tmp_path / name))
        asked, expected = {"user_id": [str(make(3)), str(make(5))]}, model.recommend([make(3), make(5)], k=2)
        for users in (asked, pd.DataFrame(asked)):
            found = function.predict(users, params={"k": 2})
            assert list(map(str, found["user_id"])) == list(map(str, expected["user_id"]))
            assert list(found["item_id"]) == expected["item_id"].to_list()


def test_a_model_is_logged_registered_and_loaded_by_its_address(model: Any, store: Path) -> None:
    with mlflow.start_run() as run:
        info = tl.mlflow.log_model(model, "lists", registered_model_name="shop", tags={"team": "search"})
        mlflow.log_params(model.get_params())
    assert set(info.flavors) == {"python_function", "truelike"}
    assert info.flavors["truelike"]["model_class"] == "IALS"
    for uri in (info.model_uri, "models:/shop/1", f"runs:/{run.info.run_id}/lists"):
        assert tl.mlflow.load_model(uri).recommend(k=3).equals(model.recommend(k=3))
    found = mlflow.pyfunc.load_model("models:/shop/1").predict(pd.DataFrame({"user_id": [5]}))
    assert rows(found) == as_pandas(model.recommend(5))
    assert not [each for each in store.rglob("*") if each.suffix in (".pkl", ".pickle")]


def test_an_auto_recommender_is_the_model_that_it_chose(tmp_path: Path) -> None:
    data = tl.synthetic.World(n_users=60, n_items=40).dataset()
    chosen = tl.AutoRecommender(n_trials=2).fit(data, progress=False)
    tl.mlflow.save_model(chosen, tmp_path / "model")
    again = tl.mlflow.load_model(tmp_path / "model")
    assert type(again) is type(chosen.model_)
    assert again.recommend().equals(chosen.recommend())


def test_wrong_calls_are_refused(model: Any, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="a fitted model of truelike is expected; dict was given"):
        tl.mlflow.save_model({}, tmp_path / "model")
    with pytest.raises(NotFittedError):
        tl.mlflow.save_model(tl.IALS(), tmp_path / "model")
    with pytest.raises(NotFoundError, match="MLmodel is missing"):
        tl.mlflow.load_model(tmp_path)
    (tmp_path / "MLmodel").write_text("flavors:\n  sklearn: {}\n")
    with pytest.raises(StorageError, match="its flavors are sklearn"):
        tl.mlflow.load_model(tmp_path)
    tl.mlflow.save_model(model, tmp_path / "model")
    description = tmp_path / "model" / "data" / "truelike" / "model.json"
    description.write_text(json.dumps({**json.loads(description.read_text()), "class": "os.system"}))
    with pytest.raises(StorageError, match="damaged"):
        tl.mlflow.load_model(tmp_path / "model")


def test_without_mlflow_the_error_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['mlflow'] = None\n"
        "import truelike as tl\n"
        "assert tl.mlflow.load_model\n"
        "try: tl.mlflow.load_model('x')\n"
        "except tl.errors.MissingExtraError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == 'truelike.mlflow needs MLflow: pip install "truelike[mlflow]"'
