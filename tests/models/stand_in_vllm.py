"""A stand-in for the package vllm, for tests: the few calls that the backend makes.

A test copies this file to ``vllm/__init__.py`` of a folder on the import path of the engine's process. In a step, up to
256 requests get a token each. ``STAND_IN`` in the environment makes it misbehave; "answers" has transformers compute
the model, and with "lengths" outputs have log-normal lengths (mean 150, sigma .8, at most 1,000 tokens). Else the next
token is the length of what stands before it, which takes no time. ``STAND_IN_LOG`` names a file for the number of rows
of each step, and ``STAND_IN_PACE`` the least seconds of a step.
"""

import math
import os
import random
import sys
import time
import types
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

__version__ = "0.0-stand-in"

FAULT, LOG = os.environ.get("STAND_IN", ""), os.environ.get("STAND_IN_LOG", "")
PACE, ROWS = float(os.environ.get("STAND_IN_PACE", "0")), 256
_PLATFORMS = types.ModuleType("vllm.platforms")
_PLATFORMS.current_platform = SimpleNamespace(is_cpu=lambda: True)  # type: ignore[attr-defined]
sys.modules["vllm.platforms"] = _PLATFORMS


class SamplingParams(SimpleNamespace):
    """What was asked for."""


class LLM:
    """A model; ``llm_engine`` has what vLLM's has."""

    def __init__(self, *, model: str, dtype: str, **settings: Any) -> None:
        sys.stdout.write("this line is no answer\n")
        if FAULT == "refuses":
            raise ValueError("no such architecture")
        assert settings["generation_config"] == "vllm" and settings["trust_remote_code"] is False
        self._logits: Logits = _length
        limit = 512
        if FAULT == "answers":
            self._logits, limit = _loaded(model, dtype)
        self._requests: dict[str, tuple[list[int], SamplingParams, list[int]]] = {}
        self.llm_engine = SimpleNamespace(
            model_config=SimpleNamespace(max_model_len=settings.get("max_model_len", limit)),
            add_request=self._add,
            has_unfinished_requests=lambda: bool(self._requests),
            step=self._step,
            abort_request=lambda names: [self._requests.pop(name) for name in names],
        )

    def _add(self, name: str, prompt: dict[str, list[int]], sampling: SamplingParams) -> None:
        self._requests[name] = (prompt["prompt_token_ids"], sampling, [])

    def _step(self) -> list[SimpleNamespace]:
        names = list(self._requests)[:ROWS]
        if LOG:
            with open(LOG, "a") as log:  # noqa: PTH123
                log.write(f"{len(names)}\n")
        time.sleep(PACE)
        return [output for name in names for output in self._continued(name, *self._requests[name])]

    def _continued(
        self, name: str, prompt: list[int], sampling: SamplingParams, written: list[int]
    ) -> list[SimpleNamespace]:
        if FAULT == "dies" and len(written) == 2:
            sys.stderr.write("out of everything\n")
            sys.stderr.flush()
            os._exit(3)
        if getattr(sampling, "prompt_logprobs", None) is not None:
            del self._requests[name]
            rows = self._logits(prompt)
            scores = [None, *({t: SimpleNamespace(logprob=float(rows[i][t]))} for i, t in enumerate(prompt[1:]))]
            return [SimpleNamespace(finished=True, request_id=name, prompt_logprobs=scores, outputs=[])]
        if FAULT == "lengths":
            written.append(len(written) % 50 + 5)
            ended = len(written) >= min(1000, random.Random(sampling.seed).lognormvariate(math.log(150) - 0.32, 0.8))
        else:
            row = self._logits([*prompt, *written])[-1]
            noise = random.Random(sampling.seed + len(written))
            gumbel = [-math.log(-math.log(noise.random())) for _ in row]
            keys = [float(score) + sampling.temperature * each for score, each in zip(row, gumbel, strict=True)]
            written.append(token := max(range(len(keys)), key=keys.__getitem__))
            ended = token in sampling.stop_token_ids
        if not ended and len(written) < sampling.max_tokens:
            return []
        del self._requests[name]
        ids: list[Any] = ["one", "two"] if FAULT == "nonsense" else written
        output = SimpleNamespace(token_ids=ids, logprobs=None, finish_reason="stop" if ended else "length")
        return [SimpleNamespace(finished=True, request_id=name, outputs=[output])]


Logits = Callable[[Sequence[int]], Any]


def _length(ids: Sequence[int]) -> list[list[float]]:
    return [[float(token == (place + 1) % 128) for token in range(128)] for place in range(len(ids))]


def _loaded(model: str, dtype: str) -> tuple[Logits, int]:
    import torch
    from transformers import AutoModelForCausalLM

    network: Any = AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, dtype))
    network.eval()

    @torch.inference_mode()
    def logits(ids: Sequence[int]) -> Any:
        return network(torch.tensor([list(ids)])).logits[0].float().log_softmax(-1).tolist()

    return logits, network.config.max_position_embeddings
