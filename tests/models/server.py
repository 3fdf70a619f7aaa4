"""A small HTTP server on loopback that speaks the OpenAI chat and completions protocols, and can misbehave.

It answers with a `LocalModel` in the same process, so that what comes over HTTP can be compared with what the model
says itself.
"""

import contextlib
import errno
import json
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import torch
from server_faults import FAULTS, Mixed
from server_modes import Asked, Mode
from tiny_models import PLAIN_TEMPLATE, llama, tokenizer

from goalscope._ground.rng import uniform
from goalscope.agents.models import LocalModel, Message, Request, Sampling

_PORTS = range(10_000, 32_000)
ACTIONS_SAID = tuple(f'{{"action": "{action}"}}' for action in ("UP", "DOWN", "LEFT", "RIGHT"))


def speaker(seed: int = 2, positions: int = 512) -> LocalModel:
    """A random model that says actions: one token each, so that its answers are mostly valid and vary with the grid."""
    model, words = llama(seed=seed, positions=positions), tokenizer(PLAIN_TEMPLATE, added=())
    words.add_tokens(list(ACTIONS_SAID))
    up, down, left, right = words.convert_tokens_to_ids(list(ACTIONS_SAID))
    with torch.no_grad():
        head, embedded = model.lm_head.weight, model.model.embed_tokens.weight
        keep = torch.zeros(head.shape[0], 1)
        keep[[up, left]] = 1.0
        head.mul_(keep)
        head[down], head[right] = -head[up], -head[left]  # one of the four is always ahead of all other tokens
        # One direction means "an action was said": it is in the actions' embeddings alone, and leads to the end.
        stop = torch.ones(head.shape[1]) / head.shape[1] ** 0.5
        embedded -= (embedded @ stop)[:, None] * stop
        embedded[[up, down, left, right]] += 30 * stop
        head[words.eos_token_id] = 2 * stop
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.mul_(5.0)  # what was read weighs more than the last token
    return LocalModel.from_parts(model, words, name="speaker", reasoning="none")


@dataclass(frozen=True, kw_only=True)
class Faults:
    """Probabilities of what may happen to a request in place of an answer."""

    error: float = 0.0
    limited: float = 0.0
    hang: float = 0.0
    cut: float = 0.0
    garbage: float = 0.0
    reset: float = 0.0
    seed: int = 0
    hang_seconds: float = 60.0
    retry_after: str = "0.02"

    def draw(self, number: int) -> str | None:
        left = uniform(self.seed, "fault", number)
        for name in ("error", "limited", "hang", "cut", "garbage", "reset"):
            left -= getattr(self, name)
            if left < 0:
                return name
        return None


_OPENAI = ("model", "messages", "prompt", "max_tokens", "max_completion_tokens", "temperature", "top_p", "stop", "seed")
_UNUSED = ("logprobs", "top_logprobs", "reasoning_effort", "response_format")

# What servers of these kinds do, as values of `Behaviour` (versions of 2026-11).
VLLM: Mapping[str, Any] = {
    "chat_ids": "top",
    "stop_reason": True,
    "pages": {
        "/v1/models": {"data": [{"id": "speaker", "owned_by": "vllm", "max_model_len": 1024}]},
        "/version": {"version": "0.32.0"},
    },
}
SGLANG: Mapping[str, Any] = {
    "chat_ids": "choice",
    "pages": {
        "/v1/models": {"data": [{"id": "speaker", "owned_by": "sglang", "max_model_len": 1024}]},
        "/get_server_info": {"version": "0.5.9"},
    },
}
TRANSFORMERS: Mapping[str, Any] = {
    "ids": "",
    "scores": "",
    "takes_ids": False,
    "known": (*_OPENAI, *_UNUSED, "generation_config", "chat_template_kwargs"),
    "ignores": ("temperature", "seed", *_UNUSED),
    "merges": True,
}
LLAMA_CPP: Mapping[str, Any] = {
    "ids": "",
    "scores": "",
    "takes_ids": False,
    "ignores": ("return_token_ids", "structured_outputs", "guided_choice", "chat_template_kwargs"),
    "pages": {"/v1/models": {"data": [{"id": "speaker", "owned_by": "me"}]}},
}


MANY = Faults(error=0.10, limited=0.05, hang=0.02, cut=0.01, garbage=0.01, reset=0.02)


@dataclass(kw_only=True)
class Entry:
    """One request: who asked, what for, what became of it."""

    tag: str
    path: str
    body: dict[str, Any]
    authorization: str
    headers: dict[str, str]
    outcome: str = "begun"


