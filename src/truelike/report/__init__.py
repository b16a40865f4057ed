"""Self-contained HTML pages with text, tables and figures. A page loads nothing from elsewhere."""

from __future__ import annotations

import io
import os
import platform
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import polars as pl

from truelike._version import __version__
from truelike.core.files import refuse_special, replacing_file
from truelike.errors import MissingExtraError, ParameterError, quoted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Page", "cell", "digits_of", "machine", "page_path", "require_report_extra"]


def require_report_extra() -> None:
    """Raise an error that says what to install if jinja2 or matplotlib is missing."""
    try:
        import jinja2  # noqa: F401
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            f'reports need {error.name}, which is not installed: pip install "truelike[plot]"'
        ) from error


def page_path(path: str | Path) -> Path:
    """The path of a page; an error unless it ends in .html, since a page is never of another format.

    >>> page_path("report.html").name
    'report.html'
    """
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise ParameterError(
            f"the path of the page is {quoted(path)}; a page is HTML: give a path that ends in .html"
        )
    return path


def machine() -> str:
    """Return the versions of truelike and Python and the processor, in one line."""
    model = platform.processor() or platform.machine()
    return f"truelike {__version__}, Python {platform.python_version()}, {os.cpu_count()} cores ({model})"


def cell(value: object, digits: int = 4) -> str:
    """Format a value: an empty text for None, a number of decimal places for a fraction, else as it is.

    >>> cell(None), cell(0.5, 2), cell(12345)
    ('', '0.50', '12345')
    """
    if value is None:
        return ""
    return f"{value:.{digits}f}" if isinstance(value, float) else str(value)


def digits_of(column: str, digits: int = 4) -> int:
    """Return the decimal places of a column: two for seconds, else `digits`."""
    return 2 if column.endswith("(s)") else digits


@dataclass
class Page:
    """An HTML page, built from top to bottom.

    The answer to the reader's question belongs at the top: use `answer` before tables and figures.

    Examples
    --------
    >>> page = Page("Results").answer("Use ItemPop.").table(pl.DataFrame({"model": ["ItemPop"]}))
    >>> "<h1>Results</h1>" in page.html()
    True
    """

    title: str
    subtitle: str = ""
    parts: list[dict[str, Any]] = field(default_factory=list)

    def heading(self, text: str) -> Self:
        """Add a heading."""
        return self._add(kind="heading", text=text)

    def text(self, text: str) -> Self:
        """Add a paragraph."""
        return self._add(kind="text", text=text)

    def banner(self, text: str) -> Self:
        """Add a warning in a coloured box: something that the reader must know before the results."""
        return self._add(kind="banner", text=text)

    def answer(self, text: str) -> Self:
        """Add the main result in a box, in large type."""
        return self._add(kind="answer", text=text)

    def code(self, text: str) -> Self:
        """Add code or a command to copy."""
        return self._add(kind="code", text=text)

    def table(self, frame: pl.DataFrame, caption: str = "", digits: int = 4) -> Self:
        """Add a table. Fractions have `digits` decimal places.

        A table that is wider than the text uses the width of the window. One that is wider than the window scrolls
        within the page; its first column stays visible.
        """
        places = [digits_of(name, digits) for name in frame.columns]
        rows = [[cell(v, n) for v, n in zip(row, places, strict=True)] for row in frame.iter_rows()]
        numeric = [dtype.is_numeric() for dtype in frame.dtypes]
        return self._add(kind="table", columns=frame.columns, rows=rows, numeric=numeric, caption=caption)

    def figure(self, figure: Figure, caption: str) -> Self:
        """Add a matplotlib figure, as SVG."""
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", bbox_inches="tight")
        svg = buffer.getvalue()
        return self._add(kind="figure", svg=svg[svg.index("<svg") :], caption=caption)

    def html(self) -> str:
        """Return the page as HTML."""
        require_report_extra()
        import jinja2

        template = (Path(__file__).parent / "page.html.jinja").read_text(encoding="utf-8")
        environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
        html: str = environment.from_string(template).render(page=self)
        return html

    def write(self, path: str | Path) -> Path:
        """Write the page to a file, completely or not at all."""
        path = Path(path)
        refuse_special(path)
        with replacing_file(path) as fresh:
            fresh.write_text(self.html(), encoding="utf-8")
        return path

    def _add(self, **part: Any) -> Self:
        self.parts.append(part)
        return self
