"""Claims about the inside: planted codes and nulls come out, by the strictest control and the level of the look."""

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from killed_evaluations import quiet
from scipy.stats import binom
from server import Loopback

from goalscope._ground.checks import check_whole
from goalscope._ground.registry import resolve
from goalscope._ground.rng import stream
from goalscope.agents.models import LocalModel
from goalscope.inside.probing import CLASSES
from goalscope.inside.probing.suite import SEEN
from goalscope.report import RivalsSentence
from goalscope.report.sections import cognitive_map
from goalscope.runs import Store, content_hash
from goalscope.runs.repair import damage
from goalscope.stats import Estimate
from goalscope.stats.rows import Rows, constant
from goalscope.verdict import Claim, judging, subject_of
from goalscope.verdict import evidence_inside as inside
from goalscope.verdict.arms import arms
from goalscope.verdict.evidence import ArmData, ArmRun, Evidence
from goalscope.verdict.plan import prepare
from goalscope.verdict.playing import play
from goalscope.verdict.rules import answer_of, decide, level
from goalscope.verdict.texts import TEXTS

AGENT = "model"
GRIDS = [f"grid {at}" for at in range(48)]
MOVED = ["agent", "goal"] * 24
"""What is moved in the pair of each grid."""


def data_of(*, probed: Rows | None = None, changed: Rows | None = None, look: int = 1) -> ArmData:
    """Return what rules see of a model whose rows about its inside are given."""
    none = Rows.from_rows([])
    notes = {"inside": {"cognitive-map": {"training grids": 210}}}
    run = ArmRun(
        store=cast(Any, SimpleNamespace(info=lambda: notes)),
        rows=none,
        probed=none if probed is None else probed,
        changed=none if changed is None else changed,
        confidence=1 - level(look),
    )
    return ArmData(run=run, agent=AGENT, rows=none)


def beyond(data: ArmData, what: str) -> Evidence:
    return inside.beyond_networks(inside.map_read(data, what), data)


def claimed(name: str, data: ArmData) -> Claim:
    (claim,) = decide(resolve("claim", name), data)
    return claim


def rows_of(measure: str, value: Any, **tags: Any) -> Rows:
    values = np.broadcast_to(np.asarray(value, dtype=float), (len(GRIDS),))
    return Rows.from_columns(measure=measure, unit="share", value=values, cluster=GRIDS, tags={"agent": AGENT, **tags})


def patched(cells: float, before: float, *, everything: float = 1.0, noise: float = 0.0, wrong: float = 0.0) -> Rows:
    """Rows of a study of patching: the share of grids in which the action follows, in order of the grids."""

    def follows(share: float, **tags: Any) -> Rows:
        value = np.arange(len(GRIDS)) < share * len(GRIDS)
        common: dict[str, Any] = {
            "reading": "free",
            "pairs": "counterfactual",
            "component": "residual",
            "structural": None,
        }
        common["moved"] = MOVED
        return rows_of("action follows the source", value, intervention="patching", **{**common, **tags})

    parts = []
    for patch, level_ in (("source", None), ("isotropic", noise), ("covariance", noise), ("wrong", wrong)):
        for site, layers, layer, own in (
            ("grid", "all", None, everything),
            ("grid", "2", 2, cells),
            ("grid", "4", 4, 0.0),
            ("pre", "all", None, before),
            ("pre", "2", 2, 1.0),
        ):
            share = own if level_ is None else level_
            parts.append(follows(share, site=site, layers=layers, layer=layer, patch=patch))
    parts.append(follows(1.0, site="grid", layers="7", layer=0, patch="source", structural=True))
    return Rows.concatenate(parts)


@pytest.mark.parametrize(
    ("shares", "cells", "before"),
    [
        ({"cells": 1.0, "before": 0.0}, "yes", "no"),
        ({"cells": 0.0, "before": 1.0}, "no", "yes"),
        ({"cells": 0.25, "before": 0.25}, "undecided", "undecided"),
        ({"cells": 1.0, "before": 1.0, "noise": 1.0}, "no", "no"),
        ({"cells": 1.0, "before": 1.0, "wrong": 1.0}, "no", "no"),
        ({"cells": 1.0, "before": 0.0, "everything": 0.2}, "untestable", "untestable"),
    ],
)
def test_a_patch_is_used_where_the_action_follows_it_beyond_every_control(
    shares: dict[str, float], cells: str, before: str
) -> None:
    data = data_of(changed=patched(**shares))
    assert claimed("uses what the cells hold", data).answer == cells
    assert claimed("uses what it holds before it reasons", data).answer == before


