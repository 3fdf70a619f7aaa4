"""A vocabulary of pieces: which pieces of text are one token, and the tokenizer built from them.

Pieces are matched longest first from the left; whatever no piece covers becomes bytes, so that every text survives
``decode(encode(text))``.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from goalscope._ground.extras import lacking

SPECIAL: Final = (
    "<|endoftext|>",
    "<|start|>",
    "<|end|>",
    "<|message|>",
    "<|channel|>",
    "<|return|>",
    "<|call|>",
    "<|constrain|>",
)
PAD, START, END, MESSAGE, CHANNEL, RETURN = SPECIAL[:6]
ROLES: Final = ("system", "user", "assistant", "developer", "analysis", "commentary", "final")


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """The vocabulary of a bundled model.

    Attributes:
        size: number of tokens, spare ones included.
        positions: most tokens of a prompt with its output.
        pieces: all pieces in the order of their ids, the special tokens first.
        opening: system prompt of chats that bring none.

    Raises:
        ValueError: pieces and bytes do not fit, a piece stands there twice, or the special tokens are not the first.
    """

    size: int
    positions: int
    pieces: tuple[str, ...] = field(repr=False)
    opening: str

    def __post_init__(self) -> None:
        if self.pieces[: len(SPECIAL)] != SPECIAL:
            raise ValueError(f"a vocabulary must begin with {', '.join(SPECIAL)}, got {self.pieces[: len(SPECIAL)]}")
        if len(set(self.pieces)) < len(self.pieces) or len(self.pieces) + 256 > self.size:
            raise ValueError(
                f"pieces must differ and leave room for 256 bytes among {self.size} tokens, got {len(self.pieces)} "
                f"pieces, {len(set(self.pieces))} different ones"
            )

    @cached_property
    def ids(self) -> dict[str, int]:
        """Id of each piece."""
        return {piece: number for number, piece in enumerate(self.pieces)}

    def encode(self, parts: Sequence[str]) -> list[int]:
        """Return the ids of pieces.

        Raises:
            KeyError: a part is no piece.
        """
        return [self.ids[part] for part in parts]

    @property
    def chat_template(self) -> str:
        """How a chat becomes text, as a Jinja template in the harmony format."""
        return (
            "{%- if messages[0]['role'] == 'system' -%}"
            "{%- set opening = messages[0]['content'] -%}{%- set turns = messages[1:] -%}"
            "{%- else -%}"
            "{%- set opening = '" + self.opening + "' -%}{%- set turns = messages -%}"
            "{%- endif -%}"
            "{{- '<|start|>system<|message|>' + opening + '<|end|>' -}}"
            "{%- for turn in turns -%}"
            "{%- if turn['role'] == 'assistant' -%}"
            "{%- if turn.get('thinking') -%}"
            "{{- '<|start|>assistant<|channel|>analysis<|message|>' + turn['thinking'] + '<|end|>' -}}"
            "{%- endif -%}"
            "{{- '<|start|>assistant<|channel|>final<|message|>' + turn['content'] + '<|return|>' -}}"
            "{%- else -%}"
            "{{- '<|start|>' + turn['role'] + '<|message|>' + turn['content'] + '<|end|>' -}}"
            "{%- endif -%}"
            "{%- endfor -%}"
            "{%- if add_generation_prompt -%}{{- '<|start|>assistant' -}}{%- endif -%}"
        )

    def tokenizer(self) -> Any:
        """Return the tokenizer as a `transformers.PreTrainedTokenizerFast`.

        Raises:
            ImportError: transformers is missing; the extra ``lm`` brings it.
        """
        try:
            from tokenizers import AddedToken, Tokenizer, decoders
            from tokenizers.models import BPE
            from transformers import PreTrainedTokenizerFast
        except ImportError as error:
            raise lacking("the tokenizer needs transformers", "lm", error) from error
        table = dict(self.ids)
        for byte in range(256):
            table[f"<0x{byte:02X}>"] = len(table)
        for spare in range(len(table), self.size):
            table[f"<|reserved_{spare}|>"] = spare
        core = Tokenizer(BPE(vocab=table, merges=[], byte_fallback=True))
        core.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
        core.add_special_tokens([AddedToken(piece, special=True, normalized=False) for piece in SPECIAL])
        core.add_tokens([AddedToken(piece, normalized=False) for piece in self.pieces[len(SPECIAL) :]])
        fast: Any = PreTrainedTokenizerFast(
            tokenizer_object=core,
            pad_token=PAD,
            eos_token=RETURN,
            clean_up_tokenization_spaces=False,
            model_max_length=self.positions,
            padding_side="left",
        )
        fast.chat_template = self.chat_template
        return fast

    def save(self, folder: Path) -> None:
        """Write the tokenizer's files into a folder, in the form that `AutoTokenizer.from_pretrained` reads."""
        self.tokenizer().save_pretrained(str(folder))
        written = folder / "tokenizer_config.json"
        settings = json.loads(written.read_text(encoding="utf-8"))
        settings["tokenizer_class"] = "PreTrainedTokenizerFast"
        written.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n", encoding="utf-8")
