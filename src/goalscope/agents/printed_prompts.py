"""Recognise prompts that the papers print by the hash of their words, so that users can supply their own copy.

The texts belong to their authors and are not part of the package. Two texts count as equal if they have the same words
and symbols in the same order. Line breaks, blanks, hyphens inside words (a printed line may end in a hyphen),
ligatures, the kind of quotation marks (including the backtick) and the names of slots are ignored. A slot is any
``{{name}}``, such as ``{{grid_state}}``.
"""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Final

_QUOTES: Final = str.maketrans({**dict.fromkeys("“”„‟«»″", '"'), **dict.fromkeys("‘’‚‛′`´", "'")})
_SLOT: Final = re.compile(r"\{\{[^{}]*\}\}")
_HYPHEN: Final = re.compile(r"(?<=[^\W\d_])[-\u2010\u2011\u00ad]\s*(?=[^\W\d_])")

SLOTS: Final[Mapping[str, str]] = {"grid_state": "grid"}
"""Slot of a printed prompt -> our placeholder for it; slots whose name is the same are not listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedPrompt:
    """A prompt that a paper prints.

    Attributes:
        name: the paper and the section, such as "telos G.3".
        title: what the prompt is for.
        strategy: strategy of the task-world agents whose whole system prompt this is; "" for prompts of grids.
        memory: whether those agents are shown the memory summary; False for prompts of grids.
    """

    name: str
    title: str
    strategy: str = ""
    memory: bool = False


PRINTED: Final[Mapping[str, PrintedPrompt]] = {
    "505c8ca0aa94a808c2107725252e65146f3386dcb6f2bb5fbac688a8f651b530": PrintedPrompt(
        name="telos G.2", title="behaviour in grids"
    ),
    "f7ccbafb649e43912f579a19b3ec0b949ea9204c5ed599ec3b45aa43bedda930": PrintedPrompt(
        name="telos G.3", title="keys and doors"
    ),
    "58d8c54e21556c4bda0b24f60c7201b5b7ec53ed8a3656544774c8e24dd27f62": PrintedPrompt(
        name="exploration C.3 base", title="task worlds, no strategy", strategy="base"
    ),
    "f211909fc724537bd5930463ff70df380785007dc1aabba24d69b356c67aa250": PrintedPrompt(
        name="exploration C.3 exploration", title="task worlds, exploration", strategy="exploration"
    ),
    "1fa7ab7bf9cf06bb9e2686a53ef5679ff2f496723ea32caf6a937e6ffda15621": PrintedPrompt(
        name="exploration C.3 exploitation", title="task worlds, exploitation", strategy="exploitation"
    ),
    "b1cde904a55141fcd8d3d01514c8de6591f272d0bf170d7c2db8fb1662715e44": PrintedPrompt(
        name="exploration C.3 balance", title="task worlds, balance", strategy="balance"
    ),
    "e7ed23e18e5eaf245e1673b3bdf462bd4823c671616ebd52eaa056b64f77a060": PrintedPrompt(
        name="exploration D", title="task worlds with the memory summary", strategy="base", memory=True
    ),
}
"""Hash of a prompt's words -> the prompt."""


def normalised(text: str) -> str:
    """Return the words of a prompt in the form in which they are compared, separated by single blanks."""
    text = unicodedata.normalize("NFKC", _SLOT.sub("{{}}", text)).translate(_QUOTES)
    return " ".join(_HYPHEN.sub("", text).split())


def hash_of(text: str) -> str:
    """Return the hash that identifies a prompt."""
    return sha256(normalised(text).encode()).hexdigest()


@lru_cache(maxsize=64)
def recognised(text: str) -> PrintedPrompt | None:
    """Return the printed prompt that a text is a copy of, or None."""
    return PRINTED.get(hash_of(text))


def with_our_slots(text: str) -> str:
    """Return a template with its printed slots renamed to our placeholders."""
    for printed, ours in SLOTS.items():
        text = text.replace(f"{{{{{printed}}}}}", f"{{{{{ours}}}}}")
    return text


def printed_entry(text: str) -> dict[str, str]:
    """Return an entry for an agent's description if the prompt is one that a paper prints, else an empty mapping."""
    printed = recognised(text)
    return {} if printed is None else {"printed": printed.name}


def said_in(text: str, strategy: str, memory: bool, reasoned: bool) -> set[str]:
    """Return the placeholders that a system prompt for task worlds may lack, because its own words cover their content.

    Raises:
        ValueError: the text is a printed prompt of an agent with other settings.
    """
    printed = recognised(text)
    if printed is None:
        return set()
    if (printed.strategy, printed.memory, False) != (strategy, memory, reasoned):
        raise ValueError(
            f"the printed prompt {printed.name} belongs to agents with strategy: {printed.strategy}, memory: "
            f"{str(printed.memory).lower()} and reasoned: false, got strategy: {strategy}, memory: "
            f"{str(memory).lower()} and reasoned: {str(reasoned).lower()}: set the agent to the former values, "
            "or use another template"
        )
    return {"strategy", "summary"}