@pytest.mark.parametrize("followed", ["agent", "goal"])
def test_what_holds_with_one_thing_moved_alone_is_not_said(followed: str) -> None:
    """Pooled, the action follows in half of the pairs, which is more than a fifth."""
    rows = patched(1.0, 1.0)
    site = rows.among("site", ["grid"]) & (rows["layers"] == "2") & (rows["patch"] == "source")
    value = np.where(site & (rows["moved"] != followed), 0.0, rows.value)
    tags = dict(rows.tags)
    half = Rows.from_columns(measure=rows.measure.tolist(), unit="share", value=value, cluster=rows.cluster, tags=tags)
    found = claimed("uses what the cells hold", data_of(changed=half))
    assert found.answer == "undecided" and f"{followed} moved: yes" in found.quantity and ": no" in found.quantity
    by_thing = [len(inside.patch_by_grid(data_of(changed=half), "grid", thing)) for thing in ("agent", "goal")]
    assert by_thing == [24, 24]


@pytest.mark.parametrize("there", ["agent", "goal"])
def test_without_pairs_of_one_thing_nothing_is_said_of_both(there: str) -> None:
    for name, rows in (("uses what the cells hold", patched(1.0, 1.0)), ("follows its written plan", edited(1.0))):
        found = claimed(name, data_of(changed=rows.where(rows.among("moved", [there]))))
        assert found.answer == "untestable"


def test_a_map_is_said_with_the_grids_that_it_was_read_from() -> None:
    rows = read(0.8, 0.6)
    sized = rows.tagged({"size": constant(9, len(rows))})
    found = claimed("holds a map of the walls", data_of(probed=sized))
    assert found.answer == "yes" and "fitted on 210 grids of sizes 9" in found.quantity


def test_without_patches_or_noise_beside_them_nothing_is_said() -> None:
    assert claimed("uses what the cells hold", data_of()).answer == "untestable"
    rows = patched(1.0, 1.0)
    alone = rows.where(~rows.among("patch", ["isotropic"]))
    assert claimed("uses what the cells hold", data_of(changed=alone)).answer == "untestable"


def edited(follows: float, *, own: float = 0.0, paraphrase: float = 0.0) -> Rows:
    """Rows of edits of the reasoning: shares of grids whose action is optimal in the other grid after each edit."""
    tags = {"intervention": "reasoning-edits", "pairs": "counterfactual", "moved": MOVED}
    return Rows.concatenate(
        rows_of(measure, np.arange(len(GRIDS)) < share * len(GRIDS), edit=edit, **tags)
        for edit, measure, share in (
            ("plan", "action follows the edit", follows),
            ("own", "action optimal in the other grid", own),
            ("paraphrase", "action optimal in the other grid", paraphrase),
        )
    )


@pytest.mark.parametrize(
    ("rows", "answer"),
    [
        (edited(1.0), "yes"),
        (edited(0.0), "no"),
        (edited(1.0, own=1.0), "no"),
        (edited(1.0, paraphrase=1.0), "no"),
        (edited(0.25), "undecided"),
        (edited(1.0).where(edited(1.0)["edit"] != "plan"), "untestable"),
    ],
)
def test_an_answer_follows_the_edited_plan_beyond_edits_that_say_the_same(rows: Rows, answer: str) -> None:
    assert claimed("follows its written plan", data_of(changed=rows)).answer == answer


KINDS = ("permuted", "initial", "default-init")


