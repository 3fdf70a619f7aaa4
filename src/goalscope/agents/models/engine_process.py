"""The process that runs vLLM for the backend ``vllm``, in its own Python environment, and receives orders line by line.

It runs in the environment of vLLM, which need not have goalscope installed, so this file imports nothing from
goalscope. Each line of standard input is a JSON object with the key ``do``. Answers go to the original standard output,
which is set aside because vLLM prints to standard output, too.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

Say = Callable[[dict[str, Any]], None]


def opened(order: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Load a model; return the engine and a description of it."""
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
    return engine, {"version": vllm.__version__, "length": int(config.max_model_len)}


def completed(engine: Any, order: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Complete prompts given as token ids; yield each output as soon as it is complete."""
    from vllm import SamplingParams

    shared, running = order["sampling"], engine.llm_engine
    for number, call in enumerate(order["calls"]):
        sampling = SamplingParams(
            temperature=shared["temperature"],
            top_p=shared["top_p"],
            max_tokens=shared["max_tokens"],
            logprobs=shared["top_logprobs"] or None,
            stop_token_ids=shared["stop"],
            ignore_eos=True,  # goalscope names the stop tokens itself
            detokenize=False,
            seed=call["seed"],
        )
        running.add_request(str(number), {"prompt_token_ids": call["ids"]}, sampling)
    while running.has_unfinished_requests():
        for one in running.step():
            if not one.finished:
                continue
            output = one.outputs[0]
            logprobs = [
                {
                    "token": token,
                    "logprob": entry[token].logprob,
                    "top": sorted(
                        ([other, each.logprob] for other, each in entry.items() if each.rank <= shared["top_logprobs"]),
                        key=lambda pair: (-pair[1], pair[0]),
                    ),
                }
                for token, entry in zip(output.token_ids, output.logprobs or (), strict=False)
            ]
            yield {
                "index": int(one.request_id),
                "tokens": list(output.token_ids),
                "finish": "stop" if output.finish_reason == "stop" else "length",
                "logprobs": logprobs,
            }


def scored(engine: Any, order: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the log-probability of each token of given texts after their first ``given`` tokens."""
    from vllm import SamplingParams

    running = engine.llm_engine
    sampling = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0, detokenize=False)
    for number, call in enumerate(order["calls"]):
        running.add_request(str(number), {"prompt_token_ids": call["ids"]}, sampling)
    while running.has_unfinished_requests():
        for output in running.step():
            if output.finished:
                number = int(output.request_id)
                ids, scored = order["calls"][number]["ids"], order["calls"][number]["given"]
                entries = output.prompt_logprobs
                yield {
                    "index": number,
                    "scores": [entries[place][ids[place]].logprob for place in range(scored, len(ids))],
                }


def serve(say: Say) -> None:
    """Answer each line of the input until the input ends."""
    engine: Any = None
    for line in sys.stdin:
        order = json.loads(line)
        try:
            if order["do"] == "open":
                engine, is_what = opened(order)
                say(is_what)
            else:
                for answer in (completed if order["do"] == "complete" else scored)(engine, order):
                    say(answer)
        except Exception as error:  # noqa: BLE001 - reported to the caller, which ends this process
            say({"error": f"{type(error).__name__}: {error}"[:2000]})
        say({"end": True})


def main() -> None:
    """Reserve the standard output for answers, and serve."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer, allow_nan=False) + "\n")
        answers.flush()

    serve(say)


if __name__ == "__main__":
    main()
