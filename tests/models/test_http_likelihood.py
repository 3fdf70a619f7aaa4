"""Likelihoods of answers from a server, and answers that it is to keep to a schema."""

from pathlib import Path
from typing import Any

import pytest
from http_studies import TEMPLATE, extras, study, template
from server import ACTIONS_SAID, Loopback, speaker

from families import long_after
from goalscope.agents import ChatAgent
from goalscope.agents.models import HttpModel, LocalModel, Message, Request, Sampling
from goalscope.agents.models.abilities import ServerNeeds, check_server
from goalscope.agents.models.http_answers import scores_answer
from goalscope.agents.models.http_settings import GarbledError
from goalscope.runs import Store, Study, run
from goalscope.worlds import Action

PLAIN = Sampling(temperature=0.7, max_tokens=8, reasoning_effort=None)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LocalModel:
    made = speaker()
    folder = tmp_path_factory.mktemp("speaker")
    made.tokenizer.save_pretrained(folder)
    made.model.config.save_pretrained(folder)
    made.folder = folder  # type: ignore[attr-defined]  # where its tokenizer lies
    return made


def served(server: Loopback, model: Any, **changes: Any) -> HttpModel:
    address = {
        "base_url": server.url,
        "mode": "completions",
        "tokenizer": str(model.folder),
        "retries": 0,
        "preflight": False,
    }
    return HttpModel("speaker", server=address, reasoning="none", **changes)


def asked(content: str) -> Request:
    message = Message(role="user", content=content)
    return Request(messages=(message,), key=(0, content, 0, 0), answers=ACTIONS_SAID)


