"""Networks by name, as parameters, files and the command line give them."""

from __future__ import annotations

import importlib
from typing import Any

from truelike.engines.torch.backend import installed, nn
from truelike.engines.torch.networks import Maker
from truelike.errors import StorageError
from truelike.models.base import Recommender

NETWORKS = {
    "MF": ("truelike.models.networks.custom", "MFNetwork"),
    "FM": ("truelike.models.networks.fm", "FMNetwork"),
    "NeuMF": ("truelike.models.networks.neumf", "NeuMFNetwork"),
    "ACF": ("truelike.models.networks.acf", "ACFNetwork"),
    "LightGCN": ("truelike.models.networks.lightgcn", "LightGCNNetwork"),
}
EXPECTED = f"one of {', '.join(NETWORKS)}, or a function that makes a torch.nn.Module from truelike's Inputs"
OWN = "own: "  # is saved in place of a function of the user's own


def is_network(value: Any) -> bool:
    """Whether a value names a network, or is a function that makes one."""
    if isinstance(value, str):
        return value in NETWORKS or value.startswith(OWN)
    if isinstance(value, type) and issubclass(value, Recommender):
        return False
    return callable(value) and not isinstance(value, nn.Module if installed else ())


def maker(value: Any) -> Maker:
    """Return the function that makes a network, from its name or as it is."""
    if not isinstance(value, str):
        made: Maker = value
        return made
    if value.startswith(OWN):
        raise StorageError(
            f"the network {value.removeprefix(OWN)!r} is code of your own, which no file holds. Load the model with "
            "tl.load(directory, preference=...) or tl.load(directory, flips=...), whichever it is."
        )
    module, name = NETWORKS[value]
    network: Maker = getattr(importlib.import_module(module), name)
    return network


def saved_name(value: Any) -> Any:
    """What is written to a file."""
    return value if value is None or isinstance(value, str) else f"{OWN}{getattr(value, '__name__', 'a function')}"
