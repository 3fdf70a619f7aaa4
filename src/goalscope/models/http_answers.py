"""From the body of a response to what it says; whatever a server sends is checked as a stranger's."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from goalscope.models.base import MOST_USAGE, Finish, Message, Request
from goalscope.models.dialect import Dialect
from goalscope.models.harmony import left_over, split, split_said, text_segments
from goalscope.models.http_errors import GarbledError

_TOKEN_ID = "token_id:"
_MOST_ID = 2**32
Logprobs = tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a response says, None where it does not: the fields of a `Completion`, and what is reported beside them.

    Attributes:
        text: the answer, or in completions mode the whole output.
        prompt_count, output_count, reasoning_count: reported tokens.
        divided: whether reasoning was told from the answer by markers that the server left in the text.
        stop_token: id of the token that ended the output.
        fingerprint: what the server calls its state, "" for nothing.
        scores: of each prompt that was to be read alone, the log-probabilities of its tokens but the first, in nats.
    """

    text: str
    finish: Finish
    prompt_count: int | None
    output_count: int | None
    reasoning_count: int | None
    reasoning: str | None = None
    prompt_tokens: tuple[int, ...] | None = None
    output_tokens: tuple[int, ...] | None = None
    logprobs: Logprobs | None = None
    stop_token: int | None = None
    marked: bool = False
    divided: bool = False
    fingerprint: str = ""
    scores: tuple[tuple[float, ...], ...] | None = None


def chat_answer(body: Mapping[str, Any], style: str) -> Answer:
    """Read a response of ``/chat/completions``; a `GarbledError` where it is no answer.

    The style is "auto" (what the server keeps apart, and what the model's own markers tell apart in the text), "think"
    or "none" (the whole text is the answer).
    """
    choice, common = _choice(body)
    message = choice.get("message")
    if not isinstance(message, Mapping):
        raise GarbledError("the choice of a response holds no message")
    text = _content(message.get("content"))
    if not text and isinstance(message.get("refusal"), str):
        text = message["refusal"]
    found = message.get("reasoning_content") or message.get("reasoning")
    reasoning = found if isinstance(found, str) else None
    parts = split(text_segments(text, "think"), "think") if style == "think" else None
    if style == "auto":
        parts = split_said(text)
    if parts is not None:
        text = parts.text
        reasoning = "\n".join(part for part in (reasoning, parts.reasoning) if part) or None
    held = choice.get("logprobs")
    entries = held.get("content") if isinstance(held, Mapping) else None
    logprobs = None if entries is None else tuple(_chat_logprob(entry) for entry in _list(entries))
    prompt, output = _ids(_beside(body, choice, "prompt_token_ids")), _ids(choice.get("token_ids"))
    for name, ids in (("prompt", prompt), ("output", output)):
        count = common[f"{name}_count"]
        if ids is not None and count is not None and len(ids) != count:
            raise ValueError(
                f"the token ids of a response must be as many as the tokens that it counts, got {len(ids)} ids of its "
                f"{name} and {count} tokens: see to the server, or say server: {{token_ids: false}}"
            )
    return Answer(
        text=text,
        reasoning=reasoning,
        prompt_tokens=prompt,
        output_tokens=output,
        logprobs=logprobs,
        marked=left_over(text),
        divided=parts is not None and parts.reasoning is not None,
        **common,
    )


def completions_answer(body: Mapping[str, Any]) -> Answer:
    """Read a response of ``/completions``; a `GarbledError` where it is no answer."""
    choice, common = _choice(body)
    text = choice.get("text")
    if not isinstance(text, str):
        raise GarbledError("the choice of a response holds no text")
    held = choice.get("logprobs")
    logprobs = _completion_logprobs(held) if isinstance(held, Mapping) and held.get("tokens") is not None else None
    output = _ids(choice.get("token_ids"))
    if output is None and logprobs and all(isinstance(entry["token"], int) for entry in logprobs):
        output = tuple(entry["token"] for entry in logprobs)
    # Of vLLM and of SGLang; another reason may be told: a text, or none.
    stops = [_count(choice.get(name)) for name in ("stop_reason", "matched_stop")]
    stop_token = next((stop for stop in stops if stop is not None), None)
    if stop_token is not None and stop_token >= _MOST_ID:
        raise GarbledError("the stop token of a response is no token id")
    return Answer(
        text=text,
        prompt_tokens=_ids(_beside(body, choice, "prompt_token_ids")),
        output_tokens=output,
        logprobs=logprobs,
        stop_token=stop_token,
        **common,
    )


