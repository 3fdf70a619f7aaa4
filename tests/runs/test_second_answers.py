"""``answers: 2``: each step with an action is answered once more, journaled, paid for, and never asked again."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from run_agents import Dice

from goalscope.runs import Store, Study, content_hash, run
from goalscope.runs.record import SECOND
from goalscope.verdict.preflight.cost import costs

WORLDS = [{"kind": "grid", "sizes": [5], "densities": [0.2], "count": 4}]


def study(**more: Any) -> Study:
    entry = {"worlds": WORLDS, "agents": [{"kind": "epsilon-greedy", "epsilon": 0.5}], "trajectories": 2, "seed": 7}
    return Study.parse({**entry, **more})


def test_one_answer_is_the_same_study_as_before() -> None:
    plain, named = study(), study(answers=1)
    assert "answers" not in plain.dump()
    assert plain.id == named.id
    assert [spec.id for spec, *_ in plain.specs()] == [spec.id for spec, *_ in named.specs()]
    assert {spec.rules for spec, *_ in study(answers=2).specs()} == {'{"answers":2}'}
    with pytest.raises(ValueError, match="answers"):
        study(answers=3)


def test_the_first_answers_are_what_happens_and_the_second_are_independent(tmp_path: Path) -> None:
    steps = []
    run(study(answers=2, trajectories=40), tmp_path)
    with Store(tmp_path) as store:
        for episode in store.episodes():
            assert all(SECOND in step.extra for step in episode.steps)
            steps += [(int(step.action), step.extra[SECOND]) for step in episode.steps]
    agreed = sum(first == second for first, second in steps) / len(steps)
    assert 0.3 < agreed < 0.6  # (5/8)^2 + 3 (1/8)^2 = .44 where one action is optimal, .29 where two are


def test_answers_that_cost_something_are_journaled_and_not_asked_again(tmp_path: Path) -> None:
    log, asked = tmp_path / "log", study(answers=2)
    agent = Dice(log=log, failing=0.3)
    for _ in range(2):
        run(asked, tmp_path / "run", agents=[agent])
    lines = Counter(log.read_text().split("\n"))
    assert max(lines.values()) == 1
    with Store(tmp_path / "run") as store:
        episodes = list(store.episodes())
        counted = [attempt for (attempt,) in store.query("SELECT attempt FROM calls")]
    with_action = sum(step.action is not None for episode in episodes for step in episode.steps)
    assert sum(attempt > 1000 for attempt in counted) == with_action
    assert {step.extra[SECOND] is None for each in episodes for step in each.steps if SECOND in step.extra} == {
        True,
        False,
    }
    assert all((SECOND in step.extra) == (step.action is not None) for each in episodes for step in each.steps)


def test_an_interrupted_run_goes_on_between_both_answers_of_a_step(tmp_path: Path) -> None:
    class Stopped(Dice):
        def act(self, observations: Any) -> Any:
            if any(one.attempt > 1000 and one.step == 2 for one in observations) and not (tmp_path / "again").exists():
                raise RuntimeError("the server is gone")
            return super().act(observations)

    asked = study(answers=2)
    with pytest.raises(RuntimeError, match="gone"):
        run(asked, tmp_path / "run", agents=[Stopped(failing=0.0, log=tmp_path / "log")])
    (tmp_path / "again").touch()
    run(asked, tmp_path / "run", agents=[Stopped(failing=0.0, log=tmp_path / "log")])
    run(asked, tmp_path / "whole", agents=[Dice(failing=0.0)])
    with Store(tmp_path / "run") as left, Store(tmp_path / "whole") as right:
        assert content_hash(left) == content_hash(right)
    assert max(Counter((tmp_path / "log").read_text().split("\n")).values()) == 1


def test_costs_count_both_answers_and_retries_of_the_first() -> None:
    (once,), (twice,) = costs(study()), costs(study(answers=2))
    assert twice.calls == 2 * once.calls


def test_hypotheses_of_a_study_are_twins_beside_its_agents() -> None:
    written = study(hypotheses=["goal", {"is": "corner top-right", "name": "to the corner", "lapse": 0.1}])
    assert [agent.name for agent in written.agents()] == ["epsilon-greedy(0.5)", "hypothesis(goal)", "to the corner"]
    assert Study.parse(written.dump()).id == written.id
    assert len(Study.parse({"worlds": WORLDS, "hypotheses": ["goal"]}).agents()) == 1
    for wrong in ("goal", [{"name": "goal"}], [3]):
        with pytest.raises(ValueError, match="hypotheses"):
            study(hypotheses=wrong)
    with pytest.raises(ValueError, match="'towards nothing'"):
        study(hypotheses=["towards nothing"]).agents()
