"""Environments as a user names them on a command line: a class, a registered kind, or an id of Gymnasium."""

import re
from collections.abc import Mapping
from typing import Any, Final

from goalscope._ground import registry
from goalscope._ground.checks import did_you_mean
from goalscope._ground.own import consent, is_own
from goalscope._ground.yaml_text import read_pairs

TABLE_FILES: Final = (".npz", ".json")
"""Endings of a file that holds the table of an environment, see `goalscope table`."""

_CLASS = re.compile(r"([A-Za-z_][\w.]*:[A-Za-z_]\w*)(?::(.*))?", re.DOTALL)
_KIND = re.compile(r"([\w.-]+)(?::(.*))?", re.DOTALL)


def named_environment(text: str) -> tuple[str, dict[str, Any]]:
    """Return the source and the parameters of an environment that the user names; its code may then be imported.

    Args:
        text: ``module:Class`` of a file in the working directory; a registered kind of environments; an id that a kind
            knows, such as one of Gymnasium, ``FrozenLake-v1`` or ``module:MyLevel-v0``; or a file that `goalscope
            table` wrote. Parameters follow after a colon, as in ``warehouse:Warehouse:slip=0.1,row=2``.

    Returns:
        The source and the parameters, as `goalscope.worlds.environments.environment.build` takes them.

    Raises:
        ValueError: it is none of these, or the parameters are not written as KEY=VALUE.
        ImportError: the environment needs a package that is missing; the message names the extra.
    """
    text = text.strip()
    kinds = registry.names("environment")
    if text.endswith(TABLE_FILES) and "table" in kinds:
        return "table", {"file": text}
    own = _CLASS.fullmatch(text)
    if own is not None and is_own(own[1]) and own[1].partition(":")[0] not in kinds:
        consent(own[1])
        return own[1], dict(read_pairs(own[2] or "", text))
    kind = _KIND.fullmatch(text)
    if kind is not None and kind[1] in kinds:
        return kind[1], dict(read_pairs(kind[2] or "", text))
    ids = list[str]()
    for name in kinds:
        # A kind may know environments by ids of its own. It then has a function `named` from the text to both, and
        # may have a function `ids`, which lists them.
        factory = registry.resolve("environment", name)
        ids += getattr(factory, "ids", list)()
        knows = getattr(factory, "named", None)
        known: tuple[str, dict[str, Any]] | None = None if knows is None else knows(text)
        if known is not None:
            return known
    raise ValueError(
        "an environment must be given as module:Class of a file in the working directory, as a registered kind "
        f"({', '.join(kinds)}), or as an id of Gymnasium with its version, such as FrozenLake-v1, got {text!r:.200}"
        f"{did_you_mean(text.partition(':')[0], [*kinds, *ids])}"
    )


def environment_name(source: str, parameters: Mapping[str, Any]) -> str:
    """Return a short name of an environment for titles: the name of its class, or its id."""
    for key in ("name", "level", "file"):
        if isinstance(parameters.get(key), str):
            return str(parameters[key])
    return source.rpartition(":")[2]
