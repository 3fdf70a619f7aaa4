"""The viewer's page: one HTML file with all data, or with a folder of shards beside it if the data are too large."""

import gzip
import json
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from goalscope._ground.folder import Folder, NamedFile, package_text
from goalscope._ground.version import __version__
from goalscope.report.reading import Run
from goalscope.verdict.claims import Evaluation
from goalscope.verdict.opening import open_results
from goalscope.verdict.viewer.claims import claims_of
from goalscope.verdict.viewer.collect import EpisodeList, ViewedRun, collect

MOST_OF_FILE: Final = 20_000_000
"""Maximum bytes of data inside the page; beyond it, shards are written to a folder beside the page."""

_DATA, _SHARDS = "<!--data-->", "%shards%"
"""Places in the asset where data are inserted, and what its content-security policy allows besides its own script."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Description of a written page.

    Attributes:
        page: path of the page.
        episodes: number of episodes that it shows.
        shards: number of files beside the page; 0 if the page contains everything.
        octets: total size in bytes.
    """

    page: Path
    episodes: int
    shards: int
    octets: int


def write_view(paths: Sequence[str | Path], out: str | Path, *, most: int = MOST_OF_FILE) -> Written:
    """Write the viewer's page for runs and evaluations.

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
    places = {str(source.run.path): number for number, source in enumerate(sources)}
    claims = [claim for evaluation in evaluations for claim in claims_of(evaluation, places)]
    title = ", ".join(Path(path).resolve().name for path in paths)
    index = {"title": title, "version": __version__, "table": table.plain(), "claims": claims, "shards": len(shards)}
    return write_packed(page, index, shards, most)


def write_packed(page: Path, index: dict[str, Any], shards: Sequence[str], most: int = MOST_OF_FILE) -> Written:
    """Write a page from its table and its packed shards."""
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
            sources.append(ViewedRun(name=prefix.rstrip("/") or Path(path).resolve().name, run=results))
        else:
            evaluations.append(results)
            sources += [ViewedRun(name=f"{prefix}{name}", run=run) for name, run in results.runs.items()]
    return sources, evaluations


def pack(value: Any) -> str:
    """Return plain values as compressed JSON in letters and digits, which an HTML parser cannot mistake for markup."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


def _block(name: str, packed: str) -> str:
    return f'<script type="text/plain" id="{name}">{packed}</script>'
