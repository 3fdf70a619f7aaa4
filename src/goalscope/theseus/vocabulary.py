"""The vocabulary of Theseus: which pieces of text are one token, and the tokenizer built from them.

Pieces are matched longest first from the left; whatever no piece covers becomes bytes, so that every text survives
``decode(encode(text))``. Each cell of a grid with its blanks is one token, a row label carries the line break before
it (and so is another token than a column label), and a fixed passage of a prompt is one token however long it is.
"""

import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from goalscope.agents.prompts import TEMPLATES, passages, template
from goalscope.extras import lacking
from goalscope.worlds.grid import ACTIONS, AGENT, DOOR, FOG, GOAL, KEY, OPEN, WALL

SPECIAL = (
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
SYSTEM_TEXT = "You are Theseus, a small language model that finds its way through grids of text."
SYMBOLS = (WALL, OPEN, GOAL, AGENT, KEY, DOOR, FOG)
MOST_LABELS = 15
"""Rows and columns that have tokens of their own; grids may be larger, their labels are then spelled in bytes."""
HEADER_WIDTHS = (5, 7, 9, 11, 13, 15)
"""Widths of grids whose header line is one token."""
TO, FROM, COLON = "to ", " from ", ":"
ANSWER, CLOSE = '{"action": "', '"}'
MOVES = tuple(f" {action.name}" for action in ACTIONS)
ACTION_NAMES = tuple(action.name for action in ACTIONS)
VOCABULARY_SIZE = 512

CHAT_TEMPLATE = (
    "{%- if messages[0]['role'] == 'system' -%}"
    "{%- set opening = messages[0]['content'] -%}{%- set turns = messages[1:] -%}"
    "{%- else -%}"
    "{%- set opening = '" + SYSTEM_TEXT + "' -%}{%- set turns = messages -%}"
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


def cell_width(columns: int) -> int:
    """Return how many characters a cell of a grid with so many rows or columns takes, as `Grid.render` writes it."""
    return len(str(columns - 1))


def cell_piece(symbol: str, width: int) -> str:
    """Return the token of a cell in a grid whose cells are ``width`` characters wide."""
    return f" {symbol:>{width}}"


def row_piece(row: int, width: int) -> str:
    """Return the token of a row label; the line break before it belongs to it."""
    return f"\n{row:>{width}}"


def header_piece(columns: int) -> str:
    """Return the header line of a grid, which is one token."""
    width = cell_width(columns)
    return " " * width + "".join(f" {col:>{width}}" for col in range(columns))


def lines(passage: str) -> list[str]:
    """Split a passage that follows a grid into its lines, each with the line breaks around it.

    They are tokens of their own: the places where the model has seen the whole grid and nothing is asked of it yet.
    """
    return re.findall(r"\n*[^\n]+\n?", passage)


@cache
def pieces() -> tuple[str, ...]:
    """Return all pieces in the order of their ids, the special tokens first."""
    found: list[str] = [*SPECIAL, "system", "user", "assistant", "developer", "analysis", "commentary", "final"]
    for width in (1, 2):
        found += [cell_piece(symbol, width) for symbol in SYMBOLS]
    found += [row_piece(row, 1) for row in range(10)]
    found += [row_piece(row, 2) for row in range(MOST_LABELS)]
    found += [header_piece(columns) for columns in HEADER_WIDTHS]
    found += [f"({row}" for row in range(MOST_LABELS)]
    found += [f",{col})" for col in range(MOST_LABELS)]
    found += [*MOVES, *ACTION_NAMES, TO, FROM, COLON, ANSWER, CLOSE, "\n", "yes", "no", "none", SYSTEM_TEXT]
    for name in TEMPLATES:
        *before, after = passages(template(name))
        found += [*before, *lines(after)]
    return tuple(dict.fromkeys(found))


@cache
def ids() -> dict[str, int]:
    """Return the id of each piece."""
    return {piece: number for number, piece in enumerate(pieces())}


def encode(parts: Sequence[str]) -> list[int]:
    """Return the ids of pieces.

    Raises:
        KeyError: a part is no piece.
    """
    table = ids()
    return [table[part] for part in parts]


def prompt_parts(name: str) -> tuple[list[str], list[str]]:
    """Return the pieces of a rendered prompt before and after the part that changes.

    Args:
        name: name of the template.

    Returns:
        The pieces up to the template's first placeholder and those after its last one.
    """
    first, *_, last = passages(template(name))
    opening = [START, "system", MESSAGE, SYSTEM_TEXT, END, START, "user", MESSAGE, first]
    return opening, [*lines(last), END, START, "assistant"]


def build_tokenizer() -> Any:
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
    table = dict(ids())
    for byte in range(256):
        table[f"<0x{byte:02X}>"] = len(table)
    for spare in range(len(table), VOCABULARY_SIZE):
        table[f"<|reserved_{spare}|>"] = spare
    core = Tokenizer(BPE(vocab=table, merges=[], byte_fallback=True))
    core.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    core.add_special_tokens([AddedToken(piece, special=True, normalized=False) for piece in SPECIAL])
    core.add_tokens([AddedToken(piece, normalized=False) for piece in pieces()[len(SPECIAL) :]])
    fast: Any = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=core,
        pad_token=PAD,
        eos_token=RETURN,
        clean_up_tokenization_spaces=False,
        model_max_length=1024,
        padding_side="left",
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def save_tokenizer(folder: Path) -> None:
    """Write the tokenizer's files into a folder, in the form that `AutoTokenizer.from_pretrained` reads."""
    build_tokenizer().save_pretrained(str(folder))
    written = folder / "tokenizer_config.json"
    settings = json.loads(written.read_text(encoding="utf-8"))
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    written.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n", encoding="utf-8")
