"""The docstring of every model describes its parameters, with their true defaults."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass

import pytest

from truelike.core.parameters import parameter_fields, preset, whole_number, with_inherited_parameters
from truelike.models.registry import REGISTRY, model_class


def documented_defaults(cls: type) -> dict[str, str]:
    """The default of each parameter, as the docstring has it."""
    docstring = inspect.getdoc(cls) or ""
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\w[^\n]*\n---|\Z)", docstring, re.DOTALL | re.MULTILINE)
    if section is None:
        return {}
    entries = re.findall(r"^(\w[^\n]*)\n", section[1], re.MULTILINE)
    found = [re.fullmatch(r"(\w+) : .*, default (.+)", entry) for entry in entries]
    assert all(found), f"an entry is not of the form 'name : type, default value': {entries}"
    return {entry[1]: entry[2] for entry in found if entry}


@pytest.mark.parametrize("name", REGISTRY)
def test_the_docstring_of_a_model_names_every_parameter_with_its_default(name: str) -> None:
    cls = model_class(name)
    assert documented_defaults(cls) == {f.name: repr(f.default) for f in parameter_fields(cls)}  # type: ignore[arg-type]


def test_inherited_parameters_follow_the_own_ones_with_the_defaults_of_the_class() -> None:
    @dataclass(kw_only=True)
    class Parent:
        """A parent.

        Parameters
        ----------
        size : int, default 1
            How large,
            in metres.
        depth : int, default 2
            How deep.

        Attributes
        ----------
        size_
            As measured.
        """

        size: int = whole_number(1)
        depth: int = whole_number(2)

    @preset(size=5)
    class Preset(Parent):
        """A preset.

        Examples
        --------
        None.
        """

    assert inspect.getdoc(Preset) == (
        "A preset.\n\nParameters\n----------\nsize : int, default 5\n    How large,\n    in metres.\n"
        "depth : int, default 2\n    How deep.\n\nExamples\n--------\nNone."
    )

    @with_inherited_parameters
    @dataclass(kw_only=True)
    class Child(Parent):
        """A child.

        Parameters
        ----------
        depth : int, default 7
            How deep the child is.
        """

        depth: int = whole_number(7)

    assert documented_defaults(Child) == {"depth": "7", "size": "1"}
    assert "How deep the child is." in (Child.__doc__ or "")
    assert "How deep.\n" not in (Child.__doc__ or "")
