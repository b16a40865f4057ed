"""Tables for LaTeX, in the style of booktabs."""

from __future__ import annotations

from collections.abc import Sequence

SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_", "%": r"\%",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': "''", "\n": " ", "\r": " ", "\t": " ",
}  # fmt: skip


def escape(text: str) -> str:
    r"""Text as LaTeX shows it.

    >>> escape("BPR_5 & 50%")
    'BPR\\_5 \\& 50\\%'
    """
    return "".join(SPECIAL.get(letter, letter) for letter in text)


def bold(cell: str) -> str:
    """A cell in bold."""
    return rf"\textbf{{{cell}}}"


def figure(value: float, deviation: float | None) -> str:
    r"""A mean, with its deviation where it has one.

    >>> figure(0.12345, None), figure(0.12345, 0.001)
    ('0.1235', '0.1235 $\\pm$ 0.0010')
    """
    return f"{value:.4f}" if deviation is None else rf"{value:.4f} $\pm$ {deviation:.4f}"


def booktabs(header: Sequence[str], rows: Sequence[Sequence[str]], *, caption: str, note: str) -> str:
    r"""A table with a caption above and a note below. All cells are LaTeX already; text cells are the first column.

    >>> print(booktabs(["model", "recall"], [["BPR", "0.1"]], caption="Recall.", note="One seed."))
    % needs \usepackage{booktabs}
    \begin{table}
    \centering\small
    \caption{Recall.}
    \begin{tabular}{lr}
    \toprule
    model & recall \\
    \midrule
    BPR & 0.1 \\
    \bottomrule
    \end{tabular}
    <BLANKLINE>
    \smallskip
    {\footnotesize One seed.\par}
    \end{table}
    <BLANKLINE>
    """
    return "\n".join(
        [
            r"% needs \usepackage{booktabs}",
            r"\begin{table}",
            r"\centering\small",
            rf"\caption{{{caption}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}",
            r"\toprule",
            " & ".join(header) + r" \\",
            r"\midrule",
            *(" & ".join(row) + r" \\" for row in rows),
            r"\bottomrule",
            r"\end{tabular}",
            "",
            r"\smallskip",
            rf"{{\footnotesize {note}\par}}",
            r"\end{table}",
            "",
        ]
    )
