"""Make SVG figures of matplotlib smaller, with the same look.

    python tools/shrink_svg.py results/*/*.svg

Coordinates are rounded to a hundredth of a point, and metadata and indentation are removed.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

COORDINATES = re.compile(r'\b(?:d|x|y|points)="[^"]*"')  # not those of transforms, which scale letters


def shrunk(text: str) -> str:
    r"""The same picture in fewer letters.

    >>> shrunk('<g>\n  <path d="M 1.23456 7 \nL 2.000 3" transform="scale(0.015625)"/>\n</g>\n')
    '<g><path d="M 1.23 7 L 2 3" transform="scale(0.015625)"/></g>\n'
    """
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = COORDINATES.sub(lambda found: re.sub(r"-?\d+\.\d+", _rounded, found[0]), text)
    text = re.sub(r"\s*\n\s*", " ", text)
    return re.sub(r"> +<", "><", text).strip() + "\n"


def _rounded(found: re.Match[str]) -> str:
    return f"{float(found[0]):.2f}".rstrip("0").rstrip(".")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(shrunk(path.read_text(encoding="utf-8")), encoding="utf-8")
