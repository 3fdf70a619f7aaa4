"""The viewer's page: write it, serve it to this machine, or show it in a notebook.

It is one HTML file with all data, or has a folder of shards beside it if the data are too large. A notebook shows the
same page in its own frame, and the selected step is available as traits of the widget.
"""

import gzip
import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from goalscope._ground.extras import lacking
from goalscope._ground.folder import Folder, NamedFile, package_text, temporary_folder
from goalscope._ground.untrusted import StrangeFileError
from goalscope._ground.version import __version__
from goalscope.report.ledger import Run
from goalscope.verdict.claims import Evaluation
from goalscope.verdict.opening import open_results
from goalscope.verdict.viewer.collect import EpisodeList, ViewedRun, claims_of, collect

MOST_OF_FILE: Final = 20_000_000
"""Maximum bytes of data inside the page; beyond it, shards are written to a folder beside the page."""

_DATA, _SHARDS = "<!--data-->", "%shards%"
"""Places in the asset where data are inserted, and what its content-security policy allows besides its own script."""
_LOCAL: Final = "127.0.0.1"
SCRIPT: Final = """
function render({ model, el }) {
  const frame = document.createElement("iframe");
  // Scripts alone: the page has an origin of its own, and reaches neither the notebook nor the network.
  frame.sandbox = "allow-scripts";
  frame.style.cssText = `width: 100%; height: ${model.get("height")}px; border: 1px solid #8884`;
  const address = URL.createObjectURL(new Blob([model.get("page")], { type: "text/html" }));
  const [episode, step] = [model.get("episode").replace(/^episode-/, "").slice(0, 12), model.get("step")];
  frame.src = episode ? `${address}#e=${episode}&s=${step}` : address;
  const follow = ({ source, data }) => {
    if (source !== frame.contentWindow || typeof data?.episode !== "string" || !Number.isInteger(data.step)) return;
    model.set("episode", data.episode);
    model.set("step", data.step);
    model.save_changes();
  };
  addEventListener("message", follow);
  el.append(frame);
  return () => {
    removeEventListener("message", follow);
    URL.revokeObjectURL(address);
  };
}
export default { render };
"""
"""Script of the widget: it shows the page and listens for the selected step, nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Where a viewer page was written, and how large it is.

    Attributes:
        page: path of the page.
        episodes: number of episodes that it shows.
        shards: number of files with steps beside the page; 0 if the page contains everything.
        octets: total size in bytes.
    """

    page: Path
    episodes: int
    shards: int
    octets: int


def write_view(paths: Sequence[str | Path], out: str | Path, *, most: int = MOST_OF_FILE) -> Written:
    """Write an HTML page that shows the episodes of runs and evaluations step by step (the viewer).

    Args:
        paths: directories of runs and evaluations. One page shows the episodes of all of them.
        out: the page. Data that do not fit go into a folder ``NAME.data`` beside it.
        most: maximum bytes of data inside the page.

    Raises:
        FileNotFoundError: a path contains neither a run nor an evaluation.
        ValueError: there are no episodes.
    """
    page = Path(out)
    sources, evaluations = _sources(paths)
    table = EpisodeList()
    shards = [pack(shard) for shard in collect(sources, table)]
    if not shards:
        raise ValueError(f"there are no episodes to show in {', '.join(map(str, paths))}: run it first")
    places = {str(run.path): number for number, (_, run) in enumerate(sources)}
    claims = [claim for evaluation in evaluations for claim in claims_of(evaluation, places)]
    title = ", ".join(Path(path).resolve().name for path in paths)
    index = {"title": title, "version": __version__, "table": table.plain(), "claims": claims, "shards": len(shards)}
    return write_packed(page, index, shards, most)


