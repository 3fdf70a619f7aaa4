"""What a page of the viewer holds, as tests of several folders read it."""

import gzip
import json
import re
from base64 import b64decode
from pathlib import Path
from typing import Any


def unpacked(packed: str) -> Any:
    return json.loads(gzip.decompress(b64decode(packed)))


def parts_of(page: Path) -> dict[str, Any]:
    """Return the packed parts of a page of the viewer by their names, unpacked."""
    blocks = re.findall(r'<script type="text/plain" id="([^"]+)">([^<]+)</script>', page.read_text(encoding="utf-8"))
    return {name: unpacked(packed) for name, packed in blocks}
