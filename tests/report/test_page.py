"""HTML pages of reports."""

from __future__ import annotations

import re

import polars as pl
import pytest

from truelike.report import Page
from truelike.report.figures import new_figure, reliability_curves


def test_parts_stand_in_the_order_in_which_they_were_added() -> None:
    page = Page("Title", "subtitle").banner("warning").answer("result").heading("part").text("words").code("run")
    html = page.html()
    places = [
        html.index(text) for text in ("<h1>Title", "subtitle</p>", "warning", "result", "part</h2>", "<pre>run")
    ]
    assert places == sorted(places)


def test_every_table_is_in_a_box_that_scrolls() -> None:
    narrow, wide = (pl.DataFrame({f"column_{n}": ["x" * 20] for n in range(width)}) for width in (2, 30))
    html = Page("Tables").table(narrow, "narrow one").table(wide, "wide one").html()
    assert re.findall(r'<div class="scroll"[^>]*><table( class="wide")?>', html) == ["", ' class="wide"']
    assert re.search(r"\.scroll \{[^}]*overflow-x: auto", html)
    assert html.index("</table>") < html.index('<p class="caption">narrow one</p>')


def test_long_column_names_may_break_at_underscores() -> None:
    assert (
        "flip_<wbr>regularization</th>" in Page("Tables").table(pl.DataFrame({"flip_regularization": [1]})).html()
    )


@pytest.mark.parametrize("add", ["banner", "answer", "text", "heading", "code"])
def test_text_is_escaped(add: str) -> None:
    html = getattr(Page("<b>"), add)("<script>").html()
    assert "<script>" not in html
    assert "&lt;b&gt;" in html
    html = Page("Tables").table(pl.DataFrame({"<i>": ['"><script>']}), caption='"><script>').html()
    assert "<script>" not in html
    assert "<i>" not in html


def test_a_page_loads_nothing_from_elsewhere() -> None:
    table = pl.DataFrame({"predicted": [0.1, 0.6], "liked": [0.2, 0.5]})
    page = (
        Page("Figures").figure(reliability_curves({"group": {"NBPO": table}}), "curve").figure(new_figure()[0], "")
    )
    html = page.html()
    assert html.count("<svg") == 2
    assert not re.findall(r'(?:src|href)="(?!#)[^"]*"|url\((?!#)', html)
