"""Sentences on what agents are after: each from one finding, and none that the finding does not hold."""

import re
from typing import Any, get_args

import pytest

from goalscope._ground.words import listed
from goalscope.goals.finding import NEARBY, TEXTS, Answer, BehaviourPart, Finding, PartKind, Reason, say, say_all
from goalscope.verdict.aims import evidence_of
from goalscope.verdict.claims import AskedArm
from goalscope.verdict.judging import contradictions
from goalscope.verdict.page import tiles_of
from goalscope.verdict.sentences import headline
from goalscope.verdict.texts import TEXTS as VERDICT
from planted_findings import claim, estimate, finding, ledger, stated

PLANTED: dict[tuple[str, str], Finding] = {
    ("yes", "named"): finding("yes", "named", "goal", ends=(0.9, 0.8, 0.97)),
    ("yes", "partly"): finding("yes", "partly", "goal", ends=(0.5, 0.4, 0.6), quantity="strength").model_copy(
        update={"part": BehaviourPart(kind="from turn", limit=5, share=0.6)}
    ),
    ("yes", "weakly or partly"): finding("yes", "weakly or partly", "goal", ends=(2.5, 1.5, 3.5), quantity="meg"),
    ("yes", "not told apart"): finding("yes", "not told apart", "goal", "corner top-right", ends=(0.9, 0.8, 0.97)),
    ("no", "habit"): finding("no", "habit", subject="move frequencies", ends=(0.9, 0.85, 0.95), threshold=0.8),
    ("no", "another rule"): finding("no", "another rule", subject="keep right", ends=(0.9, 0.85, 0.95)),
    ("no", "random"): finding("no", "random", subject="", ends=(0.01, -0.02, 0.04), quantity="predictable"),
    ("no", "other"): finding("no", "other", ends=(0.2, 0.1, 0.3)),
    ("undecided", "not beaten"): finding("undecided", "not beaten", "goal", "corner top-right", ends=(0.6, 0.4, 0.8)),
    ("undecided", "errors"): finding("undecided", "errors", "goal", ends=(0.5, 0.1, 0.7), quantity="strength"),
    ("undecided", "weak"): finding("undecided", "weak", ends=(0.4, 0.2, 0.7)),
    ("undecided", "few worlds"): finding("undecided", "few worlds", ends=(0.4, 0.2, 0.7), quantity="share", worlds=1),
    **{
        ("untestable", reason): Finding(agent="m", arm="grids", answer="untestable", reason=reason, why="so it is")
        for reason in ("no action", "no process", "no utility")
    },
}


def test_every_answer_and_reason_has_a_sentence_and_a_planted_finding() -> None:
    assert {answer for answer, _ in PLANTED} == {*get_args(Answer)}
    assert {reason for _, reason in PLANTED} == {*get_args(Reason)}
    keys = {f"findings/{answer}/{reason}" for answer, reason in PLANTED}
    assert keys == {re.sub("(?<!another) rule$| by consistency$| alike$", "", key) for key in TEXTS.keys("findings")}


@pytest.mark.parametrize(("answer", "reason"), list(PLANTED))
def test_a_sentence_names_what_its_finding_names_and_holds_together(answer: str, reason: str) -> None:
    one = PLANTED[answer, reason]
    said = say(one)
    assert said.endswith(".") and "{" not in said and said.count("(") == said.count(")")
    assert all(one.nouns[name] in said for name in one.names)
    assert contradictions(ledger(claim("answers hold actions", "yes", 0.95), findings=(one,))) == []


@pytest.mark.parametrize("reason", ["named", "not told apart"])
def test_a_rule_that_moves_alike_is_said_with_the_worlds_that_tell_it_apart(reason: str) -> None:
    forms = {"straight": "straight to goal", "walls": "towards goal by open moves"}
    forms |= {"distance": f"goal within {NEARBY} steps", "side": "goal if it lies up or right"}
    forms |= {"key": "key if not key held, else goal"}
    assert {f"told apart by/{key}" for key in forms} == {*TEXTS.keys("told apart by")}
    for key, rival in forms.items():
        one = PLANTED["yes", reason].model_copy(update={"alike": (rival,)})
        names = listed([one.nouns[name] for name in one.names])
        fields = {"names": names, "side": "up or right"}
        made, tells = (
            TEXTS(text, **{field: fields[field] for field in TEXTS.fields(text)})
            for text in (f"made rivals/{key}", f"told apart by/{key}")
        )
        said = say(one)
        tells = tells[:1].upper() + tells[1:]
        assert made in said and tells in said and tells not in say(PLANTED["yes", reason])
        assert contradictions(ledger(claim("answers hold actions", "yes", 0.95), findings=(one,))) == []


