"""Code of a bounded process (`goalscope._ground.bounded`) that reads logs with Inspect's public reader.

This module imports nothing from goalscope. It returns a log and its samples as the JSON text that Inspect itself
writes, one sample at a time, so that no message is as large as the log.
"""

from collections.abc import Callable, Iterator
from typing import Any


def prepare() -> Callable[[dict[str, Any]], Iterator[Any]]:
    """Return the function with which a separate process reads Inspect logs, so that a bad log cannot harm this process.

    The function takes a request, which names the path of a log and the part to read: "header", "keys" (pairs of id and
    epoch of the samples), "samples" (those with the keys in the request) or "all" (all samples). It yields JSON texts,
    or the keys.
    """
    import inspect_ai.log
    from pydantic_core import to_json

    def text_of(value: Any) -> str:
        return to_json(value, exclude_none=True, fallback=lambda unknown: None).decode()

    def read(request: dict[str, Any]) -> Iterator[Any]:
        path, part = request["path"], request["part"]
        if part == "header":
            yield text_of(inspect_ai.log.read_eval_log(path, header_only=True))
        elif part == "keys":
            yield [(sample.id, sample.epoch) for sample in inspect_ai.log.read_eval_log_sample_summaries(path)]
        elif part == "samples":
            keys = [(identity, epoch) for identity, epoch in request["keys"]]
            samples = inspect_ai.log.read_eval_log_samples_by_id(path, keys, resolve_attachments="full")
            yield from map(text_of, samples)
        else:
            samples = inspect_ai.log.read_eval_log(path, resolve_attachments="full").samples or []
            samples.reverse()
            while samples:  # each sample is freed once it is sent
                yield text_of(samples.pop())

    return read
