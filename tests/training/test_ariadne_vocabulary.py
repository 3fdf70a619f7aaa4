"""Ariadne's tokenizer keeps every text, and knows every word of the prompts of task worlds."""

import pytest
from ariadne_prompts import encoded, prompts, tokenizer
from hypothesis import given
from hypothesis import strategies as st

from families import long_after
from goalscope.agents import STRATEGIES
from goalscope.worlds.tasks import PRESETS
from training.task_vocabulary import VOCABULARY_SIZE, pieces, vocabulary
from training.tokens import SPECIAL, Vocabulary


@pytest.mark.parametrize("preset", long_after(2, PRESETS))
def test_prompts_of_real_episodes_hold_known_tokens_only_survive_and_fit(preset: str) -> None:
    for number, strategy in enumerate(STRATEGIES):
        for reasoned in (False, True):
            found, seen = prompts(preset, strategy=strategy, reasoned=reasoned, memory=(number + reasoned) % 2 > 0)
            assert len(found) > 0
            for text in found:
                tokens = encoded(text)
                assert tokenizer().decode(tokens) == text
                assert max(tokens) < len(pieces())
            # What an episode takes at its end, with room for an output.
            assert len(encoded(found[-1])) < vocabulary().positions - 100
            assert len(seen.turns) > 3


def test_a_step_without_a_state_takes_three_tokens() -> None:
    step = (
        '<|end|><|start|>assistant<|channel|>final<|message|>{"action": "up"}<|return|>'
        "<|start|>user<|message|>OBSERVATION: You are at [3, 10]. There is nothing here. You can go up, left."
    )
    assert [pieces()[token] for token in encoded(step)][1:] == [
        " [3, 10]",
        ". There is nothing here. You can go up, left.",
    ]


@given(st.lists(st.one_of(st.sampled_from(pieces()), st.text(max_size=8)), max_size=10).map("".join))
def test_any_mixture_of_pieces_and_text_survives(text: str) -> None:
    assert tokenizer().decode(encoded(text)) == text


def test_every_piece_is_one_token_with_its_own_number() -> None:
    assert len(tokenizer()) == VOCABULARY_SIZE
    for piece in pieces():
        assert encoded(piece) == vocabulary().encode([piece])


@pytest.mark.parametrize(
    ("pieces_", "size", "words"),
    [
        ((*SPECIAL, "a", "a"), 400, "differ"),
        ((*SPECIAL, "a"), 260, "room for 256 bytes"),
        (("a", *SPECIAL), 400, "begin with"),
    ],
)
def test_a_vocabulary_that_cannot_be_is_refused(pieces_: tuple[str, ...], size: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Vocabulary(size=size, positions=10, pieces=pieces_, opening="")
