"""What a server's response says: the reply, token counts and log-probabilities. Everything in it is checked."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from goalscope._ground.untrusted import printable
from goalscope.agents.models.base import Finish, Message, Part, Reply, Request, finish_of
from goalscope.agents.models.dialect import Dialect
from goalscope.agents.models.http_errors import ending
from goalscope.agents.models.http_settings import BELIEVED, GarbledError
from goalscope.agents.models.marks import THINK, Marks, split, split_said, text_segments

_STOPS = ("stop_reason", "matched_stop")  # the keys of vLLM and of SGLang for what ended the output
_TOKEN_ID = "token_id:"
_MOST_ID = 2**32
_BYTES_PER_TOKEN = 4  # roughly, for English text
_LONGEST_REASON = 80
Logprobs = tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A parsed response of a model's server: the reply, and what else the server reports (None for what it does not
    report).

    Attributes:
        reply: the reply. In completions mode, the output is one text, ``raw``, not yet divided into parts.
        prompt_count: reported prompt tokens.
        output_count: reported output tokens.
        reasoning_count: reported reasoning tokens.
        stop_token: id of the token that ended the output.
        divided: whether reasoning was separated from the answer by markers that the server left in the text.
        fingerprint: the server's ``system_fingerprint``, "" if it sends none.
        scores: for each scored prompt, the log-probabilities of all its tokens but the first, in nats.
    """

    reply: Reply
    prompt_count: int | None
    output_count: int | None
    reasoning_count: int | None
    stop_token: int | None = None
    divided: bool = False
    fingerprint: str = ""
    scores: tuple[tuple[float, ...], ...] | None = None

    @property
    def written(self) -> int:
        """Number of bytes of everything that the model wrote, including its reasoning, in UTF-8."""
        texts = (self.reply.raw or "",) if not self.reply.parts else (part.text for part in self.reply.parts)
        return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)

    @property
    def written_tokens(self) -> float:
        """The reported number of output tokens; if none is reported, an estimate of one token per four bytes of
        output.
        """
        return self.output_count or self.written / _BYTES_PER_TOKEN

    @property
    def reported(self) -> dict[str, Any]:
        """The values from which the cost of the call is computed, as keyword arguments of `Reservation.settle`."""
        ids = None if self.reply.output_tokens is None else len(self.reply.output_tokens)
        return {"prompt": self.prompt_count, "output": self.output_count, "written": self.written, "ids": ids}


def chat_answer(body: Mapping[str, Any], marks: Marks | None, limit: int | None = None) -> Served:
    """Read a server's response to a chat request (``/chat/completions``).

    Args:
        body: the response, decoded from JSON.
        marks: the tags that enclose reasoning in the model's text (or the value for a model without such tags). If
            None, they are unknown; reasoning is then what the server separates, or what tags of known families of
            models enclose.
        limit: the token limit of the request; a response with that many tokens was cut off, whatever else it reports.

    Raises:
        GarbledError: the response is malformed, or empty for no stated reason.
        ValueError: the server returns another number of token ids than it counts.
    """
    choice, finish, error, common = _choice(body, limit)
    message = choice.get("message")
    if not isinstance(message, Mapping):
        raise GarbledError("the choice of a response contains no message")
    text = _content(message.get("content"))
    refusal = message.get("refusal") or _content(message.get("content"), "refusal")
    if not text and isinstance(refusal, str) and refusal:
        finish, error = "withheld", refusal
    raw_reasoning = message.get("reasoning_content") or message.get("reasoning")
    reasoning = raw_reasoning if isinstance(raw_reasoning, str) else _thinking(message.get("content"))
    in_text = None
    if marks is None:
        in_text = split_said(text)
    elif marks.style == "tags":
        in_text = split(text_segments(text, marks), marks)
    divided = in_text is not None and any(part.kind == "reasoning" for part in in_text)
    if in_text is None:
        in_text = (Part(kind="answer", text=text),) if text else ()
    reasoning_parts = (Part(kind="reasoning", text=reasoning),) if reasoning else ()
    parts = (*reasoning_parts, *in_text, *_calls(message))
    _refuse_nothing(parts, finish, common["output_count"])
    returned = choice.get("logprobs")
    entries = returned.get("content") if isinstance(returned, Mapping) else None
    logprobs = None if entries is None else tuple(_chat_logprob(entry) for entry in _list(entries))
    prompt, output = _ids(_from_choice_or_body(body, choice, "prompt_token_ids")), _ids(choice.get("token_ids"))
    for name, ids in (("prompt", prompt), ("output", output)):
        count = common[f"{name}_count"]
        if ids is not None and _contradicts(count, ids):
            raise ValueError(
                f"the number of token ids in a response must equal its number of tokens, got {len(ids)} "
                f"ids for its {name} and {count} tokens: correct the server, or set server: {{token_ids: false}}"
            )
    return Served(
        reply=Reply(
            parts=parts,
            finish=finish_of(parts, finish),
            error=error,
            prompt_tokens=prompt,
            output_tokens=output,
            logprobs=logprobs,
            answered_by=_answered_by(body),
        ),
        divided=divided,
        **common,
    )