def read(own: float, networks: float, *, walls_seen: float | None = None) -> Rows:
    """Rows of the map at three layers: areas of the per-cell probe near one value, of random networks near another."""
    rng, parts = stream(1, "read"), []
    for layer in (2, 4, 7):
        for control, draw, value in (
            ("none", None, own),
            *((kind, seed, networks) for kind in KINDS for seed in range(5)),
        ):
            for name in CLASSES[:3]:
                tags = {"head": "percell", "control": control, "draw": draw, "site": "pre", "layer": layer}
                tags |= {"scope": "general", "reading": "natural", "class": name}
                noisy = np.clip(value + 0.05 * rng.standard_normal(len(GRIDS)), 0, 1)
                parts.append(rows_of("area under the curve", noisy, **tags))
                if walls_seen is not None:
                    there = walls_seen if control == "none" else networks
                    noisy = np.clip(there + 0.05 * rng.standard_normal(len(GRIDS)), 0, 1)
                    parts.append(rows_of("area under the curve", noisy, cells=SEEN, **tags))
    return Rows.concatenate(parts)


def test_what_is_readable_is_what_the_report_says_and_stricter_at_a_later_look() -> None:
    rows = read(0.8, 0.6)
    found = {look: beyond(data_of(probed=rows, look=look), "wall").estimate for look in (1, 2, 3)}
    widths = [one.high - one.low for one in found.values() if one is not None]
    assert len(widths) == 3 and widths == sorted(widths)
    assert [one.confidence for one in found.values() if one is not None] == pytest.approx([0.96, 0.992, 0.9984])
    data = ArmData(run=ArmRun(**{**_fields(data_of(probed=rows).run), "confidence": 0.95}), agent=AGENT, rows=rows)
    mine = beyond(data, "wall")
    [said] = [
        sentence
        for section in cognitive_map.declared(rows)
        for sentence in section.sentences
        if isinstance(sentence, RivalsSentence) and sentence.title == "per-cell linear: made more readable by training"
    ]
    theirs = dict(said.differences)["walls"]
    decisive = min((one for one in theirs.values() if one is not None), key=lambda one: one.low)
    assert mine.side == "yes" and mine.estimate == decisive


def _fields(run: ArmRun) -> dict[str, Any]:
    return {name: getattr(run, name) for name in ("store", "rows", "probed", "changed", "confidence", "part")}


def test_what_was_seen_in_fog_is_scored_apart_from_what_was_hidden() -> None:
    data = data_of(probed=read(0.6, 0.6, walls_seen=0.8))
    assert claimed("holds what it has seen in fog", data).answer == "yes"
    assert claimed("holds a map of the walls", data).answer == "undecided"
    assert claimed("holds what it has seen in fog", data_of(probed=read(0.8, 0.6))).answer == "untestable"


def planned(own: float, **rivals: float) -> Rows:
    """Rows of decoded plans, each rival at its own share of right prefixes."""
    rng = stream(2, "planned")

    def row(value: float, **tags: Any) -> Rows:
        noisy = np.clip(value + 0.1 * rng.standard_normal(len(GRIDS)), 0, 1)
        return rows_of("prefix accuracy", noisy, plans="all", N=3, **tags)

    at = {"site": "pre", "layer": 4, "head": "decoder-2", "decoder_layers": 2, "stepwise": False}
    parts = [row(own, control="none", **at)]
    for kind in KINDS:
        parts += [row(rivals.get(kind.partition("-")[0], 0.2), control=kind, draw=seed, **at) for seed in range(5)]
    parts += [row(rivals.get(name, 0.2), control=name, **at) for name in ("shuffled", "continuation")]
    parts.append(row(rivals.get("commonest", 0.2), head="commonest", control="none", site=None, layer=None))
    return Rows.concatenate(parts)


@pytest.mark.parametrize(
    ("rows", "answer", "strictest"),
    [
        (planned(0.7), "yes", ""),
        (planned(0.2), "no", ""),
        (planned(0.7, continuation=0.7), "no", "first action continued"),
        (planned(0.7, commonest=0.68), "no", "commonest plan"),
        (planned(0.7, default=0.69), "no", "default-init"),
        (planned(0.3), "undecided", ""),
    ],
)
def test_a_plan_must_exceed_every_baseline_by_the_margin(rows: Rows, answer: str, strictest: str) -> None:
    found = claimed("holds a plan", data_of(probed=rows))
    assert found.answer == answer and strictest in found.quantity


