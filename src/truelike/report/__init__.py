"""One self-contained HTML page: text, tables and figures, nothing fetched from anywhere."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import polars as pl

from truelike.errors import MissingExtraError
from truelike.files import replacing_file
from truelike.report.cells import cell, digits_of


def require_report_extra() -> None:
    """Say what to install where jinja2 or matplotlib is missing."""
    try:
        import jinja2  # noqa: F401
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            f'reports need {error.name}, which is not installed: pip install "truelike[report]"'
        ) from error


@dataclass
class Page:
    """A page that grows from top to bottom and is then written.

    Examples
    --------
    >>> page = Page("Results").text("All is well.").table(pl.DataFrame({"model": ["ItemPop"]}))
    >>> "<h1>Results</h1>" in page.html()
    True
    """

    title: str
    subtitle: str = ""
    parts: list[dict[str, Any]] = field(default_factory=list)

    def heading(self, text: str) -> Self:
        """A heading of a new part."""
        return self._add(kind="heading", text=text)

    def text(self, text: str) -> Self:
        """A paragraph."""
        return self._add(kind="text", text=text)

    def code(self, text: str) -> Self:
        """A line to be typed, or copied."""
        return self._add(kind="code", text=text)

    def table(self, frame: pl.DataFrame, caption: str = "", digits: int = 4) -> Self:
        """A table; numbers with so many digits, the best of a column of scores left to the reader."""
        places = [digits_of(name, digits) for name in frame.columns]
        rows = [[cell(v, n) for v, n in zip(row, places, strict=True)] for row in frame.iter_rows()]
        numeric = [dtype.is_numeric() for dtype in frame.dtypes]
        return self._add(kind="table", columns=frame.columns, rows=rows, numeric=numeric, caption=caption)

    def figure(self, figure: Any, caption: str) -> Self:
        """A matplotlib figure, as SVG within the page."""
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", bbox_inches="tight")
        svg = buffer.getvalue()
        return self._add(kind="figure", svg=svg[svg.index("<svg") :], caption=caption)

    def html(self) -> str:
        """The page as text."""
        require_report_extra()
        import jinja2

        template = (Path(__file__).parent / "page.html.jinja").read_text(encoding="utf-8")
        environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
        html: str = environment.from_string(template).render(page=self)
        return html

    def write(self, path: str | Path) -> Path:
        """Write the page, whole or not at all."""
        path = Path(path)
        with replacing_file(path) as fresh:
            fresh.write_text(self.html(), encoding="utf-8")
        return path

    def _add(self, **part: Any) -> Self:
        self.parts.append(part)
        return self
