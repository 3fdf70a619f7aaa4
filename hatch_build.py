"""The README as a package index shows it: its links to files of the source distribution become their paths.

A package index knows no files beside the README, so every relative link would be dead there.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"\[([^\]]+)\]\((?!https?://|#)([^)\s#]+)(?:#[^)\s]*)?\)")

_NOTE = "Paths such as `docs/start.md` are files of the source distribution."


def described(text: str) -> str:
    """Return a README whose relative links are text, what they say and the path, with a note on whose paths."""

    def path_of(link: re.Match[str]) -> str:
        words, path = link.groups()
        return f"`{path}`" if words == path else f"{words} (`{path}`)"

    return _LINK.sub(path_of, text).replace("\n## ", f"\n{_NOTE}\n\n## ", 1)


class DescriptionHook(MetadataHookInterface):
    """Gives the package the description that `described` returns."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the field ``readme`` of the project."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": described(text)}