def test_actions_fit_decoded_maps_beyond_those_of_every_random_network() -> None:
    def believed(own: float) -> Rows:
        rng, parts = stream(3, "believed"), []
        for control, draw, value in (("none", None, own), *((kind, seed, 0.1) for kind in KINDS for seed in range(5))):
            noisy = value + 0.1 * rng.standard_normal(len(GRIDS))
            tags = {
                "head": "percell",
                "control": control,
                "draw": draw,
                "site": "pre",
                "layer": 4,
                "reading": "natural",
                "differences": 1,
            }
            parts.append(rows_of("accuracy against decoded beliefs less shuffled", noisy, scope="general", **tags))
        return Rows.concatenate(parts)

    for own, answer in ((0.5, "yes"), (-0.3, "no"), (0.1, "undecided")):
        assert claimed("acts on what it believes in fog", data_of(probed=believed(own))).answer == answer


def _estimate(low: float, high: float) -> Estimate:
    return Estimate(value=(low + high) / 2, low=low, high=high, n=9, clusters=9, method="given", unit="share")


def test_a_no_against_one_of_several_controls_has_the_level_of_all_of_them() -> None:
    asked: list[float] = []

    def at(confidence: float) -> inside.Rivals:
        asked.append(confidence)
        wide = 0.0 if confidence < 0.97 else 0.2
        return {"one": _estimate(0.0, 0.4 + wide), "other": _estimate(0.6, 0.9), "none": None}

    found = inside.beyond_all(at, data_of(), 0.5, needed="one")
    assert asked == pytest.approx([0.96, 0.98]) and answer_of(found, 0.5) == "undecided"
    assert answer_of(inside.beyond_all(at, data_of(), 0.7, needed="one"), 0.7) == "no"
    assert answer_of(inside.beyond_all(at, data_of(), -0.1, needed="one"), -0.1) == "yes"
    assert inside.beyond_all(at, data_of(), 0.5, needed="none").why


@pytest.mark.full
def test_planted_nulls_at_the_threshold_are_answered_no_more_often_than_the_level() -> None:
    count, most = 200, int(binom.ppf(0.999, 200, level(1)))
    answers = {"yes": 0, "no": 0}
    for seed in range(count):
        rng = stream(seed, "nulls of patches")
        follows = rng.random((4, len(GRIDS))) < np.array([0.75, 0.25, 0.25, 0.25])[:, None]
        own, *others = (rows_of("follows", one.astype(float)) for one in follows)
        there = dict(zip(inside.CONTROLS_OF_PATCHES, others, strict=True))
        found = inside.beyond_all(
            partial(inside.less_controls, data_of(), own, there), data_of(), 0.5, needed="isotropic"
        )
        answer = answer_of(found, 0.5)
        answers[answer] = answers.get(answer, 0) + 1
    assert answers["yes"] <= most and answers["no"] <= most


def test_every_look_inside_counts_something_in_the_run_of_an_arm_with_worlds() -> None:
    listed = {one.name: one for one in arms()}
    looking = [one for one in listed.values() if one.looks is not None]
    assert {one.name for one in looking} == {"inside", "plans", "beliefs", "patching", "reasoning"}
    for one in looking:
        assert one.looks is not None and listed[one.at].looks is None
        settings = one.looks.settings("Theseus", 2)
        assert settings.agent == "Theseus" and one.looks.turns > 0  # type: ignore[attr-defined]
        assert one.full > one.quick


def test_an_evidence_without_rows_says_why() -> None:
    data = data_of()
    empty = [
        beyond(data, "wall"),
        inside.beyond_networks(inside.beliefs_read(data), data),
        inside.plan_beyond(data, 3, 0.1),
    ]
    empty += [inside.patch_beyond(data, "pre", 0.5), inside.plan_followed(data, 0.5)]
    assert all(isinstance(one, Evidence) and one.estimate is None and one.why for one in empty)
    assert math.isfinite(level(3))


