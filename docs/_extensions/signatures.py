"""Corrections of the API reference: signatures of models, and metrics that look like e-mail addresses."""

from __future__ import annotations

import inspect
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

import truelike as tl


def model_signature(app: Sphinx, what: str, name: str, item: Any, *_: Any) -> tuple[str, None] | None:
    """Show the parameters of a model. Its `__new__`, which only checks their names, takes anything."""
    if what != "class" or not issubclass(item, tl.Recommender):
        return None
    signature = inspect.signature(item.__init__)
    parameters = [
        each.replace(annotation=inspect.Parameter.empty) for each in list(signature.parameters.values())[1:]
    ]
    return str(inspect.Signature(parameters)), None


def unlink_metrics(app: Sphinx, doctree: nodes.document) -> None:
    """Replace the links that docutils makes of "ndcg@20", which it takes for an e-mail address."""
    for link in list(doctree.findall(nodes.reference)):
        if link.get("refuri", "").startswith("mailto:"):
            link.replace_self(link.children)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register both."""
    app.connect("autodoc-process-signature", model_signature)
    app.connect("doctree-read", unlink_metrics)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
