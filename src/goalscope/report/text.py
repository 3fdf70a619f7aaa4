"""Text of others on a page: shown, never acted upon."""

_UNSEEN = (
    *(code for code in range(32) if code not in (9, 10)),
    *range(0x7F, 0xA0),
    *range(0x200B, 0x2010),
    *range(0x2028, 0x202F),
    *range(0x2060, 0x2070),
    *range(0xD800, 0xE000),
    0xFEFF,
)
_ESCAPES = {code: f"\\u{code:04x}" for code in _UNSEEN}


def visible(text: str) -> str:
    """Return a text in which control characters, changes of direction and other unseen characters can be seen."""
    return text.translate(_ESCAPES)
