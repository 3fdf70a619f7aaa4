"""The commands `separate` and `design`: what worlds can tell of hypotheses before any data, and better worlds."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import yaml

from goalscope._ground.arguments import OutFile, Positive, Reads
from goalscope._ground.folder import NamedFile
from goalscope._ground.words import counted
from goalscope.cli.console import json_text, say, table
from goalscope.cli.overrides import WorldOptions, worlds_of
from goalscope.goals.hypotheses import Hypothesis, bind, load_hypotheses
from goalscope.goals.hypotheses.design import design as designed
from goalscope.goals.hypotheses.need import LAPSES, Need, needed, sentences
from goalscope.goals.hypotheses.separability import Separability, separability
from goalscope.runs import Study
from goalscope.worlds import World

_ROWS = 12  # pairs of the table of those that are told apart least


def separate(
    *,
    hypotheses: Annotated[str, Reads("hypotheses")],
    worlds: Annotated[str, Reads("study")],
    phase: str = "",
    lapse: float = 0.1,
    level: float = 0.05,
    as_json: bool = False,
    changes: WorldOptions,
) -> None:
    """Say what worlds can tell of hypotheses about an agent's goal, before any data: exact, from their tables.

    Args:
        hypotheses (FILE|NAMES): files (.yaml, .json), banks (grids, keys, doors, task-maps, sentinels) and written
            forms such as 'corner top-right' or 'goal within 5 steps', with ';' between them.
        worlds (STUDY|KIND): the worlds of a study, a file or a shipped one; or a kind of worlds, as it stands or as an
            entry of a study: '{kind: grid, sizes: [9], densities: [0.6], count: 40}'.
        phase (NAME): only the worlds of this phase.
        lapse (RATE): lapse rate of the agents: probability of an action drawn from all.
        level (RATE): error rate that the number of episodes is counted for.
        as_json: print JSON.
        changes: of the worlds, see `WorldOptions`.

    Examples:
        goalscope separate --hypotheses grids --worlds baseline --count 10
        goalscope separate --hypotheses 'goal;beside goal;corner top-right' --worlds grid
        goalscope separate --hypotheses mine.yaml --worlds key-door
    """
    study = worlds_of(worlds, changes)
    bank, given = bound(load_hypotheses(hypotheses), study), _of_phase(study, phase)
    found = separability(bank, given, horizon=study.horizon.of, lapse=lapse, level=level)
    needs = needs_of(bank, given, study, lapse)
    if as_json:
        named = {"hypotheses": found.names, "worlds": len(found.world_ids), "lapse": lapse, "level": level}
        rest = {"same": found.same(), "sentences": found.sentences(), "undefined": found.undefined}
        rest["out_of_reach"] = found.out_of_reach
        rest["needed"] = [one.to_plain() for one in needs]
        say(json_text({**named, "pairs": found.records(), **rest}))
        return
    _print_pairs(found)
    for name, reasons in found.undefined.items():
        for reason, number in reasons.items():
            say(f"{name}: undefined in {number} of {len(found.world_ids)} worlds, {reason}")
    for name, number in found.out_of_reach.items():
        say(f"{name}: out of reach within the horizon in {number} of {len(found.world_ids)} worlds")
    for line in found.sentences() or ["every pair is told apart in six worlds or more, in all where there are fewer"]:
        say(line)
    for line in sentences(needs):
        say(line)


def design(
    *,
    hypotheses: Annotated[str, Reads("hypotheses")],
    worlds: Annotated[str, Reads("study")],
    phase: str = "",
    choose: Positive = 8,
    lapse: float = 0.1,
    seed: int = 0,
    out: OutFile = None,
    changes: WorldOptions,
) -> None:
    """Choose worlds that tell hypotheses apart, and say what is gained over as many random ones.

    Args:
        hypotheses (FILE|NAMES): files (.yaml, .json), banks (grids, keys, doors, task-maps, sentinels) and written
            forms such as 'corner top-right' or 'goal within 5 steps', with ';' between them.
        worlds (STUDY|KIND): the worlds of a study, a file or a shipped one; or a kind of worlds, as it stands or as an
            entry of a study: '{kind: grid, sizes: [9], densities: [0.6], count: 40}'.
        phase (NAME): only the worlds of this phase.
        choose: worlds to choose among those.
        lapse (RATE): lapse rate of the agents: probability of an action drawn from all.
        seed: root seed of the random choices that they are compared with.
        out: write a study of them there (.yaml), with a twin of each hypothesis.
        changes: of the worlds, see `WorldOptions`.

    Examples:
        goalscope design --hypotheses grids --worlds grid --choose 8 --out study.yaml
    """
    study = worlds_of(worlds, changes)
    bank = bound(load_hypotheses(hypotheses), study)
    found = designed(bank, _of_phase(study, phase), choose, horizon=study.horizon.of, lapse=lapse, seed=seed)
    low, middle, high = np.quantile(found.random, (0.025, 0.5, 0.975))
    say(
        f"{choose} of {len(found.found.world_ids)} worlds: the pair that is told apart least, "
        f"{' or '.join(found.pair)}, has {found.least:.1f} nats over one episode in each (the smaller of both "
        f"directions, lapse rate {lapse:g} for both)"
    )
    say(
        f"{len(found.random)} random choices of as many: {middle:.1f}, 95 % of them from {low:.1f} to {high:.1f}; the "
        "choice is greedy and need not be the best"
    )
    for pair in found.hopeless:
        say(f"{' or '.join(pair)}: no candidate tells them apart, take worlds with other places")
    for line in sentences(needs_of(found.hypotheses, found.worlds, study, lapse)):
        say(line)
    for index, world in zip(found.chosen, found.worlds, strict=True):
        say(f"world {index}: {world.id}")
    if out is not None:
        plain = found.study(study.dump().get("horizon", {}), seed=study.seed, name=f"design of {choose} worlds")
        Study.assemble(plain)
        NamedFile(out).save_text(_as_yaml(plain))
        say(f"study: {out}; next: goalscope run {out} --out runs/{out.stem}")


def needs_of(
    bank: Mapping[str, Hypothesis], worlds: Sequence[World], study: Study, lapse: float, episodes: int = 1
) -> list[Need]:
    """Return what names need in worlds of a study, also with a lapse rate of one's own; nothing of a single world."""
    if len({world.cluster or world.id for world in worlds}) < 2:
        return []
    rates = sorted({*LAPSES, min(lapse, 0.95)})
    return needed(bank, worlds, horizon=study.horizon.of, lapses=rates, episodes=episodes)


