"""Read walls, goal and agent from Theseus and from random networks with the per-cell linear probe, in one grid size.

    python benchmarks/controls.py [--train 900] [--test 300] [--size 9] [--layer 7] [--seeds 5] [--work DIR]

Worlds of one size, no two with the same walls; the first state of each; the residual stream after one block at the site
`pre`, three tokens side by side. All of it is the library's: `probe_cells` fits the head `percell` in closed form, its
penalties chosen on a fifth of the training grids, to

* Theseus;
* permuted: Theseus with the entries of each tensor of its weights permuted;
* initial: what Theseus's training begins with (embedding 0.5, linear maps 0.5 / sqrt(inputs)); its last training had
  seed 1;
* default-init: what the library draws (standard deviation 0.02);
* floors that read no network: the position alone, the count of walls, and the bag of the prompt's cells.

There are two sets of tables. In the first no penalty is below 1 for the sum over the training grids, scikit-learn's
default. In the second the least one is 1e-9 for their mean: such a probe reads directions in which a network varies by
a thousandth of its vectors' length. What the two differ by is there, but no more than a faint trace of it.

Walls are scored on the undetermined cells, which are a wall in some training grids and none in others: the area under
the curve within a tested grid. Goal and agent: the share of the tested grids in which the cell of highest probability
is the right one. Intervals are over tested grids, of random networks over grids and seeds (`goalscope.stats`), with the
least and the greatest seed beside them; differences are paired by grid. All are conditional on the training grids and
on Theseus.

With `--curves` also the learning curve of the probe on Theseus, and the description length of the maps, see
`inside.probing.suite`. With `--work DIR` the recorded states and the vectors are kept, and a second call goes on
where the first one stopped.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from goalscope._ground.rng import stream
from goalscope.agents import Observation
from goalscope.agents.agent import agent_id
from goalscope.agents.chat import ChatAgent
from goalscope.agents.models.base import RANDOM_WEIGHTS
from goalscope.agents.models.local import LocalModel
from goalscope.inside.activations import Activations, capture, load_activations
from goalscope.inside.probing import Cells, FitSettings, ProbeInputs, Split, label_cells, paired_rows, probe_cells
from goalscope.inside.probing.ridge import PENALTIES
from goalscope.inside.probing.suite import TRAINED_ON, compression, curve_ends, description_length, learning_curve
from goalscope.runs import Episode, EpisodeSpec, GridWorld, Step, Store
from goalscope.stats import DRAW, Estimate, Grouped, estimate_rows
from goalscope.stats.rows import Rows
from goalscope.worlds import ACTIONS, Grid, generate
from goalscope.worlds.dynamics import State
from goalscope.worlds.gridworld import GridView

DENSITIES = (0.2, 0.4, 0.6, 0.8, 1.0)
LEAST_OF_SUM = 1.0
RANDOM = tuple(reversed(RANDOM_WEIGHTS))
TARGETS = {
    "walls, area under the curve": ("area under the curve", "wall"),
    "goal's cell": ("localisation", "goal"),
    "agent's cell": ("localisation", "agent"),
}
NAMES = {
    ("percell", "none"): "Theseus",
    **{("percell", name): name for name in RANDOM},
    ("position", "none"): "position alone",
    ("percell", "wall-count"): "count of walls",
    ("percell", "input"): "bag of the prompt's cells",
}
CHECKED = 8  # prompts whose vectors are compared with a plain forward pass
RUN = "run"


def worlds(size: int, train: int, test: int, seed: int) -> Iterator[GridWorld]:
    """Yield the tested worlds, then those for training; no two have the same walls."""
    seen: set[bytes] = set()
    for part, count in (("test", test), ("train", train)):
        for number in range(count):
            density = DENSITIES[number % len(DENSITIES)]
            rng = stream(seed, "controls", part, size, number)
            grid: Grid = generate(size=size, density=density, rng=rng)
            while grid.walls.tobytes() in seen:
                grid = generate(size=size, density=density, rng=rng)
            seen.add(grid.walls.tobytes())
            yield GridWorld(grid=grid, tags={"density": density, "part": part})


def record(directory: Path, model: LocalModel, drawn: Iterator[GridWorld]) -> None:
    """Write a run that holds the prompt of each world's first state; nothing is answered."""
    agent = ChatAgent(model=model)
    identity = agent_id(agent)

    def episodes() -> Iterator[Episode]:
        for world in drawn:
            state = State(world.grid.start or (0, 0))
            asked = agent.messages(Observation(view=GridView(grid=world.grid)))
            prompt = tuple(model.encode(model.render(asked, agent.sampling)))
            step = Step(index=0, state=state, action=ACTIONS[0], prompt_tokens=prompt)
            spec = EpisodeSpec(world_id=world.id, agent_id=identity, trajectory=0, seed=0, horizon=1)
            yield Episode(spec=spec, world=world, agent=agent.name, steps=(step,), final=state, outcome="horizon")

    with Store(directory, "w") as store:
        store.put_agents([(identity, agent.name, agent.describe())])
        store.put_episodes(episodes())