@pytest.mark.full
def test_each_of_several_models_is_looked_into_in_a_run_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of a look are given: the first model's action follows the cells, that of the second does not."""
    tried: list[str] = []

    def look(place: Path, settings: Any, **_: Any) -> None:
        tried.append(place.name)
        agent = settings[0].agent
        with Store(place, "w") as store:
            given = patched(1.0 if agent == "optimal" else 0.0, 0.0)
            agents = np.full(len(given), agent, dtype=object)
            store.put_rows(given.tagged({"agent": agents}), source=f"patching/{agent}")

    monkeypatch.setattr("goalscope.inside.interventions.experiment.study_interventions", look)
    subjects = [
        replace(subject_of(text), access=frozenset({"grids", "weights"}))
        for text in ("optimal", "epsilon-greedy:epsilon=0.2")
    ]
    for _ in range(2):
        run = prepare(tmp_path / "one", subjects, {"grids": 1, "patching": 1}, seed=7)
        play(run, quiet)
    assert tried == ["grids", "grids-2"]
    with judging.opened(run) as data:
        found = judging.judge(run, data)
    claims = [ledger.claim("uses what the cells hold") for ledger in found.models]
    assert [claim.answer for claim in claims if claim is not None] == ["yes", "no"]
    assert [claim.section for claim in claims if claim is not None] == ["grids-patching", "grids-2-patching"]
    cells, _ = (one for one in found.differences if one.rule.startswith("actions that follow the cells"))
    assert (
        (cells.value, cells.clusters) == (1.0, len(GRIDS) // 2)
        and cells.p < 0.001
        and "higher for optimal" in cells.says
    )
    for subject in subjects:
        with Store(run.path("grids", subject)) as store:
            assert store.agent_names() == [subject.name] and not damage(store)
    with Store(run.path("grids", subjects[0]), "w") as store:  # as `patch` with other settings does
        store.put_rows(patched(0.0, 0.0), source="patching/optimal")
    play(run, quiet)
    assert tried == ["grids", "grids-2", "grids"], "what the plan asks for is looked at again"
    tried.clear()
    larger = prepare(tmp_path / "one", subjects, {"grids": 2, "patching": 1}, seed=7)
    play(larger, quiet)
    assert tried == ["grids", "grids-2"], "looked into anew with more worlds"


ALL = {"grids": 3, "fog": 3, "inside": 2, "patching": 2, "reasoning": 2, "plans": 2, "beliefs": 2}


@pytest.mark.full
def test_a_model_with_weights_is_looked_into_in_every_way_and_the_page_shows_it(tmp_path: Path) -> None:
    from goalscope.verdict import page

    # Four pairs of each size: among two there is often no wrong source with an action of its own, and then the control
    # follows the right source as well.
    run = prepare(tmp_path / "one", [subject_of("theseus"), subject_of("optimal")], {**ALL, "patching": 4}, seed=7)
    play(run, quiet)
    with judging.opened(run) as data:
        found = judging.judge(run, data)
        text = page.write(found, data, tmp_path / "page.html").read_text(encoding="utf-8")
    theseus, optimal = found.models
    assert {one.name for one in theseus.arms if one.asked} == set(ALL)
    assert {one.name for one in optimal.arms if one.asked} == {"grids", "fog"}
    assert all(one.confidence == pytest.approx(0.96) for one in theseus.claims if one.confidence is not None)
    cells = theseus.claim("uses what the cells hold")
    assert cells is not None and cells.value is not None and cells.value > 0.5 and cells.n >= 4
    before = theseus.claim("uses what it holds before it reasons")
    assert before is not None and before.value is not None and before.value <= 0.2
    assert all(f'id="{one.section}"' in text for one in theseus.claims)
    assert "decoded" in text and "changes activations in pairs of grids" in text
    with Store(run.path("grids", run.subjects[0])) as store:
        before_ = content_hash(store)
    play(run, quiet)  # nothing is done again
    with Store(run.path("grids", run.subjects[0])) as store:
        assert content_hash(store) == before_


@pytest.mark.parametrize("raised", [ValueError("shapes do not fit"), KeyError("nothing")])
def test_an_error_that_no_check_raises_is_a_failure_of_a_look_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: Exception
) -> None:
    tried: list[str] = []

    def fail(place: Path, *_: Any, **__: Any) -> None:
        tried.append(place.name)
        raise raised

    monkeypatch.setattr("goalscope.inside.interventions.experiment.study_interventions", fail)
    open_ = replace(subject_of("optimal"), access=frozenset({"grids", "weights"}))
    for _ in range(2):
        run = prepare(tmp_path / "one", [open_], {"grids": 1, "patching": 1}, seed=7)
        play(run, quiet)
        assert type(raised).__name__ in run.failures.failed[0]
    assert tried == ["grids", "grids"]