@dataclass(kw_only=True)
class Behaviour:
    """How the server treats requests."""

    faults: Faults | Mixed = field(default_factory=Faults)
    ids: str = "token_ids"  # how output ids are returned: "token_ids", "logprobs", "" for not at all
    rejects: tuple[str, ...] = ()
    strict: bool = False  # names a rejected parameter in its message alone
    ignores_logprobs: bool = False
    scores: str = "prompt_logprobs"  # how the tokens of prompts are scored: also "echo", "" for not at all
    constrains: bool = True  # keeps answers to a schema or to choices where it is asked to
    usage: bool = True
    shift: int = 0  # added to the reported counts
    stop_reason: bool = False
    chat_ids: str = ""  # where ids stand in mode chat: "choice" (all of them), "top" (the prompt's), "" for nowhere
    takes_ids: bool = True  # prompts as token ids
    known: tuple[str, ...] | None = None  # the only fields that are accepted, others are a 422
    ignores: tuple[str, ...] = ()  # fields that are dropped without a word
    merges: bool = False  # leaves the reasoning in the answer, without its special tokens
    pages: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # what GET answers, by path
    silent_pages: bool = False  # whether GET is never answered
    key: str = ""
    models: tuple[str, ...] = ("speaker",)
    delay: float = 0.0
    spread: float = 0.0  # seconds of further delay, drawn for each request: answers come out of order
    override: Mapping[str, Any] | None = None  # a body in place of every answer
    override_after: int = 0  # answers before it is in place
    refusal: tuple[int, dict[str, Any]] | None = None  # status and body in place of every answer
    raw: Callable[[BaseHTTPRequestHandler], None] | None = None  # writes whatever it likes in place of every answer
    mode: Mode | None = None  # makes every answer; the outcome of a request is the kind of its reply


