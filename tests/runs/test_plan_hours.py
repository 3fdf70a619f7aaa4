"""How long a study is expected to take: as in a stored run, or as a local model was timed."""

import itertools
import sqlite3
import time
from pathlib import Path

import pytest
from run_agents import Dice, small_study
from tiny_models import gpt_oss, tokenizer

from goalscope.preflight import costs, measure_speed, stored_pace
from goalscope.runs import Store, Study, content_hash, run
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
    with sqlite3.connect(tmp_path / "jumping" / "run.db") as database:
        [(calls,)] = unsealed(database).execute("SELECT count(*) FROM calls").fetchall()
        database.execute(f"UPDATE calls SET sent = 2 * rowid, done = 2 * rowid + 2 + (rowid = 3) * {jump}")
        database.execute("UPDATE calls SET usage = json_object('seconds', 2)")
    (pace,) = stored_pace(tmp_path / "jumping", planned())
    assert pace.spent["seconds"].value * 6 == pytest.approx(2 * calls)


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
