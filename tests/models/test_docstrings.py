"""The docstring of every model describes its parameters, with their true defaults."""

from __future__ import annotations

import inspect
import re

import pytest

from truelike.core.parameters import parameter_fields
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