def write_packed(page: Path, index: dict[str, Any], shards: Sequence[str], most: int = MOST_OF_FILE) -> Written:
    """Write a viewer page from data that are ready; data that do not fit go into files in a folder beside it.

    Args:
        page: path of the page.
        index: the table of episodes, with the title and further data that the page always contains.
        shards: the steps of the episodes, packed by `pack`.
        most: maximum bytes of shards inside the page.
    """
    asset = package_text("goalscope.verdict.viewer", "viewer.html")
    whole = sum(map(len, shards)) <= most
    folder = f"{page.stem}.data"
    blocks = [_block("index", pack({**index, "folder": "" if whole else folder}))]
    beside = Folder(page.parent).make()
    octets = 0
    if whole:
        blocks += [_block(f"shard-{number}", shard) for number, shard in enumerate(shards)]
    else:
        shard_folder = beside.make(folder)
        for old in shard_folder.files("*.js"):  # of an earlier page
            shard_folder.remove_file(old.name)
        for number, shard in enumerate(shards):
            octets += len(shard)
            # A script, since a page that was opened as a file may read no other.
            shard_folder.save_text(f'goalscopeShard({number},"{shard}")\n', f"{number}.js")
    # The script of the page, known by its hash, may add the scripts of the shards; nothing else may.
    text = asset.replace(_SHARDS, "" if whole else " 'strict-dynamic'", 1).replace(_DATA, "\n".join(blocks), 1)
    octets += len(text.encode())
    NamedFile(page).save_text(text)
    episodes = len(index["table"]["columns"]["id"])
    return Written(page=page, episodes=episodes, shards=0 if whole else len(shards), octets=octets)


def _sources(paths: Sequence[str | Path]) -> tuple[list[ViewedRun], list[Evaluation]]:
    """Return the runs of some directories under distinct names, and the evaluations among these directories."""
    sources, evaluations = list[ViewedRun](), list[Evaluation]()
    for path in paths:
        prefix = f"{Path(path).resolve().name}/" if len(paths) > 1 else ""
        results = open_results(path)
        if isinstance(results, Run):
            sources.append((prefix.rstrip("/") or Path(path).resolve().name, results))
        else:
            evaluations.append(results)
            sources += [(f"{prefix}{name}", run) for name, run in results.runs.items()]
    return sources, evaluations


def pack(value: Any) -> str:
    """Compress JSON values into a string that an HTML page can contain (gzip, base64), which no parser takes for
    markup.
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


def _block(name: str, packed: str) -> str:
    return f'<script type="text/plain" id="{name}">{packed}</script>'


@contextmanager
def serving(page: Path, port: int = 0) -> Iterator[tuple[str, Callable[[], None]]]:
    """Context manager that serves a viewer page and its shards (files with steps) over HTTP to this machine, and no
    other file.

    It yields the address, and a function that handles requests until it is interrupted.

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


def view(*paths: str | Path, episode: str = "", step: int = 0, height: int = 760) -> Any:
    """Return a notebook widget that shows runs and evaluations in the viewer.

    Its traits ``episode`` and ``step`` contain the id of the selected episode and the number of the selected step.

    Args:
        paths: directories of runs and evaluations. One page shows the episodes of all of them.
        episode: id of the episode to open first, or its beginning; "" for the list.
        step: step to open first.
        height: height of the widget in pixels.

    Raises:
        ImportError: anywidget is not installed (it comes with the extra ``notebook``).
        FileNotFoundError: a path contains neither a run nor an evaluation.
        ValueError: there are no episodes, or more data than fit on a page.
    """
    try:
        anywidget, traitlets = import_module("anywidget"), import_module("traitlets")
    except ImportError as error:
        raise lacking("the viewer in a notebook needs anywidget", "notebook", error) from error
    with temporary_folder() as folder:
        written = write_view(paths, folder.file("view.html"))
        if written.shards:
            raise ValueError(
                f"a notebook holds at most {MOST_OF_FILE / 1e6:g} MB of episodes, these are {written.octets / 1e6:.0f} "
                "MB: goalscope view writes them as a page with a folder"
            )
        page = folder.load_text("view.html")
    fields = {
        "_esm": SCRIPT,
        "page": traitlets.Unicode().tag(sync=True),
        "episode": traitlets.Unicode().tag(sync=True),
        "step": traitlets.Int().tag(sync=True),
        "height": traitlets.Int().tag(sync=True),
    }
    widget: Any = type("EpisodeViewer", (anywidget.AnyWidget,), fields)
    return widget(page=page, episode=episode, step=step, height=height)
