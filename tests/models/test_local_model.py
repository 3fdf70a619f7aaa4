"""Local models: loading, identity, rendering, exact tokens, what is refused."""

import json
import os
import shutil
import socket
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from determinism import measure_determinism
from tiny_models import CHARACTERS, HARMONY, HARMONY_TEMPLATE, PLAIN_TEMPLATE, gpt_oss, llama, request, tokenizer

from goalscope.agents.models import LocalModel, Message, Model, Part, Sampling, folder_identity
from goalscope.agents.models.loading import hub_problem

GREEDY = Sampling(temperature=0.0, max_tokens=12)
REQUESTS = [request(f"state {number} " + "#_" * number, episode=f"episode-{number}") for number in range(6)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model with its tokenizer."""
    path = tmp_path_factory.mktemp("models") / "tiny"
    gpt_oss().save_pretrained(path)
    tokenizer().save_pretrained(path)
    return path


def local(**changes: Any) -> LocalModel:
    return LocalModel.from_parts(gpt_oss(), tokenizer(), name="tiny", **changes)


def test_a_completion_holds_the_exact_tokens_of_prompt_and_output() -> None:
    model = local()
    assert isinstance(model, Model)
    completions = model.complete(REQUESTS, Sampling(temperature=0.7, max_tokens=12, top_logprobs=2))
    for asked, completion in zip(REQUESTS, completions, strict=True):
        text = model.render(asked.messages, Sampling())
        assert completion.prompt_tokens == tuple(model.encode(text))
        assert model.tokenizer.decode(completion.prompt_tokens) == text
        assert completion.output_tokens is not None
        assert completion.raw == model.tokenizer.decode(completion.output_tokens)
        assert completion.usage["prompt_tokens"] == len(completion.prompt_tokens)
        assert completion.usage["output_tokens"] == len(completion.output_tokens) <= 12
        assert completion.logprobs is not None
        assert [entry["token"] for entry in completion.logprobs] == list(completion.output_tokens)
        assert not completion.reconstructed
    assert model.complete([], GREEDY) == []


def test_the_same_key_samples_the_same_tokens_another_attempt_others() -> None:
    model, sampling = local(), Sampling(temperature=1.0, max_tokens=12)
    first, again, retry = model.complete([request("x"), request("x"), request("x", attempt=1)], sampling)
    assert first.output_tokens == again.output_tokens != retry.output_tokens
    assert model.complete([request("x")], sampling)[0].output_tokens == first.output_tokens


def test_the_chat_template_of_the_model_renders_the_prompt() -> None:
    chat = [Message(role="user", content="a {{ 1 + 1 }} {grid}")]
    assert local().render(chat, Sampling(reasoning_effort="high")) == (
        "<|start|>system<|message|>Date 2025-08-05, effort high<|end|>"
        "<|start|>user<|message|>a {{ 1 + 1 }} {grid}<|end|><|start|>assistant"
    )
    other = local(today="2001-02-03").render(chat, Sampling(reasoning_effort=None))
    assert "Date 2001-02-03, effort none" in other
    assert local(today="2001-02-03").describe() != local().describe()


def test_a_setting_without_a_place_in_the_template_is_named() -> None:
    plain = LocalModel.from_parts(llama(), tokenizer(PLAIN_TEMPLATE, added=()), reasoning="none")
    assert plain.complete(REQUESTS[:1], GREEDY)[0].unsupported == ("reasoning_effort",)
    assert local().complete(REQUESTS[:1], GREEDY)[0].unsupported == ()
    untold = Sampling(temperature=0.0, max_tokens=3, reasoning_effort=None)
    assert plain.complete(REQUESTS[:1], untold)[0].unsupported == ()


def test_without_a_style_the_output_is_the_answer() -> None:
    plain = LocalModel.from_parts(llama(), tokenizer(PLAIN_TEMPLATE, added=()), reasoning="none")
    (completion,) = plain.complete(REQUESTS[:1], GREEDY)
    assert completion.output_tokens is not None
    kept = completion.output_tokens[:-1] if completion.finish == "stop" else completion.output_tokens
    assert completion.answer == plain.tokenizer.decode(kept)
    assert completion.reasoning is None


def test_a_prompt_that_opens_a_reasoning_block_begins_with_reasoning() -> None:
    template = PLAIN_TEMPLATE + "<think>\n"
    thinking = LocalModel.from_parts(llama(), tokenizer(template, added=("<think>", "</think>")))
    (completion,) = thinking.complete(REQUESTS[:1], GREEDY)
    assert completion.answer == ""
    assert completion.reasoning


def test_a_folder_gives_the_model_in_memory_without_any_network(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: object) -> None:
        raise AssertionError(f"a local model must not connect: {arguments}")

    monkeypatch.setattr(socket.socket, "connect", refused)
    monkeypatch.setattr(socket, "getaddrinfo", refused)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    loaded = LocalModel(folder, device="cpu")
    answers = loaded.complete(REQUESTS, GREEDY)
    assert [answer.output_tokens for answer in answers] == [
        answer.output_tokens for answer in local().complete(REQUESTS, GREEDY)
    ]
    assert next(loaded.model.parameters()).dtype == torch.float32
    assert LocalModel(folder, device="cpu").model is loaded.model, "agents on one model share its weights"
    assert loaded.name == "tiny"


def test_a_hub_that_cannot_be_reached_is_said_at_once_with_the_name_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*arguments: object, **options: object) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("goalscope.agents.models.loading.getproxies", dict)
    monkeypatch.setattr(socket, "create_connection", refused)
    hub_problem.cache_clear()
    try:
        with pytest.raises(OSError, match=r"nobody/no-such-model .*refused.*folder"):
            LocalModel("nobody/no-such-model", device="cpu").complete(REQUESTS, GREEDY)
    finally:
        hub_problem.cache_clear()


def test_identity_is_content_not_place(folder: Path, tmp_path: Path) -> None:
    moved = tmp_path / "another-name"
    shutil.copytree(folder, moved)
    (moved / "README.md").write_text("notes change nothing")
    (moved / "trainer_state.json").write_text("{}")
    description = LocalModel(moved).describe()
    assert description == LocalModel(str(folder)).describe()
    assert str(tmp_path) not in json.dumps(description)
    assert set(description["files"]) >= {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"}
    weights = moved / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert LocalModel(moved).describe() != description
    assert LocalModel(folder, dtype="bfloat16").describe() != description
    assert LocalModel("some/name", revision="abc").describe()["files"] == {"hub": "some/name", "revision": "abc"}


def test_identity_in_memory_is_that_of_weights_and_tokenizer() -> None:
    assert local().describe() == local().describe()
    other = LocalModel.from_parts(gpt_oss(seed=5), tokenizer())
    assert other.describe() != local().describe()
    assert LocalModel.from_parts(gpt_oss(), tokenizer(HARMONY_TEMPLATE + " ")).describe() != local().describe()


def test_an_untrained_model_has_the_architecture_and_new_weights(folder: Path) -> None:
    untrained = LocalModel(folder, device="cpu", untrained=3)
    again = LocalModel(folder, device="cpu", untrained=3, name="again")
    trained = LocalModel(folder, device="cpu")
    assert untrained.name == "tiny-untrained-3"
    shapes = {name: tensor.shape for name, tensor in untrained.model.state_dict().items()}
    assert shapes == {name: tensor.shape for name, tensor in trained.model.state_dict().items()}
    first, second = untrained.model.lm_head.weight, again.model.lm_head.weight
    assert torch.equal(first, second)
    assert not torch.equal(first, trained.model.lm_head.weight)
    assert not torch.equal(first, LocalModel(folder, device="cpu", untrained=4).model.lm_head.weight)
    assert untrained.describe() == again.describe() != trained.describe()
    assert "model.safetensors" not in untrained.describe()["files"]


def test_what_cannot_be_loaded_says_why(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="gone"):
        LocalModel(tmp_path / "gone")
    with pytest.raises(FileNotFoundError, match="none at"):
        LocalModel("./gone")
    pickled = tmp_path / "pickled"
    pickled.mkdir()
    (pickled / "config.json").write_text("{}")
    (pickled / "pytest_model.bin").write_text("")
    with pytest.raises(FileNotFoundError, match="code"):
        LocalModel(pickled).describe()
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        folder_identity(tmp_path)
    for wrong in ({"dtype": "int8"}, {"slots": 0}, {"reasoning": "xml"}, {"revision": "main"}, {"today": "today"}):
        with pytest.raises(ValueError, match=r"must|folder|isoformat"):
            LocalModel(folder, **wrong)
    with pytest.warns(UserWarning, match="bare .*chat template"):
        LocalModel.from_parts(llama(), tokenizer(None), name="bare")


def test_a_model_that_marks_no_reasoning_answers_with_its_whole_output_and_says_so() -> None:
    with pytest.warns(UserWarning, match="plain .*reasoning: none") as told:
        model = LocalModel.from_parts(llama(), tokenizer(PLAIN_TEMPLATE, added=()), name="plain")
    assert len(told) == 1
    text = '<think>up</think>{"action": "UP"}'
    assert model.text_parts("", text) == (Part(kind="answer", text=text),)


def test_a_device_that_is_not_there_is_refused_before_weights_are_read(folder: Path) -> None:
    missing = f"cuda:{torch.cuda.device_count()}"
    with pytest.raises(ValueError, match=f"'{missing}'.*device: auto"):
        LocalModel(folder, device=missing).tokenizer  # noqa: B018


def test_a_prompt_that_is_too_long_is_one_error_and_no_warning(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = LocalModel(folder, device="cpu", reasoning="none")
    model.tokenizer.model_max_length = 64
    with pytest.raises(ValueError, match="512"):
        model.complete([request("x" * 600)], Sampling(max_tokens=4))
    assert "Token indices" not in capfd.readouterr().err


def test_code_in_a_model_folder_is_not_run(folder: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    shutil.copytree(folder, foreign)
    config = json.loads((foreign / "config.json").read_text())
    config["model_type"] = "unheard_of"
    config["auto_map"] = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
    (foreign / "config.json").write_text(json.dumps(config))
    (foreign / "evil.py").write_text("raise SystemExit('code was run')")
    with pytest.raises(ValueError, match="trust_remote_code"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _ = LocalModel(foreign, device="cpu").model


def test_outputs_do_not_depend_on_the_batch_beyond_rounding() -> None:
    for model in (local(), LocalModel.from_parts(llama(), tokenizer())):
        for sampling in (GREEDY, Sampling(temperature=0.7, max_tokens=12)):
            found = measure_determinism(model, REQUESTS, sampling)
            assert found.requests == 6
            assert found.tokens > 30
            assert found.violations == 0
            assert found.equal + found.near_ties == 6
            assert found.repeatable
            assert found.largest_change < 1e-4
    with pytest.raises(ValueError, match="one request"):
        measure_determinism(local(), [], GREEDY)


def test_the_measurement_finds_a_model_that_depends_on_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    model = LocalModel.from_parts(llama(), tokenizer())
    forward = model.model.forward

    def dependent(input_ids: Any, position_ids: Any, **others: Any) -> Any:
        answer = forward(input_ids=input_ids, position_ids=position_ids, **others)
        answer.logits[..., 7] += 50.0 * (input_ids.shape[0] - 1)
        return answer

    monkeypatch.setattr(model.model, "forward", dependent)
    assert measure_determinism(model, REQUESTS, GREEDY).violations > 0


BLOCKED = """
import sys
sys.modules["torch"] = sys.modules["transformers"] = None
from goalscope.agents.agent import build_agent
from goalscope.agents import agent_id
agent = build_agent("chat", {"model": sys.argv[1]})
print(agent_id(agent))
try:
    agent.model.model
except ImportError as error:
    print(error)
"""


def test_without_torch_agents_are_described_and_the_error_names_the_extra(folder: Path) -> None:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    result = subprocess.run(
        [sys.executable, "-c", BLOCKED, str(folder)], capture_output=True, text=True, check=True, env=environment
    )
    identity, error = result.stdout.splitlines()
    assert identity.startswith("agent-")
    assert "(torch is missing): install the extra lm, pip install" in error and "'torch>=" in error


def test_the_tokenizer_of_these_tests_has_a_token_for_each_character() -> None:
    assert all(len(tokenizer().encode(char)) == 1 for char in CHARACTERS)
    assert len(tokenizer()) == 3 + len(CHARACTERS) + len(HARMONY)
