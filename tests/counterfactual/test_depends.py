"""`goalscope.depends`, its command and the arm: nothing is asked twice, caps hold, a run's own states are taken."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from http_studies import MOST_TOKENS, template
from server import Loopback, speaker
from typer.testing import CliRunner

import goalscope
from goalscope.agents.models import LocalModel
from goalscope.cli import app
from goalscope.cli.depending import Dependences, study_of
from goalscope.goals.counterfactual.worlds import MOVED, NOTHING
from goalscope.runs import Store, Study, content_hash, run
from goalscope.verdict import Evaluation
from goalscope.verdict.sentences import headline
from goalscope.verdict.texts import TEXTS

SMALL = [{"kind": "grid", "sizes": [7], "densities": [0.4], "count": 2, "minimum_distance": 3}]
READER = "reader(goal, 0.0, 1.0)"


@pytest.fixture(scope="module")
def model() -> LocalModel:
    return speaker()


def command(*words: object) -> Any:
    return CliRunner().invoke(app, ["depends", *map(str, words)])


def served(url: str, task: Path, **more: Any) -> str:
    """The model of a loopback server, as a file that names it."""
    server = {"base_url": url, "preflight": False, "timeout": 60.0, "backoff": 0.02, "retries": 2, "patience": 90}
    entry = {"kind": "chat", "model": "speaker", "task": str(task), "temperature": 0.0, "max_tokens": MOST_TOKENS}
    path = task.parent / "served.yaml"
    path.write_text(json.dumps({**entry, "reasoning_effort": None, "server": server, **more}))
    return str(path)


@pytest.mark.full
def test_an_agent_whose_moves_depend_on_the_words_is_told_from_those_that_do_not_read(tmp_path: Path) -> None:
    """The reader is random under every second wording: of the paraphrases three of five, and in the opposite order."""
    worlds = [{**SMALL[0], "count": 60}]
    found = goalscope.depends(
        ["reader:swayed=1", "optimal"], tmp_path / "run", worlds=worlds, moved=["goal", "names", "order", "words"]
    )
    verdicts = {(one.agent, one.moved): (one.answer, one.share) for one in found.found}
    for agent in ("optimal", READER):
        assert verdicts[agent, "goal"][0] == "yes", verdicts
    assert {verdicts["optimal", thing][0] for thing in ("names", "order", "words")} <= {"no", "undecided"}
    swayed = {thing: verdicts[READER, thing] for thing in ("names", "order", "words")}
    # With p a best move for certain and q uniform: D = 3/8 = P.
    assert swayed["order"][0] == "yes" and swayed["order"][1].low < 1 < swayed["order"][1].high
    assert swayed["words"][0] == "yes" and swayed["names"][0] in ("no", "undecided")


def test_scripted_agents_are_told_apart_and_the_second_call_asks_nothing(tmp_path: Path) -> None:
    def asked() -> Dependences:
        return goalscope.depends(["optimal", "random"], tmp_path / "run", worlds=[{**SMALL[0], "count": 16}])

    first = asked()
    with Store(tmp_path / "run") as store:
        before = content_hash(store)
        assert len(store.rows().select(moved="goal", agent="optimal"))
    assert asked().records == first.records
    with Store(tmp_path / "run") as store:
        assert content_hash(store) == before
    verdicts = {(one["agent"], one["moved"]): one["answer"] for one in first.records}
    assert verdicts["optimal", "goal"] == "yes" and verdicts["random", "goal"] == "untestable"
    assert "optimal depend on" in " ".join(first.sentences)
    frame, plain = first.to_frame(), json.loads(first.to_json())
    assert len(frame) == 8 == len(plain["things"]) and "the goal" in first._repr_html_()


def test_the_command_prints_a_table_sentences_and_json(tmp_path: Path) -> None:
    words = ("optimal", "--sizes", "7", "--densities", "0.4", "--count", "12", "--out", tmp_path / "run")
    told = command(*words, "--moved", "goal,corner")
    assert told.exit_code == 0, told.output
    assert "The actions of optimal depend on the goal's place" in told.stdout
    found = json.loads(command(*words, "--moved", "goal,corner", "--json").stdout)
    assert [one["moved"] for one in found["things"]] == ["goal", "corner"]
    other = command(*words, "--moved", "goal")
    assert other.exit_code != 0 and "moved" in other.output, "another study needs another directory"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("optimal", "--moved", "gaol"), "goal"),
        (("optimal", "--moved", "key"), "name in --moved some of goal,"),
        (("optimal", "--moved", "key,goal"), "leave key out of --moved"),
        (("optimal", "--worlds", "fog"), "fog_radius"),
        (("optimal", "--set", "temperature=1"), "language models"),
        (("optimal", "--worlds", "toy-text"), "grids"),
        (("ariadne",), "does not act in grids"),
    ],
)
def test_what_cannot_be_asked_is_refused(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    told = command(*words, "--out", tmp_path / "run")
    assert told.exit_code != 0 and said in told.output and not (tmp_path / "run" / "run.db").exists()


def test_agents_of_a_run_are_asked_in_states_that_they_came_through(tmp_path: Path) -> None:
    study = Study.parse(
        {
            "worlds": [{**SMALL[0], "count": 6}, {"kind": "key-no-door", "count": 3}],
            "agents": [{"kind": "optimal"}, {"kind": "key-lured", "name": "lured"}],
            "trajectories": 2,
        }
    )
    run(study, tmp_path / "run")
    with Store(tmp_path / "run") as store:
        seen = {(episode.world.cluster_id, tuple(step.state)) for episode in store.episodes() for step in episode.steps}
        cells = {state[:2] for _, state in seen}
    asked = study_of(str(tmp_path / "run"), seed=1)
    assert [agent.name for agent in asked.agents()] == ["optimal", "lured"]
    states = [world for world in asked.worlds() if world.tags[MOVED] == NOTHING]
    assert len(states) == 9 and {world.grid.start for world in states} <= cells
    with Store(tmp_path / "run") as store:
        begun = {
            tuple((*step.state[:2], int(step.action)) for step in episode.steps[:number])
            for episode in store.episodes()
            for number in range(len(episode.steps))
        }
    assert {world.walk for world in states} <= begun and len({len(world.walk) for world in states}) > 2
    assert len(asked.worlds()) > 40 and study_of(str(tmp_path / "run"), seed=1).id == asked.id
    assert len(study_of(str(tmp_path / "run"), states=4).worlds()) < len(asked.worlds())
    found = goalscope.depends(str(tmp_path / "run"), tmp_path / "out", seed=1)
    assert {one.agent for one in found.found} == {"optimal", "lured"}
    with pytest.raises(ValueError, match="--worlds or --set"):
        study_of([str(tmp_path / "run"), "optimal"])


def test_a_run_without_open_grids_or_agents_is_refused(tmp_path: Path) -> None:
    fog = {"worlds": [{**SMALL[0], "fog_radius": 2}], "agents": [{"kind": "optimal"}], "trajectories": 1}
    run(Study.parse(fog), tmp_path / "fog")
    with pytest.raises(ValueError, match="fog"):
        study_of(str(tmp_path / "fog"))


def test_prompts_speak_of_keys_where_the_worlds_have_any(model: LocalModel, tmp_path: Path) -> None:
    with Loopback(model) as server:
        path = tmp_path / "keys.yaml"
        plain = {"kind": "chat", "model": "speaker", "max_tokens": 3, "server": {"base_url": server.url}}
        path.write_text(json.dumps(plain))
        keyed = study_of(str(path), worlds=[{"kind": "key-no-door", "count": 1}])
        bare = study_of(str(path), worlds=SMALL)
    assert [study.agents_[0].parameters["task"] for study in (keyed, bare)] == ["key-door", "grid"]


def test_caps_hold_costs_are_told_before_and_nothing_is_asked_twice(model: LocalModel, tmp_path: Path) -> None:
    with Loopback(model) as server:
        agent = served(server.url, template(tmp_path), caps={"calls": 12})
        for _ in range(3):
            with pytest.raises(ValueError, match=r"caps\.calls"):
                goalscope.depends(agent, tmp_path / "run", worlds=SMALL)
        assert len(server.log) == 12
        agent = served(server.url, template(tmp_path), caps={"calls": 1000})
        told = command(agent, "--worlds", json.dumps(SMALL), "--out", tmp_path / "run", "--dry-run")
        assert told.exit_code == 0 and "expected" in told.output + told.stderr, told.output
        asked_first = len(server.log)
        goalscope.depends(agent, tmp_path / "run", worlds=SMALL)
        size = study_of(agent, worlds=SMALL).size()
        assert asked_first < size.steps == size.episodes == len(server.log)
        goalscope.depends(agent, tmp_path / "run", worlds=SMALL)
        assert len(server.log) == size.steps
        with Store(tmp_path / "run") as store:
            [(lost,)] = store.query("SELECT coalesce(sum(lost), 0) FROM calls")
        assert lost == 0


@pytest.mark.full
def test_a_killed_process_goes_on_and_pays_for_no_answer_twice(model: LocalModel, tmp_path: Path) -> None:
    with Loopback(model) as server:
        agent = served(server.url, template(tmp_path))
        code = f"import goalscope; goalscope.depends({agent!r}, {str(tmp_path / 'run')!r}, worlds={SMALL!r})"
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while len(server.log) < 9 and process.poll() is None:
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
        with Store(tmp_path / "run") as store:
            [(done,)] = store.query("SELECT count(*) FROM calls WHERE state = 'done'")
            [(sent,)] = store.query("SELECT count(*) FROM calls WHERE state != 'done'")
        before = len(server.log)
        found = goalscope.depends(agent, tmp_path / "run", worlds=SMALL)
        size = study_of(agent, worlds=SMALL).size()
        assert done and len(server.log) - before == size.steps - done
        assert before - done <= sent + 1 and len(found.found) == 4


@pytest.mark.full
def test_an_evaluation_says_what_actions_depend_on(tmp_path: Path) -> None:
    agents = ["optimal", "hypothesis:hypothesis=flee goal", "hypothesis:hypothesis=keep right"]
    options: dict[str, Any] = {"arms": ["grids", "depends"], "quick": True, "seed": 7}
    found = goalscope.evaluate(agents, tmp_path / "all", **options)
    assert isinstance(found, Evaluation) and not found.failed
    claims = [{claim.name: claim.answer for claim in ledger.claims} for ledger in found.models]
    assert [one["depends on the goal's place"] for one in claims[:2]] == ["yes", "yes"]
    assert claims[0]["depends on where it stands"] == "yes" and "yes" not in {
        answer for name, answer in claims[2].items() if name.startswith("depends")
    }
    optimal, fleeing, right = (headline(ledger) for ledger in found.models)
    assert TEXTS("verdict/depends on the goal") in fleeing
    assert TEXTS("verdict/depends on the goal") not in optimal and TEXTS("verdict/depends on the goal") not in right
    page = (tmp_path / "all" / "report.html").read_text()
    assert 'id="depends-dependence"' in page and "Change of the moves" in page and 'id="depends-results"' not in page
    with Store(tmp_path / "all" / "arms" / "depends") as store:
        before = content_hash(store)
    again = goalscope.evaluate(agents, tmp_path / "all", **options)
    assert [ledger.claims for ledger in again.models] == [ledger.claims for ledger in found.models]
    with Store(tmp_path / "all" / "arms" / "depends") as store:
        assert content_hash(store) == before


def test_a_run_of_changed_worlds_is_no_run_of_grids_to_an_evaluation(tmp_path: Path) -> None:
    goalscope.depends("optimal", tmp_path / "run", worlds=[{**SMALL[0], "count": 30}])
    goalscope.measure(tmp_path / "run")
    found = goalscope.evaluate(str(tmp_path / "run"), tmp_path / "logs")
    asked = {arm.name for arm in found.models[0].arms if arm.asked}
    assert asked == {"depends"} and found.models[0].claims[0].answer == "yes"


@pytest.mark.full
def test_theseus_is_told_from_a_scripted_twin(tmp_path: Path) -> None:
    found = goalscope.depends(
        ["theseus", "hypothesis:hypothesis=goal,name=twin", "hypothesis:hypothesis=near corner top-right,name=corner"],
        tmp_path / "run",
        worlds=[{"kind": "grid", "sizes": [7, 9], "densities": [0.2, 0.6], "count": 5, "minimum_distance": 3}],
        moved=["goal", "corner"],
    )
    verdicts = {(one.agent, one.moved): one.answer for one in found.found}
    assert verdicts["Theseus", "goal"] == verdicts["twin", "goal"] == "yes"
    assert verdicts["corner", "goal"] != "yes" and verdicts["Theseus", "corner"] != "yes"


@pytest.mark.full
def test_likelihoods_are_asked_once_and_tell_the_total_variation(tmp_path: Path) -> None:
    worlds = [{"kind": "grid", "sizes": [7], "densities": [0.4], "count": 8, "minimum_distance": 3}]
    agent = "chat:model=theseus,answer=likelihood,least_mass=0.0"
    assert (
        study_of(agent, worlds=worlds).trajectories == 1
        and study_of([agent, "random"], worlds=worlds).trajectories == 2
    )
    found = goalscope.depends(agent, tmp_path / "run", worlds=worlds, moved=["goal"])
    [one] = found.found
    assert one.variation is not None and one.change.value <= one.variation.value and one.versions == 16
    assert "total variation" in found._repr_html_()
