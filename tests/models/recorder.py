"""A server that answers every chat and keeps the requests, for tests."""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Recorder:
    """A server that answers every chat with one text, or by a function of the number of earlier requests; keeps them.

    It closes the connection in place of an answer that is None.
    """

    def __init__(self, answer: str | Callable[[int], str | None]) -> None:
        requests = self.requests = list[dict[str, Any]]()

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *arguments: Any) -> None:
                """Write nothing."""

            def do_POST(self) -> None:
                requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                said = answer if isinstance(answer, str) else answer(len(requests) - 1)
                if said is None:
                    self.close_connection = True
                    return
                message = {"role": "assistant", "content": said}
                usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
                document = {"model": "m", "choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}
                body = json.dumps(document).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
