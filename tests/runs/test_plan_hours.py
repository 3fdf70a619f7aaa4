"""How long a study is expected to take: as in a stored run, or as a local model was timed."""

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from run_agents import Dice, small_study
from tiny_models import gpt_oss, tokenizer

from families import long_after
from goalscope._ground.rng import spread
from goalscope.agents import ChatAgent, Observation, Turn
from goalscope.runs import Store, Study, content_hash, run
from goalscope.verdict.preflight.first_turns import FEWEST, FirstTurns, Limits, ask_first_turns, found, most_turns
from goalscope.verdict.preflight.forecast import forecast, stored_pace
from tampered import tampered

CHAT = {"kind": "chat", "model": "theseus", "max_tokens": 8}


def planned(**more: object) -> Study:
    return small_study(agents=[{**CHAT, **more}])


def test_a_stored_run_says_what_an_episode_takes_by_the_clock_on_the_wall(tmp_path: Path) -> None:
    run(small_study(horizon={"steps": 4}), tmp_path, agents=[Dice(name="theseus", failing=0.0)])
    with tampered(tmp_path / "run.db") as database:
        [(calls,)] = database.execute("SELECT count(*) FROM calls").fetchall()
        # Two calls are under way at any time, of two seconds each.
        database.execute("UPDATE calls SET sent = rowid / 2 * 2, done = rowid / 2 * 2 + 2")
        database.execute("UPDATE calls SET usage = json_object('seconds', 2, 'prompt_tokens', 30, 'output_tokens', 5)")
    (pace,) = stored_pace(tmp_path, planned())
    assert (pace.agent, pace.exact, pace.episodes) == ("theseus", False, 6)
    assert pace.spent["calls"].value * 6 == pytest.approx(calls) and pace.spent["calls"].all_clusters == 2
    assert pace.spent["prompt_tokens"].value == pytest.approx(30 * pace.spent["calls"].value)
    assert pace.spent["seconds"].value * 6 == pytest.approx(calls, abs=2), "two at a time, of two seconds"
    with tampered(tmp_path / "run.db") as database:
        database.execute("UPDATE calls SET usage = json_object('seconds', 2, 'tokens_at_most', 40)")
    (pace,) = stored_pace(tmp_path, planned())
    assert set(pace.spent) == {"calls", "seconds"}, "a server that tells no tokens"
    assert stored_pace(tmp_path, planned(name="another")) == []


@pytest.mark.parametrize("jump", [-31_536_000, 31_536_000])
def test_a_clock_that_is_set_anew_moves_neither_a_run_nor_what_it_is_expected_to_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: int
) -> None:
    agent = Dice(name="theseus", failing=0.0)
    run(small_study(horizon={"steps": 4}), tmp_path / "steady", agents=[agent])
    now = itertools.count(2e9, jump)
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: next(now))
        run(small_study(horizon={"steps": 4}), tmp_path / "jumping", agents=[agent])
    with Store(tmp_path / "steady") as steady, Store(tmp_path / "jumping") as jumping:
        assert content_hash(steady) == content_hash(jumping)
    # Without the seconds of each call only the clock could tell; with them one of a year's length counts as it was.
    assert stored_pace(tmp_path / "jumping", planned())
    with tampered(tmp_path / "jumping" / "run.db") as database:
        [(calls,)] = database.execute("SELECT count(*) FROM calls").fetchall()
        database.execute(f"UPDATE calls SET sent = 2 * rowid, done = 2 * rowid + 2 + (rowid = 3) * {jump}")
        database.execute("UPDATE calls SET usage = json_object('seconds', 2)")
    (pace,) = stored_pace(tmp_path / "jumping", planned())
    assert pace.spent["seconds"].value * 6 == pytest.approx(2 * calls)


