"""Make the set of organisms of a seed in a directory; an interrupted call can be resumed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from goalscope._ground.checks import near_miss
from goalscope._ground.folder import Folder
from goalscope._ground.progress import TALLY, Display, lines
from goalscope.goals.hypotheses import parse
from goalscope.organisms.adapters import STYLES
from goalscope.organisms.cards import CARD, Card, read_card, write
from goalscope.organisms.families import AGREEMENTS, FAMILIES, MODELS, Kind
from goalscope.organisms.learners import Spec, trained
from goalscope.runs.executors import lost_worker, open_executor

Done = TypeVar("Done")

EACH: Final = 2
"""Number of networks per family and agreement. There is one table fewer, because equal lessons give equal tables."""
KINDS: Final[tuple[Kind, ...]] = ("table", "network", "gradient", *MODELS)
USUAL: Final = KINDS[:2]
"""Kinds that are made by default."""
_TOLD: Final = 8  # lines of progress of one language model
LANGUAGE: Final = {
    "goal": (1.0, 0.9, 0.5),
    "place": (1.0, 0.5),
    "key first": (1.0, 0.5),
    "flee": (0.5,),
    "habit": (0.5,),
    "up or right": (0.5,),
    "two goals by a cue": (1.0, 0.5),
}
"""Families and agreements of language models; only these, because training takes a hundred times as long as a table."""
ADAPTED: Final = {"key first": (0.5,)}
"""Families and agreements of adapters, with one organism for each of `STYLES`."""


def planned(*, seed: int, families: Sequence[str] = (), kinds: Sequence[str] = (), each: int = EACH) -> list[Spec]:
    """Return the specifications of a set of organisms, family by family.

    Args:
        seed: root seed.
        families: names of families; empty for all.
        kinds: kinds among `KINDS`; empty for `USUAL`.
        each: number of networks per family and agreement; from the third on, of each kind, they are taught half of the
            lessons, and measured and judged in other `SETTINGS`.

    Raises:
        ValueError: a family or kind is unknown.
    """
    for chosen, available, noun in ((families, FAMILIES, "family"), (kinds, KINDS, "kind")):
        for name in chosen:
            if name not in available:
                raise ValueError(
                    f"a {noun} of organisms must be one of {', '.join(available)}, got {name[:60]!r}"
                    f"{near_miss(name, list(available))}"
                )
    usual: Mapping[str, Sequence[float]] = dict.fromkeys(FAMILIES, AGREEMENTS)
    agreements: dict[str, Mapping[str, Sequence[float]]] = {"language": LANGUAGE, "adapter": ADAPTED}
    return [
        Spec(family=family.name, kind=kind, agreement=agreement, seed=seed, number=number)
        for family in FAMILIES.values()
        if not families or family.name in families
        for kind in KINDS
        if kind in (kinds or USUAL)
        and (kind != "table" or family.sees)
        and (kind != "gradient" or parse(family.meant).kind == "place")
        for agreement in agreements.get(kind, usual).get(family.name, ())
        for number in range({"language": 1, "adapter": len(STYLES)}.get(kind, each))
        if kind != "table" or number != 1
    ]


def make(directory: Path, specs: Sequence[Spec], *, stage: Display = lines) -> list[Card]:
    """Make the organisms that do not exist yet, and return the cards of all.

    Args:
        directory: directory for one folder per organism.
        specs: specifications of the organisms.
        stage: displays progress and remaining time.

    Raises:
        ValueError: the directory has an organism of another seed.
        ImportError: PyTorch or safetensors is not installed (the extra ``lm``).
    """
    place, cards = Folder(directory).make(), []
    with stage("organisms") as report:
        for done, spec in enumerate(specs):
            folder = place.below(spec.name).checked()
            card = read_card(folder) if place.has_file(spec.name, CARD) else _made(folder, spec)
            if card.spec != spec:
                raise ValueError(
                    f"{folder} has the organism of seed {card.spec.seed}, but seed {spec.seed} was requested: choose "
                    "another directory, or this seed"
                )
            cards.append(card)
            report(done + 1, len(specs))
    return cards


def _made(folder: Path, spec: Spec) -> Card:
    def report(done: int, total: int) -> None:
        if done % max(1, total // _TOLD) == 0:
            TALLY.tell(f"{spec.name}: {done} of {total} steps")

    return write(folder, spec, trained(spec, report))


def of_each(
    work: Callable[[Path], Done], paths: Sequence[Path], *, name: str, workers: int = 1, stage: Display = lines
) -> list[Done]:
    """Apply a function to each folder and return the results in order.

    Args:
        work: the function; with more than one worker it must be picklable.
        paths: folders of organisms.
        name: name of the stage in the progress display.
        workers: number of parallel processes.
        stage: displays progress and remaining time.

    Raises:
        OSError: a worker process died.
    """
    results = list[Done]()
    with stage(name) as report, open_executor("threads" if workers == 1 else "processes", workers) as pool:
        waiting = [partial(work, folder) if pool is None else pool.submit(work, folder).result for folder in paths]
        for done, result in enumerate(waiting):
            try:
                results.append(result())
            except BrokenExecutor as error:
                raise lost_worker(error) or error from error
            report(done + 1, len(paths))
    return results


def folders(directory: Path) -> Iterator[Path]:
    """Yield the folders of the organisms in a directory, sorted by name.

    Raises:
        ValueError: the directory has no organisms.
    """
    paths = [folder.path for folder in Folder(directory).folders() if folder.has_file(CARD)]
    if not paths:
        raise ValueError(
            f"{directory} has no organisms: make some with goalscope organisms make --at {directory}, or name their "
            "directory with --at"
        )
    yield from paths