def scores_answer(body: Mapping[str, Any], prompts: Sequence[Sequence[int]]) -> Answer:
    """Read the log-probabilities of the tokens of some prompts; a `GarbledError` where a response is no answer.

    They stand where ``prompt_logprobs`` puts them, or before the output where the prompt was to be echoed; the scores
    are None where they stand in neither place.
    """
    first, common = _choice(body)
    choices = {choice.get("index", 0): choice for choice in body["choices"] if isinstance(choice, Mapping)}
    found: list[tuple[float, ...]] = []
    for index, prompt in enumerate(prompts):
        choice = choices.get(index, first if len(prompts) == 1 else {})
        held = choice.get("prompt_logprobs")
        echoed = choice.get("logprobs")
        if held is not None:
            entries = _list(held)[1:]
            if len(entries) != len(prompt) - 1:
                raise GarbledError("the log-probabilities of a prompt are not as many as its tokens")
            pairs = zip(entries, prompt[1:], strict=True)
            found.append(tuple(_entry_score(entry, token) for entry, token in pairs))
        elif isinstance(echoed, Mapping) and len(_list(echoed.get("token_logprobs") or [])) >= len(prompt):
            scores = echoed["token_logprobs"][1 : len(prompt)]
            found.append(tuple(_pair("", score)[1] for score in scores))
    return Answer(text="", scores=tuple(found) if len(found) == len(prompts) else None, **common)


def _entry_score(entry: Any, token: int) -> float:
    """Return the log-probability of a token among those that stand in its place, by their ids."""
    held = entry.get(str(token)) if isinstance(entry, Mapping) else None
    if not isinstance(held, Mapping):
        raise GarbledError("the log-probabilities of a prompt are not those of its tokens")
    return float(_pair("", held.get("logprob"))[1])


