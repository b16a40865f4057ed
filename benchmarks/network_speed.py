"""Speed of the networks: an epoch of NeuMF beside a minimal PyTorch loop, and an epoch of every network.

    python benchmarks/network_speed.py [--rounds 3] [--threads 2] [--only-neumf] [--quick]

The training part of MovieLens 1M, 64 factors, batches of 2,000 positives (LightGCN: its default) with 4 negatives
each, Adam. The minimal loop is what one writes by hand: four embeddings, a perceptron, the logistic loss and
torch.optim.Adam. It samples negatives from all items, positives included, which is faster and less correct. Rounds
alternate, so that a slow phase of the machine affects both.
"""

from __future__ import annotations

import statistics
import time
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from common import arguments, load_split, machine, start
from torch import nn

import truelike as tl

FACTORS, BATCH, NEGATIVES = 64, 2_000, 4


class Minimal(nn.Module):
    """NeuMF as it is usually written."""

    def __init__(self, n_users: int, n_items: int) -> None:
        super().__init__()
        self.gmf_users, self.gmf_items = nn.Embedding(n_users, FACTORS), nn.Embedding(n_items, FACTORS)
        self.mlp_users, self.mlp_items = nn.Embedding(n_users, FACTORS), nn.Embedding(n_items, FACTORS)
        widths = [2 * FACTORS, FACTORS, FACTORS // 2, FACTORS // 4]
        layers: list[nn.Module] = []
        for a, b in pairwise(widths):
            layers += [nn.Linear(a, b), nn.ReLU()]
        self.mlp, self.head = nn.Sequential(*layers), nn.Linear(FACTORS + widths[-1], 1)

    def forward(self, users: Any, items: Any) -> Any:
        gmf = self.gmf_users(users) * self.gmf_items(items)
        mlp = self.mlp(torch.cat([self.mlp_users(users), self.mlp_items(items)], dim=-1))
        return self.head(torch.cat([gmf, mlp], dim=-1)).squeeze(-1)


class Loop:
    """The minimal loop, an epoch at a time."""

    def __init__(self, data: tl.Dataset) -> None:
        self.users = torch.from_numpy(data.user_of_entry.astype(np.int64))
        self.items = torch.from_numpy(data.matrix.indices.astype(np.int64))
        self.n_items = data.n_items
        self.network = Minimal(data.n_users, data.n_items)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=0.001)

    def epoch(self, _: int) -> None:
        loss_of = nn.BCEWithLogitsLoss()
        for chosen in torch.randperm(len(self.users)).split(BATCH):
            users = self.users[chosen].repeat(1 + NEGATIVES)
            drawn = torch.randint(self.n_items, (NEGATIVES * len(chosen),))
            items = torch.cat([self.items[chosen], drawn])
            labels = torch.cat([torch.ones(len(chosen)), torch.zeros(len(drawn))])
            self.optimizer.zero_grad()
            loss_of(self.network(users, items), labels).backward()
            self.optimizer.step()


def seconds_of(engine: Any, epoch: int) -> float:
    started = time.perf_counter()
    engine.epoch(epoch)
    return time.perf_counter() - started


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only-neumf", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    train = load_split("ml-1m-split", given.quick).train
    same: dict[str, Any] = {
        "factors": FACTORS,
        "batch_size": BATCH,
        "n_negatives": NEGATIVES,
        "n_jobs": given.threads,
    }
    print(machine())
    loop, engine = Loop(train), start(tl.NeuMF(objective="BPO", **same)._trainer({}), train)[1]
    engine.samples.draw(engine.samples.key(0), np.arange(2, dtype=np.int32))  # compiles
    times: dict[str, list[float]] = {"loop": [], "truelike": []}
    for number in range(given.rounds):
        times["loop"].append(seconds_of(loop, number))
        times["truelike"].append(seconds_of(engine, number))
        print(
            f"round {number + 1}: loop {times['loop'][-1]:.2f} s, truelike {times['truelike'][-1]:.2f} s",
            flush=True,
        )
    ratio = statistics.median(a / b for a, b in zip(times["truelike"], times["loop"], strict=True))
    print(f"NeuMF, {FACTORS} factors, {given.threads} threads, {train.n_interactions:,} positives in an epoch:")
    print(f"  minimal loop {min(times['loop']):.2f} s, truelike {min(times['truelike']):.2f} s; ratio {ratio:.2f}")
    if given.only_neumf:
        return
    print("seconds of the second epoch of every network, by objective:")
    networks = {
        "MF": tl.DeepRecommender,
        "FM": tl.FM,
        "NeuMF": tl.NeuMF,
        "ACF": tl.ACF,
        "LightGCN": tl.LightGCN,
    }
    for name, model_class in networks.items():
        cells = []
        for objective in ("BPR", "BPO", "NBPO"):
            # LightGCN propagates through its graph at every batch, so its batches are larger
            own = {**same, "batch_size": None} if name == "LightGCN" else same
            _, engine = start(model_class(objective=objective, **own)._trainer({}), train)
            engine.epoch(0)
            cells.append(f"{objective} {seconds_of(engine, 1):6.2f}")
        print(f"  {name:<9} {'   '.join(cells)}", flush=True)
    model = tl.BPR(factors=FACTORS, batch_size=BATCH, n_negatives=NEGATIVES, n_jobs=given.threads)
    _, engine = start(model._trainer(), train)
    engine.epoch(0)
    print(f"  MF on the sampled engine: BPR {seconds_of(engine, 1):6.2f}")


if __name__ == "__main__":
    main()
