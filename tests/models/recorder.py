"""A server that answers every chat with one text and keeps the requests, for tests."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Recorder:
    """A server that answers every chat with one text, and keeps the requests."""

    def __init__(self, answer: str) -> None:
        requests = self.requests = list[dict[str, Any]]()

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *arguments: Any) -> None:
                """Write nothing."""

            def do_POST(self) -> None:
                requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                message = {"role": "assistant", "content": answer}
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
