"""Tables for LaTeX: whatever the names are, braces and environments match and nothing special is left."""

from __future__ import annotations

import re

import pytest

from truelike.report.latex import SPECIAL, bold, booktabs, escape, figure

NASTY = 'a\\b{c}$d&e#f_g%h~i^j<k>l|m"n\no'


def check(text: str) -> None:
    """Raise AssertionError for LaTeX whose braces, environments or columns do not match."""
    _, code = text.split("\n", 1)  # the first line is a comment
    assert not re.search(r"(?<!\\)%", code)
    plain = re.sub(r"\\[\\{}$&#_%]", "", code)
    depth = 0
    for letter in plain:
        depth += (letter == "{") - (letter == "}")
        assert depth >= 0
    assert depth == 0
    assert plain.count("$") % 2 == 0
    outside = re.sub(r"\$[^$]*\$", "", plain)
    assert not re.findall(r"[#_~^<>|]", outside)
    opened = re.findall(r"\\begin\{(\w+)\}", code)
    assert sorted(opened) == sorted(re.findall(r"\\end\{(\w+)\}", code))
    widths = {len(re.findall(r"(?<!\\)&", line)) for line in code.splitlines() if line.endswith(r"\\")}
    [columns] = re.findall(r"\\begin\{tabular\}\{(\w+)\}", code)
    assert widths == {len(columns) - 1}


@pytest.mark.parametrize("letter", [*SPECIAL, NASTY])
def test_special_letters_are_escaped(letter: str) -> None:
    check(booktabs([escape(letter), "x"], [[bold(escape(f"m {letter}")), "1"]], caption=escape(letter), note="n"))


def test_the_checker_finds_what_is_not_escaped() -> None:
    for wrong in ("a_b", "a&b", "{", "}", "50% & 1", "$"):
        with pytest.raises(AssertionError):
            check(booktabs(["m", "x"], [[wrong, "1"]], caption="c", note="n"))


def test_figures_have_their_deviation_where_there_is_one() -> None:
    assert (figure(0.5, None), figure(0.5, 0.25)) == ("0.5000", r"0.5000 $\pm$ 0.2500")
