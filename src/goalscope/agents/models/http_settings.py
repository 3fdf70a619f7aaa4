"""A study's settings for a model behind a server: address, prices and spending limits."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from goalscope._ground.untrusted import faults
from goalscope.agents.models.base import MOST_NUMBER

DECISIVE: Final = ("mode", "tokenizer", "body", "constrained")
"""Settings of a server that can change answers; all other settings may change during a study."""

NotNegative = Annotated[float, Field(ge=0)]
Seconds = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=0, le=MOST_NUMBER)]

_NAMED: Final = {"json_schema": "response_format"}  # other settings have the same name in a request as in a study
Constraint = Literal["json_schema", "structured_outputs", "guided_choice"]
CONSTRAINTS: Final = ("response_format", "structured_outputs", "guided_choice")
"""Names of the request parameters that constrain an answer."""
RECORDING: Final = "set server: {unsupported: record} (evaluate: --set server.unsupported=record)"
"""How to continue with a server that lacks something which steps can record, in a study and as an option."""
_HOSTED: Final = "https://api.openai.com/v1"
_RESERVED = ("model", "messages", "prompt", "n", "stream", "max_tokens", "max_completion_tokens")


class Settings(BaseModel):
    """Settings of a model behind a server, each checked once.

    Errors do not show a wrong value, because it may be an API key.

    Raises:
        ValueError: a setting is unknown or missing, or has the wrong type or is out of range; the message names the
            setting.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            name = type(self).__name__.lower()
            problems = faults(error, {"": list(type(self).model_fields)})
            sentences = [f"{name}.{path}{' ' if must.startswith('must') else ': '}{must}" for path, must, _ in problems]
            raise ValueError("; ".join(sentences)) from None

    @classmethod
    def of(cls, settings: Self | Mapping[Any, Any]) -> Self:
        """Return the settings that a study gives."""
        return (
            settings if isinstance(settings, cls) else cls(**{str(key): value for key, value in dict(settings).items()})
        )


class Server(Settings):
    """A server that speaks the OpenAI protocol, and how to use it.

    Attributes:
        base_url: its address, up to and including ``/v1``.
        mode: "chat" sends messages; "completions" renders prompts here and sends token ids.
        tokenizer: folder or hub name of the model's tokenizer (completions only); by default the model's own name.
        key_env: environment variable that contains the API key. By default, a key is sent only to api.openai.com: the
            one in OPENAI_API_KEY.
        timeout: seconds within which a response must be complete.
        silence: seconds for which the server may send nothing at all while requests are waiting. After that, the server
            is asked whether it is still running. The run ends unless the server is running and an answer can take that
            long; see `agents.models.http_client`. Raise it for a slow server that answers one request at a time.
        retries: maximum number of retries after a temporary failure.
        patience: seconds after the first request during which retries are made.
        backoff: longest wait before the first retry, in seconds; it doubles with each retry, up to a minute.
        constrained: how to make the server constrain answers to the JSON object of an action (chat only): "json_schema"
            (OpenAI's ``response_format``), "structured_outputs" or "guided_choice" (the newer and the older parameter
            of vLLM); None for no constraint.
        unsupported: "refuse" stops if the server rejects or ignores a parameter; "record" continues without the
            parameter and records this in each step.
        preflight: whether to test before the first call that the server supports what the study needs, see
            `goalscope.agents.models.abilities`.
        token_ids: whether to request token ids from the server.
        body: further parameters for each request, e.g. ``{"top_k": -1}``.
    """

    base_url: str = _HOSTED
    mode: Literal["chat", "completions"] = "chat"
    tokenizer: str | None = None
    key_env: str | None = None
    timeout: Seconds = 600.0
    silence: Seconds = 100.0
    retries: Annotated[int, Field(ge=0, le=1000)] = 8
    patience: Seconds = 1800.0
    backoff: Seconds = 1.0
    constrained: Constraint | None = None
    unsupported: Literal["refuse", "record"] = "refuse"
    preflight: bool = True
    token_ids: bool = True
    body: Mapping[str, Any] = Field(default_factory=dict)

    @field_validator("base_url")
    @classmethod
    def _is_address(cls, url: str) -> str:
        try:
            parts = urlsplit(url)
            private = "@" in parts.netloc or bool(parts.query)
            valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:
            valid, private = False, "@" in url
        if private:
            raise ValueError(
                "must not contain a user, password or query (the value is not shown, as it may contain a key): put the "
                "key into an environment variable and name the variable as server.key_env"
            )
        if not valid:
            raise ValueError(f"must be an address such as http://127.0.0.1:8000/v1, got {url!r}")
        return url

    @field_validator("tokenizer")
    @classmethod
    def _is_used(cls, tokenizer: str | None, info: ValidationInfo) -> str | None:
        if tokenizer is not None and info.data.get("mode") == "chat":
            raise ValueError("must be left out in mode chat, since it works only in mode completions")
        return tokenizer

    @field_validator("constrained")
    @classmethod
    def _is_chat(cls, constrained: str | None, info: ValidationInfo) -> str | None:
        if constrained is not None and info.data.get("mode") == "completions":
            raise ValueError(
                "must be left out in mode completions, where it would also constrain the reasoning: use mode chat, or "
                "answer: likelihood"
            )
        return constrained

    @field_validator("key_env")
    @classmethod
    def _is_variable(cls, name: str | None) -> str | None:
        if name is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError(
                "must be the name of an environment variable that holds the key, not the key: letters, digits and _ "
                "only"
            )
        return name

    @field_validator("body")
    @classmethod
    def _is_free(cls, body: Mapping[str, Any]) -> Mapping[str, Any]:
        reserved = sorted(set(body) & set(_RESERVED))
        if reserved:
            raise ValueError(f"must not contain {', '.join(reserved)}, which other settings of the study determine")
        return body

    @property
    def key_variable(self) -> str | None:
        """The environment variable that contains the key; None if no key is sent."""
        if self.key_env is not None:
            return self.key_env
        return "OPENAI_API_KEY" if urlsplit(self.base_url).hostname == urlsplit(_HOSTED).hostname else None


