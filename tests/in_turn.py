"""Commands as a user types them, one after another, each in a process forked from one that imported the package once.

To start Python anew and to import the package takes seconds for each command, longer than most of the commands.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

_PROGRAM = """
import atexit, gc, importlib, json, os, pkgutil, sys
import goalscope.cli
for module in pkgutil.iter_modules(goalscope.cli.__path__, "goalscope.cli."):
    importlib.import_module(module.name)
{first}
gc.collect()
gc.freeze()  # what is imported is left alone by the commands, which would copy it else
for words, *files in json.load(sys.stdin):
    child = os.fork()
    if not child:
        for number, file in enumerate(files, 1):
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
        sys.argv[1:] = words
        try:
            goalscope.cli.main()
            status = 0
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            status = 1
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # to take apart all that is imported takes as long as many commands
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Done(NamedTuple):
    """How a command ended, and what it printed."""

    status: int
    stdout: str
    stderr: str


def in_turn(
    lines: Sequence[Sequence[object]],
    *,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    first: str = "",
) -> list[Done]:
    """Run commands in processes of their own, and return how each of them ended.

    Args:
        lines: the words of each command, without the name of the program.
        cwd: the working directory.
        environment: variables beyond those of this process.
        first: code that runs in the process that imported the package, before the first command.
    """
    with tempfile.TemporaryDirectory() as folder:
        files = [[f"{folder}/{number}.{name}" for name in ("out", "err")] for number in range(len(lines))]
        tasks = [[[str(word) for word in words], *pair] for words, pair in zip(lines, files, strict=True)]
        program = subprocess.run(
            [sys.executable, "-c", _PROGRAM.format(first=first)],
            input=json.dumps(tasks),
            cwd=cwd,
            env={**os.environ, "COLUMNS": "200", **(environment or {})},
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        assert program.returncode == 0, program.stdout + program.stderr
        texts = [[Path(file).read_text(encoding="utf-8") for file in pair] for pair in files]
    statuses = map(int, program.stdout.split())
    return [Done(status, *pair) for status, pair in zip(statuses, texts, strict=True)]