def completions_answer(body: Mapping[str, Any], limit: int | None = None) -> Served:
    """Read a server's response to a request for the continuation of a text (``/completions``).

    Args:
        body: the response, decoded from JSON.
        limit: the token limit of the request; a response with that many tokens was cut off, whatever else it reports.

    Raises:
        GarbledError: the response is malformed, or empty for no stated reason.
    """
    choice, finish, error, common = _choice(body, limit)
    text = choice.get("text")
    if text is None and finish == "withheld":
        text = ""
    if not isinstance(text, str):
        raise GarbledError("the choice of a response contains no text")
    returned = choice.get("logprobs")
    logprobs: Logprobs | None = None
    if isinstance(returned, Mapping) and returned.get("tokens") is not None:
        logprobs = _completion_logprobs(returned)
    output = _ids(choice.get("token_ids"))
    if output is None and logprobs and all(isinstance(entry["token"], int) for entry in logprobs):
        output = tuple(entry["token"] for entry in logprobs)
    # The stop may also be a text or null, which are not token ids.
    stops = [_count(choice.get(name)) for name in _STOPS]
    stop_token = next((stop for stop in stops if stop is not None), None)
    if stop_token is not None and stop_token >= _MOST_ID:
        raise GarbledError("the stop token of a response is not a token id")
    _refuse_nothing(text or output, finish, common["output_count"])
    return Served(
        reply=Reply(
            raw=text,
            finish=finish,
            error=error,
            prompt_tokens=_ids(_from_choice_or_body(body, choice, "prompt_token_ids")),
            output_tokens=output,
            logprobs=logprobs,
            answered_by=_answered_by(body),
        ),
        stop_token=stop_token,
        **common,
    )


def scores_answer(body: Mapping[str, Any], prompts: Sequence[Sequence[int]]) -> Served:
    """Read the log-probabilities of the tokens of some prompts from a server's response.

    They are in ``prompt_logprobs``, or precede those of the output if the prompt was echoed. If they are in neither
    place, the field ``scores`` of the result is None.

    Args:
        body: the response, decoded from JSON.
        prompts: token ids of each prompt.

    Raises:
        GarbledError: the response or its log-probabilities are malformed.
    """
    first, _, _, common = _choice(body)
    choices = {choice.get("index", 0): choice for choice in body["choices"] if isinstance(choice, Mapping)}
    prompt_scores: list[tuple[float, ...]] = []
    for index, prompt in enumerate(prompts):
        choice = choices.get(index, first if len(prompts) == 1 else {})
        returned = choice.get("prompt_logprobs")
        echoed = choice.get("logprobs")
        if returned is not None:
            entries = _list(returned)[1:]
            if len(entries) != len(prompt) - 1:
                raise GarbledError("the number of log-probabilities of a prompt differs from the number of its tokens")
            pairs = zip(entries, prompt[1:], strict=True)
            prompt_scores.append(tuple(_entry_score(entry, token) for entry, token in pairs))
        elif isinstance(echoed, Mapping) and len(_list(echoed.get("token_logprobs") or [])) >= len(prompt):
            scores = echoed["token_logprobs"][1 : len(prompt)]
            prompt_scores.append(tuple(_pair("", score)[1] for score in scores))
    return Served(
        reply=Reply(answered_by=_answered_by(body)),
        scores=tuple(prompt_scores) if len(prompt_scores) == len(prompts) else None,
        **common,
    )


