"""From rows to recommendations, on a world that the library makes itself: python examples/quickstart.py."""

import truelike as tl

log = tl.synthetic.World(n_users=500, n_items=300, seed=0).log()
split = tl.split.by_user(log, validation=0.1, test=0.1, seed=0)
model = tl.ItemKNN().fit(split.train, validation=split.validation)

print(tl.evaluate(model, split.test, ks=(5, 20)).summary())
print(model.recommend([1, 2], k=3, titles=True))
print(model.recommend_from_items([10, 20], k=3, titles=True))
