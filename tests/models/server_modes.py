"""Shapes of replies that real servers have been reported to send, one mode each, and what each reply is.

A mode is a function of a request and its number. It returns what goes out and the kind of the reply, so that a test
can compare what a run has counted with what its server has sent. Nothing here is drawn: the same requests get the same
replies.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

LATE: Final = 6
"""Requests that are answered plainly before a mode begins that concerns a server which changes during a run."""
EVERY: Final = 3
"""Of the requests after that, every third one has the odd reply, where a mode is no lasting one."""

VALID: Final = "valid"
"""Kind of a reply whose answer states an action."""
INVALID: Final = "invalid"
"""Kind of a reply in which the model has not kept to the form: a failure of its own."""
WITHHELD: Final = "withheld"
"""Kind of a reply in which the server keeps back what the model wrote, or the model's refusal."""
FAILED: Final = "failed"
"""Kind of a reply that is a failure of the server, which may pass: the same request is made again."""
LIMITED: Final = "limited"
"""Kind of a reply by which the server turns the request away before anything was drawn."""
FINAL: Final = "final"
"""Kind of a reply that is a failure of the server or the request, which does not pass: the run stops."""
CALL: Final = "call"
"""Kind of a reply that calls a tool in place of an answer."""
REJECTED: Final = "rejected"
"""Kind of a reply that rejects a parameter, without which the request is then made again."""

MOVES: Final = ("UP", "DOWN", "LEFT", "RIGHT")


