"""truelike: top-N recommendation from implicit feedback, robust to likes that were never recorded.

    >>> import truelike as tl
    >>> data = tl.synthetic.World(n_users=200, n_items=100).dataset()
    >>> split = tl.splits.by_user(data, validation=0.1, test=0.1, seed=0)
    >>> model = tl.ItemKNN(neighbors=50).fit(split.train)
    >>> model.recommend([0, 1], k=2).columns
    ['user_id', 'item_id', 'score', 'rank']

The public names are declared in the stub beside this file. Each is imported when it is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
del lazy_loader
