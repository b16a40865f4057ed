"""
Hidden likes with impressions
=============================

An interaction is a like that was shown. From interactions alone, a model cannot tell an item that a user dislikes
from one that the user never saw. With impressions it can.

This example fits the same likelihood, Equation 6 of the paper, with and without impressions, and compares the
posterior p(liked | not observed) with the truth.
"""

import matplotlib.pyplot as plt

import truelike as tl

world = tl.synthetic.World(n_users=600, n_items=300, exposure_skew=1.8, seed=0)
data, shown, truth = world.dataset(), world.impressions(), world.truth()
print(f"{data.n_interactions:,} interactions, {shown.n_interactions:,} shown pairs")

# %%
# Fit with the same settings. Only the second model knows what was shown.

models = {
    "interactions alone": tl.ExactNBPO(factors=16, regularization=2.0).fit(data, progress=False),
    "with impressions": tl.ImpressionMF().fit(tl.read(data, impressions=shown), progress=False),
}

# %%
# Score both against the true labels of all pairs without an interaction.

results = {name: tl.evaluate(model, truth=truth, ks=(20,)) for name, model in models.items()}
for name, result in results.items():
    print(name)
    for measure in ("hidden_pooled_auc", "hidden_ece", "truth_ndcg@20"):
        print(f"  {measure:18} {result[measure]:.3f}")

# %%
# A reliability diagram: each point is a fifteenth of all pairs. On the diagonal the posterior is a probability.

figure, axis = plt.subplots(figsize=(4.5, 4), layout="constrained")
for (name, result), colour in zip(results.items(), ("#e08a1e", "#2f6fdb"), strict=True):
    points = result.truth.reliability()
    axis.plot(points["predicted"], points["liked"], "o-", color=colour, label=name)
axis.axline((0, 0), slope=1, color="grey", linestyle="--", linewidth=1)
axis.set_xlabel("posterior of the model")
axis.set_ylabel("share truly liked")
axis.legend(frameon=False)
plt.show()

# %%
# The five most likely hidden likes of each user, and how many of them are true:

users = list(range(world.n_users))
print(f"truly liked, of all pairs: {result['hidden_share']:.2f}")
for name, model in models.items():
    found = model.hidden_likes(users, k=5)
    liked = world.likes(found["user_id"].to_list(), found["item_id"].to_list())
    print(f"truly liked, of the five most likely, {name}: {liked.mean():.2f}")
print(found.head())
