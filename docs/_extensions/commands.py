"""The directive `command`: the usage, arguments and options of a command, read from the command line itself."""

from __future__ import annotations

from typing import Any, ClassVar

import typer
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from truelike.cli import app as command_line

HIDDEN = ("--help", "-h")


def _find(path: list[str]) -> Any:
    command: Any = typer.main.get_command(command_line)
    for name in path:
        command = command.commands[name]
    return command


def _cell(text: Any) -> str:
    return " ".join(str(text or "").split()).replace("|", "\\|")


def _default(parameter: Any) -> str:
    value = parameter.default
    if value is None or value is False or value == () or callable(value) or "UNSET" in str(value).upper():
        return ""
    return f"`{value}`"


class Command(SphinxDirective):
    """`{command} data split`: what `truelike data split` takes."""

    required_arguments = 1
    final_argument_whitespace = True
    option_spec: ClassVar[dict[str, Any]] = {}  # type: ignore[misc]

    def run(self) -> list[nodes.Node]:
        """Write a description, the usage and a table of options as Markdown."""
        path = self.arguments[0].split()
        command = _find(path)
        arguments = [each for each in command.params if each.param_type_name == "argument"]
        options = [
            each
            for each in command.params
            if each.param_type_name == "option"
            and not getattr(each, "hidden", False)
            and each.opts[0] not in HIDDEN
        ]
        shown = [each.metavar or each.name.upper() for each in arguments]
        names = [name if each.required else f"[{name}]" for name, each in zip(shown, arguments, strict=True)]
        lines = [command.help or "", "", "```text", " ".join(["truelike", *path, *names, "[OPTIONS]"]), "```", ""]
        rows = [(f"`{name}`", "", _cell(each.help)) for name, each in zip(shown, arguments, strict=True)]
        rows += [
            (", ".join(f"`{flag}`" for flag in each.opts), _default(each), _cell(each.help)) for each in options
        ]
        if rows:
            lines += ["| argument or option | default | meaning |", "|---|---|---|"]
            lines += [f"| {' | '.join(row)} |" for row in rows]
        return self.parse_text_to_nodes("\n".join(lines))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("command", Command)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
