import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from run_agents import Dice, requests, small_study

from contents import hash_of
from families import long_after
from goalscope.agents import Observation, Turn
from goalscope.runs import Episode, Store, Study, content_hash, run, tables
from goalscope.runs.journal import Journal
from goalscope.runs.provenance import note_libraries
from goalscope.worlds import Action, Fog, Grid, State

CORRIDOR = "#######\n#A___G#\n#######"
ROOMS = "#######\n#AK_DG#\n#######"


@dataclass(frozen=True)
class Script:
    """Answers with the words of a list, by step and attempt; a word that is no action is a failure."""

    words: tuple[str, ...]
    name: str = "script"
    journalled: bool = False
    seen: list[Observation] = field(default_factory=list, compare=False)

    def describe(self) -> dict[str, Any]:
        return {"kind": "script", "words": list(self.words)}

    def act(self, observations: Sequence[Observation]) -> list[Turn]:
        self.seen.extend(observations)
        turns = []
        for observation in observations:
            word = self.words[observation.step].split("/")[observation.attempt]
            action = Action.__members__.get(word)
            usage = {"tokens": 1.0 + observation.attempt}
            turns.append(Turn(action=action, failure=None if action is not None else word, text=word, usage=usage))
        return turns


def study(grid: str = CORRIDOR, **changes: Any) -> Study:
    return Study.parse(
        {
            "worlds": [{"kind": "text", "grids": [grid], **changes.pop("entry", {})}],
            "agents": [{"kind": "optimal"}],
            "trajectories": 1,
            "horizon": {"steps": 5},
            **changes,
        }
    )


def episode_of(directory: Path, given: Study, agent: Any) -> Episode:
    run(given, directory, agents=[agent])
    with Store(directory) as store:
        (episode,) = store.episodes()
    return episode


def words(episode: Episode) -> list[str]:
    return [str(step.failure) if step.action is None else step.action.name for step in episode.steps]


def test_an_episode_ends_at_the_goal_or_at_its_horizon(tmp_path: Path) -> None:
    at_goal = episode_of(tmp_path / "a", study(), Script(("RIGHT", "UP", "RIGHT", "RIGHT", "RIGHT")))
    assert at_goal.outcome == "goal" and at_goal.final == State((1, 5)) and len(at_goal.steps) == 5
    assert [step.state.position for step in at_goal.steps] == [(1, 1), (1, 2), (1, 2), (1, 3), (1, 4)]
    late = episode_of(tmp_path / "b", study(), Script(("LEFT",) * 5))
    assert late.outcome == "horizon" and late.final == State((1, 1)) and not late.success
    early = episode_of(tmp_path / "c", study(horizon={"factor": 2}), Script(("RIGHT",) * 8))
    assert early.outcome == "goal" and len(early.steps) == 4 and early.spec.horizon == 8


def test_a_failed_turn_is_a_step_in_place_unless_the_study_says_otherwise(tmp_path: Path) -> None:
    script = Script(("RIGHT", "empty/no JSON/LEFT", "RIGHT", "RIGHT", "RIGHT"))
    step = episode_of(tmp_path / "step", study(), script)
    assert words(step) == ["RIGHT", "empty", "RIGHT", "RIGHT", "RIGHT"] and step.outcome == "goal"
    assert "attempts" not in step.steps[1].extra
    end = episode_of(tmp_path / "end", study(failure={"policy": "end"}), script)
    assert words(end) == ["RIGHT", "empty"] and end.outcome == "failure" and end.final == State((1, 2))


def test_an_agents_own_failure_policy_goes_before_the_studys(tmp_path: Path) -> None:
    entries = [{"kind": "optimal"}, {"kind": "random", "name": "script", "failure": {"policy": "end"}}]
    given, script = study(agents=entries), Script(("RIGHT", "empty", "RIGHT", "RIGHT", "RIGHT"))
    own = episode_of(tmp_path / "own", given, script)
    assert (words(own), own.outcome) == (["RIGHT", "empty"], "failure")
    other = episode_of(tmp_path / "other", given, Script(script.words, name="another"))
    assert (len(other.steps), other.outcome) == (5, "goal")


