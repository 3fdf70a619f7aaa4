"""Token ids of given answers after one prompt, and the likelihoods of these answers.

The likelihood of an answer is the product of the probabilities of its tokens, each given all tokens before it. An
answer is tokenized together with the text before it, since a token may cross the boundary. The beginning that all
answers share is counted once. Only the tokenizer's own tokenization of a text is scored, so a likelihood is a lower
bound for the probability that the model writes this text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from goalscope.agents.models.base import Likelihoods, Reply
from goalscope.agents.models.dialect import Dialect


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternatives:
    """Token ids of some answers after the same tokens.

    Attributes:
        context: ids before all answers, at least one.
        answers: ``[A]`` ids of each answer after the context; none is the beginning of another.
        shared: number of ids at the beginning that all answers share.
        prompt: number of ids at the beginning of context and answer that belong to the prompt.
    """

    context: tuple[int, ...]
    answers: tuple[tuple[int, ...], ...]
    shared: int
    prompt: int


def alternatives(
    dialect: Dialect, prompt: Sequence[int], text: str, answers: Sequence[str], *, ids: Sequence[int] = ()
) -> Alternatives:
    """Tokenize answers together with the text before them.

    If a token of some answer crosses the boundary, the context ends before this token for all answers.

    Args:
        dialect: how the model's texts become tokens.
        prompt: token ids of the prompt.
        text: the text before the answers; it must not begin inside a token.
        answers: the complete answers.
        ids: exact ids before the text.

    Raises:
        ValueError: there are fewer than two answers, or their tokens do not differ.
    """
    if len(answers) < 2:
        raise ValueError(f"likelihoods need at least two answers, got {len(answers)}: pass the answers of all actions")
    text_ids = [*ids, *dialect.encode(text)]
    answer_rows = [[*ids, *dialect.encode(text + answer)] for answer in answers]
    common = _common(answer_rows)
    if not all(len(tokens) > common for tokens in answer_rows) or len(set(map(tuple, answer_rows))) < len(answer_rows):
        raise ValueError(
            "answers must differ in their tokens, and none may be the beginning of another, got "
            f"{', '.join(answers)}: rename the actions, or use answer: generated"
        )
    n_context = _common([text_ids, *answer_rows])
    if not n_context:
        raise ValueError("a prompt must have at least one token before the answer: check the model's chat template")
    return Alternatives(
        context=tuple(answer_rows[0][:n_context]),
        answers=tuple(tuple(tokens[n_context:]) for tokens in answer_rows),
        shared=common - n_context,
        prompt=min(_common([prompt, tokens]) for tokens in answer_rows),
    )


def likelihoods(
    alternatives: Alternatives,
    scores: Sequence[Sequence[float]],
    usage: Mapping[str, float],
    reasoned: Reply | None,
    unsupported: tuple[str, ...],
) -> Likelihoods:
    """Return the likelihoods of answers from the log-probability of each of their tokens, ``[A]`` lists in nats."""
    rows = [(*alternatives.context, *answer) for answer in alternatives.answers]
    return Likelihoods(
        logprobs=tuple(float(sum(answer_scores[alternatives.shared :])) for answer_scores in scores),
        beginning=float(sum(scores[0][: alternatives.shared])),
        prompt_tokens=rows[0][: alternatives.prompt],
        outputs=tuple(tokens[alternatives.prompt :] for tokens in rows),
        reasoned=reasoned,
        usage=usage,
        unsupported=unsupported,
    )


def unanswered(reasoned: Reply) -> Likelihoods:
    """Return the result for a request whose reasoning never reached a final answer."""
    return Likelihoods(
        logprobs=(),
        prompt_tokens=reasoned.prompt_tokens,
        reasoned=reasoned,
        usage=dict(reasoned.usage),
        unsupported=reasoned.unsupported,
        answered_by=reasoned.answered_by,
    )


def placed(dialect: Dialect, prompt: str, answers: Sequence[str], reasoned: Reply | None) -> Alternatives | None:
    """Return the tokenized answers of a request, placed after its prompt or after its reasoning.

    Args:
        dialect: how the model writes chats.
        prompt: the rendered prompt.
        answers: the complete answers.
        reasoned: the model's output, None if it answers at once.

    Returns:
        The tokenized answers, or None if no final answer began after the reasoning.

    Raises:
        ValueError: see `alternatives`; also if the model does not mark its reasoning, or its output has no exact ids.
    """
    [ids] = dialect.prompt_ids([prompt])
    if reasoned is None:
        return alternatives(dialect, ids, prompt + dialect.opening(prompt), answers)
    if reasoned.output_tokens is None or reasoned.reconstructed:
        raise ValueError(
            "answer_after: reasoning needs the exact token ids of the reasoning, which the server does not return: use "
            "vLLM or SGLang, a local model, or answer_after: prompt"
        )
    start = dialect.answer_place(prompt, reasoned.output_tokens)
    if start is None:
        return None
    before, text = start
    return alternatives(dialect, ids, text, answers, ids=(*ids, *before))


def _common(rows: Sequence[Sequence[int]]) -> int:
    """Return how many ids at the beginning all rows share."""
    low, high = min(rows, key=tuple), max(rows, key=tuple)  # all other rows lie between these two
    limit = min(len(low), len(high))
    return next((index for index in range(limit) if low[index] != high[index]), limit)
