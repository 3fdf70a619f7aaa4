# %% [markdown]
# # A model behind a server
#
# goalscope talks to every server with OpenAI's interface: vLLM, SGLang, transformers serve, llama.cpp, or a provider.
# This page starts a small one on this machine that answers with a random move, so that nothing has to be downloaded.
# Put the name and address of your own in its place; a key is read from the environment. It needs the extra `api`.

# %%
import json
import random
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import goalscope


class Mover(BaseHTTPRequestHandler):
    """Answers every chat with a move."""

    def do_POST(self) -> None:
        """Read a request and answer it as OpenAI's servers do."""
        prompt = self.rfile.read(int(self.headers["Content-Length"]))
        said = json.dumps({"action": random.choice(["UP", "DOWN", "LEFT", "RIGHT"])})
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": said}}
        count = len(prompt) // 4  # a server that does not count what it reads is refused: it may cut prompts off
        usage = {"prompt_tokens": count, "completion_tokens": 9, "total_tokens": count + 9}
        whole = {"id": "1", "object": "chat.completion", "created": 0, "model": "mover", "choices": [choice]}
        body = json.dumps({**whole, "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *values: object) -> None:
        """Say nothing."""


server = ThreadingHTTPServer(("127.0.0.1", 0), Mover)
Thread(target=server.serve_forever, daemon=True).start()
name = f"openai:mover@http://127.0.0.1:{server.server_port}/v1"

# %% [markdown]
# What is asked, and how many tokens it takes at most, is said before the first call. Each answer is on disk before it
# is used: call it again after an interruption, and nothing is asked twice.

# %%
verdict = goalscope.evaluate(name, "runs/server", arms=["grids"], sizes=[7], quick=True, workers=4)
for claim in verdict.claims:
    print(claim["name"], "|", claim["answer"], "|", claim["value"], (claim["low"], claim["high"]))
server.shutdown()

# %% [markdown]
# Before a long study, `goalscope doctor --server URL --model NAME` says what a server does with token ids, seeds,
# temperature and stop strings, in about 18 short calls. More: [models behind a
# server](../models.md#models-behind-a-server).