@dataclass
class Clock:
    """Time that passes with what a model is asked, in place of the machine's."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


USAGE = {"prompt_tokens": 50.0, "output_tokens": 5.0}


def timed(
    monkeypatch: pytest.MonkeyPatch, fixed: float, another: float, action: int | None = 0
) -> tuple[Clock, list[int]]:
    """Let each round of a chat agent take so many seconds, and so many for each observation; count the observations."""
    clock, asked = Clock(), list[int]()
    said = Turn(action=action, failure=None if action is not None else "no JSON", text="Up we go", usage=USAGE)

    def act(self: ChatAgent, observations: Sequence[Observation]) -> list[Turn]:
        asked.append(len(observations))
        clock.now += fixed + another * len(observations)
        return [said] * len(observations)

    monkeypatch.setattr(ChatAgent, "act", act)
    return clock, asked


def tiny(folder: Path, **more: Any) -> Study:
    """A study of a tiny model, 120 episodes of 8 turns at most."""
    gpt_oss().save_pretrained(folder / "model")
    tokenizer().save_pretrained(folder / "model")
    (folder / "task.txt").write_text("{{grid}}\nGo: ", encoding="utf-8")
    agent = {**CHAT, "model": str(folder / "model"), "task": str(folder / "task.txt")}
    return small_study(agents=[agent], trajectories=60, **more)


def first(study: Study, directory: Path, clock: Clock, limits: Limits = Limits()) -> FirstTurns:  # noqa: B008
    [agent], [entry] = study.agents(), study.agents_
    return ask_first_turns(study, agent, entry.parameters, directory, limits, clock=clock)


def test_first_turns_are_asked_within_their_limit_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study, (clock, asked) = tiny(tmp_path), timed(monkeypatch, 2.0, 0.5)
    told = first(study, tmp_path / "run", clock, Limits(seconds=8.0))
    assert asked == [1, 2, 3, 1] and [portion.seconds for portion in told.portions] == [2.5, 3.0, 3.5, 2.5]
    assert told.asked == 7 and told.invalid == 0 and told.usage == {name: 7 * each for name, each in USAGE.items()}
    assert first(study, tmp_path / "run", clock) == told and asked == [1, 2, 3, 1], "kept, not measured again"
    done = run(study, tmp_path / "run")
    assert done.replayed == 7 and sum(asked) == 7 + done.calls, "no answer is asked for again"


@pytest.mark.parametrize(
    ("limit", "count"), long_after(1, [({"tokens": 400.0}, 7), ({"usd": 1.0}, 127), ({"tokens": 10.0}, 1)], names=2)
)
def test_a_limit_of_tokens_binds_and_one_answer_is_asked_for_in_any_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: dict[str, float], count: int
) -> None:
    study, (clock, _) = tiny(tmp_path), timed(monkeypatch, 0.1, 0.0)
    assert first(study, tmp_path / "run", clock, Limits(usage=limit)).asked == min(count, 120)


@pytest.mark.parametrize("action", long_after(1, [None, 0]))
def test_hours_follow_from_what_a_round_takes_however_many_are_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: int | None
) -> None:
    study, (clock, _) = tiny(tmp_path), timed(monkeypatch, 2.0, 0.5, action)
    [agent], [entry] = study.agents(), study.agents_
    told = first(study, tmp_path / "run", clock)
    expected = forecast(study, agent, entry.parameters, told)
    before = clock.now
    done = run(study, tmp_path / "run")
    took = clock.now - before + sum(portion.seconds for portion in told.portions)
    assert expected.turns[0] <= done.steps <= expected.turns[2] == study.size().steps
    assert 1 / 1.5 < expected.seconds[1] / took < 1.5 and expected.seconds[0] < took < expected.seconds[2]
    assert expected.tokens[1] == pytest.approx(55 * expected.turns[1])
    assert expected.memory[1] > expected.memory[0] > 0


def test_a_slow_answer_is_measured_by_itself_unless_it_holds_no_action(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, (clock, asked) = tiny(tmp_path), timed(monkeypatch, 140.0, 0.0)
    told = first(study, tmp_path / "one", clock)
    assert asked == [1] and any("a single answer takes that long" in line for line in found("one", told, Limits()))
    clock, asked = timed(monkeypatch, 40.0, 0.0, None)
    told = first(study, tmp_path / "two", clock)
    assert asked == [1, 1] and told.example == "Up we go", "100 s while none holds an action"
    assert not told.unusable, "two answers say too little"
    clock, asked = timed(monkeypatch, 15.0, 0.0, None)
    assert first(study, tmp_path / "three", clock).unusable and sum(asked) == FEWEST


def test_what_an_agent_does_only_once_is_not_extrapolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study, (clock, asked) = tiny(tmp_path), timed(monkeypatch, 0.2, 0.05)
    [agent], [entry] = study.agents(), study.agents_
    act = ChatAgent.act

    def set_up_first(self: ChatAgent, observations: Sequence[Observation]) -> list[Turn]:
        clock.now += 0.0 if asked else 60.0
        return act(self, observations)

    monkeypatch.setattr(ChatAgent, "act", set_up_first)
    slow = first(study, tmp_path / "slow", clock)
    assert slow.portions[0].seconds > 60 and len(slow.portions) > 2
    begun = slow.model_copy(update={"portions": slow.portions[:2], "asked": 3})
    for told in (slow, begun):
        seconds = forecast(study, agent, entry.parameters, told).seconds
        assert seconds[1] < 150, "960 turns of a tenth of a second at most, and not fifteen rounds of a minute"
    monkeypatch.setattr(ChatAgent, "largest_batch", 1, raising=False)
    alone = forecast(study, agent, entry.parameters, begun)
    assert alone.seconds[1] < alone.turns[1], "one after the other, a fraction of a second each"


def test_nothing_is_measured_of_a_study_that_is_hardly_longer_than_the_measurement() -> None:
    assert most_turns(small_study(horizon={"steps": 1})) == 0
    assert most_turns(small_study(trajectories=60)) == 96 and most_turns(small_study(trajectories=600)) == 127


def test_the_first_few_of_a_spread_lie_far_apart() -> None:
    order = list(spread(range(54)))
    assert sorted(order) == list(range(54)) and order[0] == 27
    assert sorted(index // 18 for index in order[:3]) == [0, 1, 2]
