"""What an evaluation asks in an environment that the user names: its worlds, its horizon, agents with known goals."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from goalscope._ground import registry
from goalscope._ground.ids import canonical_json
from goalscope._ground.own import is_own, load_own
from goalscope._ground.progress import TALLY, paced
from goalscope._ground.words import counted, listed
from goalscope._ground.yaml_text import write_yaml
from goalscope.goals.decision import GOAL
from goalscope.goals.finding import Finding
from goalscope.goals.hypotheses.definition import FiniteWorld, steps_in
from goalscope.goals.hypotheses.written import parse
from goalscope.report.page import write_page
from goalscope.runs import Study
from goalscope.verdict.arms import GIVEN
from goalscope.verdict.claims import ClaimLedger, Evaluation
from goalscope.verdict.plan import EvaluationRun
from goalscope.verdict.subject import Subject, subject_of_entry
from goalscope.verdict.texts import TEXTS
from goalscope.worlds.environments.environment import changes_of, environment_name, named_environment
from goalscope.worlds.environments.world import Believed, EnvironmentWorld

STUDY: Final = "study.yaml"
"""Name of the file with a study that plays the same agents in the same worlds."""

MOST_WORLDS: Final = 24
"""Number of worlds of an environment, unless it is large."""

_FEWEST_WORLDS: Final = 8
_MOST_STATES: Final = 100_000  # of all worlds together, above which there are fewer worlds

_FACTOR: Final = 1.5
_FACTOR_WITH_CHANCE: Final = 2.0
"""Horizon as a multiple of the shortest path; with chance, of the steps that an optimal agent takes on average."""


def environment_settings(environment: str) -> dict[str, Any]:
    """Prepare an evaluation in the user's environment: list its states, check it, and choose worlds and horizon.

    An environment whose class takes a seed that changes what happens in it gives a world for each seed. Any other gives
    a world for each of several states in which an episode can begin.

    Args:
        environment: see `goalscope.worlds.environments.environment.named_environment`.

    Returns:
        The settings for `goalscope.verdict.arms.given_arm`: name, worlds, horizon, answers for each step, and under
        ``twins`` the agents with known goals, each with the name of the goal that it pursues ("" for none).

    Raises:
        ValueError: it is no environment, or its goal cannot be reached from any state.
        ImportError: a package is missing; the message names the extra.
    """
    source, parameters = named_environment(environment)
    name = environment_name(source, parameters)
    TALLY.tell(f"{name}: listing its states")
    first = EnvironmentWorld.make(source, parameters)
    table = first.believed.table
    count = int(np.clip(_MOST_STATES // len(table.states), _FEWEST_WORLDS, MOST_WORLDS))
    entry: dict[str, Any] = {"kind": source} if is_own(source) else {"kind": "environment", "source": source}
    entry |= {"name": name, "parameters": [parameters]}
    more: dict[str, Any] = {}
    seeds = _seeds(name, source, parameters, count) if _takes_seed(source) and "seed" not in parameters else {}
    worlds = list(seeds.values()) or [first]
    n_starts = min(len(world.believed.starts) for world in worlds)
    if not n_starts:
        raise ValueError(
            f"the goal of {name} must be reached from another state, but no state leads to it: check goal() and "
            "done(), and that initial() gives no state that is a goal"
        )
    if seeds:
        entry["seeds"] = list(seeds)
    if len(worlds) < count:  # few different worlds: each begins in several states
        entry["starts"], more["most starts"] = min(-(-count // len(worlds)), n_starts), n_starts
    _check_goal_names(name, list(table.goals))
    first.drawing((int(table.start.argmax()),))  # a picture that cannot be drawn is refused before agents play
    chance = not table.deterministic
    factor = _FACTOR_WITH_CHANCE if chance else _FACTOR
    described = counted(len(worlds) * entry.get("starts", 1), "world")
    described += f", {counted(entry['starts'], 'first state')} of each" if seeds and "starts" in entry else ""
    described += "" if seeds else ", a first state each"
    horizon = f"{factor:g} times {'the steps of an optimal agent on average' if chance else 'the shortest path'}"
    sentence = (
        f"{name}: {counted(len(table.states), 'state')}, {counted(len(table.actions), 'action')}, "
        f"{'with' if chance else 'without'} chance; {described}; an episode ends after {horizon}"
    )
    TALLY.tell(sentence)
    return {
        "name": name,
        "worlds": [entry],
        "horizon": {"factor": factor},
        "answers": 2,
        **more,
        "changed": _can_be_changed(first, entry),
        "twins": _twins(worlds),
    }


def _check_goal_names(environment: str, names: Sequence[str]) -> None:
    """Raise a ValueError if goals of an environment are called like hypotheses that goalscope knows by these words."""
    for name in names:
        if name != GOAL and (parse(name).form != "{name}" or name.startswith("keep ")):
            other = f"{'to' if name.startswith('keep ') else 'the'} {name}"
            raise ValueError(
                f"goals() of {environment} must not use the name {name!r}, which is written like a hypothesis of "
                f"goalscope: give the goal another name, such as {other!r}"
            )


def _can_be_changed(world: EnvironmentWorld, entry: Mapping[str, Any]) -> bool:
    """Return whether some thing of an environment can be elsewhere.

    Log a line if it names things and none of them can.
    """
    if not changes_of(world.believed.environment):
        return False
    worlds = [{"kind": "changed-environment", "of": [entry]}]
    try:
        Study.assemble({"worlds": worlds, "agents": [{"kind": "random"}], "horizon": {"steps": 1}}).worlds()
    except ValueError as error:
        TALLY.tell(f"{entry['name']}: what its moves depend on is not asked: {error}")
        return False
    return True


def _takes_seed(source: str) -> bool:
    """Return whether the class or function that makes an environment takes a parameter ``seed``."""
    make = load_own(source, (), "an environment") if is_own(source) else registry.resolve("environment", source)
    return "seed" in inspect.signature(make).parameters


def _seeds(name: str, source: str, parameters: Mapping[str, Any], count: int) -> dict[int, EnvironmentWorld]:
    """Return seeds with their different worlds, which can be solved; {} if the seed changes nothing in the environment.

    Seeds that give the same world as an earlier one are left out, and a notice says so: the world counts once.
    """
    seeds, alike, described, different = dict[int, EnvironmentWorld](), dict[bytes, list[Believed]](), set[str](), 0
    tell = paced(name)
    for seed in range(1, 2 * count + 1):
        world = EnvironmentWorld.make(source, {**parameters, "seed": seed})
        believed = world.believed
        tell(TEXTS("plan/seeds tried", seed=seed, count=count, worlds=counted(different, "different world")))
        earlier = alike.setdefault(_content(believed), [])
        if any(_looks_like(believed, other) for other in earlier):
            if seed == 3 and different == 1:
                TALLY.tell(TEXTS("plan/seed without effect", name=name))
                return {}
            continue
        earlier.append(believed)
        different += 1
        described.add(canonical_json(dict(believed.environment.describe())))
        if len(described) < different:
            raise ValueError(
                f"describe() of {source} must contain everything that its parameter seed changes, but other seeds give "
                f"other environments with the same description: add the seed to describe()"
            )
        if 0 < believed.solved.expected_steps < np.inf:
            seeds[seed] = world
        if len(seeds) == count:
            break
    if different < seed:
        TALLY.tell(TEXTS("plan/seeds alike", name=name, seeds=seed, worlds=counted(different, "different world")))
    return seeds


def _content(believed: Believed) -> bytes:
    """Return what can happen in an environment as bytes: transitions, first states and goals."""
    arrays = (believed.table.triples, believed.table.start, *believed.table.goals.values())
    return b"".join(array.tobytes() for array in arrays)


def _looks_like(first: Believed, second: Believed) -> bool:
    """Return whether two environments with the same table show the agent the same texts and arrays in every state."""
    states = zip(first.table.states, second.table.states, strict=True)
    views = ((first.environment.observe(state), second.environment.observe(twin)) for state, twin in states)
    return all(
        view.text == twin.text and np.array_equal(np.asarray(view.array), np.asarray(twin.array))
        for view, twin in views
    )


def _twins(worlds: Sequence[EnvironmentWorld]) -> dict[str, dict[str, Any]]:
    """Return agents with known goals: name -> the entry of a study, and under ``pursues`` the goal."""
    twins: dict[str, dict[str, Any]] = {
        "optimal twin": {"kind": "environment-optimal", "pursues": "goal"},
        "random twin": {"kind": "random", "pursues": ""},
        "state-blind twin": {"kind": "environment-state-blind", "pursues": ""},
    }
    target = _other_goal(worlds)
    if target:
        twins[f"wrong-goal twin ({target})"] = {"kind": "environment-wrong-goal", "target": target, "pursues": target}
    return twins


def _other_goal(worlds: Sequence[EnvironmentWorld]) -> str:
    """Return another goal that all worlds allow to reach and that is not on every way to the goal, or ""."""
    shared = [name for name in worlds[0].believed.table.goals if all(name in w.believed.table.goals for w in worlds)]
    candidates = (_other_goals(world) for world in worlds)
    possible = set.intersection(*map(set, candidates))
    return next((name for name in shared if name in possible), "")


def _other_goals(world: EnvironmentWorld) -> list[str]:
    """Return the other goals of a world that can be reached and are not on every way to the goal."""
    process, table = world.process(), world.believed.table
    finite = FiniteWorld(world=world, process=process, horizon=1)
    names = list(table.goals)
    masks = dict(enumerate(table.goals.values()))
    steps = {
        step
        for goal, step in steps_in(finite, masks, {number: masks[number] for number in masks if number})
        if goal == 0
    }
    return [
        name
        for number, name in enumerate(names)
        if number and number not in steps and (table.goals[name] & finite.reached & ~table.goal).any()
    ]


def twin_subjects(settings: Mapping[str, Any], subjects: list[Subject]) -> list[Subject]:
    """Return the agents with known goals that are evaluated beside the given models, as a check of the verdict.

    Agents that are among the models already are left out.

    Args:
        settings: the settings of the worlds, from `environment_settings`.
        subjects: the models.
    """
    mine = {(subject.kind, tuple(sorted(map(str, subject.parameters.items())))) for subject in subjects}
    twins = list[Subject]()
    for name, entry in settings.get("twins", {}).items():
        plain = {key: value for key, value in entry.items() if key != "pursues"}
        parameters = {key: value for key, value in plain.items() if key != "kind"}
        if (plain["kind"], tuple(sorted(map(str, parameters.items())))) not in mine:
            twins.append(subject_of_entry({**plain, "name": name}))
    return twins


def write_study(evaluation: EvaluationRun) -> None:
    """Write a study file that plays the same agents in the same worlds again, if the user named an environment.

    Without a named environment, nothing is written.
    """
    plan = evaluation.plan
    if plan.worlds is None or "twins" not in plan.worlds or GIVEN not in plan.sizes:
        return
    arm = next(arm for arm in evaluation.arms if arm.name == GIVEN)
    study = arm.make([subject for subject in evaluation.subjects if subject.logs is None], plan.sizes[GIVEN], plan.seed)
    write_page(evaluation.directory / STUDY, write_yaml(study.dump(), sort_keys=False))


def planted_goal(settings: Mapping[str, Any] | None, name: str) -> str | None:
    """Return which goal an agent of an evaluation pursues by construction.

    Args:
        settings: the settings of the worlds, from `environment_settings`; None without.
        name: name of the agent.

    Returns:
        Name of the goal, "" for an agent without a goal; None for a model under test.
    """
    twins = (settings or {}).get("twins", {})
    return twins[name]["pursues"] if name in twins else None


def twin_sentences(evaluation: Evaluation) -> list[str]:
    """Return sentences on whether the verdict found the known goals of agents that were evaluated as a check.

    They name the agents that it got right, left open and got wrong. Empty if there are no such agents.
    """
    judged = [(ledger, finding) for ledger in evaluation.twins if (finding := _finding(ledger)) is not None]
    if not judged:
        return []
    by_outcome: dict[str, list[str]] = {"right": [], "open": [], "wrong": []}
    for ledger, finding in judged:
        by_outcome[_outcome(finding, ledger.planted or "")].append(ledger.model)
    keys = [key for key, names in by_outcome.items() if names]
    return [TEXTS("twins/check"), *(TEXTS(f"twins/{key}", names=listed(by_outcome[key])) for key in keys)]


def _finding(ledger: ClaimLedger) -> Finding | None:
    findings = ledger.found_in(GIVEN)
    return findings[0] if len(findings) == 1 else None


def _outcome(finding: Finding, planted: str) -> str:
    """Return whether a finding on an agent with a known goal is right, open, or wrong; several names are open."""
    several = len(finding.names) > 1 and planted in finding.names
    if finding.answer in ("undecided", "untestable") or several:
        return "open"
    if not planted:
        return "right" if finding.answer == "no" else "wrong"
    return "right" if finding.answer == "yes" and planted in finding.names else "wrong"
