"""The process that runs vLLM for the backend ``vllm``, in its own Python environment, and receives orders line by line.

It runs in the environment of vLLM, which need not have goalscope installed, so this file imports nothing from
goalscope. Each line of standard input is a JSON object with the key ``do``, and is carried out between two steps of the
engine, whatever else is under way. Each call of an order, also of the first, has a ``number``, with which it is
answered when it is complete. Answers go to the original standard output, which is set aside because vLLM prints to
standard output, too.
"""

import json
import os
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any

Say = Callable[[dict[str, Any]], None]


def opened(order: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Load the model that the first order names, and return vLLM's engine with a description of it.

    The description has vLLM's ``version`` and the model's number of token positions (``length``).
    """
    import vllm
    from vllm.platforms import current_platform

    settings = dict(order["settings"])
    if settings["dtype"] == "auto" and current_platform.is_cpu():
        settings["dtype"] = "float32"  # as the backend `local` does
    engine = vllm.LLM(
        model=order["model"],
        trust_remote_code=False,
        generation_config="vllm",  # use the study's sampling settings, not those of the model's files
        logprobs_mode="raw_logprobs",  # before temperature is applied
        max_logprobs=20,
        enable_prefix_caching=True,
        disable_log_stats=True,
        seed=0,  # each request has a seed of its own
        **{name: value for name, value in settings.items() if value is not None},
    )
    config = engine.llm_engine.model_config
    return engine.llm_engine, {"version": vllm.__version__, "length": int(config.max_model_len)}


class Calls:
    """The prompts that vLLM's engine is working on, each a numbered call of goalscope's process.

    Args:
        engine: vLLM's engine.
        say: function that writes an answer to goalscope's process.
    """

    def __init__(self, engine: Any, say: Say) -> None:
        self._engine, self._say = engine, say
        self._calls: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}  # number -> order, call

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, order: dict[str, Any]) -> None:
        """Pass the prompts of an order to the engine, to complete or to score them, or give up the calls that the order
        names.

        Args:
            order: message of goalscope's process with the key ``do`` ("complete", "score" or "stop"); prompts are token
                ids.
        """
        from vllm import SamplingParams

        if order["do"] == "stop":
            given_up = [number for number in order["numbers"] if self._calls.pop(number, None) is not None]
            self._engine.abort_request([str(number) for number in given_up])
            return
        for call in order["calls"]:
            if order["do"] == "score":
                sampling = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0, detokenize=False)
            else:
                settings = order["sampling"]
                sampling = SamplingParams(
                    temperature=settings["temperature"],
                    top_p=settings["top_p"],
                    max_tokens=settings["max_tokens"],
                    logprobs=settings["top_logprobs"] or None,
                    stop_token_ids=settings["stop"],
                    ignore_eos=True,  # goalscope names the stop tokens itself
                    detokenize=False,
                    seed=call["seed"],
                )
            self._calls[call["number"]] = order, call
            self._engine.add_request(str(call["number"]), {"prompt_token_ids": call["ids"]}, sampling)

    def step(self) -> None:
        """Let the engine make one step for all its prompts, and write the answers of the calls that are now
        complete.
        """
        for output in self._engine.step():
            call = self._calls.pop(int(output.request_id), None) if output.finished else None
            if call is not None:
                answered = scored if call[0]["do"] == "score" else completed
                self._say({"number": int(output.request_id), **answered(output, *call)})


def completed(result: Any, order: dict[str, Any], call: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a call that asked for a completion: its token ids, how it ended, and log-probabilities in
    nats.

    Args:
        result: output of the engine.
        order: the order to which the call belongs, with the sampling settings.
        call: the call.
    """
    output, top = result.outputs[0], order["sampling"]["top_logprobs"]
    logprobs = [
        {
            "token": token,
            "logprob": entry[token].logprob,
            "top": sorted(
                ([other, each.logprob] for other, each in entry.items() if each.rank <= top),
                key=lambda pair: (-pair[1], pair[0]),
            ),
        }
        for token, entry in zip(output.token_ids, output.logprobs or (), strict=False)
    ]
    finish = "stop" if output.finish_reason == "stop" else "length"
    return {"tokens": list(output.token_ids), "finish": finish, "logprobs": logprobs}


def scored(result: Any, order: dict[str, Any], call: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a call that asked for the log-probabilities of given tokens, in nats.

    Args:
        result: output of the engine.
        order: the order to which the call belongs; not used.
        call: the call, with the token ids of the text (``ids``), of which the first ``given`` are not scored.

    Returns:
        ``{"scores": [...]}`` with one number for each token after these first tokens.
    """
    ids, entries = call["ids"], result.prompt_logprobs
    return {"scores": [entries[place][ids[place]].logprob for place in range(call["given"], len(ids))]}


def serve(say: Say, lines: "queue.SimpleQueue[str]") -> None:
    """Carry out the orders of goalscope's process as they arrive, until an empty line says that there will be no more.

    Args:
        say: function that writes an answer.
        lines: queue of orders, each one line of JSON.
    """
    calls: Calls | None = None
    while True:
        try:
            line = lines.get(block=not calls)
        except queue.Empty:
            assert calls is not None
            calls.step()
            continue
        if not line:
            return
        order = json.loads(line)
        if order["do"] == "open":
            engine, description = opened(order)
            calls = Calls(engine, say)
            say({**description, "number": order["calls"][0]["number"]})
        elif calls is not None:
            calls.add(order)


def read(lines: "queue.SimpleQueue[str]") -> None:
    """Put each line of standard input into a queue as it arrives, and an empty line when the input ends."""
    for line in sys.stdin:
        lines.put(line)
    lines.put("")


def main() -> None:
    """Run vLLM for the parent process: read orders from standard input and write answers to standard output.

    Everything else that is printed goes to standard error.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer, allow_nan=False) + "\n")
        answers.flush()

    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=read, args=(lines,), daemon=True).start()
    try:
        serve(say, lines)
    except Exception as error:  # noqa: BLE001 - reported to goalscope, which ends this process
        say({"error": f"{type(error).__name__}: {error}"[:2000]})


if __name__ == "__main__":
    main()
