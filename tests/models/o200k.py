"""The vocabulary of GPT-OSS (o200k), from the npm package js-tiktoken; tests skip where it cannot be had."""

import base64
import json
import shutil
import subprocess
import tarfile
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

PACKAGE = "js-tiktoken@1.0.21"
SPECIAL = {
    "<|startoftext|>": 199998,
    "<|endoftext|>": 199999,
    "<|return|>": 200002,
    "<|constrain|>": 200003,
    "<|channel|>": 200005,
    "<|start|>": 200006,
    "<|end|>": 200007,
    "<|message|>": 200008,
    "<|call|>": 200012,
}
"""The special tokens of harmony with their numbers; the numbers between them are reserved."""
SIZE = 201_088


def ranks(folder: Path) -> tuple[dict[bytes, int], str]:
    """Return the number of each token by its bytes, and the expression that cuts a text into pieces."""
    if shutil.which("npm") is None:
        pytest.skip("the vocabulary o200k comes from npm, which is not installed")
    done = subprocess.run(["npm", "pack", PACKAGE], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{PACKAGE} cannot be had from npm: {done.stderr.strip()[-200:]}")
    with tarfile.open(next(folder.glob("js-tiktoken-*.tgz"))) as packed:
        member = packed.extractfile("package/dist/ranks/o200k_base.js")
        assert member is not None
        text = member.read().decode()
    stored = json.loads(text[text.index("{") : text.rindex("}") + 1])
    numbers: dict[bytes, int] = {}
    for line in filter(None, stored["bpe_ranks"].split("\n")):
        _, first, *tokens = line.split(" ")
        numbers |= {base64.b64decode(token): int(first) + at for at, token in enumerate(tokens)}
    return numbers, stored["pat_str"]


@cache
def _byte_letters() -> dict[int, str]:
    """The letter by which byte-level vocabularies write each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {**{byte: chr(byte) for byte in plain}, **{byte: chr(256 + at) for at, byte in enumerate(others)}}


def tokenizer(numbers: dict[bytes, int], pattern: str, template: str) -> Any:
    """Return the tokenizer of GPT-OSS in the form of transformers, with a chat template."""

    def letters(piece: bytes) -> str:
        return "".join(_byte_letters()[byte] for byte in piece)

    pairs = (pair for piece in numbers if (pair := _merged_last(piece, numbers)) is not None)
    merges = [(letters(first), letters(second)) for first, second in pairs]
    core = Tokenizer(BPE(vocab={letters(piece): rank for piece, rank in numbers.items()}, merges=merges))
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    reserved = {number: piece for piece, number in SPECIAL.items()}
    names = [reserved.get(number, f"<|reserved_{number}|>") for number in range(len(numbers), 200_019)]
    core.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names])
    fast: Any = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token="<|return|>",
        pad_token="<|endoftext|>",
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = template
    return fast


def _merged_last(piece: bytes, numbers: dict[bytes, int]) -> tuple[bytes, bytes] | None:
    """Return the two tokens that are merged last to make one; None for a single byte."""
    parts = [piece[at : at + 1] for at in range(len(piece))]
    while len(parts) > 2:
        pairs = [numbers.get(first + second, SIZE) for first, second in pairwise(parts)]
        at = min(range(len(pairs)), key=pairs.__getitem__)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return (parts[0], parts[1]) if len(parts) == 2 else None
