"""Prompt templates as data files, and how they are filled: by plain substitution, nothing is ever executed."""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final

from goalscope.models.base import TEMPLATE_FORMS

TEMPLATES = ("grid", "key_door", "fog")
"""Names of the templates that come with the package, each in all `TEMPLATE_FORMS`."""

SUFFIXES: Final = {"example": "_example", "schema": ""}
"""What the names of the files of each form end with."""

_PLACEHOLDER = re.compile(r"\{\{([a-z_]+)\}\}")
_BRACES = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)


@cache
def template(name: str, form: str = "schema") -> str:
    """Return the text of a bundled template, without the newline that ends its file.

    Args:
        name: one of `TEMPLATES`.
        form: one of `TEMPLATE_FORMS`.

    Raises:
        ValueError: there is no template of this name or form.
    """
    check_form(form)
    if name not in TEMPLATES:
        raise ValueError(f"a bundled template must be one of {', '.join(TEMPLATES)}, got {name!r}")
    text = files("goalscope.agents.prompts").joinpath(f"{name}{SUFFIXES[form]}.txt").read_text(encoding="utf-8")
    return text.removesuffix("\n")


def check_form(form: str) -> None:
    """Refuse what is no form of a template.

    Raises:
        ValueError: names the forms.
    """
    if form not in TEMPLATE_FORMS:
        raise ValueError(f"the form of a bundled template must be one of {', '.join(TEMPLATE_FORMS)}, got {form!r}")


def passages(text: str) -> list[str]:
    """Return the fixed passages of a template: what stands before, between and after its placeholders."""
    return _PLACEHOLDER.split(text)[::2]


def placeholders(text: str) -> list[str]:
    """Return what stands between double braces in a template, in order, whatever it is."""
    return _BRACES.findall(text)


def fill(text: str, values: Mapping[str, str]) -> str:
    """Return a template with each ``{{name}}`` replaced by its value; values are not looked into again.

    Raises:
        ValueError: the template has a placeholder without a value, or a value has no placeholder.
    """
    wanted = set(_PLACEHOLDER.findall(text))
    if wanted != set(values):
        raise ValueError(
            f"the values must be those of the template's placeholders {sorted(wanted)}, got {sorted(values)}"
        )
    return _PLACEHOLDER.sub(lambda match: values[match[1]], text)