@pytest.mark.parametrize(("scores", "requests"), [("prompt_logprobs", [1, 1]), ("echo", [2, 1])])
def test_a_server_tells_the_same_likelihoods_as_the_model_here(
    model: LocalModel, scores: str, requests: list[int]
) -> None:
    wanted = [asked("_ G"), asked("# A _")]
    expected = model.likelihoods(wanted, PLAIN, reasoned=False)
    with Loopback(model, scores=scores) as server:
        found = served(server, model).likelihoods(wanted, PLAIN, reasoned=False)
        assert [one.usage["requests"] for one in found] == requests, "what it ignores is not asked for again"
    for one, other in zip(found, expected, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
        assert one.beginning == pytest.approx(other.beginning, abs=1e-4)
        assert (one.prompt_tokens, one.outputs) == (other.prompt_tokens, other.outputs)
        whole = sum(len(other.prompt_tokens or ()) + len(output) for output in other.outputs)
        assert one.usage["prompt_tokens"] == whole and one.usage["output_tokens"] == 4


def test_a_server_without_log_probabilities_of_prompts_is_refused(model: LocalModel) -> None:
    with Loopback(model, scores="") as server, pytest.raises(ValueError, match="prompt_logprobs"):
        served(server, model).likelihoods([asked("_")], PLAIN, reasoned=False)
    rejecting = Loopback(model, rejects=("prompt_logprobs", "echo"))
    with rejecting as server, pytest.raises(ValueError, match="Unsupported parameter"):
        served(server, model).likelihoods([asked("_")], PLAIN, reasoned=False)
    chat = HttpModel("speaker", server={"base_url": "http://127.0.0.1:1/v1"})
    with pytest.raises(ValueError, match="mode completions"):
        chat.likelihoods([asked("_")], PLAIN, reasoned=False)
    with pytest.raises(ValueError, match="mode completions"):
        ChatAgent.build({"model": "x", "server": {}, "answer": "likelihood"})


@pytest.mark.parametrize(
    "choice",
    [
        {"prompt_logprobs": [None, {"5": {"logprob": -1.0}}]},
        {"prompt_logprobs": [None, {"7": {"logprob": -1.0}}, {"8": {"logprob": -1.0}}]},
        {"prompt_logprobs": [None, None, {"8": {"logprob": float("-inf")}}]},
        {"logprobs": {"token_logprobs": [None, "a", -1.0]}},
        {"prompt_logprobs": "no list"},
    ],
)
def test_scores_that_are_none_are_asked_for_again(choice: dict[str, Any]) -> None:
    with pytest.raises(GarbledError):
        scores_answer({"choices": [choice]}, [[6, 9, 8]])
    assert scores_answer({"choices": [{}]}, [[6, 9, 8]]).scores is None


def completions(url: str, task: Path, model: Any, **changes: Any) -> Study:
    server = {"mode": "completions", "tokenizer": str(model.folder), **changes.pop("server", {})}
    return study(url, task, server=server, reasoning="none", answer="likelihood", least_mass=0.0, **changes)


def test_a_served_run_by_likelihood_is_resumed_and_equals_the_local_one(model: LocalModel, tmp_path: Path) -> None:
    task = template(tmp_path)
    with Loopback(model) as server:
        asked = completions(server.url, task, model, count=2, trajectories=1, steps=3)
        run(asked, tmp_path / "served", workers=2)
        made = len(server.log)
        run(asked, tmp_path / "served", workers=2)
        assert len(server.log) == made, "no likelihood is asked for twice"
    (agent,) = asked.agents()
    assert isinstance(agent, ChatAgent) and agent.name == "speaker (likelihood)"
    here = ChatAgent(model=model, task=task, sampling=agent.sampling, choice=agent.choice)
    run(asked, tmp_path / "local", agents=[here])
    steps = {}
    for where in ("served", "local"):
        with Store(tmp_path / where) as store:
            steps[where] = {
                (episode.world.id, step.index): (step.action, step.text, step.prompt_tokens, step.output_tokens)
                for episode in store.episodes()
                for step in episode.steps
            }
    assert steps["served"] == steps["local"] and len(steps["local"]) >= 4
    assert TEMPLATE.startswith("{{grid}}")
    assert all("mass" in extra["likelihood"] for extra in extras(tmp_path / "served"))


def constraint_state(model: HttpModel, how: str) -> str:
    needs = ServerNeeds(sampling=PLAIN, messages=asked("#_").messages, answers=ACTIONS_SAID)
    return check_server(model, needs).of(f"constrained: {how}").state


@pytest.mark.parametrize("how", long_after(1, ["json_schema", "structured_outputs", "guided_choice"]))
def test_a_constraint_is_sent_and_its_answers_are_read(model: LocalModel, how: str, tmp_path: Path) -> None:
    with Loopback(model) as server:
        asked = study(server.url, template(tmp_path), count=1, trajectories=1, steps=2, server={"constrained": how})
        run(asked, tmp_path / "run")
        assert {entry.outcome for entry in server.settled()} == {"answered"}
        with Store(tmp_path / "run") as store:
            assert {step.action for one in store.episodes() for step in one.steps} == {Action.UP}
        constrained = HttpModel("speaker", server={"base_url": server.url, "constrained": how})
        assert constraint_state(constrained, how) == "yes"
        plain = HttpModel("speaker", server={"base_url": server.url})
        assert constrained.describe() != plain.describe(), "other answers, another agent"


def test_a_constraint_that_does_not_act_is_said_or_recorded(model: LocalModel, tmp_path: Path) -> None:
    # One token at most would cut the answer: three let it come to its end.
    task = template(tmp_path)
    task.write_text("Say x. {{grid}}")
    said = {"choices": [{"finish_reason": "stop", "message": {"content": "I go up."}}]}
    with Loopback(model, constrains=False, override=said) as server:
        one = {"count": 1, "trajectories": 1, "steps": 2}
        with pytest.raises(ValueError, match="constrained"):
            run(study(server.url, task, server={"constrained": "json_schema"}, **one), tmp_path / "refused")
        recorded = {"constrained": "json_schema", "unsupported": "record"}
        run(study(server.url, task, server=recorded, **one), tmp_path / "recorded")
        assert {tuple(extra["unsupported"]) for extra in extras(tmp_path / "recorded")} == {("constrained",)}
        ignored = HttpModel("speaker", server={"base_url": server.url, **recorded})
        assert constraint_state(ignored, "json_schema") == "no"
    with pytest.raises(ValueError, match="mode completions"):
        HttpModel("x", server={"mode": "completions", "constrained": "json_schema"})