def _entry_score(entry: Any, token: int) -> float:
    """Return the log-probability of a token from the entry for its position, whose keys are token ids."""
    token_entry = entry.get(str(token)) if isinstance(entry, Mapping) else None
    if not isinstance(token_entry, Mapping):
        raise GarbledError("the log-probabilities of a prompt belong to other tokens")
    return float(_pair("", token_entry.get("logprob"))[1])


def _choice(body: Mapping[str, Any], limit: int | None = None) -> tuple[Mapping[str, Any], Finish, str, dict[str, Any]]:
    """Return the first choice, how it ended, the server's message about a withheld answer, and fields of both modes.

    The fields of both modes are the token counts and the fingerprint.
    """
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
        raise GarbledError("a response contains no choices")
    usage = body.get("usage")
    usage_fields = usage if isinstance(usage, Mapping) else {}
    details = usage_fields.get("completion_tokens_details")
    finish = _finish(choices[0], _count(usage_fields.get("completion_tokens")), limit)
    reason = str(choices[0].get("finish_reason"))
    return (
        choices[0],
        finish,
        f"finish_reason: {printable(str(reason))[:_LONGEST_REASON]}" if finish == "withheld" else "",
        {
            "prompt_count": _count(usage_fields.get("prompt_tokens")),
            "output_count": _count(usage_fields.get("completion_tokens")),
            "reasoning_count": _count(details.get("reasoning_tokens")) if isinstance(details, Mapping) else None,
            "fingerprint": fingerprint if isinstance(fingerprint := body.get("system_fingerprint"), str) else "",
        },
    )


def _finish(choice: Mapping[str, Any], written: int | None, limit: int | None) -> Finish:
    """Return how a response ended.

    Servers have several words for the token limit, and some never report that it was reached. A response that counts as
    many tokens as allowed was therefore cut off, unless the server names the stop that ended it.
    """
    reported = ending(choice.get("finish_reason"))
    if reported in ("length", "withheld"):  # `check_body` has refused replies that failed
        return reported
    stopped = any(choice.get(key) is not None for key in _STOPS)
    return "length" if limit is not None and written is not None and written >= limit and not stopped else "stop"


def _refuse_nothing(written: object, finish: Finish, output_count: int | None) -> None:
    """Raise a `GarbledError` for an output without content and without counted tokens, since the server has failed.

    A model that ends its output at once still writes the token that ends it.
    """
    if not written and finish == "stop" and not output_count:
        raise GarbledError("a response contains no content and counts no output tokens")


def _answered_by(body: Mapping[str, Any]) -> str:
    """Return the server's name for the model that answered, "" if it gives none."""
    model = body.get("model")
    return printable(model) if isinstance(model, str) else ""


def _calls(message: Mapping[str, Any]) -> tuple[Part, ...]:
    """Return the tool calls in a message, each as JSON with the name of the tool and its arguments."""
    calls = message.get("tool_calls") or []
    old = message.get("function_call")  # the older form, with a single call
    functions = [call.get("function", call) if isinstance(call, Mapping) else call for call in _list(calls)]
    texts = [_call_text(function) for function in [*functions, *([old] if old else [])]]
    return tuple(Part(kind="call", text=text) for text in texts)


def _call_text(function: Any) -> str:
    if not isinstance(function, Mapping):
        raise GarbledError("a tool call in a response is not an object")
    return json.dumps({name: function.get(name) for name in ("name", "arguments")}, ensure_ascii=False)


def _from_choice_or_body(body: Mapping[str, Any], choice: Mapping[str, Any], name: str) -> Any:
    """Return a value from the choice (as in SGLang), or from the top level of the body (as in vLLM)."""
    return body.get(name) if choice.get(name) is None else choice[name]


