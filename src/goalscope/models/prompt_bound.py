"""The most tokens that a prompt can have, without its tokenizer: what is planned and what is set aside count alike.

A token of a byte-level, byte-fallback, character or word vocabulary stands for at least one byte of the text that its
model reads. That text may be a normal form of the one that was sent, so that the longest of them is counted, and some
vocabularies put a blank before it. What a chat template adds is not known: an allowance is declared for the chat and
for each message.
"""

import unicodedata
from collections.abc import Sequence
from typing import Final, Literal

from goalscope.models.base import Message

CHAT_ALLOWANCE: Final = 512
"""Tokens that a chat template may add to a chat: the beginning, a system prompt of its own, the start of the answer."""

MESSAGE_ALLOWANCE: Final = 16
"""Tokens that a chat template may add to a message: its role, its markers, line breaks."""

_FORMS: Final[tuple[Literal["NFC", "NFKC", "NFD", "NFKD"], ...]] = ("NFC", "NFKC", "NFD", "NFKD")
_BLANK: Final = 2  # reasoning and answer are set apart by an empty line


def most_text_tokens(text: str) -> int:
    """Return the most tokens that a text can have: the bytes of its longest normal form, and a blank before it."""
    if text.isascii():
        return len(text) + 1
    forms = (text, *(unicodedata.normalize(form, text) for form in _FORMS))
    return max(len(form.encode("utf-8", "surrogatepass")) for form in forms) + 1


def most_answer_tokens(max_tokens: int) -> int:
    """Return the most tokens of an earlier answer in a prompt; the model wrote it within its limit."""
    return max_tokens + _BLANK


def most_prompt_tokens(messages: Sequence[Message], max_tokens: int) -> int:
    """Return the most tokens that a chat can have on a server that renders it.

    Args:
        messages: the chat; what the assistant says in it are earlier answers.
        max_tokens: most tokens of each answer.
    """
    total = CHAT_ALLOWANCE + MESSAGE_ALLOWANCE * len(messages)
    for message in messages:
        most = most_text_tokens(message.content)
        total += min(most, most_answer_tokens(max_tokens)) if message.role == "assistant" else most
    return total
