"""
A shop
======

From the log of a shop to lists: views, carts, purchases with quantities, refunds, dislikes, German dates, new products.

What each kind of events means is declared once. The log, the service and the next training follow it.
"""

import tempfile
from pathlib import Path

import numpy as np

import truelike as tl

place = Path(tempfile.mkdtemp())

# %%
# The files of a shop: who likes tea buys tea things, who likes coffee buys coffee things. Some send things back, and
# some say what they do not like.

TEA, COFFEE = ([f"{what} {n}" for n in range(12)] for what in ("tea", "coffee"))
rng = np.random.default_rng(0)
lines = ["customer;product;event;quantity;date"]
for number in range(120):
    mine, others = (TEA, COFFEE) if number % 2 else (COFFEE, TEA)
    for day, item in enumerate(rng.permutation(mine)[:6], 1):
        lines.append(f"c{number};{item};view;;{day:02d}.03.2026")
        if rng.random() < 0.8:
            lines.append(f"c{number};{item};buy;{rng.integers(1, 4)};{day + 7:02d}.03.2026")
    lines.append(f"c{number};{rng.choice(others)};dislike;;20.03.2026")
lines += [
    "anna;tea 1;buy;2;01.03.2026",
    "anna;tea 2;buy;1;02.03.2026",
    "anna;coffee 3;buy;1;03.03.2026",
    "anna;coffee 3;refund;1;05.03.2026",  # she sent it back
    "anna;tea 4;dislike;;06.03.2026",
]
(place / "events.csv").write_text("\n".join(lines))
products = ["product;brand;stock"]
products += [f"{item};{'leaf' if item in TEA else 'bean'};{0 if item == 'tea 5' else 9}" for item in TEA + COFFEE]
(place / "products.csv").write_text("\n".join(products))

# %%
# What the kinds mean: purchases are to be predicted, a refund takes one back, and a dislike keeps an item out of lists.
# Views and dislikes count as much as helps on held-out purchases.

(place / "shop.toml").write_text(
    """
column = "event"

[kinds]
view = "learned"
buy = {role = "target", weight = "quantity", seen = "60d"}
refund = {role = "cancels", weight = "quantity"}
dislike = {role = "negative", weight = "learned"}
"""
)
data = tl.read(place / "events.csv", kinds=place / "shop.toml", items=place / "products.csv")
print(data)
print(data.schema.table())
print(data.seen("anna").to_list())

# %%
# Search a model on held-out purchases. The reason says what each kind brings.

split = tl.splits.by_user(data, validation=0.1, test=0.2, seed=0)
model = tl.AutoRecommender(n_trials=12).fit(split, progress=False)
print(model.choice_.reason)
print(tl.evaluate(model, split, ks=(5,), metrics=["ndcg", "recall"]).summary())

# %%
# Lists: Anna gets tea, not what she bought in the last 60 days, not what she sent back, and not what she dislikes.

print(model.recommend("anna", k=5))

# %%
# Rules of the shop: only what is in stock, and one product pinned to the first place.

rules = tl.Rules(filter="stock > 0", pins={"tea 11": 1}, at_most={"brand": 4})
print(model.recommend("anna", k=5, rules=rules))

# %%
# Coffee is bought again: what was bought more than a week ago may be listed.

print(model.recommend("anna", k=5, exclude_seen={"buy": "7d", "dislike": True}))

# %%
# Save it. ``truelike serve model/ --events events/`` takes the same kinds of events, and ``truelike train events.csv
# --kinds shop.toml --events events/`` trains on both.

model.save(place / "model")
print(tl.load(place / "model").recommend("anna", k=3))
