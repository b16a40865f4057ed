"""Does noise-robust learning help on other positive-unlabelled data: text retrieval, web search, social networks?

    python benchmarks/pu.py text|search|social [--same] [--quick]

The paper leaves it for later. Queries are users and documents are items; in the social network members are both. Each
interaction is known to be positive, and a missing one is not known to be negative. All models are tuned alike on
validation (9 candidates by halving, NDCG@20, 64 factors) and evaluated once on test with 5 seeds, by `tl.compare`. What
a user has in training and validation is left out of the lists. Where true labels of missing pairs are known, the same
models are scored against them, too. The claims are decided by the rule of the paper's claims
(`truelike.paper.verdicts.above`).

| study | data | missing pairs |
|---|---|---|
| text | Semanlink: tags and documents with words; TREC-COVID: topics and judged documents | unknown; judged by hand |
| search | clicks simulated on both (`ClickModel`) | known |
| social | Ciao: who trusts whom | unknown |

Writes results/pu/STUDY.csv (figures by model) and STUDY-verdicts.csv. The runs are in results/pu/runs, which Git
ignores; a finished run is not repeated. With --same, the second model of each claim is also run at the settings of the
first, to tell the objective from the luck of the search: STUDY-same.csv. `pu_data.py` has the data, one file of a
package of PyPI each.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pu_data
from common import arguments, output_directory, small_dataset
from pu_data import ClickModel
from scipy import sparse

import truelike as tl
from truelike.core.parameters import number
from truelike.evaluation.significance import LEVEL, paired_t
from truelike.paper.experiments import MEASURES
from truelike.paper.gains import Gain, gain_over
from truelike.paper.protocol import UNTRAINED
from truelike.paper.verdicts import HOLDS, NOT, PART, Verdict, above
from truelike.selection.comparison import ModelResult

METRIC = "ndcg@20"
NBPO_O = "SampledMF:objective=NBPO-o"
MODELS = ("ItemPop", "BPR", "BPO", "NBPO", NBPO_O, "ExactBPO", "ExactNBPO", "SoftmaxMF", "IALS", "EASE")
# a noise-robust objective and the same without flips, or BPR
CLAIMS = (("NBPO", "BPO"), ("NBPO", "BPR"), ("ExactNBPO", "ExactBPO"))


# --- a baseline by content -------------------------------------------------------------------------


@dataclass(kw_only=True, eq=False, repr=False)
class TfIdf(tl.Recommender):
    """Score a document by its words: cosine with the query's documents (Rocchio), and with the words of the query.

    Parameters
    ----------
    query_weight
        Weight of the words of the query, from 0 to 1.
    """

    uses: ClassVar[frozenset[str]] = frozenset({"item_features", "user_features"})
    search_space: ClassVar[dict[str, Any]] = {"query_weight": (0.0, 1.0)}

    query_weight: float = number(0.2, low=0.0, high=1.0)

    def _fit(self, train: tl.Dataset, options: Any) -> dict[str, Any]:
        if train.item_features is None or train.user_features is None:
            raise tl.errors.DataError("TfIdf needs a column of words of the items and of the users")
        documents, queries = (part.frame["words"].to_list() for part in (train.item_features, train.user_features))
        column = {word: n for n, word in enumerate(sorted({word for each in documents for word in each}))}
        count = Counter(word for each in documents for word in set(each))
        rarity = {word: math.log(len(documents) / n) for word, n in count.items()}
        matrices = []
        for rows in (documents, queries):
            found = [(row, column[w], rarity[w]) for row, each in enumerate(rows) for w in each if w in column]
            row, place, weight = zip(*found, strict=True)
            table = sparse.csr_array((weight, (row, place)), shape=(len(rows), len(column)), dtype=np.float32)
            matrices.append(_unit(table))
        return {"documents_": matrices[0], "queries_": matrices[1]}

    def _make_scorer(self) -> tl.Scorer:
        return TfIdfScorer(self.train_, self.documents_, self.queries_, self.query_weight)


class TfIdfScorer(tl.Scorer):
    """Cosines of words."""

    def __init__(self, train: tl.Dataset, documents: Any, queries: Any, query_weight: float) -> None:
        super().__init__(train)
        self.documents, self.queries, self.query_weight = documents, queries, query_weight

    def score_users(self, users: Any) -> Any:
        own = (self.queries[users] @ self.documents.T).toarray()
        return (1 - self.query_weight) * self.score_histories(self.train.matrix[users]) + self.query_weight * own

    def score_histories(self, histories: Any) -> Any:
        profiles = _unit(sparse.csr_array(histories, dtype=np.float32) @ self.documents)
        return (profiles @ self.documents.T).toarray()

    def similarities(self, items: Any) -> Any:
        return (self.documents[items] @ self.documents.T).toarray()


def _unit(table: Any) -> Any:
    """Rows of length 1; an empty row stays."""
    length = np.sqrt(table.multiply(table).sum(axis=1))
    return sparse.csr_array(table / np.maximum(length, 1e-12)[:, None])


# --- the data of the studies -----------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """Data of a study, the true labels of missing pairs where they are known, and further models."""

    name: str
    data: tl.Dataset
    truth: tl.Truth | None = None
    more: tuple[Any, ...] = field(default=())

    @property
    def split(self) -> tl.Split:
        """80, 10 and 10 % of the interactions of each user, at random."""
        return tl.splits.by_user(self.data, validation=0.1, test=0.1, rounding="random", seed=0)


def text() -> list[Case]:
    """Semanlink, whose missing tags are unknown, and TREC-COVID, of which people judged missing pairs, too."""
    judged = pu_data.trec_covid(pu_data.JUDGEMENTS.fetch())
    relevant = tl.read(judged.filter(pl.col("grade") > 0), user="query", item="document")
    return [
        Case("semanlink", pu_data.semanlink(pu_data.DOCUMENTS.fetch(), pu_data.TAGS.fetch()), None, (TfIdf,)),
        Case("trec-covid", relevant, pu_data.judged_truth(judged)),
    ]


def search() -> list[Case]:
    """Clicks simulated on the judgements of TREC-COVID, and on the tags of Semanlink as if they were complete."""
    judged = pu_data.trec_covid(pu_data.JUDGEMENTS.fetch())
    tagged = pu_data.semanlink(pu_data.DOCUMENTS.fetch(), pu_data.TAGS.fetch())
    grades = tagged.matrix.astype(bool).toarray()
    queries, documents = (each.ravel() for each in np.indices(grades.shape))
    every = pl.DataFrame(
        {
            "query": tagged.users.take(queries.astype(np.int32)),
            "document": tagged.items.take(documents.astype(np.int32)),
            "grade": 2 * grades.ravel().astype(np.int64),
        }
    )
    return [
        Case("trec-covid clicks", clicked(judged, ClickModel()), pu_data.judged_truth(judged)),
        Case("semanlink clicks", clicked(every, ClickModel(sessions=100, quality=3.0)), tl.Truth(tagged)),
    ]


def clicked(judged: pl.DataFrame, clicks: ClickModel) -> tl.Dataset:
    """The clicked pairs, of queries with five documents or more and documents with two queries or more."""
    return tl.k_core(tl.read(clicks.clicks(judged), user="query", item="document"), user=5, item=2).dataset


def social() -> list[Case]:
    """The trust network of Ciao."""
    return [Case("ciao-trust", pu_data.ciao_trust(pu_data.TRUST.fetch()))]


def quick() -> list[Case]:
    """A small world with known truth."""
    world = tl.synthetic.World(n_users=200, n_items=100)
    return [Case("world", world.dataset(), world.truth()), Case("again", small_dataset())]


STUDIES: dict[str, Callable[[], list[Case]]] = {"text": text, "search": search, "social": social}


# --- figures and verdicts --------------------------------------------------------------------------


@dataclass(frozen=True)
class Figures:
    """The figures of a model on a case: by seed, and by user as means over seeds."""

    parameters: str
    by_seed: dict[str, np.ndarray]
    by_user: dict[str, np.ndarray]

    @classmethod
    def of(cls, found: ModelResult, case: Case, split: tl.Split) -> Figures:
        """Take the figures on test of a comparison, and fit the model again for those against the truth."""
        by_seed = {name: np.array([record["test"][name] for record in found.records]) for name in MEASURES}
        by_user = {name: found.of(name) for name in MEASURES}
        if case.truth is not None:
            rows = [_against_truth(found, record, case.truth, split) for record in found.records]
            for name in rows[0]:
                each = np.array([row[name] for row in rows])
                by_seed[name], by_user[name] = np.nanmean(each, axis=1), each.mean(axis=0)
        tuned = {name: value for name, value in found.parameters.items() if name not in ("seed", "metric")}
        listed = (f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in tuned.items())
        return cls(", ".join(listed), by_seed, by_user)


def _against_truth(found: ModelResult, record: dict[str, Any], truth: tl.Truth, split: tl.Split) -> dict[str, Any]:
    """AUC and NDCG@20 of each user over missing pairs with a true label, and AUC of the posterior of hidden likes."""
    seed = {"seed": record["parameters"]["seed"]} if "seed" in record["parameters"] else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tl.errors.TrainingWarning)  # `trained` says so
        model = found.variant.make({**found.parameters, **seed}).fit(split, progress=False)
    return dict(tl.evaluate(model, truth=truth, ks=20, n_jobs=1, notes=False).values)


def gains(a: Figures, b: Figures, data: str, measures: list[str]) -> list[Gain]:
    """The gain of a model over another by each measure."""
    return [
        gain_over(data, name, a.by_seed[name], b.by_seed[name], paired_t(*(each.by_user[name] for each in (a, b))))
        for name in measures
    ]


def trained(figures: dict[str, Figures], model: str) -> bool:
    """Whether a model is significantly above ItemPop: the order of others says nothing."""
    mine, floor = (figures[name].by_user[METRIC] for name in (model, "ItemPop"))
    return bool(mine.mean() > floor.mean() and paired_t(mine, floor) < LEVEL)


def verdicts(found: dict[str, dict[str, Figures]], truth: dict[str, list[str]]) -> pl.DataFrame:
    """Decide the claims by held-out interactions, and by the truth of missing pairs where it is known."""
    rows = []
    for (a, b), by_truth in itertools.product(CLAIMS, (False, True)):
        asked = {data: figures for data, figures in found.items() if truth[data] or not by_truth}
        counted = [data for data, figures in asked.items() if all(trained(figures, name) for name in (a, b))]
        every = [
            gain
            for data in counted
            for gain in gains(found[data][a], found[data][b], data, truth[data] if by_truth else MEASURES)
        ]
        decided = above(every) if every else Verdict(UNTRAINED)
        if asked:
            rows.append(
                {
                    "claim": f"{a} is above {b}",
                    "by": "true labels" if by_truth else "held-out interactions",
                    "data": ", ".join(counted),
                    "verdict": decided.verdict,
                    "measured": decided.measured,
                    "did not train on": ", ".join(data for data in asked if data not in counted),
                }
            )
    return pl.DataFrame(rows)


def overall(table: pl.DataFrame) -> str:
    """Noise-robust learning helps: holds if all claims by held-out interactions do, in part if any does at all."""
    decided = table.filter(pl.col("by") == "held-out interactions")["verdict"].to_list()
    if decided and all(each == HOLDS for each in decided):
        return HOLDS
    return PART if any(each in (HOLDS, PART) for each in decided) else NOT


def table_of(found: dict[str, dict[str, Figures]]) -> pl.DataFrame:
    """A row for each model and dataset: means, the standard deviation of the metric over seeds, tuned parameters."""
    rows = [
        {
            "data": data,
            "model": name,
            "seeds": len(each.by_seed[METRIC]),
            "trained": name == "ItemPop" or trained(figures, name),
            **{measure: float(values.mean()) for measure, values in each.by_seed.items()},
            f"{METRIC} std": float(each.by_seed[METRIC].std(ddof=1)) if len(each.by_seed[METRIC]) > 1 else None,
            "parameters": each.parameters,
        }
        for data, figures in found.items()
        for name, each in sorted(figures.items(), key=lambda pair: -pair[1].by_seed[METRIC].mean())
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


def compare(
    case: Case, split: tl.Split, directory: Path, n_trials: int, seeds: int, **fixed: Any
) -> tl.Comparison:
    """Tune and run all models on a case."""
    print(f"{case.name}: {case.data}; {split}", flush=True)
    return tl.compare(
        split, [*MODELS, *case.more], metric=METRIC, n_trials=n_trials, seeds=seeds, n_workers=1,
        directory=directory / case.name.replace(" ", "-"), **fixed,
    )  # fmt: skip


def run_same(
    study: str, cases: list[Case], directory: Path, n_trials: int, seeds: int, **fixed: Any
) -> pl.DataFrame:
    """Run the second model of each claim at the settings that the search found for the first, and write the gains."""
    rows = []
    for case in cases:
        split, runs = case.split, directory / "runs" / study
        tuned = {each.model: each for each in compare(case, split, runs, n_trials, seeds, **fixed).ranked}
        for a, b in CLAIMS:
            first = tuned[a].variant.make({k: v for k, v in tuned[a].parameters.items() if k != "seed"})
            known = tuned[b].variant.model_class().get_params()
            shared = {k: v for k, v in first.get_params().items() if k in known and k not in ("objective", "seed")}
            place = runs / f"{case.name.replace(' ', '-')}-{b}-as-{a}"
            row = {
                "data": case.name,
                "claim": f"{a} is above {b}",
                "first": tuned[a].of(METRIC).mean(),
                "second, tuned": tuned[b].of(METRIC).mean(),
                "second, as the first": None,
                "measured": "the second diverges",
            }
            model, how = tuned[b].variant.make(shared), {"n_trials": 1, "seeds": seeds, "n_workers": 1}
            with contextlib.suppress(tl.errors.DataError):  # every run diverged
                other = tl.compare(split, model, metric=METRIC, directory=place, **how).ranked[0]
                bare = replace(case, truth=None)
                [gain] = gains(*(Figures.of(each, bare, split) for each in (tuned[a], other)), case.name, [METRIC])
                row |= {"second, as the first": other.of(METRIC).mean(), "measured": str(gain)}
            rows.append(row)
            pl.DataFrame(rows, infer_schema_length=None).write_csv(
                directory / f"{study}-same.csv", float_precision=6
            )
    return pl.DataFrame(rows)


def run(study: str, cases: list[Case], directory: Path, n_trials: int, seeds: int, **fixed: Any) -> pl.DataFrame:
    """Run a study, write its two tables and return the verdicts."""
    found, truth = {}, {}
    for case in cases:
        split = case.split
        compared = compare(case, split, directory / "runs" / study, n_trials, seeds, **fixed)
        found[case.name] = {each.model: Figures.of(each, case, split) for each in compared.ranked}
        truth[case.name] = ["truth_auc", "truth_ndcg@20"] if case.truth is not None else []
        decided = verdicts(found, truth)
        table_of(found).write_csv(directory / f"{study}.csv", float_precision=6)
        decided.write_csv(directory / f"{study}-verdicts.csv")
        print(f"{case.name} is done", flush=True)
    return decided


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--same", action="store_true", help="the second model of each claim as the first")
    given = parser.parse_args()
    directory = output_directory(Path("results/pu"), given.quick)
    how: dict[str, Any] = {"n_trials": 9, "seeds": 5, "factors": 64}
    if given.quick:
        how = {"n_trials": 1, "seeds": 2, "epochs": 2}
    cases = quick() if given.quick else STUDIES[given.study]()
    found = (run_same if given.same else run)(given.study, cases, directory, **how)
    with pl.Config(tbl_width_chars=400, fmt_str_lengths=300, tbl_rows=-1, tbl_cols=-1):
        print(found)
    if not given.same:
        print(f"{given.study}, noise-robust learning helps: {overall(found)}")


if __name__ == "__main__":
    main()