def bound(bank: Mapping[str, Hypothesis], study: Study) -> dict[str, Hypothesis]:
    """Return a bank whose places of a phase have the cells of all worlds of a study, whichever phase is looked at."""
    return {name: bind(one, study.worlds()) for name, one in bank.items()}


def _of_phase(study: Study, phase: str) -> list[World]:
    """Return the worlds of a phase of a study, all of them where none is named."""
    worlds = [world for world in study.worlds() if not phase or world.tags.get("phase") == phase]
    if not worlds:
        known = sorted({str(tag) for world in study.worlds() if (tag := world.tags.get("phase")) is not None})
        raise ValueError(f"--phase must be one of the study's phases ({', '.join(known) or 'none'}), got {phase!r}")
    return worlds


def _print_pairs(found: Separability) -> None:

    lapse, size = found.lapse, len(found.names)
    rows = [
        [f"{h + 1} {found.names[h]}", *("–" if h == k else _short(found.mean[h, k]) for k in range(size))]
        for h in range(size)
    ]
    about = f"Nats an episode, row against column, mean of {counted(len(found.world_ids), 'world')}"
    title = f"{about}; lapse rate {lapse:g} for both"
    table(["hypothesis", *(str(k + 1) for k in range(size))], rows, title=title, numbers=range(1, size + 1))
    pairs = [(h, k) for h in range(size) for k in range(h + 1, size) if found.both[h, k]]
    pairs.sort(key=lambda pair: (found.apart[pair], min(found.mean[pair], found.mean[pair[::-1]])))
    lines = [
        [
            f"{found.names[h]} – {found.names[k]}",
            f"{found.apart[h, k]} of {found.shared[h, k]}",
            " / ".join(_short(found.mean[pair]) for pair in ((h, k), (k, h))),
            " / ".join(_short(found.own_best[pair]) for pair in ((h, k), (k, h))),
            " / ".join(f"{found.disjoint[pair]:.2f}" for pair in ((h, k), (k, h))),
            "never" if found.episodes[h, k] == float("inf") else f"{found.episodes[h, k]:,.0f}",
        ]
        for h, k in pairs[:_ROWS]
    ]
    heads = ("pair", "worlds apart", "nats, same lapse", "nats, rival's best", "disjoint", "episodes")
    table(heads, lines, title=f"Told apart least; episodes at level {found.level:g}", numbers=range(1, 6))


def _short(value: float) -> str:
    return "–" if value != value else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _as_yaml(plain: dict[str, Any]) -> str:
    """Return plain values as YAML, texts of several lines as blocks."""

    class Blocks(yaml.SafeDumper):
        """A dumper of its own, so that no other one changes."""

    Blocks.add_representer(
        str,
        lambda dumper, text: dumper.represent_scalar(
            "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
        ),
    )
    return yaml.dump(plain, Dumper=Blocks, sort_keys=False, allow_unicode=True)
