"""Prompts for task worlds as data files; apart from those for grids, whose words the bundled model is built from."""

from functools import cache
from importlib.resources import files

PASSAGES = (
    *("system", "summary", "exploration", "exploitation", "balance"),
    *("direct", "reasoned", "direct_example", "reasoned_example", "example"),
)
"""Names of the passages: the system prompt, the note on the memory summary, three strategies, two kinds of answer, both
once more for an answer whose form is shown by an example, and that example."""


@cache
def passage(name: str) -> str:
    """Return the text of a passage, without the newline that ends its file.

    Raises:
        ValueError: there is no passage of this name.
    """
    if name not in PASSAGES:
        raise ValueError(f"a passage must be one of {', '.join(PASSAGES)}, got {name!r}")
    return files(__name__).joinpath(f"{name}.txt").read_text(encoding="utf-8").removesuffix("\n")
