"""The set of organisms of a seed, made in a directory one after the other; made again, it goes on where it stopped."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from goalscope.checks import near_miss
from goalscope.organisms.cards import CARD, Card, read_card, write
from goalscope.organisms.families import AGREEMENTS, FAMILIES, Kind
from goalscope.organisms.learners import Spec, trained
from goalscope.progress import Display, lines

EACH: Final = 2
"""Networks of each family and agreement; of tables, which learn the same from the same lessons, there is one."""
KINDS: Final[tuple[Kind, ...]] = ("table", "network")


def planned(*, seed: int, families: Sequence[str] = (), kinds: Sequence[str] = (), each: int = EACH) -> list[Spec]:
    """Return the organisms of a set, family by family.

    Args:
        seed: root seed.
        families: names of some; empty for all.
        kinds: "table", "network"; empty for both.
        each: networks of each family and agreement.

    Raises:
        ValueError: a family or kind that there is not.
    """
    for given, known, what in ((families, FAMILIES, "family"), (kinds, KINDS, "kind")):
        for name in given:
            if name not in known:
                raise ValueError(
                    f"a {what} of organisms must be one of {', '.join(known)}, got {name[:60]!r}"
                    f"{near_miss(name, list(known))}"
                )
    return [
        Spec(family=family.name, kind=kind, agreement=agreement, seed=seed, number=number)
        for family in FAMILIES.values()
        if not families or family.name in families
        for kind in KINDS
        if (not kinds or kind in kinds) and (kind != "table" or family.sees)
        for agreement in AGREEMENTS
        for number in range(each if kind == "network" else 1)
    ]


def make(directory: Path, specs: Sequence[Spec], *, stage: Display = lines) -> list[Card]:
    """Make organisms that are not there yet, and return the cards of all.

    Args:
        directory: gets a folder for each.
        specs: which ones.
        stage: shows the progress and the time left.

    Raises:
        ValueError: an organism of another seed lies there.
        ImportError: PyTorch or safetensors is not installed (the extra ``lm``).
    """
    directory.mkdir(parents=True, exist_ok=True)
    found = []
    with stage("organisms") as told:
        for done, spec in enumerate(specs):
            folder = directory / spec.name
            card = read_card(folder) if (folder / CARD).exists() else write(folder, spec, trained(spec))
            if card.spec != spec:
                raise ValueError(
                    f"{folder} must hold the organism of seed {spec.seed}, it holds that of seed {card.spec.seed}: "
                    "choose another directory"
                )
            found.append(card)
            told(done + 1, len(specs))
    return found


def folders(directory: Path) -> Iterator[Path]:
    """Yield the folders of the organisms that lie in a directory, by name.

    Raises:
        ValueError: none does.
    """
    found = sorted(path.parent for path in directory.glob(f"*/{CARD}")) if directory.is_dir() else []
    if not found:
        raise ValueError(f"{directory} must hold organisms, it has none: goalscope organisms make --at {directory}")
    yield from found
