"""Serve a page to this machine only."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

from goalscope._ground.folder import Folder
from goalscope._ground.untrusted import StrangeFileError

_LOCAL: Final = "127.0.0.1"


@contextmanager
def serving(page: Path, port: int = 0) -> Iterator[tuple[str, Callable[[], None]]]:
    """Serve a page and its shards and nothing else; yield its address, and a function that serves requests.

    Args:
        page: the page, as `write_view` returns it.
        port: the port; 0 for any free one.

    Raises:
        OSError: the port is taken.
    """
    shards = page.with_name(f"{page.stem}.data")

    class Handler(BaseHTTPRequestHandler):
        """Handler that answers only requests for the written files, by their exact names."""

        def do_GET(self) -> None:
            # A name of this machine, so that no page of somebody else's reads it under a name of theirs.
            is_local = self.headers.get("Host", "") in (
                f"{_LOCAL}:{server.server_port}",
                f"localhost:{server.server_port}",
            )
            name = self.path.partition("?")[0]
            folder, _, file = name.lstrip("/").partition("/")
            number = file.removesuffix(".js")
            path = page.name if name == "/" else None
            if folder == shards.name and file.endswith(".js") and number.isascii() and number.isdigit():
                path = f"{shards.name}/{file}"
            body = _content(Folder(page.parent), path) if is_local and path is not None else None
            if body is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8" if path == page.name else "text/javascript")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer((_LOCAL, port), Handler) as server:

        def wait() -> None:
            with suppress(KeyboardInterrupt):
                server.serve_forever()

        yield f"http://{_LOCAL}:{server.server_port}/", wait


def _content(folder: Folder, path: str) -> bytes | None:
    """Return the content of a file that was written beside the page, or None for any other name."""
    try:
        return folder.load_bytes(path)
    except (OSError, StrangeFileError):
        return None