def test_a_retry_asks_again_and_keeps_every_attempt(tmp_path: Path) -> None:
    script = Script(("RIGHT", "empty/no JSON/LEFT", "RIGHT", "RIGHT", "RIGHT"))
    enough = episode_of(tmp_path / "two", study(failure={"policy": "retry", "retries": 2}), script)
    assert words(enough) == ["RIGHT", "LEFT", "RIGHT", "RIGHT", "RIGHT"] and enough.outcome == "horizon"
    assert [attempt["failure"] for attempt in enough.steps[1].extra["attempts"]] == ["empty", "no JSON"]
    with Store(tmp_path / "two") as store:
        assert store.usage() == {("script", "tokens"): 4 * 1 + 1 + 2 + 3}
    one = episode_of(tmp_path / "one", study(failure={"policy": "retry", "retries": 1}), script)
    assert words(one) == ["RIGHT", "no JSON", "RIGHT", "RIGHT", "RIGHT"] and one.outcome == "goal"
    stop = {"policy": "retry", "retries": 1, "then": "end"}
    assert episode_of(tmp_path / "end", study(failure=stop), script).outcome == "failure"


def test_the_agent_is_shown_the_world_as_it_is_now(tmp_path: Path) -> None:
    script = Script(("RIGHT",) * 4)
    done = episode_of(tmp_path, study(ROOMS, history="actions"), script)
    assert done.outcome == "goal" and [step.state.phase for step in done.steps] == [0, 1, 2, 2]
    shown = [observation.grid for observation in script.seen]
    assert [grid.start for grid in shown] == [(1, 1), (1, 2), (1, 3), (1, 4)]
    assert [grid.key for grid in shown] == [(1, 2), None, None, None]
    assert [grid.door for grid in shown] == [(1, 4), (1, 4), None, None]
    assert [observation.carrying_key for observation in script.seen] == [False, True, True, True]
    past = [(past.view, past.action) for past in script.seen[3].history]
    assert past == [(observation.view, Action.RIGHT) for observation in script.seen[:3]]
    assert all(observation.episode_id == done.id for observation in script.seen)


def test_fog_is_lifted_step_by_step_and_history_is_what_was_seen(tmp_path: Path) -> None:
    script = Script(("RIGHT", "RIGHT", "none", "RIGHT", "RIGHT"))
    done = episode_of(tmp_path, study(history="actions", entry={"fog_radius": 2}), script)
    assert done.outcome == "goal" and done.world.fog_radius == 2
    whole = Grid.parse(CORRIDOR)
    fog = Fog.start(whole, 2)
    for observation, step in zip(script.seen, done.steps, strict=True):
        fog = fog.look(step.state.position)
        assert observation.grid == fog.view(whole.at(start=step.state.position))
    assert script.seen[0].grid.goal is None and script.seen[4].grid.goal == (1, 5)
    assert [past.action for past in script.seen[4].history] == [Action.RIGHT, Action.RIGHT, None, Action.RIGHT]
    assert [past.view for past in script.seen[4].history] == [observation.view for observation in script.seen[:4]]


@pytest.mark.parametrize("journalled", long_after(1, [True, False]))
def test_neither_batch_nor_workers_nor_portions_change_a_result(tmp_path: Path, journalled: bool) -> None:
    given = small_study(failure={"policy": "retry", "retries": 2})
    hashes = set()
    for index, (batch, workers, portion) in enumerate([(1, 1, 1), (256, 1, 256), (5, 3, 2), (4, 8, 1)]):
        dice = Dice(journalled=journalled, largest_batch=portion, failing=0.5)
        summary = run(given, tmp_path / str(index), agents=[dice], batch=batch, workers=workers)
        assert summary.episodes == 6 and summary.calls == (summary.calls if journalled else 0)
        hashes.add(hash_of(tmp_path / str(index)))
    assert len(hashes) == 1


def test_the_same_study_twice_runs_nothing_the_second_time(tmp_path: Path) -> None:
    log = tmp_path / "log"
    told: list[tuple[int, int, int, float | None]] = []
    first = run(small_study(), tmp_path / "run", agents=[Dice(log=log)], progress=lambda *news: told.append(news))
    before, asked = hash_of(tmp_path / "run"), len(requests(log))
    second = run(small_study(name="renamed"), tmp_path / "run", agents=[Dice(log=log)])
    assert (first.episodes, first.reused) == (6, 0) and first.calls == first.steps == asked
    assert (second.episodes, second.reused, second.calls, second.replayed) == (0, 6, 0, 0)
    assert len(requests(log)) == asked and hash_of(tmp_path / "run") == before
    assert told[-1] == (6, 6, first.steps, 0.0)
    with Store(tmp_path / "run") as store:
        info = store.info()
        assert len(info["sessions"]) == 2 and info["goalscope"] and "dirty" in info
        assert store.study() == small_study()
        assert {name for name, _ in store.agents().values()} == {"dice"}


