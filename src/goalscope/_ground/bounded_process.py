"""The program of a bounded process, started by `goalscope._ground.bounded`, which explains its purpose.

A script that imports nothing of this project. It loads work from the path of a Python file, reads requests as lines of
JSON, and answers each by lines of JSON: values, then an end or an error. The operating system ends work that takes too
long.
"""

import importlib.util
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

_MOST_MESSAGE = 1000  # characters of an error


def main() -> None:
    """Read requests from standard input until it is closed, and write the answers to standard output, as lines of JSON.

    The command-line arguments are the path of the Python file that defines the work, the limit of processor time in
    seconds, and the limit of memory in bytes.
    """
    file, seconds, memory = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what a library prints is no answer
    try:
        work = _prepared(file)
    except ImportError as error:
        _write(answers, {"kind": "ImportError", "failed": str(error)})
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _bound_memory(memory)
    _write(answers, {"end": True})  # ready
    for line in sys.stdin.buffer:
        _bound_time(seconds)
        try:
            for value in work(json.loads(line)):
                _write(answers, {"value": value})
                _bound_time(seconds)
        except BaseException as error:  # noqa: BLE001 - foreign code may raise anything, panics of compiled code too
            _write(answers, {"kind": type(error).__name__, "failed": str(error)[:_MOST_MESSAGE]})
        else:
            _write(answers, {"end": True})


def _prepared(file: str) -> Callable[[Any], Iterable[Any]]:
    """Return the work that a file prepares: a function of a request that yields JSON values."""
    spec = importlib.util.spec_from_file_location("bounded_work", file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules["bounded_work"] = module
    spec.loader.exec_module(module)
    work: Callable[[Any], Iterable[Any]] = module.prepare()
    return work


def _bound_memory(most: int) -> None:
    """Limit the address space relative to its current size, if the system reports it (Linux)."""
    sizes = Path("/proc/self/statm")
    if sizes.exists():
        _bound(resource.RLIMIT_AS, int(sizes.read_text().split()[0]) * resource.getpagesize() + most)


def _bound_time(seconds: int) -> None:
    """Bound the processor time until the next answer."""
    _bound(resource.RLIMIT_CPU, int(time.process_time()) + 1 + seconds)


def _bound(which: int, most: int) -> None:
    """Set a limit of this process, never above an existing one."""
    hard = resource.getrlimit(which)[1]
    resource.setrlimit(which, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _write(stream: Any, answer: dict[str, Any]) -> None:
    octets = memoryview(json.dumps(answer).encode() + b"\n")
    while octets:
        octets = octets[stream.write(octets) :]


if __name__ == "__main__":
    main()