@dataclass(frozen=True, kw_only=True)
class Sent:
    """What goes out: its kind, status, and body (a document, or bytes as they are)."""

    kind: str
    body: Any
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def raw(self) -> bytes:
        """The body as bytes."""
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request: its number from 0, its body."""

    number: int
    body: Mapping[str, Any]

    @property
    def late(self) -> bool:
        """Whether a mode of a server that changes during a run has begun."""
        return self.number >= LATE

    @property
    def odd(self) -> bool:
        """Whether this is one of the later requests with an odd reply."""
        return self.late and self.number % EVERY == 0

    @property
    def action(self) -> str:
        """An action in the form that the prompts ask for."""
        return json.dumps({"action": MOVES[self.number % len(MOVES)]})

    @property
    def most_tokens(self) -> int:
        """The most tokens that the answer may have."""
        return int(self.body.get("max_tokens") or self.body.get("max_completion_tokens") or 10_000)

    def reply(
        self,
        content: Any = None,
        finish: Any = "stop",
        *,
        kind: str = VALID,
        choice: Mapping[str, Any] | None = None,
        usage: Any = "counted",
        model: Any = None,
        **message: Any,
    ) -> Sent:
        """Return a chat reply; further entries of its message, of its choice, and usage can be set."""
        prompt = sum(len(json.dumps(part["content"])) for part in self.body.get("messages", [])) // 4 + 1
        counts = {"prompt_tokens": prompt, "completion_tokens": 8, "total_tokens": prompt + 8}
        said = {"role": "assistant", "content": self.action if content is None else content, **message}
        first = {"index": 0, "message": said, "finish_reason": finish, **(choice or {})}
        document = {
            "id": f"reply-{self.number}",
            "object": "chat.completion",
            "model": model or self.body.get("model"),
            "choices": [first],
            "usage": counts if usage == "counted" else usage,
        }
        return Sent(kind=kind, body=document)

    def nothing(self, finish: Any = "stop", *, kind: str, **more: Any) -> Sent:
        """Return a reply whose message has no content."""
        sent = self.reply("", finish, kind=kind, **more)
        sent.body["choices"][0]["message"]["content"] = None
        return sent


Mode = Callable[[Asked], Sent]
MODES: Final[dict[str, Mode]] = {}


def mode(name: str) -> Callable[[Mode], Mode]:
    """Return a decorator that adds a mode, of which all replies are odd."""

    def add(function: Mode) -> Mode:
        MODES[name] = function
        return function

    return add


def sometimes(name: str) -> Callable[[Mode], Mode]:
    """Return a decorator that adds a mode, of which every third of the later replies is odd, the others plain."""

    def add(function: Mode) -> Mode:
        MODES[name] = lambda asked: function(asked) if asked.odd else asked.reply()
        return function

    return add


def later(name: str) -> Callable[[Mode], Mode]:
    """Return a decorator that adds a mode, of which all later replies are odd."""

    def add(function: Mode) -> Mode:
        MODES[name] = lambda asked: function(asked) if asked.late else asked.reply()
        return function

    return add


def _failure(message: str, code: Any, status: int = 200, *, kind: str = FAILED, **entries: Any) -> Sent:
    return Sent(kind=kind, status=status, body={"error": {"message": message, "code": code, **entries}})


@mode("plain")
def _plain(asked: Asked) -> Sent:
    return asked.reply()


# Failures of the server within a reply of status 200.


@sometimes("error200")
def _error_passing(asked: Asked) -> Sent:
    return _failure("The provider is overloaded", 502)


@sometimes("error200 limited")
def _error_limited(asked: Asked) -> Sent:
    sent = _failure("Rate limit of the provider reached", 429)
    return Sent(kind=LIMITED, body=sent.body)


@sometimes("error200 code as text")
def _error_code_text(asked: Asked) -> Sent:
    return _failure("The upstream server broke off", "503", kind=LIMITED)


@sometimes("error200 without code")
def _error_no_code(asked: Asked) -> Sent:
    return _failure("Something went wrong upstream", None)


@sometimes("error200 beside choices")
def _error_beside(asked: Asked) -> Sent:
    sent = asked.reply("", kind=FAILED)
    return Sent(kind=FAILED, body={**sent.body, "error": {"message": "The stream was aborted", "code": 500}})


@sometimes("error200 of type")
def _error_type(asked: Asked) -> Sent:
    return Sent(kind=FAILED, body={"object": "error", "message": "The engine is dead", "type": "Internal", "code": 500})


@later("error200_400")
def _error_final(asked: Asked) -> Sent:
    return _failure("No endpoint was found that can serve this request", 404, kind=FINAL)


@later("error200 no credit")
def _error_credit(asked: Asked) -> Sent:
    return _failure("Your account has no credit left for this model", 402, kind=FINAL)


@later("error200 no key")
def _error_key(asked: Asked) -> Sent:
    return _failure("The key was revoked for this provider", 401, kind=FINAL)


@later("lmstudio200")
def _error_text(asked: Asked) -> Sent:
    return Sent(kind=FAILED, body={"error": "There is no such endpoint here (POST /chat/completions)"})


@later("error200 lasts")
def _error_lasts(asked: Asked) -> Sent:
    return _failure("The upstream cluster is being drained", 503, kind=LIMITED)


# Failures of the server within a choice, and replies that hold none.


@sometimes("choice_error")
def _choice_error(asked: Asked) -> Sent:
    broken = {"error": {"code": 502, "message": "The upstream connection was lost"}, "native_finish_reason": "error"}
    return asked.reply('{"act', "error", kind=FAILED, choice=broken)


@later("choice error final")
def _choice_error_final(asked: Asked) -> Sent:
    return asked.reply("", "error", kind=FINAL, choice={"error": {"code": 403, "message": "The input was flagged"}})


@sometimes("finish error alone")
def _finish_error(asked: Asked) -> Sent:
    return asked.reply(asked.action, "error", kind=FAILED)


@sometimes("error in a complete choice")
def _error_in_choice(asked: Asked) -> Sent:
    return asked.reply(kind=FAILED, choice={"error": {"code": 500, "message": "The worker ran out of memory"}})


@sometimes("null_choices")
def _null_choices(asked: Asked) -> Sent:
    sent = asked.reply(kind=FAILED)
    return Sent(kind=FAILED, body={**sent.body, "choices": None, "usage": None})


@sometimes("empty, nothing counted")
def _empty_uncounted(asked: Asked) -> Sent:
    return asked.nothing(kind=FAILED, usage={"prompt_tokens": 0, "completion_tokens": 0})


@sometimes("empty, no usage")
def _empty_no_usage(asked: Asked) -> Sent:
    return asked.nothing(kind=FAILED, usage=None)


@sometimes("empty, counted")
def _empty_counted(asked: Asked) -> Sent:
    return asked.nothing(kind=INVALID)


# What the server keeps back.


@sometimes("content_filter")
def _filtered(asked: Asked) -> Sent:
    return asked.nothing("content_filter", kind=WITHHELD)


@sometimes("content filter as status 400")
def _filtered_status(asked: Asked) -> Sent:
    return _failure("The prompt triggered the content policy", "content_filter", 400, kind=WITHHELD)


@sometimes("content filter as error200")
def _filtered_error(asked: Asked) -> Sent:
    return _failure("The output triggered the content policy", "content_policy_violation", kind=WITHHELD)


@sometimes("content filter, no usage")
def _filtered_uncounted(asked: Asked) -> Sent:
    return asked.nothing("content_filter", kind=WITHHELD, usage=None)


@sometimes("content filter in the middle")
def _filtered_part(asked: Asked) -> Sent:
    return asked.reply('{"action": "U', "content_filter", kind=WITHHELD)


@sometimes("safety")
def _safety(asked: Asked) -> Sent:
    return asked.nothing("SAFETY", kind=WITHHELD)


@sometimes("refusal")
def _refusal(asked: Asked) -> Sent:
    return asked.nothing(kind=WITHHELD, refusal="I cannot help with this request.")


@sometimes("refusal as a part")
def _refusal_part(asked: Asked) -> Sent:
    return asked.reply([{"type": "refusal", "refusal": "I cannot help with this request."}], kind=WITHHELD)


# Where the answer stands.


@mode("reasoning_only")
def _reasoning_only(asked: Asked) -> Sent:
    return asked.nothing(kind=INVALID, reasoning=asked.action)


@later("reasoning_only_late")
def _reasoning_only_late(asked: Asked) -> Sent:
    return asked.nothing(kind=INVALID, reasoning_content=asked.action)


@mode("dup")
def _twice(asked: Asked) -> Sent:
    return asked.reply(reasoning_content=asked.action)


@mode("gemma4")
def _channel_closed(asked: Asked) -> Sent:
    # The study names no marks of reasoning, and these are of another family than the model's: no action is read.
    thought = 'A wall stands where {"action": "UP"} would lead.'
    return asked.reply(f"<|channel>thought\n{thought}<channel|>{asked.action}", kind=INVALID)


@mode("gemma4b")
def _channel_open(asked: Asked) -> Sent:
    return asked.reply('<|channel>thought\nPerhaps {"action": "UP"} is best.', kind=INVALID)


@mode("cut_marks")
def _channel_cut(asked: Asked) -> Sent:
    text = '<|channel>thought\nThe grid is large. With {"action": "UP"} I meet a wall, so not that. Then'
    return asked.reply(text, "length", kind=INVALID)


@mode("mistral_list")
def _thinking_part(asked: Asked) -> Sent:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "Maybe UP."}]}
    return asked.reply([thought, {"type": "text", "text": asked.action}])


@mode("think_list")
def _thinking_alone(asked: Asked) -> Sent:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "Maybe UP."}]}
    return asked.reply([thought], "length", kind=INVALID)


@mode("content_dict")
def _content_object(asked: Asked) -> Sent:
    return asked.reply(json.loads(asked.action), kind=FAILED)


@mode("tool_call")
def _tool_call(asked: Asked) -> Sent:
    call = {"id": "call-1", "type": "function", "function": {"name": "move", "arguments": asked.action}}
    return asked.nothing("tool_calls", kind=CALL, tool_calls=[call])


@sometimes("harmony_lost")
def _final_lost(asked: Asked) -> Sent:
    return asked.nothing(kind=INVALID, reasoning="We should go up.")


# How a reply says that it has ended, and what it counts.


@mode("always_stop")
def _never_length(asked: Asked) -> Sent:
    usage = {"prompt_tokens": 60, "completion_tokens": asked.most_tokens}
    return asked.reply('{"thought": "the goal is far ' + "and far " * 30, usage=usage, kind=INVALID)


@mode("finish_null")
def _finish_null(asked: Asked) -> Sent:
    return asked.reply(finish=None)


@mode("eos")
def _finish_eos(asked: Asked) -> Sent:
    return asked.reply(finish="eos_token")


@mode("max_tokens_reason")
def _finish_max_tokens(asked: Asked) -> Sent:
    return asked.reply('{"action', "max_tokens", kind=INVALID)


@mode("finish length in capitals")
def _finish_capitals(asked: Asked) -> Sent:
    return asked.reply('{"action', "MAX_TOKENS", kind=INVALID)


@mode("usage_null")
def _usage_null(asked: Asked) -> Sent:
    return asked.reply(usage=None)


@mode("usage_float")
def _usage_float(asked: Asked) -> Sent:
    return asked.reply(usage={"prompt_tokens": 12.0, "completion_tokens": 8.0, "total_tokens": 20.0})


@mode("usage_string")
def _usage_text(asked: Asked) -> Sent:
    return asked.reply(usage={"prompt_tokens": "12", "completion_tokens": "8"})


@mode("swap")
def _other_model(asked: Asked) -> Sent:
    return asked.reply(model="another/free-model" if asked.number % 2 else None)


@later("swap_late")
def _other_model_later(asked: Asked) -> Sent:
    return asked.reply(model="another/free-model")


# The bytes of a reply.


@mode("latin1")
def _other_encoding(asked: Asked) -> Sent:
    return Sent(kind=FAILED, body=json.dumps(asked.reply().body).encode("utf-16"))


@mode("bom")
def _byte_order_mark(asked: Asked) -> Sent:
    return Sent(kind=VALID, body=b"\xef\xbb\xbf" + asked.reply().raw)


@mode("newlines")
def _blank_lines(asked: Asked) -> Sent:
    return Sent(kind=VALID, body=b"\n        \n" * 30 + asked.reply().raw)


@mode("sse")
def _streamed(asked: Asked) -> Sent:
    return Sent(kind=FAILED, body=b"data: " + asked.reply().raw + b"\n\ndata: [DONE]\n\n")


@mode("nan")
def _not_a_number(asked: Asked) -> Sent:
    return Sent(kind=VALID, body=json.dumps({**asked.reply().body, "created": float("nan")}).encode())


# Statuses.


@sometimes("html429")
def _page_429(asked: Asked) -> Sent:
    return Sent(kind=LIMITED, status=429, body=b"<html><body>Slow down</body></html>")


@sometimes("harmony500")
def _output_500(asked: Asked) -> Sent:
    return _failure("the header of a message holds unexpected tokens", 500, 500)


def _unsupported(asked: Asked, parameter: str, message: str) -> Sent:
    if parameter not in asked.body:
        return asked.reply()
    return Sent(kind=REJECTED, status=400, body={"error": {"message": message, "param": parameter, "code": None}})


@mode("reject_effort")
def _no_effort(asked: Asked) -> Sent:
    return _unsupported(asked, "reasoning_effort", "This model does not support reasoning_effort.")


@mode("reject_temp")
def _no_temperature(asked: Asked) -> Sent:
    if asked.body.get("temperature", 1) == 1:
        return asked.reply()
    return _unsupported(asked, "temperature", "This model supports no temperature but the default of 1.")


@mode("reject_maxtokens")
def _no_max_tokens(asked: Asked) -> Sent:
    return _unsupported(asked, "max_tokens", "Unsupported: 'max_tokens'. Use 'max_completion_tokens' instead.")


@mode("ctx")
def _small_context(asked: Asked) -> Sent:
    if asked.most_tokens < 4096:
        return asked.reply()
    message = f"The maximum context length is 4096 tokens, but {asked.most_tokens + 180} were requested."
    return Sent(kind=FINAL, status=400, body={"object": "error", "message": message, "param": None, "code": 400})


@mode("roles")
def _no_system(asked: Asked) -> Sent:
    if all(message["role"] != "system" for message in asked.body["messages"]):
        return asked.reply()
    body = {"object": "error", "message": "Roles must alternate: user, assistant, user, ...", "code": 400}
    return Sent(kind=FINAL, status=400, body=body)
