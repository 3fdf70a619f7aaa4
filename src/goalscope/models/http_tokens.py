"""The tokens of a model that runs elsewhere: its chat template, its ids, its channels, without its weights."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from goalscope.models.http_answers import Answer
from goalscope.models.identity import tokenizer_identity
from goalscope.models.loading import load_tokenizer, read_json
from goalscope.models.local import DATE, LocalModel


class Dialect(LocalModel):
    """How a model writes chats and ends outputs, known from its tokenizer alone; it completes nothing itself.

    Args:
        path_or_name: a folder with the tokenizer (no weights are needed), or the model's name on the hub.
        revision: commit, tag or branch on the hub.
        reasoning, today, template_options: see `LocalModel`.

    Raises:
        FileNotFoundError: a path that is not there.
        ValueError: an argument out of its range.
    """

    _needs = ("transformers",)

    def __init__(
        self,
        path_or_name: str,
        *,
        revision: str | None = None,
        reasoning: str = "auto",
        today: str | None = None,
        template_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            path_or_name,
            revision=revision,
            reasoning=reasoning,
            today=today or DATE,
            template_options=template_options,
        )
        self._device = "none"  # never one entry with a model of the same folder that has weights

    def describe(self) -> Mapping[str, Any]:
        """Return the content identity of the tokenizer and the template settings."""
        if self._folder is not None:
            files: Mapping[str, Any] = tokenizer_identity(self._folder)
        else:
            files = {"hub": self._source, "revision": self._revision or "main"}
        return {
            "files": dict(files),
            "reasoning": self._reasoning,
            "today": self._today.isoformat(),
            "template_options": self._options,
        }

    @property
    def on_hub(self) -> bool:
        """Whether the tokenizer is named by its place on the hub."""
        return self._folder is None

    @property
    def stop(self) -> frozenset[int]:
        """The tokens that end an output."""
        return self._load().stop

    def text(self, tokens: Sequence[int]) -> str:
        """Return the text of some ids, special tokens included."""
        return self._text(tokens)

    def reconstruct(self, answer: Answer) -> tuple[int, ...] | None:
        """Return the ids of an output made again from its text, None where they are not as many as were reported.

        The token that ended the output is there where the text or the server tells it, or where only one can; else it
        is left off.
        """
        tokens = tuple(self.encode(answer.text))
        if answer.finish == "length" or (tokens and tokens[-1] in self.stop):
            return tokens if len(tokens) == answer.output_count else None
        if len(tokens) + 1 != answer.output_count:
            return None
        (last,) = self.stop if len(self.stop) == 1 else (answer.stop_token,)
        return (*tokens, last) if last is not None and last in self.stop else tokens

    def _read(self) -> tuple[Any, Any]:
        from transformers import GenerationConfig

        where: dict[str, Any] = {"trust_remote_code": False}
        source, settings = self._source, SimpleNamespace(eos_token_id=None)
        if self._folder is not None:
            source, where["local_files_only"] = str(self._folder), True
            for name in ("generation_config.json", "config.json"):
                if (self._folder / name).is_file():
                    held = read_json(self._folder / name)
                    settings = SimpleNamespace(eos_token_id=held.get("eos_token_id"))
                    break
        else:
            where |= {"revision": self._revision or "main"}
            try:
                options = {key: value for key, value in where.items() if key != "trust_remote_code"}
                settings.eos_token_id = GenerationConfig.from_pretrained(source, **options).eos_token_id
            except OSError:
                settings.eos_token_id = None  # the tokenizer names its own
        tokenizer = load_tokenizer(source, where, folder=self._folder)
        return SimpleNamespace(generation_config=settings), tokenizer