def _choice(body: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """Return the first choice, and what answers of both kinds say: how it ended and the tokens that are reported."""
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
        raise GarbledError("a response holds no choices")
    usage = body.get("usage")
    held = usage if isinstance(usage, Mapping) else {}
    details = held.get("completion_tokens_details")
    return choices[0], {
        "finish": "length" if choices[0].get("finish_reason") == "length" else "stop",
        "prompt_count": _tokens(held.get("prompt_tokens")),
        "output_count": _tokens(held.get("completion_tokens")),
        "reasoning_count": _tokens(details.get("reasoning_tokens")) if isinstance(details, Mapping) else None,
        "fingerprint": told if isinstance(told := body.get("system_fingerprint"), str) else "",
    }


def _beside(body: Mapping[str, Any], choice: Mapping[str, Any], name: str) -> Any:
    """Return what stands in the choice, as SGLang has it, or beside all choices, as vLLM has it."""
    return body.get(name) if choice.get(name) is None else choice[name]


def _content(content: Any) -> str:
    if isinstance(content, list):  # some servers send parts
        parts = [part.get("text") for part in content if isinstance(part, Mapping) and part.get("type") == "text"]
        return "".join(part for part in parts if isinstance(part, str))
    if not isinstance(content, str | None):
        raise GarbledError("the content of a message is no text")
    return content or ""


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _tokens(value: Any) -> int | None:
    count = _count(value)
    if count is not None and count > MOST_USAGE:
        raise GarbledError(f"the usage of a response must count at most 2**53 tokens, got {len(str(count))} digits")
    return count


def _ids(value: Any) -> tuple[int, ...] | None:
    if value is None:
        return None
    ids = [_count(item) for item in _list(value)]
    found = tuple(item for item in ids if item is not None and item < _MOST_ID)
    if len(found) != len(ids):
        raise GarbledError("the token ids of a response are no whole numbers >= 0")
    return found


def _list(value: Any) -> Sequence[Any]:
    if not isinstance(value, list):
        raise GarbledError(f"a response holds {type(value).__name__} in place of a list")
    return value


def _chat_logprob(entry: Any) -> Mapping[str, Any]:
    top = _list(entry.get("top_logprobs") or []) if isinstance(entry, Mapping) else []
    if not all(isinstance(one, Mapping) for one in (entry, *top)):
        raise GarbledError("the log-probabilities of a response name no token")
    (token, logprob), *pairs = [_pair(one.get("token"), one.get("logprob")) for one in (entry, *top)]
    return {"token": token, "logprob": logprob, "top": pairs}


def _completion_logprobs(held: Mapping[str, Any]) -> Logprobs:
    tokens, scores = _list(held["tokens"]), _list(held.get("token_logprobs"))
    tops = _list(held.get("top_logprobs") or [None] * len(tokens))
    if not len(tokens) == len(scores) == len(tops):
        raise GarbledError("the log-probabilities of a response are not as many as its tokens")
    found = []
    for given, score, top in zip(tokens, scores, tops, strict=True):
        token, logprob = _pair(given, score)
        pairs = [_pair(*pair) for pair in top.items()] if isinstance(top, Mapping) else []
        found.append({"token": token, "logprob": logprob, "top": pairs})
    return tuple(found)


def _pair(token: Any, score: Any) -> list[Any]:
    """Return a token, the id of ``token_id:123`` and the text of others, and its log-probability."""
    if not isinstance(token, str):
        raise GarbledError("a token of a response is no text")
    if isinstance(score, bool) or not isinstance(score, int | float) or not abs(score) <= sys.float_info.max:
        raise GarbledError("a log-probability of a response is no finite number")
    number = token.removeprefix(_TOKEN_ID)
    known = number != token and number.isascii() and number.isdigit() and len(number) < 11
    return [int(number) if known else token, float(score)]


def from_tokens(dialect: Dialect, text: str, ids: list[int], answer: Answer, begun: int = 0) -> dict[str, Any]:
    """Return what an output in completions mode is: the fields of a `Completion`, its ids None where not known.

    The last ``begun`` ids that were sent are the beginning of the output.
    """
    read = len(ids) if answer.prompt_count is None else answer.prompt_count
    if read != len(ids) or (answer.prompt_tokens is not None and list(answer.prompt_tokens) != ids):
        raise ValueError(
            f"a server must read the prompt as it is sent: {len(ids)} token ids were sent, it read {read}, or others "
            "than these. It adds or changes tokens: turn that off there, check that server.tokenizer is the model's "
            "own, or use mode chat"
        )
    tokens = answer.output_tokens if answer.output_tokens is not None else _reconstruct(dialect, answer)
    given, prompt = ids[len(ids) - begun :], ids[: len(ids) - begun]
    raw = dialect.text(given) + answer.text
    if tokens is not None:
        tokens = (*given, *tokens)
    parts = dialect.text_parts(text, raw) if tokens is None else dialect.parts(text, tokens)
    return {
        "text": parts.text,
        "reasoning": parts.reasoning,
        "prompt_tokens": tuple(prompt),
        "output_tokens": tokens,
        "reconstructed": answer.output_tokens is None and tokens is not None,
        "raw": raw if tokens is None else dialect.text(tokens),
    }


def _reconstruct(dialect: Dialect, answer: Answer) -> tuple[int, ...] | None:
    """Return the ids of an output made again from its text, None where they are not as many as were reported.

    The token that ended the output is there where the text or the server tells it, or where only one can; else it is
    left off.
    """
    tokens = tuple(dialect.encode(answer.text))
    if answer.finish == "length" or (tokens and tokens[-1] in dialect.stop):
        return tokens if len(tokens) == answer.output_count else None
    if len(tokens) + 1 != answer.output_count:
        return None
    (last,) = dialect.stop if len(dialect.stop) == 1 else (answer.stop_token,)
    return (*tokens, last) if last is not None and last in dialect.stop else tokens


def chat_messages(request: Request) -> tuple[Message, ...]:
    """Return a chat as a server in mode chat is given it; what the answer must begin with is its last message."""
    begun = (Message(role="assistant", content=request.prefill),) if request.prefill else ()
    return (*request.messages, *begun)


def continued(prefill: str, answer: Answer) -> dict[str, Any]:
    """Return reasoning and answer of a text that a server in mode chat has continued.

    A server repeats the beginning or leaves it out, and takes reasoning apart or does not: all of it is read as one.
    One that reasons again after reasoning that was closed has not continued it: no action is read out of that.
    """
    said = answer.text if answer.reasoning is None else f"{answer.reasoning}\n</think>\n\n{answer.text}"
    bare = prefill.removeprefix("<think>").lstrip("\n")  # as a server repeats it that takes reasoning apart
    repeated = answer.reasoning is not None and bare != prefill and said.startswith(bare)
    if repeated:
        said = f"<think>\n{said}"
    elif not said.startswith(prefill):
        said = prefill + said
    # A server that takes all for reasoning until that is closed hands over a mere answer as reasoning, with no text.
    anew = bool(answer.reasoning and answer.text) and "</think>" in prefill and not repeated
    parts = split(text_segments(said, "think"), "think")
    read: dict[str, Any] = {"text": parts.text, "reasoning": parts.reasoning, "marked": anew or left_over(parts.text)}
    return {**read, "prompt_tokens": None, "output_tokens": None}  # the ids that it tells begin elsewhere
