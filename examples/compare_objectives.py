"""
Compare objectives
==================

One model, matrix factorization with sampled negatives, trained by five objectives on the same interactions.

A synthetic world knows the true likes. So each objective is measured twice: on held-out interactions, as on real
data, and on true likes that were never observed.
"""

import matplotlib.pyplot as plt

import truelike as tl

world = tl.synthetic.World(n_users=600, n_items=400, seed=1)
split = tl.splits.by_user(world.dataset(), validation=0.1, test=0.1, seed=0)
truth = world.truth()

# %%
# Fit one preset for each objective, all with 32 factors. ``ItemPop`` is the baseline.

models = [tl.ItemPop(), tl.BPR(), tl.WBPR(), tl.ShiftMC(), tl.BPO(), tl.NBPO()]
results = []
for model in models:
    if isinstance(model, tl.SampledMF):
        model.set_params(factors=32, epochs=30)
        model.fit(split, progress=False)
    else:
        model.fit(split.train)
    results.append(tl.evaluate(model, split, ks=(20,), metrics=["ndcg"], truth=truth))

for result in results:
    found = ", ".join(f"{name} {result[name]:.3f}" for name in ("ndcg@20", "truth_ndcg@20"))
    print(f"{result.model}: {found}")

# %%
# The difference to BPR, tested over users.

print(tl.compare_means(results, "ndcg@20", against="BPR"))

# %%
# The two measurements side by side.

names = [result.model for result in results]
places = range(len(names))
figure, axis = plt.subplots(figsize=(7, 3.5), layout="constrained")
measures = {"ndcg@20": ("held-out interactions", "#2f6fdb"), "truth_ndcg@20": ("true likes", "#e08a1e")}
for shift, (measure, (label, colour)) in zip((-0.2, 0.2), measures.items(), strict=True):
    heights = [result[measure] for result in results]
    axis.bar([x + shift for x in places], heights, 0.4, label=label, color=colour)
axis.set_xticks(places, names)
axis.set_ylabel("NDCG@20")
axis.legend(frameon=False)
plt.show()

# %%
# The recommendations of the last model:

print(models[-1].recommend([1, 2], k=3, titles=True))
