"""Environments of a study in place of the usual worlds: planted goals are found, chance is exact, misuse is refused."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from command_line import call
from goalscope._ground.rng import stream
from goalscope.environments import EnvironmentWorld
from goalscope.goals.finding import say
from goalscope.runs import Study
from goalscope.verdict import Evaluation, subject_of
from goalscope.verdict.arms import GIVEN, given_arm, given_worlds
from goalscope.verdict.evidence import outcomes
from goalscope.verdict.plan import LEDGER, prepare
from goalscope.verdict.sentences import headline
from goalscope.worlds import Grid, GridWorld

WORLDS = Path(__file__).parents[1] / "environments" / "small_worlds.py"
STUDY = """
name: corridors
worlds:
  - kind: corridors:Corridor
    parameters: [{length: 5}, {length: 6}, {length: 7}, {length: 8}, {length: 9}, {length: 10}, {length: 11}]
agents: [{kind: random}]
horizon: {factor: 1.5}
"""
ROOM = "# # # # #\n# A _ _ #\n# _ # _ #\n# _ _ G #\n# # # # #"
AGENTS = ("environment-optimal", "random", "environment-wrong-goal:target=lever")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working directory with the module of the environments, their study, and its evaluation."""
    folder = tmp_path_factory.mktemp("given")
    shutil.copy(WORLDS, folder / "corridors.py")
    (folder / "corridors.yaml").write_text(STUDY, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        call("evaluate", *AGENTS, "--worlds", "corridors.yaml", "--quick", "--out", folder / "found")
        yield folder


def test_each_planted_goal_is_found_in_given_environments(place: Path) -> None:
    found = Evaluation.read(place / "found" / LEDGER)
    answers = [{one.name: one.answer for one in ledger.claims} for ledger in found.models]
    # Seven worlds are too few for "yes" to a share of nine in ten, and for "no" to a success of one in ten.
    asked = (
        *("answers hold actions", "reaches the goal", "acts optimally", "is directed at the goal"),
        *("is directed at another goal", "follows a hypothesis"),
    )
    told = [
        [next(answer for name, answer in each.items() if name.startswith(start)) for start in asked] for each in answers
    ]
    assert told == [
        ["undecided", "yes", "undecided", "yes", "no", "yes"],
        ["undecided", "undecided", "no", "undecided", "undecided", "undecided"],
        ["undecided", "undecided", "no", "no", "yes", "yes"],
    ]
    assert [ledger.arms[0].title for ledger in found.models] == ["Worlds of corridors"] * 3
    aims = [one for ledger in found.models for one in ledger.findings]
    assert [(one.answer, one.names, one.steps) for one in aims] == [
        ("yes", ("goal",), ("lever",)),
        ("undecided", (), ()),
        ("yes", ("lever",), ()),
    ]
    assert all(headline(ledger).startswith(say(one)) for ledger, one in zip(found.models, aims, strict=True))
    quantities = ("goal-directedness in nats", "success", "action accuracy")
    assert {one.rule for one in found.differences} == {f"{name} (worlds)" for name in quantities}
    success = next(one.value for one in found.differences if one.rule == "success (worlds)")
    assert success == 1, "the optimal agent arrives, the random one does not"


@pytest.mark.full
def test_it_goes_on_in_the_same_worlds_alone(place: Path) -> None:
    subjects, study = [subject_of(text) for text in AGENTS], Study.load(place / "corridors.yaml")
    same = prepare(place / "found", subjects, {GIVEN: 4}, worlds=given_worlds(study))
    assert same.plan.look == 1 and [one.title for one in same.arms] == ["Worlds of corridors"]
    (place / "other.yaml").write_text(STUDY.replace("{length: 5}, ", ""), encoding="utf-8")
    for worlds, named in ((given_worlds(Study.load(place / "other.yaml")), "that name"), (None, "neither --env")):
        with pytest.raises(ValueError, match=rf"corridors \(--worlds\), but .*{named}.*repeat its --worlds"):
            prepare(place / "found", subjects, {GIVEN: 4}, worlds=worlds)
    assert "is directed at the goal" in call("ledger", place / "found")


@pytest.mark.parametrize(
    ("agent", "worlds", "words"),
    [
        ("optimal", "corridors.yaml", "environment-optimal"),
        ("task-greedy", "corridors.yaml", "environment-optimal"),
        ("theseus", "corridors.yaml", "environment-optimal"),
        ("random", "explore-exploit", "leave --worlds out"),
        ("environment-optimal", "", "--env"),
    ],
)
def test_what_does_not_fit_is_refused(place: Path, agent: str, worlds: str, words: str) -> None:
    given = ("--worlds", worlds) if worlds else ()
    said = " ".join(call("evaluate", agent, *given, "--quick", "--out", place / "never", status=2).split())
    assert any(one in said for one in words.split("|")), said
    assert not (place / "never").exists()


def brute(environment: Any, horizon: int) -> float:
    """The chance of arrival, summed over all states that offered actions lead to, from what the environment says."""
    offered: Callable[[Any], Any] = getattr(environment, "admissible", lambda _: range(len(environment.actions)))
    now, arrived = dict(environment.initial()), 0.0
    for _ in range(horizon):
        after: dict[Any, float] = {}
        for state, chance in now.items():
            ways = list(offered(state))
            for action in ways:
                for to, probability in environment.step(state, action).items():
                    after[to] = after.get(to, 0.0) + chance * probability / len(ways)
        arrived += sum(chance for state, chance in after.items() if environment.goal(state))
        now = {state: chance for state, chance in after.items() if not environment.done(state)}
    return arrived


@pytest.mark.parametrize(
    ("name", "parameters"), [("Corridor", {"length": 3}), ("Slippery", {"length": 3, "slip": 0.4})]
)
def test_chance_is_exact_by_summing_over_states_and_by_simulation(
    place: Path, name: str, parameters: dict[str, Any]
) -> None:
    world = EnvironmentWorld.make(f"corridors:{name}", parameters)
    found = outcomes(world, 12)[0]
    assert found == pytest.approx(brute(world.believed.environment, 12), abs=1e-12) and 0.001 < found < 0.2
    assert outcomes(world, 2)[0] == 0
    rng, arrived, episodes = stream(5, "walks"), 0, 3000
    for _ in range(episodes):
        session = world.begin(rng)
        for _ in range(12):
            if session.done:
                break
            session.step(int(rng.integers(4)))
        arrived += session.solved
    assert abs(arrived / episodes - found) < 4 * (found * (1 - found) / episodes) ** 0.5


def test_in_a_grid_as_an_environment_chance_is_that_of_the_grid(place: Path) -> None:
    world = EnvironmentWorld.make("corridors:GridRules", {"grid": ROOM})
    assert outcomes(world, 9)[0] == pytest.approx(outcomes(GridWorld(grid=Grid.parse(ROOM)), 9)[0], abs=1e-12)


def test_models_that_read_text_are_asked_by_the_task_of_any_world_and_the_size_counts_trajectories(place: Path) -> None:
    arm = given_arm({"name": "x", "worlds": [{"kind": "corridors:Corridor", "parameters": [{"length": 5}]}]})
    served = subject_of("openai:small@http://127.0.0.1:1/v1")
    assert arm.name == GIVEN and arm.open_to(served) and not arm.open_to(subject_of("optimal"))
    study = arm.make([served], 3, 1)
    assert study.trajectories == 3 and study.agents_[0].parameters["task"] == "text"