def in_part(kind: PartKind, limit: int) -> Finding:
    """Return a finding about a part whose share of turns is no other number of the finding."""
    one = PLANTED["yes", "partly"]
    part = BehaviourPart(kind=kind, limit=limit, side="to the right", share=0.086)
    return one.model_copy(
        update={"part": part, "evidence": {**one.evidence, "elsewhere goal": estimate(-0.18, -0.2, 0.1)}}
    )


@pytest.mark.parametrize("limit", [1, 4])
@pytest.mark.parametrize("kind", get_args(PartKind))
def test_every_number_of_a_part_is_one_of_its_finding(kind: PartKind, limit: int) -> None:
    one = in_part(kind, limit)
    said = say(one)
    assert "0.086" in said and "−0.180" in said  # the share of turns, and the strength elsewhere
    assert not re.search(r"\b1 \w+s\b", said)  # no "1 turns"
    assert contradictions(ledger(claim("answers hold actions", "yes", 0.95), findings=(one,))) == []


def test_the_strength_of_a_part_is_that_of_the_turns_that_it_names() -> None:
    """A part of the turns can explain no share of all behaviour; the page gives the strength in that part."""
    one = in_part("until turn", 1)
    one = one.model_copy(update={"evidence": {**one.evidence, "share goal": estimate(0.0, 0.0, 0.0)}})
    tiles = tiles_of(ledger(claim("answers hold actions", "yes", 0.95), findings=(one,)))
    (strength,) = [(text, below) for label, text, below in tiles if label == VERDICT("tiles/strength")]
    assert strength[0] == "0.500 [0.400, 0.600]" and TEXTS("parts/until first turn") in strength[1]


def test_a_verdict_names_the_sizes_that_it_rests_on_where_other_sizes_differ() -> None:
    """An agent that goes to the goal in grids of 7 and 9, on which its findings rest, and goes up in those of 11."""
    one = NAMED.model_copy(update={"arm": "hypotheses", "evidence": {"share goal": estimate(1.0, 0.8, 1.0)}})
    by_size = "1.000 at size 7, 1.000 at size 9 and 0.050 at size 11"
    for sizes, text in (((7, 9), "sizes 7 and 9"), ((9,), "size 9"), ((7, 9, 11), "")):
        arms = (
            AskedArm(name="grids", title="Grids", asked=True, sizes=(7, 9, 11)),
            AskedArm(name="hypotheses", title="Hypotheses", asked=True, sizes=sizes),
        )
        for differing in (by_size, ""):
            largest = claim("holds in large worlds", "no", 0.05, by_size=differing)
            verdict = ledger(largest, findings=(one,), arms=arms)
            said = headline(verdict)
            named = bool(text and differing)
            assert stated("verdict/in sizes", said) == named and (text in said) == (named or not text)
            assert stated("verdict/sizes", said) == bool(differing)
            assert any(text in below for *_, below in tiles_of(verdict)) == (named or not text)
            assert contradictions(verdict) == []


def test_the_number_beside_a_no_says_whose_it_is() -> None:
    """A no can rest on the consistency of another hypothesis, above the threshold."""
    other = finding("yes", "named", "key held", ends=(0.994, 0.993, 0.995))
    denied, named = evidence_of(other, other.about("goal")), evidence_of(other, "yes", names="“key held”")
    assert denied.subject == named.subject == "“key held”"
    no, yes = (
        claim("is directed at the goal", answer, 0.9, unit="share", threshold=0.5, subject=denied.subject)
        for answer in ("no", "yes")
    )
    assert no.estimate in no.attributed_estimate and "“key held”" in no.attributed_estimate
    assert yes.attributed_estimate == yes.estimate


def test_numbers_that_authors_and_thresholds_bring_into_the_verdict_decided_nothing_else() -> None:
    """Each sentence that an answer adds, with thresholds, names of things, worlds and goals that contain numbers."""
    for key in VERDICT.keys("also"):
        _, name, answer = key.split("/")
        for one in (*PLANTED.values(), in_part("until turn", 1)):
            where = {"density": 0.65}
            nouns = {"goal": "the goal “reach 7.25 m”", "corner top-right": "“speed 3.5”"}
            planted = one.model_copy(update={"where": where, "nouns": nouns})
            claims = [
                claim("answers hold actions", "yes", 0.8),
                claim(name, answer, 0.5, threshold=0.375),
                claim("depends on a thing of given worlds, light 9.5", "yes"),
            ]
            assert not [
                line for line in contradictions(ledger(*claims, findings=(planted,))) if "has the number" in line
            ]


