"""
New users
=========

A new user is not in the model. ``recommend_from_items`` recommends from a history of items, without training.

This example leaves 100 users out of training, gives their histories to the fitted model, and measures how much is
lost against training with them.
"""

import matplotlib.pyplot as plt
import numpy as np

import truelike as tl

data = tl.synthetic.World(n_users=800, n_items=300, seed=0).dataset()
split = tl.splits.by_user(data, validation=0.0, test=0.2, seed=0)
frame = split.train.to_frame()
new_users = list(range(100))
others = tl.read(frame.filter(~frame["user_id"].is_in(new_users)).select("user_id", "item_id"))

# %%
# The histories of the new users: a mapping of a user to items, or a frame.

histories = {user: split.train.seen(user).to_list() for user in new_users}
held_out = {user: set(split.test.seen(user).to_list()) for user in new_users}
model = tl.IALS(factors=32).fit(others, progress=False)
print(model.recommend_from_items(histories[0], k=3))
print(model.recommend_from_items({user: histories[user] for user in (0, 1)}, k=3))

# %%
# NDCG@20 of the new users' held-out items, as new users and as users of the training part. An item that only the
# new users know is not in the model; ``on_unknown="skip"`` leaves it out of a history.


def ndcg(lists, k=20):
    """Return the mean NDCG of ranked lists of items."""
    gain = 1 / np.log2(np.arange(2, k + 2))
    values = []
    for user, items in lists.items():
        if held_out[user]:
            hits = np.array([item in held_out[user] for item in items[:k]])
            values.append((hits * gain[: len(hits)]).sum() / gain[: min(k, len(held_out[user]))].sum())
    return float(np.mean(values))


def lists_of(frame):
    """Return the items of each user, best first."""
    groups = frame.group_by(["user_id"], maintain_order=True)
    return {user: rows["item_id"].to_list() for (user,), rows in groups}


as_new, as_known = {}, {}
for make in (tl.ItemKNN, tl.EASE, tl.IALS, tl.SoftmaxMF):
    fast = {"factors": 32, "epochs": 15} if "factors" in make().get_params() else {}
    without = make(**fast).fit(others)
    with_them = make(**fast).fit(split.train)
    as_new[make.__name__] = ndcg(lists_of(without.recommend_from_items(histories, k=20, on_unknown="skip")))
    as_known[make.__name__] = ndcg(lists_of(with_them.recommend(new_users, k=20)))
    print(f"{make.__name__}, ndcg@20 as a trained user: {as_known[make.__name__]:.3f}")
    print(f"{make.__name__}, ndcg@20 as a new user: {as_new[make.__name__]:.3f}")

# %%

places = range(len(as_new))
figure, axis = plt.subplots(figsize=(6, 3.2), layout="constrained")
axis.bar([x - 0.2 for x in places], as_known.values(), 0.4, label="trained user", color="#2f6fdb")
axis.bar([x + 0.2 for x in places], as_new.values(), 0.4, label="new user", color="#e08a1e")
axis.set_xticks(places, as_new)
axis.set_ylabel("NDCG@20")
axis.legend(frameon=False)
plt.show()
