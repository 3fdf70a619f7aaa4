"""Test what an agent's moves depend on: a study of states with one thing changed, run like any other study."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from goalscope._ground.progress import TALLY, Display, aloud, lines
from goalscope.agents.prompts import THINGS
from goalscope.cli.console import json_text, say, show
from goalscope.cli.expected import measure_and_say, size_of
from goalscope.cli.generator import Positive, Reads, Settings, Writes, prints
from goalscope.cli.overrides import WorldOptions, worlds_of
from goalscope.cli.running import stages
from goalscope.goals.counterfactual.dependence import (
    Dependence,
    asked_of,
    dependences,
    rows_of,
    sentence,
    visited_states,
)
from goalscope.goals.counterfactual.worlds import TURNS
from goalscope.report.sections.explanations import dependence_table
from goalscope.runs import Store, Study
from goalscope.runs.study_parts import expand
from goalscope.stats import Estimate
from goalscope.stats.records import Records, html_table
from goalscope.verdict.subject import MODELS, Subject, subjects_of, told_apart
from goalscope.verdict.texts import TEXTS as VERDICT

WORLDS: Final[Mapping[str, Any]] = {
    "kind": "grid",
    "sizes": [7, 9],
    "densities": [0.2, 0.6],
    "count": 25,
    "minimum_distance": 3,
}
"""The default worlds."""
SOURCE: Final = "counterfactual"
"""Source of the rows in a store."""
STATES: Final = 100
"""Default maximum number of states taken from a run."""


@dataclass(frozen=True, slots=True)
class Dependences(Records):
    """What the moves of agents depend on, such as the place of the goal or of a wall, as `depends` returns it.

    Attributes:
        found: one dependence per agent and changed thing (e.g. the goal or a wall), agent by agent.
    """

    found: Sequence[Dependence]

    @property
    def sentences(self) -> list[str]:
        """The results in words, one sentence per agent."""
        agents = dict.fromkeys(dependence.agent for dependence in self.found)
        return [sentence([dependence for dependence in self.found if dependence.agent == agent]) for agent in agents]

    @property
    def records(self) -> list[dict[str, Any]]:
        """The results as a list of dictionaries, one per agent and changed thing.

        Each has the verdict, the estimates with their intervals, p values and counts.
        """
        return [
            {
                **{name: getattr(dependence, name) for name in ("agent", "moved", "answer")},
                **_ends("share", dependence.share),
                **_ends("change", dependence.change),
                **_ends("predictable", dependence.predictable),
                **_ends("variation", dependence.variation),
                **{name: getattr(dependence, name) for name in ("p", "adjusted", "worlds", "versions", "invalid")},
            }
            for dependence in self.found
        ]

    def to_json(self) -> str:
        """Return the results as JSON text: `records` and `sentences`; undefined numbers are null."""
        return json_text({"things": self.records, "sentences": self.sentences})

    def _repr_html_(self) -> str:
        table = dependence_table(self.found)
        return html_table(table.headings, table.rows)


def depends(
    models: Annotated[str | Sequence[str], Reads("model", "agent", "run")],
    out: Annotated[str | Path, Writes("directory")],
    *,
    worlds: Annotated[str | Sequence[Mapping[str, Any]], Reads("study")] = "",
    moved: Sequence[str] = (),
    changes: Positive = 2,
    states: Positive = STATES,
    sizes: Sequence[int] | None = None,
    densities: Sequence[float] | None = None,
    count: int | None = None,
    settings: Settings = (),
    seed: int = 0,
    workers: Positive = 1,
    confidence: float = 0.95,
    dry: bool = False,
    stage: Display = lines,
) -> Dependences:
    """Test what agents' moves depend on: change one thing in a state, keep everything else, and ask for one move.

    Each state and each changed version is asked twice, or once if all agents report likelihoods. The expected time and
    cost are printed first, measured on a few moves. To resume, call it again with the same directory; no answer is
    asked for again.

    Args:
        models (MODEL ...): one or more models or agents. Each is a bundled model (theseus or ariadne); a model folder,
            a GGUF file or a hub name; openai:NAME@URL or completions:NAME@URL for a server; a YAML file that describes
            an agent, or the same on one line as chat:model=NAME,KEY=VALUE; an agent kind with parameters, as in
            epsilon-greedy:epsilon=0.3; a run directory; or module:Class from a file in the working directory.
        out: the run directory to write.
        worlds (STUDY|KIND): the worlds of a study (a file or a registered name); or a kind of worlds, either its name
            or an entry of a study: '{kind: grid, sizes: [9], densities: [0.6], count: 40}'; from Python also a list of
            entries. The worlds must be grids. Their start is the state, in one of the turns 1 to 10 after a random
            walk. Default: 100 grids of the sizes 7 and 9.
        moved (THINGS): what to change: some of goal, key, door (opened), 'added key', 'removed key', wall, corner,
            agent; a kind of thing, such as 'red key' or 'removed red key'; or only the prompt: names (symbols of the
            cells), order (of legend and moves), words (paraphrases). Default: goal, key, door, wall, corner, agent and
            all kinds of things, as far as the worlds have them.
        changes: maximum number of changed versions per state and thing.
        states: for a run: maximum number of states, one per grid.
        sizes (LIST): side lengths of the grids, e.g. 7,9.
        densities (LIST): wall densities of the grids, e.g. 0,0.6.
        count: number of worlds of each kind, size and density.
        settings (KEY=VALUE): a parameter of the language models, e.g. temperature=1 or caps.usd=2. Repeatable.
        seed: random seed of the worlds and the changes.
        workers: number of simultaneous calls to an agent.
        dry: time the model on a few moves (their answers are kept), print the expected time and cost, and stop.
        confidence (C): confidence level of the intervals.
        stage: shows the progress of a task.

    Returns:
        For each agent and each changed thing, how much its moves depend on it; an empty result with ``dry``.

    Raises:
        ValueError: if an agent or an option does not apply, or the directory contains another study.
    """
    entries = [dict(entry) for entry in worlds] if not isinstance(worlds, str) else []
    if isinstance(worlds, str) and (worlds or sizes or densities or count):
        options = WorldOptions(sizes=sizes, densities=densities, count=count)
        entries = worlds_of(worlds or json.dumps(dict(WORLDS)), options).dump()["worlds"]
    study = study_of(models, worlds=entries, moved=moved, changes=changes, states=states, settings=settings, seed=seed)
    arguments = _passed(models, study)
    with aloud():
        if dry:
            TALLY.tell(size_of(study))
            measure_and_say(study, Path(out), workers=workers, patient=True, arguments=arguments)
            return Dependences(())
        for done in stages(study, Path(out), workers, passed=arguments, guide=False, command="depends", stage=stage):
            TALLY.tell(str(done))
    with Store(out, "w") as store:
        turns = asked_of(store.episodes())
        store.put_rows(rows_of(turns), source=SOURCE)
    return Dependences(dependences(turns, confidence=confidence))


def study_of(
    models: str | Sequence[str],
    *,
    worlds: Sequence[Mapping[str, Any]] = (),
    moved: Sequence[str] = (),
    changes: int = 2,
    states: int = STATES,
    settings: Sequence[str] = (),
    seed: int = 0,
) -> Study:
    """Return the study that `depends` runs for the same arguments, which are described there.

    It has the worlds with all changed versions, and asks the agents for one move in each.
    """
    subjects = [subject for text in ([models] if isinstance(models, str) else models) for subject in subjects_of(text)]
    logs = dict.fromkeys(subject.logs for subject in subjects if subject.logs is not None)
    if logs:
        if len(logs) > 1 or len(subjects) > sum(subject.logs is not None for subject in subjects) or worlds or settings:
            raise ValueError(
                "the agents of a run are asked in the run's own states: give only the run, without further models, "
                "--worlds or --set"
            )
        entries, visited = _of_run(next(iter(logs)), states, seed)
    else:
        base = [dict(entry) for entry in worlds] or [dict(WORLDS)]
        entries, visited = _entries(subjects, settings, base, seed), {"of": base, "turns": list(TURNS)}
    changed = {"kind": "changed", **visited, "changes": changes, **({"moved": list(moved)} if moved else {})}
    study = {"name": "dependence", "seed": seed, "worlds": [changed], "agents": entries, "horizon": {"steps": 1}}
    twice = Study.assemble({**study, "trajectories": 2})
    all_report_likelihoods = all(
        getattr(agent, "choice", None) is not None for agent in twice.agents()
    )  # they tell their policies
    return Study.assemble({**study, "trajectories": 1}) if all_report_likelihoods else twice


def _entries(
    subjects: Sequence[Subject], settings: Sequence[str], base: Sequence[Mapping[str, Any]], seed: int
) -> list[dict[str, Any]]:
    """Return the agents as entries of a study; language models are told about keys if any world has one."""
    if settings and (other_names := [subject.name for subject in subjects if subject.kind not in MODELS]):
        raise ValueError(f"--set applies to language models, but not to {', '.join(other_names)}: leave it out")
    if elsewhere := [subject.name for subject in subjects if "grids" not in subject.access]:
        raise ValueError(
            f"agents must be able to act in grids, but {', '.join(elsewhere)} cannot: {VERDICT('needs/grids')}. For an "
            "environment, give it a method elsewhere() and run goalscope evaluate AGENT --env ENV "
            "(docs/environments.md)"
        )
    agents = told_apart([subject.changed(settings) if settings else subject for subject in subjects])
    # Check that the worlds can be changed before making them.
    checked = Study.assemble({"worlds": [{"kind": "changed", "of": list(base)}], "agents": [{"kind": "random"}]})
    grids = [world.grid for world in expand(checked.worlds_[0].of, seed)]
    has_key, has_things = any(grid.key is not None for grid in grids), any(grid.things for grid in grids)
    task = THINGS if has_things else "key-door" if has_key else "grid"
    return [agent.entry(name=agent.name, task=task) for agent in agents]


def _of_run(path: Path, states: int, seed: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the agents of a run, and the states that they visited with the turns before these."""
    with Store(path) as store:
        study = store.study()
        if study is None:
            raise ValueError(f"{path} was imported, so its agents cannot be asked here: name an agent or model instead")
        visited = visited_states(store, store.agent_names(), states, seed=seed)
    return [entry.dump() for entry in study.agents_], visited


def _passed(models: str | Sequence[str], study: Study) -> dict[str, Any]:
    changed = study.dump()["worlds"][0]
    arguments = {"models": [models] if isinstance(models, str) else list(models), "seed": study.seed}
    return {**arguments, "changes": changed["changes"], "moved": changed["moved"]}


def _ends(name: str, estimate: Estimate | None) -> dict[str, float | None]:
    if estimate is None:
        return {}
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


@prints(depends)
def show_dependences(result: Dependences, *, dry: bool, as_json: bool = False) -> None:
    """Test what an agent's moves depend on: change one thing in a state, keep everything else, and ask for one move.

    To resume, run the same command on the same directory; no answer is asked for again.

    Args:
        as_json: print JSON.

    Examples:
        goalscope depends theseus --out runs/depends
        goalscope depends runs/first --out runs/depends-first
        goalscope depends optimal 'wrong-goal:target=top-right' --worlds key-door --moved goal,key --out runs/keys
    """
    if as_json and not dry:
        say(result.to_json())
    elif not dry:
        show(dependence_table(result.found))
        for line in result.sentences:
            say(line)
