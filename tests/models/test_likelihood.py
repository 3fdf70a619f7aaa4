"""Likelihoods of given answers: against a plain forward pass and against what a model writes, at every boundary."""

import math
from collections import Counter
from typing import Any

import pytest
import torch
from tiny_models import HARMONY_TEMPLATE, PLAIN_TEMPLATE, VOCABULARY, gpt_oss, llama, request, tokenizer

from goalscope.agents.models import Likelihoods, LocalModel, Message, Request, Sampling, Scoring
from goalscope.agents.models.decode import score_on_cores
from goalscope.agents.models.dialect import alternatives

ANSWERS = tuple(f'{{"action": "{name}"}}' for name in ("UP", "DOWN", "LEFT", "RIGHT"))
FREE = Sampling(temperature=1.0, top_p=1.0, max_tokens=40, reasoning_effort=None)


def asked(number: int, answers: tuple[str, ...] = ANSWERS) -> Request:
    message = Message(role="user", content=f"state {number} " + "#_A" * number)
    return Request(messages=(message,), key=(0, f"episode-{number}", 0, 0), answers=answers)


def plain(model: LocalModel, tokens: tuple[int, ...], since: int) -> float:
    """The log-probability of the tokens from a place on: one forward pass of the whole sequence, no cache."""
    with torch.inference_mode():
        scores = torch.log_softmax(model.model(torch.tensor([tokens])).logits[0].double(), dim=-1)
    return float(sum(scores[at - 1, tokens[at]] for at in range(since, len(tokens))))


@pytest.mark.parametrize("kind", ["harmony", "none"])
def test_likelihoods_are_those_of_a_plain_forward_pass(kind: str) -> None:
    made = gpt_oss(window=16) if kind == "harmony" else llama()
    template = HARMONY_TEMPLATE if kind == "harmony" else PLAIN_TEMPLATE
    model = LocalModel.from_parts(made, tokenizer(template), name="tiny", reasoning=kind, slots=8)
    assert isinstance(model, Scoring)
    requests = [asked(number) for number in (1, 4, 2, 4)]  # different lengths, and one prompt twice
    found = model.likelihoods(requests, FREE, reasoned=False)
    for one, given in zip(requests, found, strict=True):
        text = model.render(one.messages, FREE)
        opened = text + ("<|channel|>final<|message|>" if kind == "harmony" else "")
        assert given.prompt_tokens == tuple(model.encode(text))
        before = len(model.encode(opened))
        shared = len(model.encode(opened + '{"action": "'))
        for answer, score, output in zip(ANSWERS, given.logprobs, given.outputs, strict=True):
            whole = (*given.prompt_tokens, *output)
            assert model.text(whole) == opened + answer
            assert score == pytest.approx(plain(model, whole, shared), abs=1e-4)
            assert given.beginning == pytest.approx(plain(model, whole[:shared], before), abs=1e-4)
    assert found[1] == Likelihoods(**{**_fields(found[3]), "usage": found[1].usage})
    assert model.likelihoods([], FREE, reasoned=False) == []


def _fields(found: Likelihoods) -> dict[str, Any]:
    return {name: getattr(found, name) for name in Likelihoods.__slots__}


@pytest.mark.full
def test_what_a_model_writes_has_the_frequencies_that_its_likelihoods_say() -> None:
    made, words = llama(seed=3), tokenizer(PLAIN_TEMPLATE, added=())
    answers = ("a", "bb", "b!", "c", "!")  # two of them share a token, and lengths differ
    a, b, c, mark = pieces = words.convert_tokens_to_ids(["a", "b", "c", "!"])
    with torch.no_grad():
        # Of four opposed tokens one is always more likely than all others: what is written is often an answer.
        head, keep = made.lm_head.weight, torch.zeros(VOCABULARY, 1)
        keep[pieces] = 4.0
        head.mul_(keep)
        head[c], head[mark] = -head[a], -head[b]
    model = LocalModel.from_parts(made, words, name="tiny", reasoning="none")
    message = (Message(role="user", content="go"),)
    (found,) = model.likelihoods([Request(messages=message, key=(0, "e", 0, 0), answers=answers)], FREE, reasoned=False)
    draws = 1500
    many = [Request(messages=message, key=(0, "episode", draw, 0)) for draw in range(draws)]
    short = Sampling(temperature=1.0, top_p=1.0, max_tokens=3, reasoning_effort=None)
    written = [list(one.output_tokens or ()) for one in model.complete(many, short)]  # some tokens have no text
    ids = {answer: words.convert_tokens_to_ids(list(answer)) for answer in answers}
    said = Counter(answer for one in written for answer in answers if one[: len(answer)] == ids[answer])
    expected = [math.exp(score) for score in found.logprobs]
    assert sum(said.values()) > 300, "the test sees answers"
    for answer, probability in zip(answers, expected, strict=True):
        error = math.sqrt(probability * (1 - probability) / draws)
        assert abs(said[answer] / draws - probability) < 4 * error, answer
    # Restricted to the answers, as an agent draws: shares of the mass.
    share = said["c"] / sum(said.values())
    of = expected[answers.index("c")] / sum(expected)
    assert abs(share - of) < 4 * math.sqrt(of * (1 - of) / sum(said.values()))
    assert found.beginning == 0.0


