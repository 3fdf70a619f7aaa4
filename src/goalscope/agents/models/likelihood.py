"""The token ids of given answers after one prompt, and their likelihoods from the log-probabilities of these tokens.

The likelihood of an answer is the product over its tokens of the probability of each after all tokens before it. An
answer is tokenized together with the text before it, since a token may cross the boundary; the common beginning of all
answers is counted once. Only the tokenizer's own tokenization of a text is scored: a likelihood is a lower bound of the
probability that the model writes this text.
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
        answers: ``[A]`` ids of each answer after the context, none the beginning of another one.
        shared: how many ids at their beginning all answers share.
        prompt: how many ids at the beginning of context and answer are the prompt's.
    """

    context: tuple[int, ...]
    answers: tuple[tuple[int, ...], ...]
    shared: int
    prompt: int


def alternatives(
    dialect: Dialect, prompt: Sequence[int], text: str, answers: Sequence[str], *, ids: Sequence[int] = ()
) -> Alternatives:
    """Tokenize answers together with the text before them.

    Where a token of an answer reaches back over the boundary, the context ends before it, for all answers alike.

    Args:
        dialect: how the model's texts become tokens.
        prompt: ids of the prompt.
        text: the text before the answers; it must not begin inside of a token.
        answers: the complete answers.
        ids: exact ids before the text.

    Raises:
        ValueError: fewer than two answers, or answers whose tokens do not differ.
    """
    if len(answers) < 2:
        raise ValueError(f"likelihoods must be those of two answers or more, got {len(answers)}: give all actions")
    text_ids = [*ids, *dialect.encode(text)]
    answer_rows = [[*ids, *dialect.encode(text + answer)] for answer in answers]
    common = _common(answer_rows)
    if not all(len(tokens) > common for tokens in answer_rows) or len(set(map(tuple, answer_rows))) < len(answer_rows):
        raise ValueError(
            f"answers must differ in their tokens, none the beginning of another one, got {', '.join(answers)}: give "
            "the actions other names, or use answer: generated"
        )
    n_context = _common([text_ids, *answer_rows])
    if not n_context:
        raise ValueError("a prompt must have a token before the answer, got none: check the model's chat template")
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
    """Return the result of a request whose reasoning never came to a final answer."""
    return Likelihoods(
        logprobs=(),
        prompt_tokens=reasoned.prompt_tokens,
        reasoned=reasoned,
        usage=dict(reasoned.usage),
        unsupported=reasoned.unsupported,
        answered_by=reasoned.answered_by,
    )


def placed(dialect: Dialect, prompt: str, answers: Sequence[str], reasoned: Reply | None) -> Alternatives | None:
    """Return the tokenized answers of a request: after its prompt, or after its reasoning.

    Args:
        dialect: how the model writes chats.
        prompt: the rendered prompt.
        answers: the complete answers.
        reasoned: the model's output, None where it answers at once.

    Returns:
        None where no final answer began after the reasoning.

    Raises:
        ValueError: see `alternatives`; the model does not set its reasoning apart, or its output has no exact ids.
    """
    [ids] = dialect.prompt_ids([prompt])
    if reasoned is None:
        return alternatives(dialect, ids, prompt + dialect.opening(prompt), answers)
    if reasoned.output_tokens is None or reasoned.reconstructed:
        raise ValueError(
            "an answer after free reasoning needs the exact token ids of the reasoning, the server returns none: use "
            "vLLM or SGLang, a local model, or answer_after: prompt"
        )
    start = dialect.answer_place(prompt, reasoned.output_tokens)
    if start is None:
        return None
    before, text = start
    return alternatives(dialect, ids, text, answers, ids=(*ids, *before))


def _common(rows: Sequence[Sequence[int]]) -> int:
    """Return how many ids all rows begin with."""
    low, high = min(rows, key=tuple), max(rows, key=tuple)  # all others lie between these two
    limit = min(len(low), len(high))
    return next((index for index in range(limit) if low[index] != high[index]), limit)
