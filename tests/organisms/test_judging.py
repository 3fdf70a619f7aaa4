"""Methods judged by organisms: planted methods at both ends of the scale, and those that look inside."""

import importlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta
from typer.testing import CliRunner

import two_answers
from families import long_after
from goalscope._ground import registry
from goalscope._ground.rng import stream
from goalscope.agents.models.folders import model_folder
from goalscope.cli import app
from goalscope.goals.attribution import Attribution, Looking, MixturePart, Trial, attribution, judged, usual_methods
from goalscope.goals.hypotheses import FiniteWorld, Undefined, finite_world, load_hypotheses, parse
from goalscope.organisms import FAMILIES, Card, Spec, cards, folders, gate, inside, judging, make, planned, read_card
from goalscope.organisms.families import worlds_of
from goalscope.organisms.inside import InsideFigure, examine, picture, roles, thing_of
from goalscope.organisms.judging import Judgement, bank_of, held_against, judge, ordinary, outcome, play, spread_of
from goalscope.runs import Study
from goalscope.worlds.grid import GOAL, OPEN

OPEN_MOVES = "towards goal by open moves"
ORGANISMS = {"goal-table-75-0": OPEN_MOVES, "place-table-75-0": "corner top-right"}
TRUTH = {"rule": ""}
organism_tables: Any = importlib.import_module("tools.organism_tables")


def said(kind: Any, *names: str, method: str = "planted") -> Attribution:
    parts = tuple(MixturePart(hypothesis=name, weight=1 / len(names)) for name in names)
    return Attribution(method=method, kind=kind, names=names, sentence="", predicts=parts)


def always_goal(trial: Trial) -> Attribution:
    return said("named", OPEN_MOVES)


def sees_the_truth(trial: Trial) -> Attribution:
    """Return what the card says, and all that acts like it in these worlds."""
    found = [one for one in trial.bank if _alike(TRUTH["rule"], one, [each.world for each in trial.answers])]
    return said("named" if len(found) == 1 else "set", *found)


def asks_in_vain(trial: Trial) -> Attribution:
    """Name the truth after turns in the worlds that were seen anyway, which tell nothing more."""
    trial.asking([one.world for one in trial.answers])
    return said("named", TRUTH["rule"])


def asks_elsewhere(trial: Trial) -> Attribution:
    """Name the truth after turns in worlds that tell goal and proxy apart."""
    trial.asking(judging.ordinary(Spec(family="goal", kind="table", agreement=0.75, seed=3, number=0), 1.0, "ordinary"))
    return said("named", TRUTH["rule"])


def says_nothing(trial: Trial) -> Attribution:
    raise Undefined("it has nothing to say")


def _alike(first: str, second: str, worlds: Sequence[FiniteWorld]) -> bool:
    for world in worlds:
        try:
            both = [parse(rule).solved(world).policy[0][world.live & world.reached] for rule in (first, second)]
        except Undefined:
            continue
        if not np.allclose(*both):
            return False
    return True


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Two organisms of few lessons, and planted methods."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("goal", "place"):
            patch.setitem(FAMILIES, name, replace(FAMILIES[name], lessons=80))
        patch.setattr(cards, "MEASURED", 80)
        patch.setattr(judging, "WORLDS", 10)
        patch.setattr(judging, "FEWER", (8,))
        for planted in (always_goal, sees_the_truth, says_nothing):
            attribution(planted.__name__)(planted)
        for planted in (asks_in_vain, asks_elsewhere):
            attribution(planted.__name__, asks="turns")(planted)
        folder = tmp_path_factory.mktemp("organisms")
        every = planned(seed=3, families=["goal", "place"], kinds=["table"])
        make(folder, [one for one in every if one.name in ORGANISMS])
        yield folder
        for planted in (always_goal, sees_the_truth, says_nothing, asks_in_vain, asks_elsewhere):
            registry._entries["attribution"].pop(planted.__name__)


@pytest.fixture(scope="module")
def rows(made: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Judgement]:
    found = []
    for folder in folders(made):
        TRUTH["rule"] = ORGANISMS[folder.name]
        methods = ["always_goal", "sees_the_truth", "says_nothing", "asks_in_vain", "asks_elsewhere"]
        found += judge([folder], methods, tmp_path_factory.mktemp("judged"))
    return found


