"""
Quickstart
==========

From rows to recommendations: read, split, fit, evaluate, recommend, save and load.

The data is a synthetic world. Replace the first line by ``data = tl.read("purchases.csv")`` to use your own.
"""

import tempfile

import truelike as tl

data = tl.synthetic.World(n_users=500, n_items=300, seed=0).dataset()
print(data)

# %%
# Hold out a part of each user's interactions.

split = tl.splits.by_user(data, validation=0.1, test=0.1, seed=0)
print(split)

# %%
# Fit a model. ``AutoRecommender`` races models and settings on the validation part and takes the best; ``ItemPop``
# is the baseline that every model must beat.

popular = tl.ItemPop().fit(split.train)
model = tl.AutoRecommender(budget="quick").fit(split, progress=False)
print(model.choice_.model)
print(model.choice_.reason)

# %%
# Evaluate on the test part: one row a metric, one column a k.

for each in (popular, model):
    result = tl.evaluate(each, split, ks=(5, 20), metrics=["ndcg", "f1"])
    print(result.model)
    print(result.summary())

# %%
# Recommend: ids in, a frame of ids out.

print(model.recommend([1, 2], k=3, titles=True))
print(model.similar_items([10], k=3, titles=True))

# %%
# Save and load. The directory holds JSON, Parquet and safetensors, and no code.

with tempfile.TemporaryDirectory() as directory:
    model.save(f"{directory}/model")
    again = tl.load(f"{directory}/model")
    print(again.recommend([1], k=3))
