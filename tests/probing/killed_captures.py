"""Captures that are killed, as processes of their own.

Reads tasks (directory, number) as JSON lines and forks one process for each, which kills itself with SIGKILL just
before its number-th event: a SQL statement, a sync, a rename, the first byte of a new file. Prints for each whether it
was killed; beside the directory of one that was not stands how many events it passed.
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("probing", "models", "runs")]

from killed_runs import Countdown, trace_events  # noqa: E402
from replays import local  # noqa: E402

from goalscope.inside.activations import CaptureSettings, capture  # noqa: E402

SETTINGS = CaptureSettings(window=10, batch_tokens=400, shard_bytes=8_000)
ARGUMENTS: dict[str, Any] = {"sites": ["pre", "post"], "layers": [0, 2], "settings": SETTINGS}


def main() -> None:
    model = local("gpt_oss")
    for line in sys.stdin:
        task = json.loads(line)
        child = os.fork()
        if child == 0:
            countdown = Countdown(task["number"])
            trace_events(countdown)
            capture(task["directory"], model, **ARGUMENTS)
            Path(f"{task['directory']}.passed").write_text(str(countdown.passed))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        if not killed and status:
            raise SystemExit(f"the capture failed with status {status}")
        sys.stdout.write(f"{json.dumps(killed)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
