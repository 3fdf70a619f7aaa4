"""The tokenizer keeps every text, and cells, labels and passages are the tokens that the data is made of."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goalscope._ground.rng import stream
from goalscope.agents.prompts import TEMPLATES, fill, passages, template
from goalscope.worlds import Grid, generate
from goalscope.worlds.grid import symbols
from training.layout import prompt_layout
from training.tokens import SPECIAL
from training.vocabulary import (
    SYMBOLS,
    VOCABULARY_SIZE,
    cell_piece,
    cell_width,
    encode,
    pieces,
    vocabulary,
)


@cache
def tokenizer() -> Any:
    return vocabulary().tokenizer()


def encoded(text: str) -> list[int]:
    found: list[int] = tokenizer().encode(text, add_special_tokens=False)
    return found


def prompt(grid: Grid, name: str = "grid", **values: str) -> str:
    return fill(template(name), {"grid": grid.render(), **values})


def test_the_pieces_fit_into_the_vocabulary_beside_the_bytes() -> None:
    assert len(set(pieces())) == len(pieces()) <= VOCABULARY_SIZE - 256
    assert len(tokenizer()) == VOCABULARY_SIZE


@given(st.text(max_size=60))
def test_any_text_survives(text: str) -> None:
    assert tokenizer().decode(encoded(text)) == text


@given(st.lists(st.one_of(st.sampled_from(pieces()), st.text(max_size=5)), max_size=12).map("".join))
def test_any_mixture_of_pieces_and_text_survives(text: str) -> None:
    assert tokenizer().decode(encoded(text)) == text


def test_every_piece_is_one_token_with_its_own_number() -> None:
    for piece in pieces():
        assert encoded(piece) == encode([piece])


@pytest.mark.parametrize("size", [5, 7, 9, 11, 13, 15])
def test_each_cell_of_a_prompt_is_one_token_in_its_place(size: int) -> None:
    grid = generate(size, 0.6, rng=stream(1, "test", size))
    rendered = tokenizer().apply_chat_template(
        [{"role": "user", "content": prompt(grid)}], add_generation_prompt=True, tokenize=False
    )
    found = encoded(rendered)
    assert tokenizer().decode(found) == rendered
    expected, places = prompt_layout(size)
    filled = np.array(expected)
    width = cell_width(size)
    filled[places] = encode([cell_piece(str(symbol), width) for symbol in symbols(grid).ravel()])
    assert found == filled.tolist()


@pytest.mark.parametrize("size", [7, 15])
def test_row_labels_are_other_tokens_than_column_labels(size: int) -> None:
    found, places = prompt_layout(size)
    rows = {found[place - 1] for place in places[::size]}
    assert len(rows) == size
    labels = {encoded(f" {label:>{cell_width(size)}}")[0] for label in range(size)}
    assert not rows & labels


def test_fixed_passages_are_short() -> None:
    for name in TEMPLATES:
        *before, after = passages(template(name))
        assert all(len(encoded(part)) == 1 for part in before)
        assert len(encoded(after)) == 8
    assert len(prompt_layout(15)[0]) == 261


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("key_door", {"carrying_key": "yes"}),
        ("key_door", {"carrying_key": "no"}),
        ("fog", {"history": "(1,1) UP\n(1,1) RIGHT"}),
        ("fog", {"history": "none"}),
    ],
)
def test_the_other_prompts_survive_and_stay_short(name: str, values: dict[str, str]) -> None:
    grid = generate(9, 0.5, rng=stream(2, "test"))
    found = encoded(prompt(grid, name, **values))
    assert tokenizer().decode(found) == prompt(grid, name, **values)
    assert len(found) < 9 * 10 + 25


def test_special_tokens_are_those_of_the_harmony_format() -> None:
    assert {"<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|return|>"} <= set(SPECIAL)
    assert [tokenizer().convert_tokens_to_ids(token) for token in SPECIAL] == list(range(len(SPECIAL)))
    assert tokenizer().decode(encode(["<|end|>", " UP"]), skip_special_tokens=True) == " UP"


def test_a_conversation_is_rendered_turn_by_turn() -> None:
    found = tokenizer().apply_chat_template(
        [
            {"role": "system", "content": "S"},
            {"role": "user", "content": "U"},
            {"role": "assistant", "thinking": "T", "content": '{"action": "UP"}'},
            {"role": "user", "content": "V"},
        ],
        add_generation_prompt=True,
        tokenize=False,
    )
    assert found == (
        "<|start|>system<|message|>S<|end|><|start|>user<|message|>U<|end|>"
        "<|start|>assistant<|channel|>analysis<|message|>T<|end|>"
        '<|start|>assistant<|channel|>final<|message|>{"action": "UP"}<|return|>'
        "<|start|>user<|message|>V<|end|><|start|>assistant"
    )


def test_a_saved_tokenizer_is_loaded_like_any_other(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    vocabulary().save(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    text = prompt(generate(7, 1.0, rng=stream(3, "test"))) + " é\u0000 <0x41>"
    assert loaded.encode(text, add_special_tokens=False) == encoded(text)
    assert loaded.decode(encoded(text)) == text
    assert loaded.chat_template == tokenizer().chat_template


def test_every_symbol_has_a_token_for_both_widths() -> None:
    assert len({number for width in (1, 2) for number in encode([cell_piece(s, width) for s in SYMBOLS])}) == 14


def test_templates_are_filled_by_plain_substitution() -> None:
    assert fill("a {{grid}} b", {"grid": "{{grid}} {x}"}) == "a {{grid}} {x} b"
    with pytest.raises(ValueError, match="placeholders"):
        fill("a {{grid}}", {})
    with pytest.raises(ValueError, match="placeholders"):
        fill("a", {"grid": ""})
    with pytest.raises(ValueError, match="bundled template"):
        template("nothing")