class Merging:
    """A tokenizer that merges a bracket with the brace after it, and a quote with an U."""

    merges = ("]{", '"U')
    name = "merging"

    def encode(self, text: str) -> list[int]:
        tokens, at = [], 0
        while at < len(text):
            merged = next((piece for piece in self.merges if text.startswith(piece, at)), text[at])
            tokens.append(1000 + self.merges.index(merged) if merged in self.merges else ord(merged))
            at += len(merged)
        return tokens


def test_a_token_that_reaches_over_a_boundary_moves_it_for_all_answers_alike() -> None:
    dialect: Any = Merging()
    prompt = dialect.encode("[user] go\n[a]")
    found = alternatives(dialect, prompt, "[user] go\n[a]", ANSWERS[:2])
    assert found.context == tuple(prompt[:-1]), "the bracket is part of the answers' first token"
    assert found.prompt == len(prompt) - 1
    assert found.answers[0][0] == found.answers[1][0] == 1000
    up, down = (
        [chr(token) if token < 1000 else dialect.merges[token - 1000] for token in one] for one in found.answers
    )
    assert "".join(up) == "]" + ANSWERS[0] and "".join(down) == "]" + ANSWERS[1]
    assert up[found.shared] == '"U' and down[found.shared] == '"', (
        "where the first differs, both are counted from there"
    )
    # Without a merge over the boundary the context is the prompt.
    assert alternatives(dialect, dialect.encode("go "), "go ", ANSWERS[1:]).context == tuple(dialect.encode("go "))


@pytest.mark.parametrize(
    ("answers", "words"),
    [(("a",), "two answers"), (("a", "a"), "differ in their tokens"), (("a", "ab"), "beginning of another")],
)
def test_answers_that_are_not_told_apart_are_refused(answers: tuple[str, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        alternatives(Merging(), [1], "x", answers)  # type: ignore[arg-type]


def test_answers_too_long_for_the_positions_are_refused() -> None:
    model = llama(positions=16)
    with pytest.raises(ValueError, match="16 positions"):
        score_on_cores(model, [[5] * 12], [[[5] * 6, [6]]])


def test_after_free_reasoning_the_answers_stand_behind_it() -> None:
    words = tokenizer()
    model = LocalModel.from_parts(gpt_oss(), words, name="tiny")
    prompt = model.render((Message(role="user", content="go"),), FREE)
    said = words.encode(
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>no<|return|>",
        add_special_tokens=False,
    )
    before, text = model.answer_place(prompt, said) or ([], "")
    assert model.text(before) + text == (
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>"
    )
    assert model.answer_place(prompt, said[:6]) is None, "the reasoning never came to an end"
    (cut,) = model.likelihoods([asked(1)], Sampling(max_tokens=2), reasoned=True)
    assert cut.logprobs == () and cut.reasoned is not None and cut.reasoned.finish == "length"
    none = LocalModel.from_parts(llama(), tokenizer(PLAIN_TEMPLATE), name="tiny", reasoning="none")
    with pytest.raises(ValueError, match="reasoning"):
        none.likelihoods([asked(1)], Sampling(max_tokens=2), reasoned=True)


def test_think_blocks_are_closed_before_an_answer_that_is_not_reasoned() -> None:
    words = tokenizer(PLAIN_TEMPLATE, added=("<think>", "</think>"))
    model = LocalModel.from_parts(llama(), words, name="tiny", reasoning="think")
    assert model.opening("[a]") == "<think>\n\n</think>\n\n"
    assert model.opening("[a]<think>\n") == "\n</think>\n\n"
    assert model.opening("[a]<think>\n\n</think>\n\n") == ""
    said = words.encode("hm</think>no", add_special_tokens=False)
    assert model.answer_place("[a]<think>", said) == (said[:2], "</think>\n\n")
    assert model.answer_place("[a]<think>", said[:2]) is None
    assert model.answer_place("[a]", said[:2]) == ([], ""), "it answers at once"
    assert request("x").answers == ()
