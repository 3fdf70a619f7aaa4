"""Detect a server that truncates long prompts without reporting it.

Some servers (Ollama, by default) drop the beginning of a prompt that is longer than the context they were started with,
and answer as if nothing had happened. The server's own count of prompt tokens reveals this, because it stops growing
with the prompt. We use the count in two ways:

* Before the run, a trial sends one long prompt with a word at its beginning, and asks for that word.
* During the run, the count for each prompt is compared with the prompt's length, at the greatest number of tokens per
  byte so far. A count that is too small is not yet a proof, since some servers leave out tokens that they had cached.
  The trial is then repeated with a prompt of that length, and decides.
"""

import threading
from dataclasses import dataclass, field
from random import SystemRandom
from typing import Final, Literal

from goalscope.agents.models.http_answers import Served
from goalscope.agents.models.http_budget import CHAT_ALLOWANCE

MOST_WORDS: Final = 4096
"""Maximum number of words that the trial adds to the length of the study's own prompt."""
RAISE: Final = (
    "Start the server with a longer context: num_ctx or OLLAMA_CONTEXT_LENGTH (Ollama), -c (llama.cpp), "
    "--max-model-len (vLLM), --context-length (SGLang)"
)
"""Advice for users whose server truncates prompts."""

_BYTES_PER_WORD: Final = 4  # bytes of a study's prompt per word of the trial, roughly the bytes of a token
_LEAST_SHARE: Final = 0.9  # minimum tokens per word of a long prompt; a token hardly ever spans two words
_LEAST_OF_EXPECTED: Final = 0.8  # minimum share of the tokens that a prompt of a study should have
_LEAST_BYTES: Final = 400  # in shorter prompts, the tokens of the chat template weigh too much
_MOST_BYTES_PER_TOKEN: Final = 12  # maximum bytes per token of a study's prompt
_GROWTH: Final = 1.5  # a new trial is made when prompts are longer than the last trial by this factor
_FILLER: Final = ("the", "river", "runs", "past", "an", "old", "mill", "and", "then", "on", "into", "a", "lake")
_LETTERS: Final = "bcdfghjklmnprstvz"
_VOWELS: Final = "aeiou"

State = Literal["yes", "no", "unknown"]


def trial_words(prompt_bytes: int, max_tokens: int) -> int:
    """Return the number of words in a study's trial, given the bytes of its prompts and the tokens of its answers."""
    return prompt_bytes // _BYTES_PER_WORD + min(max_tokens, MOST_WORDS)


def _draw_word() -> str:
    source = SystemRandom()
    return "".join(source.choice(_LETTERS) + source.choice(_VOWELS) for _ in range(4))


@dataclass(frozen=True, slots=True)
class LongPrompt:
    """A long prompt with a word at its beginning, which the model is asked to repeat.

    The word is different each time, so that no server can take the beginning of the prompt from its cache. The word
    affects no result.

    Attributes:
        words: number of words after the word at the beginning.
        head: the word at the beginning.
    """

    words: int
    head: str = field(default_factory=_draw_word)

    @property
    def text(self) -> str:
        """The prompt."""
        filler = " ".join(_FILLER[number % len(_FILLER)] for number in range(self.words))
        return f"The secret word is {self.head}. Remember it.\n{filler}\nWrite the secret word and nothing else."

    def judge(self, answer: Served, *, counts: bool) -> tuple[State, str]:
        """Return whether the server read the whole prompt, and the evidence.

        Args:
            answer: the answer to the prompt, with the tokens that the server counts.
            counts: whether the server's counts for other prompts are plausible.
        """
        words, count = self.words, answer.prompt_count
        if self.head.lower() in "".join(part.text for part in answer.reply.parts).lower():
            return "yes", f"the model repeats the first word of a prompt of {words:,} words"
        if not count or not counts:
            return "unknown", f"the server counts no tokens, and the model does not repeat the first of {words:,} words"
        if count >= _LEAST_SHARE * words:
            return "yes", f"a prompt of {words:,} words has {count:,} tokens"
        return "no", f"of a prompt of {words:,} words it read {count:,} tokens, and it cannot repeat the first word"


def counts_credible(prompt_bytes: int, count: int | None) -> bool:
    """Return whether a study's prompt can have as many tokens as the server counts."""
    return bool(count) and prompt_bytes <= _MOST_BYTES_PER_TOKEN * (count or 0)


class PromptCounts:
    """The server's token counts for prompts; safe to use from several threads.

    Attributes:
        lock: a thread holds this lock while it tries a prompt, so that other threads wait for the result.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._tokens_per_byte = 0.0
        self._whole = 0  # tokens of the longest prompt that the server is known to read completely

    def expected_if_cut(self, prompt_bytes: int, count: int | None) -> int:
        """Return how many tokens a prompt should have if the server counts too few; 0 if its count may be right."""
        if not count or prompt_bytes < _LEAST_BYTES or count > prompt_bytes + CHAT_ALLOWANCE:
            return 0
        expected = int(self._tokens_per_byte * prompt_bytes)
        if counts_credible(prompt_bytes, count):
            self._tokens_per_byte = max(self._tokens_per_byte, count / prompt_bytes)
        return 0 if count >= _LEAST_OF_EXPECTED * expected or self.is_whole(expected) else expected

    def confirm(self, tokens: int) -> None:
        """Record that the server read a prompt of so many tokens completely."""
        self._whole = max(self._whole, tokens)

    def is_whole(self, tokens: int) -> bool:
        """Return whether the server is known to read prompts of so many tokens, or nearly so many, completely."""
        return tokens <= _GROWTH * self._whole
