"""How long a study is expected to take: as in a stored run, or as a local model was timed."""

import sqlite3
from pathlib import Path

import pytest
from run_agents import Dice, small_study
from tiny_models import gpt_oss, tokenizer

from goalscope.preflight import costs, measure_speed, stored_pace
from goalscope.runs import Study, run
from tampered import unsealed

CHAT = {"kind": "chat", "model": "theseus", "max_tokens": 8}


def planned(**more: object) -> Study:
    return small_study(agents=[{**CHAT, **more}])


def test_a_stored_run_says_what_an_episode_takes_by_the_clock_on_the_wall(tmp_path: Path) -> None:
    run(small_study(horizon={"steps": 4}), tmp_path, agents=[Dice(name="theseus", failing=0.0)])
    with sqlite3.connect(tmp_path / "run.db") as database:
        [(calls,)] = unsealed(database).execute("SELECT count(*) FROM calls").fetchall()
        # Two calls are under way at any time, of two seconds each.
        database.execute("UPDATE calls SET sent = rowid / 2 * 2, done = rowid / 2 * 2 + 2")
        database.execute("UPDATE calls SET usage = json_object('seconds', 2, 'prompt_tokens', 30, 'output_tokens', 5)")
    (pace,) = stored_pace(tmp_path, planned())
    assert (pace.agent, pace.exact, pace.episodes) == ("theseus", False, 6)
    assert pace.spent["calls"].value * 6 == pytest.approx(calls) and pace.spent["calls"].all_clusters == 2
    assert pace.spent["prompt_tokens"].value == pytest.approx(30 * pace.spent["calls"].value)
    assert pace.spent["seconds"].value * 6 == pytest.approx(calls, abs=2), "two at a time, of two seconds"
    with sqlite3.connect(tmp_path / "run.db") as database:
        database.execute("UPDATE calls SET usage = json_object('seconds', 2, 'tokens_at_most', 40)")
    (pace,) = stored_pace(tmp_path, planned())
    assert set(pace.spent) == {"calls", "seconds"}, "a server that tells no tokens"
    assert stored_pace(tmp_path, planned(name="another")) == []


def test_hours_follow_from_the_speed_that_was_measured(tmp_path: Path) -> None:
    gpt_oss().save_pretrained(tmp_path / "model")
    tokenizer().save_pretrained(tmp_path / "model")
    (tmp_path / "task.txt").write_text("{{grid}}\nGo: ", encoding="utf-8")
    told = list[tuple[int, int]]()
    study = planned(model=str(tmp_path / "model"), task=str(tmp_path / "task.txt"))
    ticks = iter(range(10_000))
    (speed,) = measure_speed(study, lambda done, total: told.append((done, total)), clock=lambda: float(next(ticks)))
    # By this clock reading takes a second, and so does writing with it: nothing is added by a token.
    assert speed.reading == (0.5,) * 3 and speed.writing == (0.0,) * 3 and (speed.prompts, speed.tokens) == (2, 8)
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]
    (cost,) = costs(study)
    assert (cost.turns, cost.written) == (2 * 3 * 8, 8)
    assert speed.seconds(cost) == (24.0, 24.0, 24.0)