def test_a_different_study_is_refused_by_its_difference(tmp_path: Path) -> None:
    run(small_study(), tmp_path)
    before = hash_of(tmp_path)
    with pytest.raises(ValueError, match="trajectories: 3 stored, 4 given"):
        run(small_study(trajectories=4), tmp_path)
    assert hash_of(tmp_path) == before


def test_an_agent_that_breaks_loses_nothing(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Breaking(Dice):
        answers: int = 10

        def act(self, observations: Sequence[Observation]) -> list[Turn]:
            if self.log is not None and len(requests(self.log)) >= self.answers:
                raise ConnectionError("no route")
            return super().act(observations)

    log, directory = tmp_path / "log", tmp_path / "run"
    with pytest.raises(ConnectionError, match="no route") as caught:
        run(small_study(), directory, agents=[Breaking(log=log)], workers=2, batch=3)
    assert "run the same study on the same directory to go on" in caught.value.__notes__[0]
    asked = len(requests(log))
    summary = run(small_study(), directory, agents=[Dice(log=log)])
    with Store(directory) as store:
        made = store.query("SELECT count(*) FROM calls WHERE state = 'done'")[0][0]
    assert len(set(requests(log))) == len(requests(log)) == made == asked + summary.calls
    run(small_study(), tmp_path / "whole", agents=[Dice()])
    assert hash_of(directory) == hash_of(tmp_path / "whole")


def test_an_interrupt_between_portions_keeps_what_is_under_way(tmp_path: Path) -> None:
    class Interrupting(Dice):
        def _turn(self, observation: Observation) -> Turn:
            turn = super()._turn(observation)
            if observation.step == 1:
                raise KeyboardInterrupt
            return turn

    log = tmp_path / "log"
    with pytest.raises(KeyboardInterrupt, match="0 of 6"):
        run(small_study(), tmp_path / "run", agents=[Interrupting(log=log, largest_batch=1)])
    assert len(requests(log)) == 7
    summary = run(small_study(), tmp_path / "run", agents=[Dice(log=log)])
    assert (summary.replayed, summary.lost) == (6, 1)
    assert len(requests(log)) == len(set(requests(log))) + 1


def test_a_changed_prompt_is_a_new_call(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Prompted(Dice):
        prefix: str = "one"

        def prompt(self, observation: Observation) -> str:
            return f"{self.prefix} {observation.grid.render()}"

    class Stopping(Prompted):
        def _turn(self, observation: Observation) -> Turn:
            if observation.step == 3:
                raise ConnectionError("stop")
            return super()._turn(observation)

    log = tmp_path / "log"
    with pytest.raises(ConnectionError):
        run(small_study(), tmp_path / "run", agents=[Stopping(log=log)])
    summary = run(small_study(), tmp_path / "run", agents=[Prompted(log=log, prefix="two")])
    assert summary.replayed == 0 and summary.calls == summary.steps


@pytest.mark.parametrize("answer", [[], [None], ["UP"]])
def test_an_agent_that_does_not_answer_is_refused(tmp_path: Path, answer: list[Any]) -> None:
    class Silent(Dice):
        def act(self, observations: Sequence[Observation]) -> list[Turn]:
            return answer

    with pytest.raises(ValueError, match=r"'dice' .*Turn .*asked 1, got"):
        run(small_study(), tmp_path, agents=[Silent()])


def test_agents_must_differ_and_be_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="agent"):
        run(small_study(), tmp_path, agents=[])
    with pytest.raises(ValueError, match="different names"):
        run(small_study(), tmp_path, agents=[Dice(), Dice(failing=0.1)])
    with pytest.raises(ValueError, match="workers"):
        run(small_study(), tmp_path, batch=0)
    assert not (tmp_path / "run.db").exists()


@dataclass(frozen=True)
class Named(Dice):
    tags: Mapping[str, Any] = field(default_factory=dict)


@pytest.mark.parametrize("agent", [Named(name="a\ud800"), Named(tags={"t": "\udfff"}), Named(tags={"\ud800": 1})])
def test_a_name_with_half_of_a_surrogate_pair_is_refused_before_anything_is_asked(tmp_path: Path, agent: Named) -> None:
    log = tmp_path / "log"
    with pytest.raises(ValueError, match="surrogate"):
        run(small_study(), tmp_path / "run", agents=[replace(agent, log=log)])
    assert not log.exists()


COSTS: dict[str, Any] = {
    "4000 digits": 10**3999,
    "infinite": float("inf"),
    "undefined": float("nan"),
    "yes": True,
    "text": "5",
}


@pytest.mark.parametrize("name", COSTS)
def test_a_turn_cannot_cost_what_is_no_number(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="usage 'tokens'"):
        Turn(action=Action.UP, usage={"tokens": COSTS[name]})
    with Store(tmp_path, "w") as store:
        with store.transaction() as database:
            database.execute(
                "INSERT INTO calls (id, agent_id, prompt, episode_id, step, attempt, state, sent, usage) "
                "VALUES ('c', 'a', 'p', 'e', 0, 0, 'done', 0, ?)",
                (json.dumps({"tokens": COSTS[name]}),),
            )
            tables.seal(database, "call", ["c"])
        with pytest.raises(ValueError, match=r"usage .*must be"):
            Journal(store).spent("a")


@pytest.mark.parametrize("inside", [False, True], ids=["behind the commit", "before the call is forgotten"])
def test_one_interrupt_at_a_commit_loses_nothing_and_asks_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: bool
) -> None:
    run(small_study(), tmp_path / "whole", agents=[Dice()])
    name = "_forget" if inside else "done"
    usual, commits = getattr(Journal, name), count(1)

    def interrupted(journal: Journal, entries: Any) -> Any:
        found = None if inside else usual(journal, entries)
        if next(commits) == 7:
            raise KeyboardInterrupt
        return usual(journal, entries) if inside else found

    monkeypatch.setattr(Journal, name, interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(small_study(), tmp_path / "run", agents=[Dice(log=tmp_path / "log")])
    with Store(tmp_path / "run") as store:
        assert store.query("SELECT count(*), sum(lost) FROM calls WHERE state = 'done'") == [(7, 0)]
    monkeypatch.undo()
    run(small_study(), tmp_path / "run", agents=[Dice(log=tmp_path / "log")])
    asked = (tmp_path / "log").read_text(encoding="utf-8").splitlines()
    assert len(asked) == len(set(asked))
    with Store(tmp_path / "run") as store, Store(tmp_path / "whole") as whole:
        assert content_hash(store) == content_hash(whole)


def test_a_number_too_long_to_be_written_is_no_cost() -> None:
    with pytest.raises(ValueError, match="16610"):
        Turn(action=Action.UP, usage={"tokens": 10**5000})


def test_versions_of_what_decides_numbers_are_stored_and_enter_no_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents = [Dice()]
    run(small_study(), tmp_path / "one", agents=agents)
    with Store(tmp_path / "one") as store:
        info, expected = store.info(), content_hash(store)
    for name in ("numpy", "scipy", "torch", "transformers", "tokenizers"):
        assert info[name] == metadata.version(name)
    monkeypatch.setattr("goalscope.runs.provenance.LIBRARIES", ("numpy", "no-such-library"))
    run(small_study(), tmp_path / "two", agents=agents)
    with Store(tmp_path / "two", "w") as store:
        assert "torch" not in store.info() and "no-such-library" not in store.info()
        assert content_hash(store) == expected
        for _ in range(2):
            note_libraries(store, "capture")
        assert store.info()["libraries of capture"] == [{"numpy": metadata.version("numpy")}]
        assert content_hash(store) == expected


@dataclass(frozen=True)
class Joining(Dice):
    """Answers at once, except for the first question, which waits until another episode has come to its third step."""

    joins: bool = True
    largest_batch: int = 256
    hands_out: bool = True
    third: threading.Event = field(default_factory=threading.Event, compare=False)
    calls: list[int] = field(default_factory=list, compare=False)

    def act(self, observations: Sequence[Observation], arrived: Any = lambda turns: None) -> list[Turn]:
        self.calls.append(len(observations))
        turns = [self._turn(observation) for observation in observations]
        waits = len(self.calls) == 1
        arrived(list(enumerate(turns))[waits:])
        if any(observation.step >= 2 for observation in observations):
            self.third.set()
        assert not waits or self.third.wait(60), "an episode waits for the answers of others"
        return turns


def test_an_episode_asks_on_while_others_wait_for_their_answers(tmp_path: Path) -> None:
    agent = Joining()
    run(small_study(), tmp_path / "joining", agents=[agent])
    run(small_study(), tmp_path / "plain", agents=[Dice()])
    assert agent.third.is_set() and len(agent.calls) > 2
    assert hash_of(tmp_path / "joining") == hash_of(tmp_path / "plain")