def vectors(directory: Path, model: LocalModel, layer: int) -> Activations:
    """Return what `goalscope capture` reads, after comparing some of it with a plain forward pass."""
    done = capture(directory, model, sites=["pre"], layers=[layer], scope="first", other_weights=True)
    found = load_activations(directory, site="pre", layer=layer, capture=done.id)
    apart = compared(directory, model, found)
    if not apart <= 1e-5:
        raise ValueError(f"captured vectors must be those of a plain forward pass, {model.name} differs by {apart:.2g}")
    return found


def compared(directory: Path, model: LocalModel, found: Activations) -> float:
    """Return the largest difference to a plain forward pass, relative to the largest entry."""
    import torch

    wanted = {name: row for row, name in enumerate(found.episode_id[:CHECKED].tolist())}
    network, most = model.model, 0.0
    with Store(directory) as store, torch.inference_mode():
        for episode in store.episodes():
            if episode.id in wanted:
                row = wanted[episode.id]
                ids = torch.tensor([episode.steps[0].prompt_tokens])
                states = network(ids, output_hidden_states=True, use_cache=False).hidden_states
                plain = states[found.layer + 1][0, -3:]
                own = torch.tensor(found.vectors[row])
                if found.layer + 1 == network.config.num_hidden_layers:
                    own = network.base_model.norm(own)  # the library's last state comes after this norm
                most = max(most, float((own - plain).abs().max() / plain.abs().max()))
    return most


def main() -> None:
    """Capture, fit and print two tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, count, what in (
        ("train", 900, "training grids"),
        ("test", 300, "tested grids"),
        ("size", 9, "side of the grids"),
        ("layer", 7, "decoder block, 0-based"),
        ("seeds", 5, "seeds of each random network"),
        ("seed", 0, "root seed of worlds and validation part"),
    ):
        parser.add_argument(f"--{name}", type=int, default=count, help=f"{what} ({count})")
    parser.add_argument(
        "--curves", action="store_true", help="also how the scores grow with grids, and lengths of codes"
    )
    parser.add_argument("--work", type=Path, help="where states and vectors are kept (a temporary folder)")
    given = parser.parse_args()
    if given.work is None:
        with tempfile.TemporaryDirectory() as folder:
            report(given, Path(folder))
    else:
        report(given, given.work)


def report(given: argparse.Namespace, folder: Path) -> None:
    """Do everything in a folder and print the tables."""
    began = time.perf_counter()
    directory = folder / f"{given.size}-{given.train}-{given.test}-{given.seed}"
    if not directory.exists():
        part = directory.with_suffix(".part")  # a run that is not whole has another name
        drawn = worlds(given.size, given.train, given.test, given.seed)
        record(part, LocalModel("theseus"), drawn)
        part.rename(directory)
    networks = [(name, seed) for name in RANDOM for seed in range(given.seeds)]
    own = vectors(directory, LocalModel("theseus"), given.layer)
    cells, split = labels(directory, own, given.size)
    random = {}
    for number, (name, seed) in enumerate(networks, start=1):
        model = LocalModel("theseus", untrained=seed, random_weights=name)
        random[name, seed] = [vectors(directory, model, given.layer)]
        took = time.perf_counter() - began
        print(f"{number} of {len(networks)} random networks, {took:.0f} s", file=sys.stderr, flush=True)
    data = ProbeInputs(activations=[own], cells=cells, split=split, random=random)
    what = f"{given.size}x{given.size}, densities {DENSITIES[0]} to {DENSITIES[-1]}, layer {given.layer}, `pre`"
    print(f"\n{what}, {int(split.train.sum())} training and {int(split.test.sum())} tested grids")
    for title, penalties in (("1 for the sum", LEAST_OF_SUM), ("1e-9 for the mean", None)):
        tried = PENALTIES if penalties is None else tuple(one for one in PENALTIES if one * given.train >= penalties)
        print(f"\n\nPenalties from {title} over the training grids\n")
        tables(scored(data, FitSettings(penalties=tried, seed=given.seed)))
    if given.curves:
        curves(data, given.train)


def scored(data: ProbeInputs, settings: FitSettings) -> Rows:
    """Return the scores of the targets, of Theseus, all random networks that are there, and the floors."""
    there = [name for name in RANDOM if name in data.kinds()]
    suite = [("position", "none"), *(("percell", name) for name in ("none", *there, "wall-count", "input"))]
    rows = probe_cells(data, suite=suite, settings=settings).rows.select(reading="natural")
    return Rows.concatenate(rows.select(measure=measure, **{"class": label}) for measure, label in TARGETS.values())


def labels(directory: Path, found: Activations, frame: int) -> tuple[Cells, Split]:
    """Return the cells of all grids, and which grids are for training."""
    with Store(directory) as store:
        cells = label_cells(found, store.episodes(), frame=frame)
        part = {episode.id: episode.world.tags["part"] for episode in store.episodes()}
    train = np.array([part[name] == "train" for name in cells.episode_id.tolist()])
    return cells, Split(train=train, test=~train, cluster=cells.cluster)


def tables(rows: Rows) -> None:
    """Print each network's scores and Theseus less each of the others, in Markdown."""
    levels = {(one.key["head"], one.key["control"], one.key["measure"], one.key["class"]): one for one in summed(rows)}
    own = rows.select(head="percell", control="none")
    print("| read from | seeds |", " | ".join(TARGETS), "|")
    print("| --- " * (2 + len(TARGETS)) + "|")
    for (head, control), name in NAMES.items():
        mine = rows.select(head=head, control=control)
        if len(mine):
            seeds = sorted({one for one in mine[DRAW].tolist() if one is not None}) if DRAW in mine.tags else []
            shares = [
                shown(levels[head, control, *key].estimate) + spread(mine, key, seeds) for key in TARGETS.values()
            ]
            print(f"| {name} | {len(seeds) or ''} | {' | '.join(shares)} |")
    print("\n| Theseus less |", " | ".join(TARGETS), "|")
    print("| --- " * (1 + len(TARGETS)) + "|")
    for (head, control), name in list(NAMES.items())[1:]:
        mine = rows.select(head=head, control=control)
        if len(mine):
            less = summed(paired_rows(own, mine, name=name, by=("class",)))
            found = {one.key["class"]: shown(one.estimate) for one in less}
            print(f"| {name} | {' | '.join(found[label] for _, label in TARGETS.values())} |")