class Prices(Settings):
    """Prices of tokens.

    Attributes:
        input: USD per million prompt tokens.
        output: USD per million output tokens, including reasoning.
        date: date on which these prices were valid, ``YYYY-MM-DD``.
    """

    input: NotNegative
    output: NotNegative
    date: str

    @field_validator("date")
    @classmethod
    def _is_date(cls, text: str) -> str:
        try:
            date.fromisoformat(text)
        except ValueError:
            raise ValueError("must be a date such as 2025-08-05") from None
        return text

    def usd(self, prompt_tokens: float, output_tokens: float) -> float:
        """Return the cost of the given numbers of tokens in USD."""
        return (prompt_tokens * self.input + output_tokens * self.output) / 1e6


class Caps(Settings):
    """Spending limits for an agent, over all sessions of a study; None for no limit.

    Attributes:
        calls: number of requests, including retries and lost requests.
        tokens: prompt and output tokens together.
        usd: USD; needs prices.
    """

    calls: Count | None = None
    tokens: Count | None = None
    usd: NotNegative | None = None


def constraint_name(how: str | None) -> str:
    """Return the name of the request parameter for a kind of constraint; "" if there is none."""
    return _NAMED.get(how or "", how or "")


def constraint(how: str | None, answers: Sequence[str]) -> dict[str, Any]:
    """Return the request parameter that makes a server constrain answers to the JSON object of one action.

    Args:
        how: as in `goalscope.agents.models.Server.constrained`; None for no parameter.
        answers: the complete answers, JSON objects with the key ``action``; empty for no parameter.
    """
    if how is None or not answers:
        return {}
    if how == "guided_choice":
        return {"guided_choice": list(answers)}
    if how == "structured_outputs":
        return {"structured_outputs": {"choice": list(answers)}}
    schema = {
        "type": "object",
        "properties": {"action": {"type": "string", "enum": [json.loads(answer)["action"] for answer in answers]}},
        "required": ["action"],
        "additionalProperties": False,
    }
    named_schema = {"name": "action", "strict": True, "schema": schema}
    return {"response_format": {"type": "json_schema", "json_schema": named_schema}}


def kept_to(text: str, answers: Sequence[str]) -> bool:
    """Return whether a text is one of the given JSON objects; blanks are ignored."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return any(document == json.loads(answer) for answer in answers)
