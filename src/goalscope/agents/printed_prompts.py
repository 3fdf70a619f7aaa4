"""Prompts as the papers print them: known by the hashes of their words, so that a reader's own copy is recognised.

The texts are the authors' and are not part of the package. Compared are words, symbols and their order. Not compared
are line breaks and blanks, hyphens inside of words (a printed line may end in one), ligatures, kinds of quotation marks
(the backtick among them), and the names of slots: ``{{grid_state}}`` is a slot as any ``{{name}}``.
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
"""Slot of a printed prompt -> the placeholder that we fill there; slots of the same name are not listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedPrompt:
    """A prompt that a paper prints.

    Attributes:
        name: the paper and the section, as in "telos G.3".
        title: what it is for.
        strategy, memory: the arm of task worlds that it is the whole system prompt of; "" and False in grids.
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
"""Hash of its words -> the prompt."""


def normalised(text: str) -> str:
    """Return the words of a prompt as they are compared, one blank between them."""
    text = unicodedata.normalize("NFKC", _SLOT.sub("{{}}", text)).translate(_QUOTES)
    return " ".join(_HYPHEN.sub("", text).split())


def hash_of(text: str) -> str:
    """Return the hash by which a prompt is known."""
    return sha256(normalised(text).encode()).hexdigest()


@lru_cache(maxsize=64)
def recognised(text: str) -> PrintedPrompt | None:
    """Return the printed prompt that a text is a copy of, None for any other text."""
    return PRINTED.get(hash_of(text))


def with_our_slots(text: str) -> str:
    """Return a template with our names of its slots."""
    for printed, ours in SLOTS.items():
        text = text.replace(f"{{{{{printed}}}}}", f"{{{{{ours}}}}}")
    return text


def printed_entry(text: str) -> dict[str, str]:
    """Return the entry of an agent's description for a prompt that a paper prints, none for any other."""
    printed = recognised(text)
    return {} if printed is None else {"printed": printed.name}


def said_in(text: str, strategy: str, memory: bool, reasoned: bool) -> set[str]:
    """Return the slots of a system prompt of task worlds that a text needs not have, since its own words say it.

    Raises:
        ValueError: a printed prompt, given to an agent of another arm.
    """
    printed = recognised(text)
    if printed is None:
        return set()
    if (printed.strategy, printed.memory, False) != (strategy, memory, reasoned):
        raise ValueError(
            f"a printed prompt must be that of its arm: {printed.name} is of strategy: {printed.strategy}, memory: "
            f"{str(printed.memory).lower()}, reasoned: false; got {strategy}, {str(memory).lower()}, "
            f"{str(reasoned).lower()}"
        )
    return {"strategy", "summary"}