def curves(data: ProbeInputs, train: int) -> None:
    """Print the learning curve of the probe on Theseus, and how short the codes of the maps are, in Markdown."""
    counts = [count for count in (25, 50, 100, 225, 450, 900, 1800) if count <= train]
    rows = learning_curve(data, counts, heads=("percell",))
    found = {
        (one.key[TRAINED_ON], one.key["measure"], one.key["class"]): one.estimate
        for one in estimate_rows(rows, by=("class", TRAINED_ON))
    }
    print(
        "\n\nTheseus, all penalties, three draws of the training grids\n\n| training grids |", " | ".join(TARGETS), "|"
    )
    print("| --- " * (1 + len(TARGETS)) + "|")
    for count in counts:
        print(f"| {count} | {' | '.join(shown(found[count, *key]) for key in TARGETS.values())} |")
    ends = {(one.key["measure"], one.key["class"]): one for one in curve_ends(rows, ("class",))}
    for title, key in TARGETS.items():
        end = ends.get(key)
        if end is not None:
            said = "flattened" if end.flattened else "not flattened: more grids may show more"
            print(f"\n{title}: {shown(end.gain)} from {end.grids[0]} to {end.grids[1]} grids, {said}")
    codes = description_length(data, heads=("position", "percell"), controls=("none", *data.kinds()))
    ratios = {(one.key["head"], one.key["control"]): one.estimate for one in compression(codes, ("head", "control"))}
    print("\n\n| read from | bits of a map | compression |\n| --- | --- | --- |")
    for one in estimate_rows(codes, by=("head", "control")):
        key = (str(one.key["head"]), str(one.key["control"]))
        print(f"| {NAMES[key]} | {shown(one.estimate)} | {shown(ratios[key]) if key in ratios else ''} |")


def summed(rows: Rows) -> list[Grouped]:
    """Return the estimates over grids, of random networks over grids and seeds."""
    return estimate_rows(rows, by=("head", "control", "class"))


def spread(rows: Rows, key: tuple[str, str], seeds: list[int]) -> str:
    """Write the least and the greatest mean of a seed, "" where there is one network."""
    mine = rows.select(measure=key[0], **{"class": key[1]})
    means = [float(np.nanmean(mine.select(**{DRAW: seed}).value)) for seed in seeds]
    return f" ({min(means):.3f} to {max(means):.3f})" if len(means) > 1 else ""


def shown(estimate: Estimate) -> str:
    """Write a value with its interval."""
    if not estimate.has_interval:
        return f"{estimate.value:.3f} ({estimate.note})"
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"


if __name__ == "__main__":
    main()
