"""The set of organisms of a seed, made in a directory one after the other; made again, it goes on where it stopped."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from goalscope._ground.checks import near_miss
from goalscope._ground.folder import Folder
from goalscope._ground.progress import TALLY, Display, lines
from goalscope.organisms.adapters import STYLES
from goalscope.organisms.cards import CARD, Card, read_card, write
from goalscope.organisms.families import AGREEMENTS, FAMILIES, MODELS, Kind
from goalscope.organisms.learners import Spec, trained
from goalscope.runs.executors import lost_worker, open_executor

Done = TypeVar("Done")

EACH: Final = 2
"""Networks of each family and agreement; of tables, which learn the same from the same lessons, there is one."""
KINDS: Final[tuple[Kind, ...]] = ("table", "network", *MODELS)
USUAL: Final = KINDS[:2]
"""Kinds that are made where none is named."""
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
"""Families and agreements of the language models, one of each: they take a hundred times as long as a table."""
ADAPTED: Final = {"key first": (0.5,)}
"""The same of the adapters, one for each of `STYLES`."""


def planned(*, seed: int, families: Sequence[str] = (), kinds: Sequence[str] = (), each: int = EACH) -> list[Spec]:
    """Return the organisms of a set, family by family.

    Args:
        seed: root seed.
        families: names of some; empty for all.
        kinds: some of `KINDS`; empty for `USUAL`.
        each: networks of each family and agreement.

    Raises:
        ValueError: a family or kind that there is not.
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
        if kind in (kinds or USUAL) and (kind != "table" or family.sees)
        for agreement in agreements.get(kind, usual).get(family.name, ())
        for number in range({"network": each, "adapter": len(STYLES)}.get(kind, 1))
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
    place, cards = Folder(directory).make(), []
    with stage("organisms") as report:
        for done, spec in enumerate(specs):
            folder = place.below(spec.name).checked()
            card = read_card(folder) if place.has_file(spec.name, CARD) else _made(folder, spec)
            if card.spec != spec:
                raise ValueError(
                    f"{folder} must hold the organism of seed {spec.seed}, it holds that of seed {card.spec.seed}: "
                    "choose another directory"
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
    """Return what a function gives for each folder, in their order.

    Args:
        work: the function; with more than one worker it is sent to other processes.
        paths: folders of organisms.
        name: of the stage.
        workers: processes at the same time.
        stage: shows the progress and the time left.

    Raises:
        OSError: a worker died.
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
    """Yield the folders of the organisms that lie in a directory, by name.

    Raises:
        ValueError: none does.
    """
    paths = [folder.path for folder in Folder(directory).folders() if folder.has_file(CARD)]
    if not paths:
        raise ValueError(f"{directory} must hold organisms, it has none: goalscope organisms make --at {directory}")
    yield from paths
