"""What a user reads: numbers, counts and lists in words, and catalogues of sentences.

Sentences are kept apart from the code that decides which of them is true. A room keeps its sentences in a file
`texts.yaml` beside its modules: a tree of keys whose leaves are texts with fields in braces. An editor can reword every
sentence there without touching code, and tests refer to a sentence by its key.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

_FIELD: Final = re.compile(r"\{(\w+)\}")


def short(value: float, unit: str) -> str:
    """Format a number as in tables, with a number of decimals that depends on unit and size; NaN becomes "undefined".

    Shares, bits and nats have three decimals. Numbers in other units have three below 10, two below 100, else one.
    """
    if math.isnan(value):
        return "undefined"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    decimals = 3 if unit in ("share", "bits", "nats") or abs(value) < 10 else 2 if abs(value) < 100 else 1
    text = f"{value:.{decimals}f}"
    if float(text) == 0:
        text = text.lstrip("-")
    return text.replace("-", "−")


def counted(count: int, noun: str) -> str:
    """Write a count with its noun, as in ``1 grid`` or ``9,000 episodes``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def listed(items: Sequence[str], last: str = "and") -> str:
    """Join items to a list in words: ``a``, ``a and b`` or ``a, b and c``; without items, ``none``.

    Args:
        items: the items.
        last: the word before the last item.
    """
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {last} {items[-1]}" if items else "none"


class Catalogue:
    """The sentences that one subpackage shows to users, looked up by key.

    Args:
        entries: tree of keys (nested mappings) whose leaves are texts, with fields to fill in as ``{name}``.
        name: what errors call this catalogue.

    Raises:
        TypeError: if a leaf is not a text.
    """

    def __init__(self, entries: Mapping[str, Any], name: str) -> None:
        self._name = name
        self._texts = dict(_leaves(entries, name))

    @classmethod
    def of_package(cls, package: str) -> "Catalogue":
        """Read the catalogue of sentences of a package, such as "goalscope.verdict", from its file `texts.yaml`."""
        import yaml  # these are not light

        from goalscope._ground.folder import package_text

        # In a base loader every value is a text. That in C, where it is installed, is fifteen times as fast as a reader
        # of YAML from strangers.
        loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
        entries = yaml.load(package_text(package, "texts.yaml"), Loader=loader)  # noqa: S506 - makes texts alone
        return cls(entries, f"{package} texts")

    def __call__(self, key: str, **fields: str | int) -> str:
        """Return the sentence with a key, with its fields filled in.

        Args:
            key: the keys that lead to the sentence, separated by slashes, such as "claims/acts optimally/question".
            fields: a value for each field of the sentence.

        Raises:
            KeyError: if there is no such sentence.
            TypeError: if a field is missing, or the sentence has no such field.
        """
        text = self.text(key)
        if (needed := self.fields(key)) != fields.keys():
            wrong = ", ".join(sorted(needed ^ fields.keys()))
            raise TypeError(f"the sentence {key!r} of {self._name} needs exactly its own fields; check {wrong}")
        return _FIELD.sub(lambda match: str(fields[match[1]]), text)

    def text(self, key: str) -> str:
        """Return the sentence with a key as the catalogue contains it, with its fields unfilled, as ``{name}``.

        Args:
            key: the keys that lead to the sentence, separated by slashes.

        Raises:
            KeyError: if there is no such sentence.
        """
        if key not in self._texts:
            raise KeyError(f"{self._name} has no sentence {key!r}")
        return self._texts[key]

    def fields(self, key: str) -> set[str]:
        """Return the names of the fields that must be filled in for the sentence with this key."""
        return set(_FIELD.findall(self.text(key)))

    def keys(self, below: str = "") -> list[str]:
        """Return the keys of all sentences, or of those whose keys begin with one branch of the tree, such as
        "claims".
        """
        return [key for key in self._texts if not below or key.startswith(f"{below}/")]

    def has(self, key: str) -> bool:
        """Return whether there is a sentence with this key (the keys that lead to it, separated by slashes)."""
        return key in self._texts


def _leaves(entries: Mapping[str, Any], name: str, above: str = "") -> Iterator[tuple[str, str]]:
    for key, value in entries.items():
        path = f"{above}/{key}" if above else str(key)
        if isinstance(value, Mapping):
            yield from _leaves(value, name, path)
        elif isinstance(value, str):
            yield path, " ".join(value.split())
        else:
            raise TypeError(f"{name}: {path} must be a text, got {type(value).__name__}")
