"""Notice a server that cuts long prompts without saying so.

Some servers (Ollama, by default) drop the beginning of a prompt that is longer than the context that they were
started with, and answer as if nothing had happened. The server's own count of the tokens of a prompt shows it: the
count no longer grows with the prompt. Two things are done with it:

* A trial before the run sends one long prompt with a word at its head, and asks for that word.
* During the run, the count of each prompt is compared with its length, at the greatest number of tokens per byte so
  far. A count that is too small is no proof, since some servers leave out the tokens that they still had in their
  cache. The trial is then made again, with a prompt of that length, and decides.
"""

import threading
from dataclasses import dataclass, field
from random import SystemRandom
from typing import Final, Literal

from goalscope.agents.models.http_answers import Served
from goalscope.agents.models.http_budget import CHAT_ALLOWANCE

MOST_WORDS: Final = 4096
"""Most words that the trial of a study adds to the length of the study's own prompt."""
RAISE: Final = (
    "Start the server with a longer context: num_ctx or OLLAMA_CONTEXT_LENGTH (Ollama), -c (llama.cpp), "
    "--max-model-len (vLLM), --context-length (SGLang)"
)
"""What to do where prompts are cut."""

_BYTES_PER_WORD: Final = 4  # of a study's prompt, roughly the bytes of a token
_LEAST_SHARE: Final = 0.9  # of the words of a long prompt; a token hardly ever spans two words
_LEAST_OF_EXPECTED: Final = 0.8  # of the tokens that a prompt of a study should have
_LEAST_BYTES: Final = 400  # of a prompt; in shorter ones the tokens of the chat template weigh too much
_MOST_BYTES_PER_TOKEN: Final = 12  # of a prompt of a study
_GROWTH: Final = 1.5  # of prompts, before a trial is made again
_FILLER: Final = ("the", "river", "runs", "past", "an", "old", "mill", "and", "then", "on", "into", "a", "lake")
_LETTERS: Final = "bcdfghjklmnprstvz"
_VOWELS: Final = "aeiou"

State = Literal["yes", "no", "unknown"]


def trial_words(prompt_bytes: int, max_tokens: int) -> int:
    """Return the words of the trial for a study whose prompts have so many bytes, and its answers so many tokens."""
    return prompt_bytes // _BYTES_PER_WORD + min(max_tokens, MOST_WORDS)


def _draw_word() -> str:
    source = SystemRandom()
    return "".join(source.choice(_LETTERS) + source.choice(_VOWELS) for _ in range(4))


@dataclass(frozen=True, slots=True)
class LongPrompt:
    """A long prompt with a word at its head, and the request for that word.

    The word differs each time, so that no server can take the beginning of the prompt from its cache. It enters no
    result.

    Attributes:
        words: the number of words after the head.
        head: the word at the head.
    """

    words: int
    head: str = field(default_factory=_draw_word)

    @property
    def text(self) -> str:
        """The prompt."""
        filler = " ".join(_FILLER[number % len(_FILLER)] for number in range(self.words))
        return f"The secret word is {self.head}. Remember it.\n{filler}\nWrite the secret word and nothing else."

    def judge(self, answer: Served, *, counts: bool) -> tuple[State, str]:
        """Return whether the prompt was read as a whole, and the evidence.

        Args:
            answer: the answer to it, with the tokens that the server counts.
            counts: whether the server's counts of other prompts can be right.
        """
        words, count = self.words, answer.prompt_count
        if self.head.lower() in "".join(part.text for part in answer.reply.parts).lower():
            return "yes", f"the word at the head of a prompt of {words:,} words is known"
        if not count or not counts:
            return "unknown", f"the server counts no tokens, and the model did not repeat the first of {words:,} words"
        if count >= _LEAST_SHARE * words:
            return "yes", f"a prompt of {words:,} words has {count:,} tokens"
        return "no", f"of a prompt of {words:,} words it read {count:,} tokens, and the word at its head is not known"


def counts_credible(prompt_bytes: int, count: int | None) -> bool:
    """Return whether a prompt of a study can have the tokens that a server counts."""
    return bool(count) and prompt_bytes <= _MOST_BYTES_PER_TOKEN * (count or 0)


class PromptCounts:
    """The server's counts of the tokens of prompts; safe to use from several threads.

    Attributes:
        lock: held by whoever makes a trial, so that others wait for its result.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._tokens_per_byte = 0.0
        self._whole = 0  # tokens of the longest prompt that was seen to be read as a whole

    def expected_if_cut(self, prompt_bytes: int, count: int | None) -> int:
        """Return the tokens that a prompt should have if the server counts too few; 0 if its count may be right."""
        if not count or prompt_bytes < _LEAST_BYTES or count > prompt_bytes + CHAT_ALLOWANCE:
            return 0
        expected = int(self._tokens_per_byte * prompt_bytes)
        if counts_credible(prompt_bytes, count):
            self._tokens_per_byte = max(self._tokens_per_byte, count / prompt_bytes)
        return 0 if count >= _LEAST_OF_EXPECTED * expected or self.is_whole(expected) else expected

    def confirm(self, tokens: int) -> None:
        """Record that a prompt of so many tokens was read as a whole."""
        self._whole = max(self._whole, tokens)

    def is_whole(self, tokens: int) -> bool:
        """Return whether a prompt of so many tokens, or of not much fewer, is known to be read as a whole."""
        return tokens <= _GROWTH * self._whole
