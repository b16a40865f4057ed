"""The order of the examples in the gallery: from the first steps to extensions."""

from __future__ import annotations

ORDER = (
    "quickstart.py",
    "compare_objectives.py",
    "hidden_likes.py",
    "new_users.py",
    "custom_objective.py",
    "custom_network.py",
    "custom_model.py",
)


class GalleryOrder:
    """A sort key of sphinx-gallery; examples that are not listed come last, by name."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def __call__(self, name: str) -> tuple[int, str]:
        """Return the place of an example."""
        return (ORDER.index(name) if name in ORDER else len(ORDER), name)