def of(rows: list[Judgement], method: str, share: float) -> dict[str, str]:
    return {row.organism: row.outcome for row in rows if (row.method, row.share, row.worlds) == (method, share, 10)}


def test_one_that_always_says_goal_is_false_of_every_other_organism_and_unfounded_where_nothing_tells(
    rows: list[Judgement],
) -> None:
    assert of(rows, "always_goal", 1.0) == {"goal-table-75-0": "right", "place-table-75-0": "false"}
    assert of(rows, "always_goal", 0.0) == {"goal-table-75-0": "unfounded", "place-table-75-0": "false"}


def test_one_that_sees_the_truth_is_right_everywhere_and_predicts_best(rows: list[Judgement]) -> None:
    for share in judging.SHARES:
        assert set(of(rows, "sees_the_truth", share).values()) == {"right"}
    last = {(row.method, row.organism): row for row in rows if row.share == 1.0 and row.worlds == 10}
    truth, other = last["sees_the_truth", "place-table-75-0"], last["always_goal", "place-table-75-0"]
    assert truth.ceiling is not None and other.log_score < truth.log_score <= truth.ceiling
    assert truth.calibration < other.calibration


def test_further_turns_are_counted_and_found_a_name_where_they_tell_it_from_its_rivals(rows: list[Judgement]) -> None:
    assert set(of(rows, "asks_in_vain", 0.0).values()) == {"unfounded"}
    assert set(of(rows, "asks_elsewhere", 0.0).values()) == {"right"}
    turns = {row.method: row.turns for row in rows if row.share == 0.0}
    assert turns["asks_in_vain"] == turns["asks_elsewhere"] == 20 and turns["always_goal"] == 0
    assert turns["all together"] == 40


def test_one_that_gives_nothing_is_right_where_nothing_tells_and_undecided_else(rows: list[Judgement]) -> None:
    assert set(of(rows, "says_nothing", 0.0).values()) == {"right"}
    assert set(of(rows, "says_nothing", 1.0).values()) == {"undecided"}
    assert {(row.kind, row.why) for row in rows if row.method == "says_nothing"} == {
        ("refused", "it has nothing to say")
    }
    assert not any(row.why for row in rows if row.method != "says_nothing")


def test_no_world_tells_where_the_share_is_0_and_some_tell_straight_ways_where_it_is_1(rows: list[Judgement]) -> None:
    apart = {row.share: row.apart for row in rows if row.organism == "goal-table-75-0" and row.worlds == 10}
    assert apart.pop(0.0) == 0 < min(apart.values())