def _content(content: Any, kind: str = "text") -> str:
    """Return the text of a message's content; if the content consists of parts, only parts of the given kind count."""
    if isinstance(content, list):  # some servers send parts
        parts = [part.get(kind) for part in content if isinstance(part, Mapping) and part.get("type") == kind]
        return "".join(part for part in parts if isinstance(part, str))
    if not isinstance(content, str | None):
        raise GarbledError("the content of a message is not a text")
    return content or "" if kind == "text" else ""


def _thinking(content: Any) -> str:
    """Return the reasoning in the parts of a message's content; each is a text or a list of texts."""
    parts = content if isinstance(content, list) else []
    thoughts = [part.get("thinking") for part in parts if isinstance(part, Mapping) and part.get("type") == "thinking"]
    return "\n".join(thought if isinstance(thought, str) else _content(thought or []) for thought in thoughts)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _contradicts(count: int | None, ids: Sequence[int]) -> bool:
    """Return whether a believable reported number of tokens differs from the number of token ids."""
    return count is not None and count != len(ids) and 0 < count <= BELIEVED * max(len(ids), 1)


def _ids(value: Any) -> tuple[int, ...] | None:
    if value is None:
        return None
    ids = [_count(item) for item in _list(value)]
    valid = tuple(item for item in ids if item is not None and item < _MOST_ID)
    if len(valid) != len(ids):
        raise GarbledError("the token ids of a response are not all whole numbers >= 0")
    return valid


def _list(value: Any) -> Sequence[Any]:
    if not isinstance(value, list):
        raise GarbledError(f"a response contains {type(value).__name__} instead of a list")
    return value


def _chat_logprob(entry: Any) -> Mapping[str, Any]:
    top = _list(entry.get("top_logprobs") or []) if isinstance(entry, Mapping) else []
    if not all(isinstance(item, Mapping) for item in (entry, *top)):
        raise GarbledError("a log-probability of a response does not name its token")
    (token, logprob), *pairs = [_pair(item.get("token"), item.get("logprob")) for item in (entry, *top)]
    return {"token": token, "logprob": logprob, "top": pairs}


def _completion_logprobs(logprobs: Mapping[str, Any]) -> Logprobs:
    tokens, scores = _list(logprobs["tokens"]), _list(logprobs.get("token_logprobs"))
    tops = _list(logprobs.get("top_logprobs") or [None] * len(tokens))
    if not len(tokens) == len(scores) == len(tops):
        raise GarbledError("the number of log-probabilities of a response differs from the number of its tokens")
    rows = []
    for raw_token, score, top in zip(tokens, scores, tops, strict=True):
        token, logprob = _pair(raw_token, score)
        pairs = [_pair(*pair) for pair in top.items()] if isinstance(top, Mapping) else []
        rows.append({"token": token, "logprob": logprob, "top": pairs})
    return tuple(rows)


def _pair(token: Any, score: Any) -> list[Any]:
    """Return a token and its log-probability; the text ``token_id:123`` is returned as the id 123."""
    if not isinstance(token, str):
        raise GarbledError("a token of a response is not a text")
    if isinstance(score, bool) or not isinstance(score, int | float) or not abs(score) <= sys.float_info.max:
        raise GarbledError("a log-probability of a response is not a finite number")
    number = token.removeprefix(_TOKEN_ID)
    is_id = number != token and number.isascii() and number.isdigit() and len(number) < 11
    return [int(number) if is_id else token, float(score)]