class Loopback:
    """The server; stopping it also breaks the connections that are open.

    Args:
        model: what answers; None where a mode makes all answers.
        behaviour: how requests are treated.
    """

    def __init__(self, model: LocalModel | None, **behaviour: Any) -> None:
        self.model: Any = model  # None where a mode makes all answers
        self.behaviour = Behaviour(**behaviour)
        self.log: list[Entry] = []
        self.port = 0
        self._lock = threading.Lock()
        self._said: dict[str, tuple[list[int], list[int], str, list[dict[str, Any]], Any]] = {}
        self._server: _Server | None = None
        self.stopping = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self.stopping.clear()
        self._server = self._bound()
        self._server.owner = self
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def _bound(self) -> "_Server":
        """A server at its port; a new port lies below those that systems lend to clients: it stays free meanwhile."""
        # The system may keep the port of a server that stopped for some moments more.
        for port in [self.port] * 200 if self.port else random.SystemRandom().sample(_PORTS, 200):
            try:
                return _Server(("127.0.0.1", port), _Handler)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                time.sleep(0.05 if self.port else 0)
        raise OSError(errno.EADDRINUSE, f"no port of 200 in {_PORTS} is free")

    def stop(self) -> None:
        server, self._server = self._server, None
        assert server is not None
        self.stopping.set()
        server.shutdown()
        self._thread.join()
        server.server_close()
        for connection in list(server.connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # gone already

    def settled(self) -> list[Entry]:
        """The log, once what became of each request stands in it: a client has its answer a moment before."""
        end = time.monotonic() + 10
        while any(entry.outcome == "begun" for entry in self.log) and time.monotonic() < end:
            time.sleep(0.005)
        return self.log

    def outcomes(self) -> Counter[str]:
        return Counter(entry.outcome for entry in self.settled())

    def answered(self) -> Counter[str]:
        """How often each call was answered in full."""
        return Counter(entry.tag for entry in self.settled() if entry.outcome == "answered")

    def enter(self, entry: Entry) -> int:
        with self._lock:
            self.log.append(entry)
            return len(self.log)

    def say(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body of an answer."""
        if "prompt" in body and isinstance(body["prompt"][0], list):
            return self._scored(body)
        body = {name: value for name, value in body.items() if name not in self.behaviour.ignores}
        temperature = float(body.get("temperature", 0.0))
        sampling = Sampling(
            temperature=temperature,
            top_p=float(body.get("top_p", 1.0)),
            max_tokens=int(body.get("max_tokens") or body["max_completion_tokens"]),
            reasoning_effort=body.get("reasoning_effort"),
            top_logprobs=int(body.get("top_logprobs", 0) or 0) if "messages" in body else int(body.get("logprobs", 0)),
        )
        chat = [Message(role=item["role"], content=item["content"]) for item in body.get("messages", ())]
        words = self.model.tokenizer
        begun = chat.pop().content if body.get("continue_final_message") else ""
        text = self.model.render(chat, sampling) if chat else words.decode(body["prompt"], skip_special_tokens=False)
        assert text is not None
        asked = Request(messages=(Message(role="user", content="."),), key=(int(body.get("seed", 0)), "server", 0, 0))
        asked = replace(asked, prefill=begun)
        memory = json.dumps([text + begun, asked.key, sampling.describe()])
        known = self._said.get(memory)
        if known is None or (chat and known[-1] is None):
            self._said[memory] = known = self._decoded(asked, chat, text, sampling)
        prompt, tokens, finish, logprobs, completion = known
        assert chat or prompt == body["prompt"]
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(tokens) + self.behaviour.shift}
        document: dict[str, Any] = {"id": "x", "object": path, "model": body["model"]}
        if self.behaviour.usage:
            document["usage"] = usage | {"total_tokens": sum(usage.values())}
        asks = sampling.top_logprobs and not self.behaviour.ignores_logprobs
        if chat:
            said = completion.answer if not self.behaviour.constrains else self._constrained(body) or completion.answer
            message = {"role": "assistant", "content": said, "reasoning_content": completion.reasoning}
            if self.behaviour.merges:
                message = {"role": "assistant", "content": words.decode(tokens, skip_special_tokens=True)}
            for stop in body.get("stop", ()):
                message["content"] = message["content"].partition(stop)[0]
            choice: dict[str, Any] = {"index": 0, "finish_reason": finish, "message": message}
            if self.behaviour.chat_ids and body.get("return_token_ids"):
                choice["token_ids"] = tokens
                (document if self.behaviour.chat_ids == "top" else choice)["prompt_token_ids"] = prompt
            if asks:
                choice["logprobs"] = {"content": [self._entry(entry) for entry in logprobs]}
            return document | {"choices": [choice]}
        said = tokens[:-1] if finish == "stop" else tokens
        ended = {"stop_reason": tokens[-1]} if self.behaviour.stop_reason and finish == "stop" else {}
        choice = {**ended, "index": 0, "finish_reason": finish, "text": words.decode(said, skip_special_tokens=False)}
        if self.behaviour.ids == "token_ids" and body.get("return_token_ids"):
            choice |= {"token_ids": tokens, "prompt_token_ids": prompt}
        if asks:
            named = self.behaviour.ids and body.get("return_tokens_as_token_ids")
            names = (lambda token: f"token_id:{token}") if named else words.decode
            choice["logprobs"] = {
                "tokens": [names(entry["token"]) for entry in logprobs],
                "token_logprobs": [entry["logprob"] for entry in logprobs],
                "top_logprobs": [{names(token): score for token, score in entry["top"]} for entry in logprobs],
            }
        return document | {"choices": [choice]}

    def _scored(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the log-probabilities of the tokens of some prompts, each from a forward pass of its own."""
        choices: list[dict[str, Any]] = []
        for index, prompt in enumerate(body["prompt"]):
            with torch.inference_mode():
                scores = torch.log_softmax(self.model.model(torch.tensor([prompt])).logits[0].double(), dim=-1)
            own = [None, *(float(scores[at - 1, token]) for at, token in enumerate(prompt) if at)]
            choice: dict[str, Any] = {"index": index, "finish_reason": "length", "text": "x"}
            if self.behaviour.scores == "prompt_logprobs" and "prompt_logprobs" in body:
                pairs = zip(own, prompt, strict=True)
                held = [score and {str(token): {"logprob": score, "rank": 1}} for score, token in pairs]
                choice["prompt_logprobs"] = held
            elif self.behaviour.scores == "echo" and body.get("echo"):
                names = [self.model.tokenizer.decode(token) for token in prompt]
                choice["logprobs"] = {"tokens": [*names, "x"], "token_logprobs": [*own, -1.0]}
            choices.append(choice)
        usage = {"prompt_tokens": sum(map(len, body["prompt"])), "completion_tokens": len(choices)}
        return {"id": "x", "model": body["model"], "usage": usage, "choices": choices[::-1]}

    @staticmethod
    def _constrained(body: Mapping[str, Any]) -> str:
        """Return an answer that keeps to what a request asks for, always the first one that there is."""
        if "response_format" in body:
            schema = body["response_format"]["json_schema"]["schema"]
            return json.dumps({"action": schema["properties"]["action"]["enum"][0]}, separators=(",", ":"))
        choices = body.get("guided_choice") or body.get("structured_outputs", {}).get("choice", [""])
        return str(choices[0])

    def _decoded(
        self, asked: Request, chat: list[Message], text: str, sampling: Sampling
    ) -> tuple[list[int], list[int], str, list[dict[str, Any]], Any]:
        """Return prompt ids, output ids, end and log-probabilities; of a chat also what the model makes of them."""
        if not chat:
            prompts, outputs = self.model.decode([asked], sampling, texts=[text])
            return prompts[0], outputs[0].tokens, outputs[0].finish, outputs[0].logprobs, None
        (said,) = self.model.complete([replace(asked, messages=tuple(chat))], sampling)
        assert said.prompt_tokens is not None and said.output_tokens is not None
        scores = [dict(entry) for entry in said.logprobs or ()]
        return list(said.prompt_tokens), list(said.output_tokens), said.finish, scores, said

    def _entry(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        words = self.model.tokenizer
        top = [{"token": words.decode(token), "logprob": score} for token, score in entry["top"]]
        return {"token": words.decode(entry["token"]), "logprob": entry["logprob"], "top_logprobs": top}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    owner: Loopback

    def __init__(self, *arguments: Any) -> None:
        self.connections: set[socket.socket] = set()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone away is no news here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, format: str, *arguments: Any) -> None:
        """The server keeps a log of its own."""

    def do_GET(self) -> None:
        if self.server.owner.behaviour.silent_pages:
            self.server.owner.stopping.wait(60)
            self.close_connection = True
            return
        page = self.server.owner.behaviour.pages.get(self.path)
        self._send(200 if page else 404, page or {"detail": "Not Found"})

    def do_POST(self) -> None:
        owner = self.server.owner
        how = owner.behaviour
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        entry = Entry(
            tag=self.headers.get("X-Client-Request-Id", ""),
            path=self.path,
            body=body,
            authorization=self.headers.get("Authorization", ""),
            headers={name.lower(): value for name, value in self.headers.items()},
        )
        number = owner.enter(entry)
        entry.outcome = how.faults.draw(number) or "begun"
        if how.mode is not None:
            sent = how.mode(Asked(number=number - 1, body=body))
            entry.outcome = sent.kind
            self._write(sent.status, sent.raw, "application/json", headers=sent.headers)
            return
        if how.raw is not None:
            entry.outcome = "raw"
            how.raw(self)
            self.close_connection = True
            return
        if isinstance(how.faults, Mixed) and entry.outcome in FAULTS:
            self.close_connection = True
            with contextlib.suppress(OSError):  # the client may be gone
                FAULTS[entry.outcome](self, json.dumps(owner.say(self.path, body)).encode())
            return
        if entry.outcome == "hang":
            assert isinstance(how.faults, Faults)
            owner.stopping.wait(how.faults.hang_seconds)
            self.close_connection = True
            return
        if entry.outcome == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            return
        if entry.outcome == "error":
            self._send(500, {"error": {"message": "the machine is on fire"}})
        elif entry.outcome == "limited" and isinstance(how.faults, Faults):
            self._send(429, {"error": {"message": "slow down"}}, {"Retry-After": how.faults.retry_after})
        elif entry.outcome == "garbage":
            self._write(200, b"<html>\x00 502 Bad Gateway</html>", "application/json")
        elif (refusal := self._refusal(body)) is not None:
            entry.outcome = f"refused {refusal[0]}"
            self._send(*refusal)
        else:
            time.sleep(how.delay + how.spread * uniform(0, "spread", len(owner.log), entry.tag))
            late = how.override if len(owner.log) > how.override_after else None
            answer = json.dumps(late or owner.say(self.path, body)).encode()
            if entry.outcome == "cut":
                self._write(200, answer, "application/json", missing=len(answer) // 2)
                self.close_connection = True
                return
            entry.outcome = "answered" if self._arrives(answer) else "gone"

    def _arrives(self, answer: bytes) -> bool:
        try:
            self._write(200, answer, "application/json")
        except OSError:
            self.close_connection = True
            return False
        return True

    def _refusal(self, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]] | None:
        how = self.server.owner.behaviour
        if how.refusal is not None:
            return how.refusal
        if how.key and self.headers.get("Authorization") != f"Bearer {how.key}":
            given = self.headers.get("Authorization", "")
            return 401, {"error": {"message": f"Incorrect API key provided: {given}", "code": "invalid_api_key"}}
        if body["model"] not in how.models:
            return 404, {"error": {"message": f"The model {body['model']} does not exist.", "code": 404}}
        if not how.takes_ids and not isinstance(body.get("prompt", ""), str):
            return 400, {"detail": "prompt must be a string."}
        if how.known is not None and (unexpected := set(body) - set(how.known)):
            return 422, {"detail": f"Unexpected fields in the request: {unexpected}"}
        for name in how.rejects:
            if name in body and name == "max_tokens":
                return 400, {"error": {"message": "Unsupported: 'max_tokens'. Use 'max_completion_tokens' instead."}}
            if name in body:
                error = {"message": f"Unsupported parameter: '{name}'."}
                return 400, {"error": error if how.strict else {**error, "param": name}}
        return None

    def _send(self, status: int, document: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        self._write(status, json.dumps(document).encode(), "application/json", headers=headers)

    def _write(
        self, status: int, raw: bytes, kind: str, *, missing: int = 0, headers: Mapping[str, str] | None = None
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(raw)))
        if self.close_connection:  # unsaid, a client may use the connection again before it sees the end of it
            self.send_header("Connection", "close")
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(raw[: len(raw) - missing])
        self.wfile.flush()