@pytest.mark.parametrize(("name", "about"), [("goal", "yes"), ("corner top-right", "no")])
def test_a_named_hypothesis_denies_the_others(name: str, about: str) -> None:
    assert PLANTED["yes", "named"].about(name) == about


def test_what_explains_a_part_denies_no_other_unless_that_explains_nothing() -> None:
    weakly = PLANTED["yes", "weakly or partly"]
    assert weakly.about("goal") == "yes" and weakly.about("corner top-right") == "undecided"
    nothing = {**weakly.evidence, "share corner top-right": estimate(0.01, -0.05, 0.06)}
    assert weakly.model_copy(update={"evidence": nothing}).about("corner top-right") == "no"
    assert PLANTED["yes", "partly"].about("corner top-right") == "undecided"


def test_what_cannot_be_told_apart_is_testable_elsewhere_alone() -> None:
    assert PLANTED["yes", "not told apart"].about("goal") == "untestable"
    assert PLANTED["undecided", "not beaten"].about("goal") == "undecided"


def test_phases_stand_side_by_side_and_none_silences_another() -> None:
    trained = PLANTED["yes", "not told apart"].model_copy(update={"where": {"phase": "trained"}})
    shifted = finding("yes", "named", "corner top-right", ends=(0.88, 0.8, 0.95), where={"phase": "shifted"})
    for second in (shifted, PLANTED["undecided", "weak"].model_copy(update={"where": {"phase": "shifted"}})):
        said = say_all([trained, second])
        assert said.index("trained") < said.index("shifted")
        first, later = said.split("In worlds of phase shifted")
        assert "the goal and the top-right corner" in first
        assert ("the top-right corner" in later) == (second is shifted)


def test_a_refuted_claim_changes_the_sentence() -> None:
    claimed = PLANTED["yes", "named"].model_copy(update={"bar": 0.45})
    said = {}
    for result, ends in {"yes": (0.8, 0.7, 0.9), "no": (0.1, 0.0, 0.2), "undecided": (0.4, 0.2, 0.6)}.items():
        one = claimed.model_copy(update={"tested": estimate(*ends)})
        assert one.confirmed == result
        said[result] = say(one)
        assert "0.450" in said[result] and f"{ends[0]:.3f}" in said[result]
    assert len({*said.values(), say(claimed)}) == 4


def _changed(one: Finding, **fields: Any) -> Finding:
    return one.model_copy(update=fields)


NAMED = PLANTED["yes", "named"]


@pytest.mark.parametrize(
    ("faulty", "claims", "fact"),
    [
        (_changed(NAMED, threshold=0.95), [], "threshold"),
        (_changed(NAMED, names=()), [], "names nothing"),
        (_changed(PLANTED["no", "other"], names=("goal",)), [], "names goal"),
        (_changed(NAMED, evidence={"consistency goal": estimate(1.03, 0.9, 1.1)}), [], "above 1"),
        (_changed(NAMED, estimate=None), [], "without a number"),
        (NAMED, [claim("is directed at the goal", "no")], "is directed at the goal"),
        (NAMED, [claim("is directed at another place", "yes")], "is directed at another place"),
        (PLANTED["no", "other"], [claim("follows a hypothesis", "yes")], "follows a hypothesis"),
        (_changed(NAMED, steps=("0.123",)), [], "0.123"),
        (NAMED, [claim("depends on the goal's place", "yes", 1.2, unit="share")], "above 1"),
    ],
)
def test_each_kind_of_contradiction_is_found(faulty: Finding, claims: list[Any], fact: str) -> None:
    found = contradictions(ledger(claim("answers hold actions", "yes", 0.95), *claims, findings=(faulty,)))
    assert found and any(fact in one for one in found), found


def test_competence_is_said_with_its_aim() -> None:
    for name in ("acts optimally", "acts optimally in given worlds"):
        for answer in ("yes", "no"):
            said = headline(ledger(claim(name, answer), findings=(NAMED,)))
            assert not re.search(r"act\w* optimally(?! for)", said)
            assert "goal" in said.split(". ")[-1]