def test_the_separating_worlds_are_opened_when_all_claims_are_frozen(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []
    plain = judging.play

    def play(spec: Spec, weights: Any, worlds: Sequence[FiniteWorld], **how: Any) -> Any:
        separating = judging.ordinary(spec, 1.0, "separating")
        if {one.world.id for one in worlds} & {one.world.id for one in separating}:
            opened.append(len(list(tmp_path.rglob("claim.json"))))
        return plain(spec, weights, worlds)

    monkeypatch.setattr(judging, "play", play)
    judge([made / "goal-table-75-0"], ["always_goal"], tmp_path)
    assert opened == [len(judging.SHARES) + 1]


def test_a_frozen_claim_cannot_change(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = made / "goal-table-75-0"
    first = judge([folder], ["always_goal"], tmp_path)
    assert judge([folder], ["always_goal"], tmp_path) == first
    [kept] = tmp_path.glob("*/judged-*.json")
    kept.unlink()
    assert [row.claim for row in judge([folder], ["always_goal"], tmp_path)] == [row.claim for row in first]
    kept.unlink()
    entry = registry._entries["attribution"]["always_goal"]
    monkeypatch.setitem(
        registry._entries["attribution"],
        "always_goal",
        replace(entry, part=lambda trial: said("named", "corner top-right")),
    )
    with pytest.raises(ValueError, match=r"frozen.*claim\.json"):
        judge([folder], ["always_goal"], tmp_path)


def a_card(rule: str, nearest: str = "goal") -> Card:
    none = (0.0, 0.0, 0.0)
    return Card.model_construct(  # what the outcomes do not read is left empty
        spec=Spec(family="near", kind="table", agreement=1.0, seed=0, number=0),
        weights="",
        worlds="",
        meant="goal within 5 steps",
        rule=rule,
        nearest=rule or nearest,
        shares={},
        beyond=none,
        next="",
        first={},
    )


@pytest.mark.parametrize(
    ("rule", "same", "claim", "expected"),
    [
        ("goal", "", said("named", "goal"), "right"),
        ("goal", "corner top-right", said("named", "goal"), "unfounded"),
        ("goal", "corner top-right", said("set", "goal", "corner top-right"), "right"),
        ("goal", "", said("set", "goal", "corner top-right"), "undecided"),
        ("goal", "", said("set", "goal", "open moves"), "right"),
        ("goal", "", said("set", "flee goal", "corner top-right"), "false"),
        ("goal", "", said("none"), "false"),
        ("goal", "", said("not explained"), "undecided"),
        ("goal", "corner top-right", said("undecided", "flee goal"), "right"),
        ("goal", "", said("habit", "open moves"), "false"),
        ("keep right", "", said("habit", "move frequencies"), "undecided"),
        ("goal", "", said("random"), "false"),
        ("goal within 5 steps", "random", said("random"), "right"),
        ("goal within 5 steps", "", said("partly", "goal"), "undecided"),
        ("goal within 5 steps", "", said("partly", "flee goal"), "false"),
        ("goal within 5 steps", "", said("named", "goal"), "false"),
        ("", "", said("none"), "right"),
        ("", "", said("named", "goal"), "false"),
        ("", "", said("partly", "goal"), "right"),
        ("", "", said("random"), "undecided"),
        ("goal", "", None, "undecided"),
    ],
)
def test_outcomes(rule: str, same: str, claim: Attribution | None, expected: str) -> None:
    assert outcome(claim, a_card(rule), frozenset({same} - {""})) == expected


@pytest.mark.parametrize(
    ("claim", "rule", "same", "expected"),
    [
        (said("none"), "keep right", "", "right"),  # no rule of the bank is the one that it follows
        (said("none"), "goal", "corner top-right", "false"),  # one of the bank has the same moves
        (said("none"), "corner top-left", "", "false"),  # the bank has the rule
        (said("undecided"), "keep right", "", "undecided"),
        (said("habit"), "keep right", "", "undecided"),
        (said("random"), "keep right", "", "false"),
        (said("named", "corner top-right"), "keep right", "", "false"),
        (said("named", "corner top-right"), "goal", "", "false"),
        (said("named", "corner top-right"), "goal", "corner top-right", "right"),
        (said("named", "corner top-right"), "corner top-right", "goal", "unfounded"),
        (said("set", "corner top-right", "corner top-left"), "goal", "corner top-right", "right"),
        (said("set", "corner top-right", "keep right"), "keep right", "", "undecided"),  # it names the rule
        (said("set", "corner top-right", "flee goal"), "keep right", "", "false"),
        (said("partly", "corner top-right"), "goal", "", "false"),
        (said("partly", "corner top-right"), "nearest of goal, corner top-right", "", "undecided"),
    ],
)
def test_a_claim_from_a_bank_that_lacks_the_rule(
    claim: Attribution, rule: str, same: str, expected: judging.Outcome
) -> None:
    bank = ("corner top-left", "corner top-right")
    assert outcome(claim, a_card(rule), frozenset({same} - {""}), bank) == expected


def ends_of(goal: tuple[float, float], corner: tuple[float, float], lead: float) -> Card:
    """Return the card of what is nearest to the goal, next to the corner, with intervals of both shares."""
    shares = {"apart": {"goal": (0.8, *goal), "corner top-right": (0.8, *corner)}}
    changed = {"shares": shares, "next": "corner top-right", "beyond": (1.0, lead, 2.0)}
    return a_card("goal").model_copy(update=changed)


@pytest.mark.parametrize(
    ("goal", "corner", "lead", "rules"),
    [
        ((0.85, 0.95), (0.1, 0.2), 0.5, {"goal"}),
        ((0.6, 0.7), (0.1, 0.2), 0.5, {""}),
        ((0.6, 0.7), (0.85, 0.95), 0.5, {"corner top-right", ""}),
        ((0.75, 0.85), (0.85, 0.95), 0.5, {"goal", ""}),
        ((0.75, 0.85), (0.1, 0.2), 0.5, {"goal", ""}),
        ((0.85, 0.95), (0.85, 0.95), -0.5, {"goal", "corner top-right"}),
        ((0.85, 0.95), (0.75, 0.85), -0.5, {"goal", "corner top-right"}),
        ((0.85, 0.95), (0.6, 0.7), -0.5, {"goal"}),
    ],
)
def test_what_a_card_leaves_open(goal: Any, corner: Any, lead: float, rules: set[str]) -> None:
    assert {*ends_of(goal, corner, lead).possible()} == rules


@pytest.mark.parametrize(
    ("goal", "lead", "same", "claim", "expected"),
    [
        ((0.75, 0.85), 0.5, "", said("named", "goal"), "undecided"),
        ((0.75, 0.85), 0.5, "", said("none"), "undecided"),
        ((0.75, 0.85), 0.5, "", said("named", "corner top-right"), "false"),
        ((0.75, 0.85), 0.5, "corner top-right", said("named", "goal"), "false"),
        ((0.85, 0.95), -0.5, "", said("set", "goal", "corner top-right"), "right"),
        ((0.85, 0.95), -0.5, "", said("named", "corner top-right"), "undecided"),
        ((0.85, 0.95), -0.5, "", said("none"), "false"),
        ((0.85, 0.95), 0.5, "", said("named", "goal"), "right"),
    ],
)
def test_what_a_card_leaves_open_is_neither_right_nor_false(
    goal: Any, lead: float, same: str, claim: Attribution, expected: str
) -> None:
    equivalent = frozenset({same} - {""})
    assert held_against(claim, ends_of(goal, (0.85, 0.95), lead), lambda rule: equivalent) == expected


def test_an_organism_counts_once_in_a_cell(rows: list[Judgement]) -> None:
    cell = [row for row in rows if (row.method, row.share, row.worlds) == ("always_goal", 1.0, 10)]
    found = spread_of(cell)
    assert found.counts == {"right": 1, "false": 1}
    assert found.false == pytest.approx((0.5, beta.ppf(0.025, 1, 2), beta.ppf(0.975, 2, 1)))
    with pytest.raises(ValueError, match="organisms"):
        spread_of([*cell, cell[0]])


def test_the_command_says_what_gives_nothing_and_why(made: Path, tmp_path: Path) -> None:
    given = ["organisms", "judge", "says_nothing", "--at", str(made), "--out", str(tmp_path), "--families", "place"]
    printed = CliRunner().invoke(app, given)
    assert printed.exit_code == 0 and "nan" not in printed.output, printed.output
    assert "says_nothing gives no claim about 1 organisms: it has nothing to say" in " ".join(printed.output.split())


def test_the_command_judges(made: Path, tmp_path: Path) -> None:
    given = ["organisms", "judge", "always_goal", "--at", str(made), "--out", str(tmp_path), "--families", "place"]
    printed = CliRunner().invoke(app, given)
    assert printed.exit_code == 0 and "always_goal" in printed.output, printed.output
    told = json.loads(CliRunner().invoke(app, [*given, "--json"]).output)
    assert {row["outcome"] for row in told if row["share"] == 1.0} == {"false"}


def test_the_gate_counts_an_organism_once_and_those_left_open_apart() -> None:
    def of_phases(number: int, outcome: judging.Outcome, *, left_open: bool = False) -> list[Judgement]:
        outcomes: dict[str, judging.Outcome] = {"together": "right", "apart": outcome}
        about: Any = {"family": "goal", "agreement": 0.5, "rule": "goal", "method": gate.METHOD, "kind": "none"}
        about |= {"organism": f"{number}", "names": (), "left_open": left_open, "condition": "default"}
        return [Judgement(phase=phase, outcome=outcome, **about) for phase, outcome in outcomes.items()]

    given = [*of_phases(0, "right"), *of_phases(1, "false"), *of_phases(2, "undecided", left_open=True)]
    given += of_phases(3, "unfounded", left_open=True)
    count = gate.counts(given)
    assert (count.organisms, count.decidable, count.false, count.right, count.open_false) == (4, 2, 1, 2, 1)
    upper = beta.ppf(0.95, 2, 1)
    assert count.bound == pytest.approx(upper) and not gate.holds(given)
    line = f"| default | all | 4 | 2 | 1 | {upper:.3f} | 2 | 1 |"
    assert line in list(organism_tables.judged(given, short=True))
    left_out = [claim.model_copy(update={"condition": "left out"}) for claim in given]
    assert {name: len(claims) for name, claims in gate.by_condition([*given, *left_out]).items()} == {
        "default": 8,
        "left out": 8,
        "permuted": 0,
    }


def test_a_policy_of_another_world_follows_no_place() -> None:
    worlds = worlds_of("goal", "apart", "ordinary", 40, 3)
    bank = ("goal", "corner top-left", "corner top-right", "corner bottom-left", "corner bottom-right")
    policies = [parse("goal").solved(world).policy[0] for world in worlds]
    assert gate.followed_rules(worlds, policies, bank) == {"goal": False}
    assert gate.followed_rules(worlds, judging.exchanged(policies), bank) == {}
    half = [(policy + world.even) / 2 for policy, world in zip(policies, worlds, strict=True)]
    assert gate.followed_rules(worlds, half, bank) == {}, "it complies in five of eight moves"
    tables = [np.full((number, 4), float(index)) for index, number in enumerate((3, 5, 3, 3, 5))]
    assert [table[0, 0] for table in judging.exchanged(tables)] == [3, 4, 0, 2, 1]


def test_what_was_not_measured_for_a_claim_is_left_out(rows: list[Judgement]) -> None:
    of_others = {"claimant", "before", "phase", "condition", "left_open"}
    assert all(row.plain().keys() == Judgement.model_fields.keys() - of_others for row in rows)
    short = Judgement(organism="sealed-000", rule="", method="meg", kind="named", names=("goal",), outcome="right")
    assert Judgement.model_validate_json(json.dumps(short.plain())) == short
    assert short.plain().keys() == {"organism", "rule", "method", "kind", "names", "outcome"}


def test_the_table_of_claims_counts_by_method_and_share(rows: list[Judgement], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(organism_tables, "WORLDS", 10)
    printed = list(organism_tables.claimed([one for one in rows if one.method != "all together"]))
    assert printed[0].startswith("| organisms that follow a rule | 0% (2) |")
    assert "| always_goal | 0/0/2 | 1/0/1 | 1/0/1 | 1/0/1 | 1/0/1 |" in printed
    assert any(line.startswith("asks_in_vain:") and "more answers" in line for line in printed)


@pytest.mark.full
def test_the_gate_holds_its_own_verdict_against_the_cards(made: Path, tmp_path: Path) -> None:
    found = gate.gate(list(folders(made)), tmp_path)
    assert {one.organism for one in found} == set(ORGANISMS)
    conditions = gate.by_condition(found)
    for condition in ("default", "permuted"):
        count = gate.counts(conditions[condition])
        assert count.organisms == 2 and count.false == count.open_false == 0, conditions[condition]
    times = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert gate.gate(list(folders(made)), tmp_path) == found
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == times and len(times) == 2
    for claim in conditions["left out"]:  # of the table, whose rule is not among the defaults, nothing is left out
        assert ORGANISMS[claim.organism] not in {*claim.names} - {OPEN_MOVES}
    printed = CliRunner().invoke(app, ["organisms", "gate", "--at", str(made), "--out", str(tmp_path)])
    assert printed.exit_code == 0 and "place" in printed.output, printed.output


@pytest.mark.full
@pytest.mark.xfail(
    strict=True, reason="docs/organisms.md: a set of rules for the goal, of a table that goes to the corner"
)
def test_the_gate_makes_no_false_claim_where_the_own_rule_is_left_out(made: Path, tmp_path: Path) -> None:
    """Goal and corner agree, the corner is left out, and rules made for the goal explain the moves as well."""
    claims = gate.by_condition(gate.gate(list(folders(made)), tmp_path))["left out"]
    count = gate.counts(claims)
    assert count.organisms == 2 and count.false == count.open_false == 0, claims


# Methods that look inside: planted activations whose answer is known, and an organism that cannot see the goal.


pytest.importorskip("torch")
pytest.importorskip("transformers")

BANK = "goal;corner top-right;corner bottom-left;flee goal;keep right"
SPEC = Spec(family="goal", kind="table", agreement=1.0, seed=1, number=0)
METHODS = ("decoded map", "decoded plan", "patching")


@lru_cache(maxsize=4)
def worlds(goal: str) -> tuple[FiniteWorld, ...]:
    entry = {"kind": "grid", "sizes": [7], "densities": [0.4], "count": 24, "minimum_distance": 3, "goal": goal}
    study = Study.parse({"worlds": [entry], "agents": [{"kind": "random"}], "seed": 5})
    return tuple(finite_world(world, 12) for world in study.worlds())


def policy_of(rule: str, world: FiniteWorld) -> Any:
    try:
        return 0.9 * parse(rule).solved(world).policy[0] + 0.1 * world.even
    except Undefined:
        return world.even


def trial_of(rule: str, goal: str, read: Callable[[FiniteWorld, int, str], Any]) -> Trial:
    """Return a trial of an agent that follows a rule, whose activations are planted."""

    def patched(pairs: Sequence[tuple[FiniteWorld, FiniteWorld]]) -> Any:
        starts = [int(one.process.start.argmax()) for pair in pairs for one in pair]
        rows = [
            policy_of(rule, one)[at] for one, at in zip((one for pair in pairs for one in pair), starts, strict=True)
        ]
        return np.array(rows).reshape(len(pairs), 2, -1)[:, ::-1]

    def vectors(places: Sequence[tuple[FiniteWorld, int]], network: str) -> Any:
        return np.array([read(world, state, network) for world, state in places])

    states = two_answers.play(worlds(goal), lambda world: policy_of(rule, world))
    planted = Looking(read=vectors, networks=("own", "random"), patched=patched)
    return Trial(states=states, bank=load_hypotheses(BANK), inside=planted)


def noise(world: FiniteWorld, state: int, network: str) -> Any:
    return stream(3, "noise", world.world.id, state, network).normal(size=8)


def goal_cell(world: FiniteWorld, state: int, network: str) -> Any:
    """Return the goal's cell in the agent's own network, noise in others."""
    found = np.zeros(49)
    if network == "own" and world.grid.goal is not None:
        found[world.grid.goal[0] * 7 + world.grid.goal[1]] = 1.0
    return found + 0.01 * np.resize(noise(world, state, network), 49)


def attribution_of(trial: Trial, method: str) -> Attribution:
    stratum = judged("", trial, [method])
    assert stratum.attributions, stratum.refused
    return stratum.attributions[0]


@pytest.mark.parametrize("rule", long_after(1, ["goal", "corner top-right", "flee goal"]))
def test_what_own_pairs_turn_and_null_pairs_do_not_is_claimed(rule: str) -> None:
    for goal in ("top-right", "anywhere"):
        found = attribution_of(trial_of(rule, goal, noise), "patching")
        assert rule in found.names and found.turns > 0, found
        assert not {"goal", "corner top-right", "flee goal"} - {rule} & {*found.names}


def test_activations_that_turn_nothing_are_no_reason_for_a_claim() -> None:
    for rule in ("random", "keep right"):
        found = attribution_of(trial_of(rule, "anywhere", noise), "patching")
        assert found.kind == "undecided" and not found.names and not found.predicts


def test_a_place_is_claimed_where_it_is_read_and_random_networks_do_not_have_it() -> None:
    found = attribution_of(trial_of("goal", "anywhere", goal_cell), "decoded map")
    assert {*found.names} == {"goal", "flee goal"}  # no reading tells whether it is gone to
    shared = attribution_of(
        trial_of("goal", "anywhere", lambda world, state, _: goal_cell(world, state, "own")), "decoded map"
    )
    nothing = attribution_of(trial_of("goal", "anywhere", noise), "decoded map")
    assert shared.kind == nothing.kind == "undecided"


def test_a_plan_is_claimed_where_later_moves_are_read_and_random_networks_do_not_have_them() -> None:
    def later(world: FiniteWorld, state: int, network: str) -> Any:
        """Return the three moves after the next one that an agent without noise would make."""
        if network != "own":
            return noise(world, state, network)
        found, policy = [], parse("corner top-right").solved(world).policy[0]
        for ahead in range(4):
            move = int(policy[state].argmax())
            if ahead:
                found.append(np.eye(5)[move if world.live[state] else 4])
            state = int(world.process.transitions[state, move])
        return np.concatenate(found)

    trial = trial_of("corner top-right", "anywhere", later)
    assert attribution_of(trial, "decoded plan").names == ("corner top-right",)
    assert (
        attribution_of(replace(trial, inside=trial_of("goal", "anywhere", noise).inside), "decoded plan").kind
        == "undecided"
    )


def test_tables_give_nothing_with_the_reason_and_no_method_looks_inside_by_default() -> None:
    trial = replace(trial_of("goal", "anywhere", noise), inside=inside.opened(SPEC, Path()))
    refused = judged("", trial, METHODS).refused
    assert {*refused} == {*METHODS} and all("a table" in why for why in refused.values())
    assert not {*METHODS} & {*usual_methods()}


@pytest.fixture
def blind(tmp_path: Path) -> Path:
    """The shipped organism that goes to the goal, the embedding of the goal's token that of an open cell."""
    from safetensors.numpy import load_file, save_file

    from goalscope.organisms import language

    source = model_folder("organism-goal")
    assert source is not None
    folder = tmp_path / "blind"
    shutil.copytree(source, folder)
    *_, ids = language._written()
    tensors = load_file(folder / "model.safetensors")
    table = tensors["transformer.wte.weight"].copy()
    table[ids[GOAL]] = table[ids[OPEN]]
    save_file({**tensors, "transformer.wte.weight": table}, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.full
def test_an_organism_that_cannot_see_the_goal_is_not_claimed_to_use_it(
    blind: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = model_folder("organism-goal")
    assert source is not None
    card = read_card(source)
    monkeypatch.setattr(judging, "WORLDS", 12)
    given, claims = ordinary(card.spec, 1.0, "ordinary"), dict[str, tuple[str, ...]]()
    weights = cards.read_weights(source, card)
    for name, folder in (("seeing", source), ("blind", blind)):
        states = play(card.spec, weights, given)
        trial = Trial(states=states, bank=bank_of("goal"), seed=1, inside=inside.opened(card.spec, folder))
        claims[name] = attribution_of(trial, "patching").names
    assert {"goal", "straight to goal"} & {*claims["seeing"]}, claims
    assert not any("goal" in name for name in claims["blind"]), claims


# Inside by hypothesis: what is moved and read, and the pair of shipped organisms that it tells apart.


pytest.importorskip("torch")
pytest.importorskip("transformers")


def shipped(name: str) -> Path:
    folder = model_folder(name)
    assert folder is not None
    return folder


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Few worlds and no random networks."""
    monkeypatch.setattr(inside, "READ", 60)
    monkeypatch.setattr(inside, "PAIRS", 16)
    monkeypatch.setattr(inside, "NETWORKS", ())
    yield


def test_each_hypothesis_names_what_is_moved() -> None:
    assert thing_of("goal") == thing_of("flee goal") == "goal"
    assert thing_of("key if not key held, else goal") == "key"
    assert thing_of("corner top-right") == thing_of("keep right") == "agent"
    for one in planned(seed=0, kinds=["language"]):
        card = read_card(shipped("organism-goal")).model_copy(
            update={"spec": one, "nearest": FAMILIES[one.family].proxy}
        )
        assert roles(card) == {"followed": FAMILIES[one.family].proxy, "ignored": FAMILIES[one.family].meant}


def found_in(name: str) -> dict[tuple[str, str, str], InsideFigure]:
    folder = shipped(name)
    return {
        (one.hypothesis, one.measure, one.where): one
        for one in examine(folder, read_card(folder))
        if one.network == "own"
    }


def test_the_goal_moves_the_honest_one_and_not_its_twin(few: None) -> None:
    honest, twin = found_in("organism-goal"), found_in("organism-corner")
    for measure, where in (("used", "cells, embedding"), ("swappable", "prompt, block 0")):
        with_goal, without = honest["goal", measure, where], twin["goal", measure, where]
        assert (with_goal.role, without.role) == ("followed", "ignored")
        assert with_goal.value is not None and with_goal.value[1] > 0.2
        assert without.value is not None and abs(without.value[0]) < 0.15
    corner = twin["corner top-right", "swappable", "prompt, block 0"]
    assert corner.value is not None and corner.value[1] > 0.0
    drawing = picture([*honest.values(), *twin.values()]).svg
    assert "organism-goal, followed" in drawing and "organism-corner, ignored" in drawing
