"""The most tokens that a prompt can have: real tokenizers never make more."""

from functools import cache
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tiny_models import PLAIN_TEMPLATE, tokenizer
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from families import examples
from goalscope.agents.models import Message, Sampling
from goalscope.agents.models.dialect import Dialect
from goalscope.agents.models.http_settings import (
    CHAT_ALLOWANCE,
    MESSAGE_ALLOWANCE,
    most_prompt_tokens,
    most_text_tokens,
)

SAMPLING = Sampling(temperature=0.0, max_tokens=96, reasoning_effort=None)
TEXTS = st.text(max_size=60) | st.text(alphabet="#_ AG\n0123(),{}\"':RIGHTaction", max_size=200)


@cache
def bundled(name: str) -> Dialect:
    return Dialect(name)


@cache
def other(name: str) -> Any:
    """Tokenizers of further kinds, none of which knows a merge: as many tokens as their kind can make."""
    letters = {piece: number for number, piece in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    if name == "characters":
        return tokenizer(PLAIN_TEMPLATE)
    if name == "byte fallback":
        table = {"<unk>": 0, "▁": 1, **{f"<0x{value:02X}>": value + 2 for value in range(256)}}
        core = Tokenizer(models.BPE(vocab=table, merges=[], unk_token="<unk>", byte_fallback=True))
        core.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
        core.decoder = decoders.ByteFallback()
    else:
        core = Tokenizer(models.BPE(vocab=letters, merges=[]))
        core.normalizer = {"NFC": normalizers.NFC, "NFKC": normalizers.NFKC, "NFKD": normalizers.NFKD}[name]()
        core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    return PreTrainedTokenizerFast(tokenizer_object=core)


@pytest.mark.parametrize("name", ["theseus", "ariadne"])
@settings(max_examples=examples(60), deadline=None)
@given(text=TEXTS)
def test_the_bundled_tokenizers_make_no_more_tokens_of_any_text(name: str, text: str) -> None:
    assert len(bundled(name).encode(text.encode("utf-8", "replace").decode())) <= most_text_tokens(text)


@pytest.mark.parametrize("name", ["characters", "byte fallback", "NFC", "NFKC", "NFKD"])
@settings(max_examples=examples(60), deadline=None)
@given(text=TEXTS)
@example(text="ﷺ" * 3)
@example(text="𝅘𝅥𝅮क़")
@example(text="a")
@example(text="🏁ẛ̣é")
def test_tokenizers_of_other_kinds_make_no_more_tokens_of_any_text(name: str, text: str) -> None:
    ids = other(name)(text.encode("utf-8", "replace").decode(), add_special_tokens=False)["input_ids"]
    assert len(ids) <= most_text_tokens(text)


@pytest.mark.parametrize("name", ["theseus", "ariadne"])
@settings(max_examples=examples(40), deadline=None)
@given(asked=st.lists(TEXTS, min_size=1, max_size=4), said=TEXTS)
def test_no_chat_has_more_tokens_than_are_set_aside(name: str, asked: list[str], said: str) -> None:
    clean = [text.encode("utf-8", "replace").decode() for text in asked]
    chat = [Message(role="system", content="Go.")]
    for text in clean[:-1]:
        chat += [Message(role="user", content=text), Message(role="assistant", content=said[:20])]
    chat.append(Message(role="user", content=clean[-1]))
    dialect = bundled(name)
    read = len(dialect.encode(dialect.render(chat, SAMPLING)))
    assert read <= most_prompt_tokens(chat, SAMPLING.max_tokens)


def test_an_earlier_answer_counts_with_no_more_than_the_model_may_say() -> None:
    chat = [Message(role="user", content="ab"), Message(role="assistant", content="x" * 1000)]
    assert most_prompt_tokens(chat, 10) == CHAT_ALLOWANCE + 2 * MESSAGE_ALLOWANCE + (2 + 1) + (10 + 2)
    assert most_prompt_tokens(chat, 10_000) == CHAT_ALLOWANCE + 2 * MESSAGE_ALLOWANCE + (2 + 1) + (1000 + 1)


def test_a_text_that_cannot_be_encoded_is_counted_all_the_same() -> None:
    assert most_text_tokens("\ud800") >= 3
