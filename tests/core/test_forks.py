"""A process that was forked from one that had used truelike gets an error at once, and never waits forever."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")

CALLS = [
    "read_events(place)",
    "prune_events(place, 1)",
    "tl.read([('ann', 'tea'), ('bob', 'rum')])",
    "tl.read(log)",
    "model.recommend(users)",
    "model.recommend(on_unknown='popular')",
    "model.recommend_from_items(items)",
    "model.recommend_from_items({'new': items})",
    "model.similar_items(items)",
    "model.explain(users[0], items)",
    "model.explain_from_items(items, items)",
    "model.score(users, items)",
    "model.user_vectors()",
    "model.item_vectors()",
    "model.export_vectors('v.parquet')",
    "model.recommend_to('lists.parquet')",
    "model.fit(split)",
    "model.partial_fit(rows)",
    "model.partial_fit(split.test)",
    "data.users.union(data.users)",
    "model.save(place + '/again')",
    "model.set_titles({items[0]: 'x'})",
    "tl.load(place + '/model')",
    "tl.Split.load(place + '/split')",
    "split.save(place + '/split-again')",
    "tl.evaluate(model, split.test)",
    "tl.splits.by_user(data)",
    "tl.splits.temporal(data)",
    "tl.k_core(data, user=2)",
    "tl.describe(data)",
    "data.to_frame()",
    "data.seen(users[0])",
    "tl.AutoRecommender(n_trials=2).fit(data)",
    "tl.tune('ItemKNN', split, n_trials=2)",
    "tl.compare(split, models=['ItemPop'])",
    "tl.compare_means([result, result], 'ndcg@20')",
    "tl.synthetic.World().dataset()",
    "world.true_likes()",
    "tl.datasets.fetch('ml-100k')",
    "tl.objectives.check(tl.objectives.BPR)",
    "tl.mlflow.save_model(model, place + '/mlflow')",
    "tl.mlflow.load_model(place + '/mlflow')",
    "blocks.to_dataset()",
    "blocks.block(0)",
    "blocks.seen(users[0])",
    "blocks.ids_of_block(0)",
    "blocks.users.values",
    "list(blocks.users)",
    "list(blocks.parts())",
    "blocks.kinds",
    "tl.blocks.open(place + '/blocks')",
    "tl.blocks.hold_out(blocks, place + '/held-out')",
    "tl.blocks.build(data, place + '/built')",
    "tl.ItemPop().fit(blocks)",
    "tl.evaluate(model, blocks)",
    "tl.evaluate_lists(lists, split)",
    "tl.NewUserSplit.load(place + '/new-users')",
]
PARENT = """
import os, sys, faulthandler, time
import truelike as tl
from truelike.serving.events import prune_events, read_events

place = sys.argv[1]
world = tl.synthetic.World(n_users=60, n_items=40)
data = world.dataset()
split = tl.splits.by_user(data, seed=0)
model = tl.IALS(factors=4, epochs=2).fit(split, progress=False)
users, items, rows = list(data.users)[:2], list(data.items)[:2], [(1, 2), (3, 4)]
log = place + "/log.csv"
lists, result = model.recommend(), tl.evaluate(model, split)
blocks = tl.blocks.build(data, place + "/blocks", blocks=2, progress=False)
tl.splits.new_users(data).save(place + "/new-users")
data.to_frame().write_csv(log)
model.save(place + "/model")
split.save(place + "/split")
for call in sys.argv[2:]:
    child = os.fork()
    if not child:
        try:
            result = eval(call)
            answer = "returned"
        except BaseException as error:
            answer = type(error).__name__
        os.write(1, f"{call}: {answer}\\n".encode())
        os._exit(0)
    until = time.monotonic() + 20
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > until:
            os.kill(child, 9)
            os.write(1, f"{call}: hangs\\n".encode())
        time.sleep(0.005)
"""


def test_every_call_in_a_forked_process_is_an_error_at_once(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", PARENT, str(tmp_path), *CALLS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{call}: ForkError" for call in CALLS]


FIRST = """
import os, sys
import truelike as tl
import polars  # importing is no use
child = os.fork()
data = tl.synthetic.World(n_users=60, n_items=40).dataset()
found = tl.ItemKNN().fit(data).recommend(0, k=3).height
if not child:
    os._exit(found)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_process_that_was_forked_before_truelike_was_used_works() -> None:
    done = subprocess.run([sys.executable, "-c", FIRST], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 3, done.stderr


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_processes_that_are_spawned_work(method: str, tmp_path: Path) -> None:
    import truelike as tl

    model = tl.ItemPop().fit(tl.synthetic.World(n_users=60, n_items=40).dataset())
    model.save(tmp_path / "model")
    script = tmp_path / "spawned.py"
    script.write_text(
        "import multiprocessing, sys, truelike as tl\n"
        "def recommend(place):\n    return tl.load(place).recommend(0, k=3).rows()\n"
        "if __name__ == '__main__':\n"
        "    place = sys.argv[1]\n"
        "    here = recommend(place)\n"
        f"    with multiprocessing.get_context({method!r}).Pool(1) as pool:\n"
        "        assert pool.apply(recommend, (place,)) == here\n"
    )
    assert method in multiprocessing.get_all_start_methods()
    command = [sys.executable, str(script), str(tmp_path / "model")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