def test_what_a_look_refuses_is_not_asked_and_its_sentence_is_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def refuse(place: Path, *_: Any, **__: Any) -> None:
        tried.append(place.name)
        check_whole("pairs in which the agent acts optimally on both sides", 0, 1)  # a check of goalscope

    monkeypatch.setattr("goalscope.inside.interventions.experiment.study_interventions", refuse)
    open_ = replace(subject_of("optimal"), access=frozenset({"grids", "weights"}))
    for _ in range(2):
        run = prepare(tmp_path / "one", [open_, subject_of("random")], {"grids": 1, "patching": 1}, seed=7)
        play(run, quiet)
    with judging.opened(run) as data:
        found = judging.judge(run, data)
    why = {one.name: one.why for one in found.models[0].arms}
    assert "on both sides" in why["patching"] and "larger --budget" in why["plans"]
    assert tried == ["grids"], "what was refused is not tried again on the same worlds"
    assert {one.name: one.why for one in found.models[1].arms}["patching"] == TEXTS("needs/weights")
    assert {one.arm for one in found.models[0].claims} == {"grids"}


@pytest.mark.full
def test_the_same_model_twice_has_the_same_ledger_and_no_difference(tmp_path: Path) -> None:
    """Two models that differ in a limit that no answer reaches: each read in a run of its own."""
    from goalscope.verdict import page

    one = subject_of("theseus")
    greedy = [
        replace(one, name=name, parameters={**one.parameters, "temperature": 0.0, "top_p": 1.0, "max_tokens": tokens})
        for name, tokens in (("one", 96), ("other", 100))
    ]
    run = prepare(tmp_path / "both", greedy, ALL, seed=7)
    play(run, quiet)
    with judging.opened(run) as data:
        found = judging.judge(run, data)
        text = page.write(found, data, tmp_path / "page.html").read_text(encoding="utf-8")
    assert all(f'id="{claim.section}"' in text for ledger in found.models for claim in ledger.claims)
    # Decoders of plans are trained in batches, in the order of episodes, whose ids are those of the agent.
    first, second = (
        [claim.model_dump(exclude={"section"}) for claim in ledger.claims if claim.arm != "plans"]
        for ledger in found.models
    )
    assert first == second and {claim.arm for claim in found.models[0].claims} == set(ALL)
    inside = [one for one in found.differences if one.rule.startswith("actions that follow")]
    assert len(inside) >= 4 and all(one.low <= 0 <= one.high and one.p == 1.0 for one in found.differences)
    assert all(one.value == 0.0 for one in found.differences if "(plans)" not in one.rule)


@pytest.mark.full
def test_the_reasoning_of_a_model_behind_a_server_is_edited_once(tmp_path: Path) -> None:
    with Loopback(LocalModel("theseus"), models=("theseus",)) as server:
        one = subject_of(f"completions:theseus@{server.url}")
        subject = replace(one, parameters={**one.parameters, "temperature": 0.0, "max_tokens": 96})
        run = prepare(tmp_path / "one", [subject], {"grids": 2, "reasoning": 4}, seed=7)
        play(run, quiet)
        sent = len(server.log)
        play(run, quiet)
        assert len(server.log) == sent
    with judging.opened(run) as data:
        ledger = judging.judge(run, data).models[0]
    claim = ledger.claim("follows its written plan")
    # With each thing moved there are two pairs of each of three sizes; the estimate is that of one thing.
    assert claim is not None and claim.value is not None and claim.value > 0.5 and claim.n == 6
    assert {one.name: one.why for one in ledger.arms}["patching"] == TEXTS("needs/weights")
