"""The commands `separate` and `design`: how well can a set of worlds tell hypotheses apart?"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import yaml

from goalscope._ground.folder import NamedFile
from goalscope._ground.words import counted
from goalscope.cli.console import json_text, say, table
from goalscope.cli.generator import OutFile, Positive, Reads
from goalscope.cli.overrides import WorldOptions, worlds_of
from goalscope.goals.hypotheses import Hypothesis, bind, load_hypotheses
from goalscope.goals.hypotheses.design import LAPSES, Need, needed, sentences
from goalscope.goals.hypotheses.design import design as designed
from goalscope.goals.hypotheses.separability import Separability, separability
from goalscope.runs import Study
from goalscope.worlds import World

_ROWS = 12  # pairs shown in the table of those that are hardest to tell apart


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
    """Show how well a set of worlds can tell hypotheses about an agent's goal apart, before collecting any data.

    The numbers are exact: they are computed from the tables of the worlds.

    Args:
        hypotheses (FILE|NAMES): files (.yaml, .json), named sets of hypotheses ("banks": grids, keys, doors, task-maps,
            things, sentinels) and written forms such as 'corner top-right' or 'goal within 5 steps', separated by ';'.
        worlds (STUDY|KIND): the worlds of a study (a file or a registered name); or a kind of worlds, either its name
            or an entry of a study: '{kind: grid, sizes: [9], densities: [0.6], count: 40}'.
        phase (NAME): use only the worlds of this phase.
        lapse (RATE): assumed lapse rate: the probability that an agent picks its move uniformly at random.
        level (RATE): error rate for which the required number of episodes is computed.
        as_json: print JSON.
        changes: changes to the worlds, see `WorldOptions`.

    Examples:
        goalscope separate --hypotheses grids --worlds baseline --count 10
        goalscope separate --hypotheses 'goal;beside goal;corner top-right' --worlds grid
        goalscope separate --hypotheses mine.yaml --worlds key-door
    """
    study = worlds_of(worlds, changes)
    bank, phase_worlds = bound(load_hypotheses(hypotheses, study.worlds()), study), _of_phase(study, phase)
    separation = separability(bank, phase_worlds, horizon=study.horizon.of, lapse=lapse, level=level)
    needs = needs_of(bank, phase_worlds, study, lapse)
    if as_json:
        named = {"hypotheses": separation.names, "worlds": len(separation.world_ids), "lapse": lapse, "level": level}
        rest = {"same": separation.same(), "sentences": separation.sentences(), "undefined": separation.undefined}
        rest["out_of_reach"] = separation.out_of_reach
        rest["needed"] = [need.to_plain() for need in needs]
        say(json_text({**named, "pairs": separation.records(), **rest}))
        return
    _print_pairs(separation)
    for name, reasons in separation.undefined.items():
        for reason, number in reasons.items():
            say(f"{name}: undefined in {number} of {len(separation.world_ids)} worlds, {reason}")
    for name, number in separation.out_of_reach.items():
        say(f"{name}: out of reach within the horizon in {number} of {len(separation.world_ids)} worlds")
    for line in separation.sentences() or ["every pair can be told apart in at least six worlds (or in all, if fewer)"]:
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
    """Choose the worlds that best tell hypotheses apart, and compare them with random choices of the same size.

    Args:
        hypotheses (FILE|NAMES): files (.yaml, .json), named sets of hypotheses ("banks": grids, keys, doors, task-maps,
            things, sentinels) and written forms such as 'corner top-right' or 'goal within 5 steps', separated by ';'.
        worlds (STUDY|KIND): the worlds of a study (a file or a registered name); or a kind of worlds, either its name
            or an entry of a study: '{kind: grid, sizes: [9], densities: [0.6], count: 40}'.
        phase (NAME): use only the worlds of this phase.
        choose: number of worlds to choose.
        lapse (RATE): assumed lapse rate: the probability that an agent picks its move uniformly at random.
        seed: random seed of the random choices used for comparison.
        out: write the chosen worlds to this study file (.yaml), with one planted agent per hypothesis.
        changes: changes to the worlds, see `WorldOptions`.

    Examples:
        goalscope design --hypotheses grids --worlds grid --choose 8 --out study.yaml
    """
    study = worlds_of(worlds, changes)
    bank = bound(load_hypotheses(hypotheses, study.worlds()), study)
    selection = designed(bank, _of_phase(study, phase), choose, horizon=study.horizon.of, lapse=lapse, seed=seed)
    low, middle, high = np.quantile(selection.random, (0.025, 0.5, 0.975))
    say(
        f"{choose} of {len(selection.found.world_ids)} worlds chosen. The hardest pair to tell apart, "
        f"{' or '.join(selection.pair)}, differs by {selection.least:.1f} nats over one episode per world (the smaller "
        f"of both directions, lapse rate {lapse:g} for both)"
    )
    say(
        f"{len(selection.random)} random choices of the same size: median {middle:.1f} nats, 95 % of them from "
        f"{low:.1f} to {high:.1f}. The choice is greedy and need not be the best"
    )
    for pair in selection.hopeless:
        say(f"{' or '.join(pair)}: no candidate world tells them apart; use worlds with other layouts")
    for line in sentences(needs_of(selection.hypotheses, selection.worlds, study, lapse)):
        say(line)
    for index, world in zip(selection.chosen, selection.worlds, strict=True):
        say(f"world {index}: {world.id}")
    if out is not None:
        plain = selection.study(study.dump().get("horizon", {}), seed=study.seed, name=f"design of {choose} worlds")
        Study.assemble(plain)
        NamedFile(out).save_text(_as_yaml(plain))
        say(f"study: {out}; next: goalscope run {out} --out runs/{out.stem}")


def needs_of(
    bank: Mapping[str, Hypothesis], worlds: Sequence[World], study: Study, lapse: float, episodes: int = 1
) -> list[Need]:
    """Return how many worlds it takes to identify each hypothesis (possible goal) in a study, by the agent's lapse
    rate.

    The list is empty for a single world.

    Args:
        bank: the hypotheses by name.
        worlds: the worlds of the study.
        study: the study, for the length of its episodes.
        lapse: a lapse rate (share of random moves) in addition to the usual ones.
        episodes: number of episodes per world.
    """
    if len({world.cluster or world.id for world in worlds}) < 2:
        return []
    rates = sorted({*LAPSES, min(lapse, 0.95)})
    return needed(bank, worlds, horizon=study.horizon.of, lapses=rates, episodes=episodes)


def bound(bank: Mapping[str, Hypothesis], study: Study) -> dict[str, Hypothesis]:
    """Bind hypotheses (possible goals) to all worlds of a study, so that places named in one phase are known in every
    phase.

    A phase is a part of a study with worlds of its own.
    """
    return {name: bind(hypothesis, study.worlds()) for name, hypothesis in bank.items()}


def _of_phase(study: Study, phase: str) -> list[World]:
    """Return the worlds of a study, or only those of one phase."""
    worlds = [world for world in study.worlds() if not phase or world.tags.get("phase") == phase]
    if not worlds:
        phases = sorted({str(tag) for world in study.worlds() if (tag := world.tags.get("phase")) is not None})
        raise ValueError(f"--phase must be one of the study's phases ({', '.join(phases) or 'none'}), got {phase!r}")
    return worlds


def _print_pairs(separation: Separability) -> None:

    lapse, size = separation.lapse, len(separation.names)
    rows = [
        [f"{h + 1} {separation.names[h]}", *("–" if h == k else _short(separation.mean[h, k]) for k in range(size))]
        for h in range(size)
    ]
    worlds = counted(len(separation.world_ids), "world")
    heading = f"Evidence in nats per episode for the row against the column, mean over {worlds}"
    title = f"{heading}; lapse rate {lapse:g} for both"
    table(["hypothesis", *(str(k + 1) for k in range(size))], rows, title=title, numbers=range(1, size + 1))
    pairs = [(h, k) for h in range(size) for k in range(h + 1, size) if separation.both[h, k]]
    pairs.sort(key=lambda pair: (separation.apart[pair], min(separation.mean[pair], separation.mean[pair[::-1]])))
    lines = [
        [
            f"{separation.names[h]} – {separation.names[k]}",
            f"{separation.apart[h, k]} of {separation.shared[h, k]}",
            " / ".join(_short(separation.mean[pair]) for pair in ((h, k), (k, h))),
            " / ".join(_short(separation.own_best[pair]) for pair in ((h, k), (k, h))),
            " / ".join(f"{separation.disjoint[pair]:.2f}" for pair in ((h, k), (k, h))),
            "never" if separation.episodes[h, k] == float("inf") else f"{separation.episodes[h, k]:,.0f}",
        ]
        for h, k in pairs[:_ROWS]
    ]
    heads = ("pair", "worlds apart", "nats, same lapse", "nats, rival's best", "disjoint", "episodes")
    table(heads, lines, title=f"Hardest pairs; episodes needed at level {separation.level:g}", numbers=range(1, 6))


def _short(value: float) -> str:
    return "–" if value != value else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _as_yaml(plain: dict[str, Any]) -> str:
    """Return plain values as YAML, with texts of several lines as blocks."""

    class Blocks(yaml.SafeDumper):
        """A dumper of its own, so that no other one changes."""

    Blocks.add_representer(
        str,
        lambda dumper, text: dumper.represent_scalar(
            "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
        ),
    )
    return yaml.dump(plain, Dumper=Blocks, sort_keys=False, allow_unicode=True)
