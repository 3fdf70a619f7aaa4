"""What a server says about itself on information pages that cost nothing: version, models and context lengths."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from goalscope.agents.models.http_transport import Client

_MOST_NAMES: Final = 200
_MOST_TEXT: Final = 200
_CONTEXT: Final = ("max_model_len", "context_length", "context_window", "n_ctx")
_VERSION: Final = {"version": "version", "build_info": "build", "sglang_version": "version"}
"""Key of a version on an information page -> our name for it."""


class ServerInfo(BaseModel):
    """A server's information about itself; only the context length affects runs, the rest is shown in messages.

    Attributes:
        server: name -> text, with names such as ``version`` and ``software``.
        models: names of the models that it serves.
        context: smallest maximum of prompt and answer tokens together that the server states; None if it states none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    server: Mapping[str, str] = {}
    models: tuple[str, ...] = ()
    context: int | None = None


def read_server_info(client: Client) -> ServerInfo:
    """Read the information pages of a server; the result is empty if it has none.

    Raises:
        PermissionError: the key is missing.
    """
    first_page = client.look("models")
    if first_page is None:
        return ServerInfo()
    listing, software = first_page
    texts: dict[str, str] = {"software": software} if software else {}
    entries = listing.get("data")
    model_entries = [entry for entry in entries if isinstance(entry, Mapping)] if isinstance(entries, list) else []
    models = [entry["id"][:_MOST_TEXT] for entry in model_entries if isinstance(entry.get("id"), str)]
    if model_entries and isinstance(model_entries[0].get("owned_by"), str):
        texts["owner"] = model_entries[0]["owned_by"]
    contexts = [size for entry in model_entries for size in _contexts(entry)] if len(model_entries) == 1 else []
    for path in ("/version", "/props", "/get_server_info"):
        page, _ = client.look(path) or ({}, "")
        texts |= {name: page[page_key] for page_key, name in _VERSION.items() if isinstance(page.get(page_key), str)}
        contexts += _contexts(page)
    printable = {name: "".join(filter(str.isprintable, text))[:_MOST_TEXT] for name, text in texts.items()}
    return ServerInfo(
        server={name: text for name, text in printable.items() if text},
        models=tuple(models[:_MOST_NAMES]),
        context=min(contexts) if contexts else None,
    )


def _contexts(page: Mapping[str, Any]) -> Iterator[int]:
    """Yield the context lengths on a page and one level below."""
    for part in (page, page.get("default_generation_settings"), page.get("meta")):
        if not isinstance(part, Mapping):
            continue
        for size in map(part.get, _CONTEXT):
            if isinstance(size, int) and not isinstance(size, bool) and 0 < size < 2**40:
                yield size
