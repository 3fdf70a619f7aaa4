"""`goalscope show` lists episodes, and shows one as it was: what was asked, answered, and how good it was."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from command_line import call
from goalscope.agents import Observation, Optimal, Turn, agent_id
from goalscope.cli.exporting import changed
from goalscope.measures import StepTable
from goalscope.measures.transcript import agent_of, transcript
from goalscope.runs import Episode, Store, Study, run
from measured_runs import HOSTILE, Talker, small_study


class Asked:
    """Fails its first attempt at each step, then goes up; tells its prompts."""

    name, journalled = "asked", True

    def describe(self) -> Mapping[str, Any]:
        return {"kind": "asked"}

    def prompt(self, observation: Observation) -> str:
        return f"prompt of step {observation.step}, attempt {observation.attempt}\n{observation.view.text}\nanswer now"

    def act(self, observations: Sequence[Observation]) -> list[Turn]:
        return [
            Turn(action=0, text="I go up", reasoning="up is good")
            if seen.attempt
            else Turn(action=None, failure="no JSON", text="well\nverdict: DOWN: valid, optimal")
            for seen in observations
        ]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("runs") / "talk"
    study = small_study(trajectories=1, failure={"policy": "retry", "retries": 1}, horizon={"steps": 3})
    run(study, directory, agents=[Asked(), Talker(), Optimal()])
    return directory


def episode_of(directory: Path, agent: str) -> Episode:
    with Store(directory) as store:
        return next(one for one in store.episodes() if one.agent == agent and len(one.steps) > 1)


def test_episodes_are_listed_and_chosen(made: Path) -> None:
    with Store(made) as store:
        episodes = list(store.episodes())
    shown = call("show", made, "--limit", 100)
    assert all(one.id in shown and one.world.id in shown for one in episodes) and "36 episodes" in shown
    for words, kept in (
        (("--agent", "optimal"), [one for one in episodes if one.agent == "optimal"]),
        (("--world", episodes[0].world.id), [one for one in episodes if one.world.id == episodes[0].world.id]),
        (("--outcome", "goal"), [one for one in episodes if one.outcome == "goal"]),
        (("--failures",), [one for one in episodes if any(step.failure for step in one.steps)]),
    ):
        shown = call("show", made, "--limit", 100, *words)
        assert 0 < len(kept) < 36 and [one.id for one in episodes if one.id in shown.split("next:")[0]] == [
            one.id for one in kept
        ]
    assert "35 more: --limit 36" in call("show", made, "--limit", 1)
    assert "no episode matches" in call("show", made, "--world", "x")


def test_each_step_is_shown_with_its_verdict(made: Path) -> None:
    episode = episode_of(made, "optimal")
    shown = call("show", made, episode.id.removeprefix("episode-")[:12])
    table = StepTable.from_episodes([episode])
    for step, before, after in zip(episode.steps, table.distance.tolist(), table.after.tolist(), strict=True):
        assert f"verdict: {step.action.name}: valid, optimal, distance {before} to {after}\n" in shown
    assert shown.count("\nsaw\n") == len(episode.steps) and shown.count("  | 0 #") == len(episode.steps)
    random = [one for one in transcript(episode_of(made, "asked")) if one.verdict.optimal is False]
    assert random and all((one.verdict.after or 0) >= (one.verdict.before or 0) for one in random)


def test_prompts_and_attempts_are_those_that_were_sent(made: Path) -> None:
    episode = episode_of(made, "asked")
    steps = list(transcript(episode, Asked()))
    with Store(made) as store:
        sent = store.query("SELECT prompt FROM calls WHERE episode_id = ? AND attempt = 0 ORDER BY step", (episode.id,))
    assert [one.journalled for one in steps] == [prompt for (prompt,) in sent]
    assert [one.prompt for one in steps] == [
        f"prompt of step {at}, attempt 0\n{one.seen}\nanswer now" for at, one in enumerate(steps)
    ]
    assert [one.attempts for one in steps] == [(("well\nverdict: DOWN: valid, optimal", "no JSON"),)] * len(steps)
    shown = call("show", made, episode.id)
    # What a model writes stands behind a bar, and cannot pass for a verdict.
    assert "attempt 1: no action (no JSON), asked again\n  | well\n  | verdict: DOWN" in shown
    assert shown.count("\nverdict: UP: valid") == len(episode.steps)
    assert "reasoning\n  | up is good\nanswer\n  | I go up\n" in shown


def test_hostile_texts_are_shown_and_not_obeyed(made: Path) -> None:
    with Store(made) as store:
        episode = next(one for one in store.episodes() if one.agent == HOSTILE and len(one.steps) == 3)
    for shown in (call("show", made), call("show", made, episode.id)):
        assert "\x1b" not in shown and "\u202e" not in shown and "\\x1b[31m" in shown and "[red]x[/red]" in shown
    assert "invalid, no action (<script>" in call("show", made, episode.id)


def test_wrong_uses_are_refused(made: Path) -> None:
    for words, said in (
        (("zzz",), "no episode matches"),
        (("",), "36 episodes"),
        (("--agent", "nobody"), "--agent: this run has no agent"),
        (("--outcome", "won"), "must be one of goal, horizon"),
    ):
        assert said in " ".join(call("show", made, *words, status=2).split())


def test_a_record_that_does_not_follow_from_its_world_says_so(made: Path) -> None:
    episode = episode_of(made, "optimal")
    steps = (episode.steps[0], replace(episode.steps[1], state=episode.steps[0].state), *episode.steps[2:])
    told = list(transcript(replace(episode, steps=steps)))
    assert told[0].seen is not None and told[1].seen is None


def test_an_agent_is_built_again_where_it_can_be() -> None:
    study = small_study()
    (first, *_) = study.agents()
    found = agent_of(study, agent_id(first))
    assert found is not None and found.describe() == first.describe()
    assert agent_of(study, "agent-other") is None and agent_of(None, agent_id(first)) is None
    plain = study.dump()
    plain["agents"] = [{"kind": "chat", "model": "/nowhere/model", "name": "gone"}]
    assert agent_of(Study.restore(plain), "agent-other") is None


def test_lines_that_do_not_change_are_a_note_and_what_is_seen_is_not() -> None:
    text = [f"line {at}" for at in range(6)]
    grid = ["# #", "A _", "G _"]
    first, second = [*text, *grid, *text], [*text, "# #", "_ _", "G A", *text]
    assert changed([], first, grid) == first
    assert changed(first, second, second[6:9]) == ["[6 lines unchanged]", *second[6:9], "[6 lines unchanged]"]
    assert changed(first, first, grid) == ["[6 lines unchanged]", *grid, "[6 lines unchanged]"]
    assert changed(first, first, []) == ["[15 lines unchanged]"]
    assert changed(["a"], ["a", "b"], []) == ["a", "b"]
