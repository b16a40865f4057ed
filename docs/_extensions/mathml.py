"""Formulas as MathML, which browsers draw themselves: no script, nothing from the network.

docutils translates the LaTeX. A formula that it cannot translate is a warning, as any other mistake in a page.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)


def _mathml(node: Any, *, block: bool) -> str:
    try:
        return latex2mathml.tex2mathml(node.astext(), as_block=block)
    except (MathError, SyntaxError) as error:
        logger.warning("formula cannot be shown: %s", error, location=node)
        return nodes.unescape(node.astext())


def inline_math(writer: Any, node: nodes.math) -> None:
    """Write a formula within a line."""
    writer.body.append(_mathml(node, block=False))
    raise nodes.SkipNode


def block_math(writer: Any, node: nodes.math_block) -> None:
    """Write a formula of its own line, with its number if it has one."""
    identifier = f' id="{node["ids"][0]}"' if node.get("ids") else ""
    number = f'<span class="eqno">({node["number"]})</span>' if node.get("number") else ""
    writer.body.append(f'<div class="tl-formula"{identifier}>{number}{_mathml(node, block=True)}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (inline_math, None), (block_math, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