def from_tokens(dialect: Dialect, text: str, ids: list[int], answer: Served, prefilled: int = 0) -> dict[str, Any]:
    """Return the fields of a `Reply` that follow from token ids, for a model that was sent its prompt as token ids.

    Args:
        dialect: the model's chat format.
        text: the rendered prompt.
        ids: the token ids that were sent.
        answer: the server's response.
        prefilled: how many of the last ids that were sent are the beginning of the output.

    Returns:
        Field name -> value. The ids of the output are reconstructed from its text if the server returns none; None if
        this is impossible.

    Raises:
        ValueError: the server read other tokens than those that were sent.
    """
    returned = answer.reply.prompt_tokens
    if _contradicts(answer.prompt_count, ids) or (returned is not None and list(returned) != ids):
        raise ValueError(
            f"a server must read the prompt exactly as sent, but {len(ids)} token ids were sent and it read "
            f"{answer.prompt_count if returned is None else len(returned)}, or different ones. It adds or changes "
            "tokens: turn this off in the server, check that server.tokenizer is the model's own, or use mode chat"
        )
    exact = answer.reply.output_tokens
    tokens = exact if exact is not None else _reconstruct(dialect, answer)
    prefill_ids, prompt = ids[len(ids) - prefilled :], ids[: len(ids) - prefilled]
    raw = dialect.text(prefill_ids) + (answer.reply.raw or "")
    if tokens is not None:
        tokens = (*prefill_ids, *tokens)
    parts = dialect.text_parts(text, raw) if tokens is None else dialect.parts(text, tokens)
    return {
        "parts": parts,
        "finish": finish_of(parts, "stop" if exact and exact[-1] in dialect.stop else answer.reply.finish),
        "prompt_tokens": tuple(prompt),
        "output_tokens": tokens,
        "reconstructed": exact is None and tokens is not None,
        "raw": raw if tokens is None else dialect.text(tokens),
    }


def _reconstruct(dialect: Dialect, answer: Served) -> tuple[int, ...] | None:
    """Return the ids of an output, reconstructed from its text; None if their number differs from the reported number.

    The stop token is included if the text or the server names it, or if there is only one; otherwise it is omitted.
    """
    tokens = tuple(dialect.encode(answer.reply.raw or ""))
    if answer.reply.finish == "length" or (tokens and tokens[-1] in dialect.stop):
        return tokens if len(tokens) == answer.output_count else None
    if len(tokens) + 1 != answer.output_count:
        return None
    (last,) = dialect.stop if len(dialect.stop) == 1 else (answer.stop_token,)
    return (*tokens, last) if last is not None and last in dialect.stop else tokens


def chat_messages(request: Request) -> tuple[Message, ...]:
    """Return the messages to send for a request in mode chat; a required beginning of the answer becomes the last
    message.
    """
    prefill = (Message(role="assistant", content=request.prefill),) if request.prefill else ()
    return (*request.messages, *prefill)


def continued(prefill: str, answer: Served, marks: Marks | None = None) -> dict[str, Any]:
    """Return the fields of a `Reply` when a server in mode chat continued a given beginning of the answer.

    Some servers repeat the beginning and some omit it; some separate reasoning and some do not. All variants are
    converted to the same form. If a server reasons again after closed reasoning, it has not continued the text, and no
    action is parsed.

    Args:
        prefill: the given beginning.
        answer: the server's response.
        marks: what separates reasoning and answer; think tags by default.

    Returns:
        ``parts``, the reasoning and the answer with the given beginning, and ``prompt_tokens`` and ``output_tokens``,
        which are None.
    """
    marks = marks if marks is not None and marks.style == "tags" else THINK
    text, reasoning = answer.reply.answer, answer.reply.reasoning
    closed = marks.close in prefill
    # A server that treats everything before a closing tag as reasoning returns a bare answer as reasoning.
    between = "" if closed and not text else marks.tail
    output = text if reasoning is None else f"{reasoning}{between}{text}"
    prefill_text = prefill.removeprefix(marks.open).lstrip("\n")  # as a server that separates reasoning repeats it
    repeated = reasoning is not None and prefill_text != prefill and output.startswith(prefill_text)
    if repeated:
        output = f"{marks.lead}{output}"
    elif not output.startswith(prefill):
        output = prefill + output
    again = bool(reasoning and text) and closed and not repeated
    parts = split(text_segments(output, marks), marks)
    if again:
        # Everything that the model wrote is kept as reasoning, so that no action is read from it.
        begun = split(text_segments(prefill, marks), marks)
        parts = (*begun, Part(kind="reasoning", text=output.removeprefix(prefill)))
    calls = tuple(part for part in answer.reply.parts if part.kind == "call")
    # The returned token ids begin at another position, so they cannot be used.
    return {"parts": (*parts, *calls), "prompt_tokens": None, "output_tokens": None}
