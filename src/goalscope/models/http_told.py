"""What a server says of itself on pages that cost nothing: its version, the models that it serves, their context."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from goalscope.models.http_transport import Client

_MOST_NAMES: Final = 200
_MOST_TEXT: Final = 200
_CONTEXT: Final = ("max_model_len", "context_length", "context_window", "n_ctx")
_VERSION: Final = {"version": "version", "build_info": "build", "sglang_version": "version"}
"""What a page calls a version, and what it is called here."""


class Told(BaseModel):
    """What a server says of itself; nothing of it is relied on but for sentences.

    Attributes:
        server: texts by name, such as ``version`` and ``software``.
        models: the names that it serves.
        context: most tokens of prompt and answer together, the least that it names; None where it names none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    server: Mapping[str, str] = {}
    models: tuple[str, ...] = ()
    context: int | None = None


def told_by(client: Client) -> Told:
    """Ask a server for the pages on which it tells of itself; one that has none has told nothing.

    Raises:
        PermissionError: the key is missing.
    """
    first = client.look("models")
    if first is None:
        return Told()
    listing, software = first
    found: dict[str, str] = {"software": software} if software else {}
    entries = listing.get("data")
    kept = [one for one in entries if isinstance(one, Mapping)] if isinstance(entries, list) else []
    models = [one["id"][:_MOST_TEXT] for one in kept if isinstance(one.get("id"), str)]
    if kept and isinstance(kept[0].get("owned_by"), str):
        found["owner"] = kept[0]["owned_by"]
    contexts = [size for entry in kept for size in _contexts(entry)] if len(kept) == 1 else []
    for path in ("/version", "/props", "/get_server_info"):
        page, _ = client.look(path) or ({}, "")
        found |= {ours: page[theirs] for theirs, ours in _VERSION.items() if isinstance(page.get(theirs), str)}
        contexts += _contexts(page)
    printable = {name: "".join(filter(str.isprintable, text))[:_MOST_TEXT] for name, text in found.items()}
    return Told(
        server={name: text for name, text in printable.items() if text},
        models=tuple(models[:_MOST_NAMES]),
        context=min(contexts) if contexts else None,
    )


def _contexts(page: Mapping[str, Any]) -> Iterator[int]:
    """Yield the lengths of context on a page, and those one level below."""
    for part in (page, page.get("default_generation_settings"), page.get("meta")):
        if not isinstance(part, Mapping):
            continue
        for size in map(part.get, _CONTEXT):
            if isinstance(size, int) and not isinstance(size, bool) and 0 < size < 2**40:
                yield size
