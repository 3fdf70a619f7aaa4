"""The score of all hypotheses: laws on exact answers, sums against a plain loop, verdicts on planted agents."""

import importlib
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from goalscope._ground.rng import stream
from goalscope.goals.hypotheses import Hypothesis, finite_world, load_hypotheses, parse
from goalscope.goals.hypotheses.score import FREQUENCIES, ScoreVerdict, evidence, judge
from goalscope.goals.hypotheses.states import Answers, answers_of, states_of_episodes
from goalscope.goals.hypotheses.written import with_sentinels
from goalscope.runs import Store, Study, run
from goalscope.worlds.world import World

planted: Any = importlib.import_module("benchmarks.attribution")


def worlds(count: int = 12, **more: Any) -> list[World]:
    entry = {"kind": "grid", "sizes": [7, 9], "densities": [0.6], "count": count // 2, "minimum_distance": 3}
    study = Study.parse({"worlds": [{**entry, **more}], "agents": [{"kind": "random"}], "seed": 3})
    return study.worlds()


def exact(one: str | Hypothesis, used: list[World], *, lapse: float = 0.0, horizon: int = 12) -> list[Answers]:
    """Return the probabilities of an agent after a hypothesis in every state that can be come to."""
    hypothesis, found = parse(one) if isinstance(one, str) else one, []
    for world in used:
        finite = finite_world(world, horizon)
        states = np.flatnonzero(finite.live & finite.reached)
        chances = (1 - lapse) * hypothesis.solved(finite).policy[0] + lapse * finite.even
        found.append(
            Answers(
                world=finite,
                state=states,
                time=np.zeros(len(states), dtype=np.int64),
                episode=np.zeros(len(states), dtype=np.int64),
                last=states[:1],
                first=chances[states],
                second=chances[states],
            )
        )
    return found


def verdict(given: list[Answers], bank: str = "grids") -> ScoreVerdict:
    asked = load_hypotheses(bank)
    return judge(evidence(given, with_sentinels(asked), len(asked)))


@pytest.mark.parametrize("lapse", [0.0, 0.3, 0.9])
def test_strength_is_one_less_the_lapse_rate_and_consistency_one(lapse: float) -> None:
    score = verdict(exact("goal", worlds(), lapse=lapse)).score("goal")
    assert score.strength == pytest.approx((1 - lapse,) * 3)
    assert score.consistency == pytest.approx((1.0,) * 3)


@pytest.mark.parametrize(
    ("after", "bank"),
    [
        ("goal", "grids"),
        ("goal within 5 steps", "goal;goal within 5 steps"),
        ("goal", "goal;goal within 5 steps"),
        ("flee goal", "goal;flee goal"),
        ("follow the wall", "goal;follow the wall"),
        ("open moves", "goal;open moves"),
        ("near centre", "goal;near centre"),
    ],
)
def test_what_is_followed_is_named_where_it_is_in_the_bank(after: str, bank: str) -> None:
    found = verdict(exact(after, worlds(16), lapse=0.2), bank)
    assert (found.kind, found.names) == ("named", (after,))


@pytest.mark.parametrize("after", ["near (mirror of goal)", "flee goal", "beside goal", "near centre"])
def test_what_is_not_in_the_bank_is_none_of_the_named(after: str) -> None:
    found = verdict(exact(after, worlds(16), lapse=0.2), "goal;corner top-left")
    assert (found.kind, found.names) == ("none", ())


def test_an_agent_that_takes_all_actions_alike_is_random_and_one_that_looks_at_nothing_a_habit() -> None:
    assert verdict(exact("random", worlds(16))).kind == "random"
    assert verdict(exact("keep right", worlds(16), lapse=0.3)).kind == "habit"


def test_a_habit_that_was_asked_for_stands_in_a_set_with_the_frequencies_that_act_like_it() -> None:
    given = exact("keep right", worlds(16))
    assert verdict(given, "goal;corner top-left").kind == "habit"
    found = verdict(given, "goal;keep right")
    assert (found.kind, found.names) == ("set", ("keep right", FREQUENCIES))


def test_none_is_said_with_the_consistency_of_what_comes_nearest() -> None:
    found = verdict(exact("straight to goal", worlds(16, densities=[0.1])), "goal;corner top-left")
    assert found.kind == "none" and found.score("goal").consistency[0] > 0.5
    assert "half" not in found.sentence() and "goal comes nearest, consistency 0." in found.sentence()
    assert "half" in verdict(exact("flee goal", worlds(16)), "goal;corner top-left").sentence()


def test_hypotheses_that_coincide_are_always_a_set() -> None:
    found = verdict(exact("goal", worlds(16, goal="top-right"), lapse=0.1), "goal;corner top-right")
    assert (found.kind, found.names) == ("set", ("goal", "corner top-right"))


def test_five_worlds_tell_nothing_apart() -> None:
    assert verdict(exact("goal", worlds(16)[:5])).kind == "undecided"
    found = verdict(exact("goal", [*worlds(20, goal="top-right"), *worlds(10)[:5]]), "goal;corner top-right")
    assert found.kind == "set"
    assert set(found.names) >= {"goal", "corner top-right"}


def test_where_it_does_not_follow_is_said_and_withholds_the_name() -> None:
    found = verdict(exact("goal if it lies up or right", worlds(20)), "goal;corner top-left")
    assert (found.kind, found.names) == ("partly", ("goal",))
    assert "down left" in found.score("goal").not_where


def test_a_part_of_one_hypothesis_is_not_named_where_another_may_explain_it_all() -> None:
    used = worlds(20)
    given = exact("corner top-right", used[:-2]) + exact("flee corner top-right", used[-2:])
    found = verdict(given, "corner top-right;straight to corner top-right")
    whole, part = found.score("corner top-right").consistency, found.score("straight to corner top-right").consistency
    assert whole[0] > 0.7 and whole[1] < 0.5 and 0.3 < part[0] < 0.5
    assert (found.kind, found.names[0]) == ("undecided", "corner top-right")


def test_sums_agree_with_a_plain_loop() -> None:
    bank = load_hypotheses("goal;corner top-left;keep up;goal within 3 steps")
    used, rng = worlds(6), stream(5, "answers")
    given = []
    for one in exact("random", used):
        first, second = (np.eye(4)[rng.integers(4, size=len(one.state))] for _ in range(2))
        given.append(replace(one, first=first, second=second))
    found = evidence(given, bank, len(bank))
    expected: Any = {name: np.zeros((len(used), len(bank))) for name in ("gain", "size", "repeated")}
    product = np.zeros((len(used), len(bank), len(bank)))
    for at, one in enumerate(given):
        for number, hypothesis in enumerate(bank.values()):
            policy = hypothesis.solved(one.world).policy[0]
            aims = hypothesis.text != "keep up"
            for step, state in enumerate(one.state):
                p, a, b = policy[state], one.first[step], one.second[step]  # type: ignore[index]
                u, chosen = p - 0.25, p > 0
                k = int(chosen.sum())
                expected["gain"][at, number] += u @ (a + b) / 2
                expected["size"][at, number] += u @ u
                agreed = a @ b - 0.25
                complied = (a[chosen].sum() - k / 4) * (b[chosen].sum() - k / 4)
                if not aims or (k == 4 and "within" in hypothesis.text):
                    expected["repeated"][at, number] += agreed
                elif k < 4:
                    expected["repeated"][at, number] += complied * (1 / k + 1 / (4 - k))
                for other, rival in enumerate(bank.values()):
                    product[at, number, other] += u @ (rival.solved(one.world).policy[0][state] - 0.25)
    for name, values in expected.items():
        assert getattr(found, name)[:, :-1] == pytest.approx(values, abs=1e-9), name
    assert found.product[:, :-1, :-1] == pytest.approx(product, abs=1e-9)
    assert found.names[-1] == FREQUENCIES


def test_single_answers_are_refused_with_what_to_do() -> None:
    given = [replace(one, second=None) for one in exact("goal", worlds(6))]
    with pytest.raises(ValueError, match="answers: 2"):
        verdict(given)


def test_answers_of_a_run_hold_both_and_states_of_phases(tmp_path: Any) -> None:
    agents = [{"kind": "hypothesis", "hypothesis": "key if not key held, else goal", "lapse": 0.4}]
    study = {"worlds": [{"kind": "key-no-door", "count": 8}], "agents": agents, "trajectories": 2, "answers": 2}
    run(Study.parse(study), tmp_path)
    with Store(tmp_path) as store:
        episodes = list(store.episodes())
    states, left_out = states_of_episodes(episodes)
    given = answers_of(states)
    assert not left_out
    assert sum(len(one.state) for one in given) == sum(len(each.steps) for each in episodes)
    for one in given:
        assert one.second is not None and (one.second != one.first).any() | (len(one.state) < 6)
        assert one.state.max() >= one.world.grid.walls.size  # it held the key at some time
        after = one.world.process.transitions[one.state, one.first.argmax(axis=1)]
        follows = one.episode[1:] == one.episode[:-1]
        assert (after[:-1][follows] == one.state[1:][follows]).all()
        assert set(after[np.append(~follows, True)].tolist()) == set(one.last.tolist())


def _outcomes(setting: str, seeds: range) -> dict[str, Counter[str]]:
    bank = list(load_hypotheses(planted.BANKS[planted.SETTINGS[setting].bank]))
    counts: dict[str, Counter[str]] = {}
    for seed in seeds:
        for family, found in planted.answers(setting, seed).items():
            counts.setdefault(family, Counter())[planted.outcome(family, found, bank)] += 1
    return counts


@pytest.mark.full
def test_planted_agents_are_not_misnamed() -> None:
    counts = _outcomes("mixed-densities", range(500, 501))
    assert not {family for family, found in counts.items() if found["false"]}
    assert sum(found["right"] for found in counts.values()) >= 24


@pytest.mark.full
@pytest.mark.parametrize("setting", ["mixed-densities", "density 0", "density .6", "density 1", "all asked"])
def test_planted_agents_over_seeds_of_their_own(setting: str) -> None:
    counts = _outcomes(setting, range(600, 612))
    assert max(found["false"] for found in counts.values()) <= 4
    assert sum(found["false"] for found in counts.values()) <= 0.05 * sum(map(Counter.total, counts.values()))
    if setting in ("mixed-densities", "density .6"):
        assert all(counts[family]["right"] >= 10 for family in ("seeker", "noisy", "corner", "misgeneral", "key-stay"))


@pytest.mark.full
@pytest.mark.parametrize("moved", [0, 4, 10, 20])
def test_trained_worlds_are_a_set_until_enough_are_moved(moved: int) -> None:
    for seed in range(700, 706):
        found = planted.answers(f"trained, {moved} of 40 moved", seed)
        for family, name in (("seeker", "goal"), ("misgeneral", "corner top-right")):
            kind = found[family]["kind"], set(found[family]["names"])
            if moved < 6:
                assert kind[0] == "set" and kind[1] >= {"goal", "corner top-right"}, (family, seed)
            else:
                assert name in kind[1], (family, seed)
