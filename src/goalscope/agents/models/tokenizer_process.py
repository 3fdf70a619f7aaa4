"""The work of a bounded process (`_ground.bounded`) that splits texts exactly as a tokenizer.json says.

The ids of each text are also decoded, so that the limits cover decoding, too.
"""

from collections.abc import Callable, Iterator
from typing import Any

_MOST_TOKENIZERS = 2  # number of tokenizers kept for further requests


def prepare() -> Callable[[dict[str, Any]], Iterator[list[int]]]:
    """Return the function that tokenizes texts, for the separate process in which tokenizers of unknown origin are
    used.

    The function takes a request with the path of a tokenizer.json (``file``), its state and texts, and yields the token
    ids of each text. The state is a text that changes whenever the content of the file changes.
    """
    from tokenizers import Tokenizer

    tokenizers: dict[tuple[str, str], Any] = {}

    def encode(request: dict[str, Any]) -> Iterator[list[int]]:
        key = request["file"], request["state"]
        if key not in tokenizers:
            while len(tokenizers) >= _MOST_TOKENIZERS:
                del tokenizers[next(iter(tokenizers))]
            tokenizer = Tokenizer.from_file(request["file"])
            tokenizer.no_truncation()  # truncation and padding are not properties of the vocabulary
            tokenizer.no_padding()
            tokenizers[key] = tokenizer
        for text in request["texts"]:
            ids = tokenizers[key].encode(text, add_special_tokens=False).ids
            tokenizers[key].decode(ids, skip_special_tokens=False)  # decoding may take time and memory, too
            yield ids

    return encode
