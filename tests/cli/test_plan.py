import json
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from command_line import call
from goalscope.agents import ChatAgent, Observation, Turn
from goalscope.cli import app
from goalscope.cli.overrides import Overrides, load_study
from goalscope.papers import scaled
from goalscope.runs import Study
from goalscope.verdict.preflight.cost import Cost, costs, count_pieces

STUDY = """\
name: priced
worlds: [{kind: grid, sizes: [7], densities: [0.5], count: 3}]
agents:
  - {kind: optimal}
  - kind: chat
    model: far-away
    max_tokens: 100
    server: {base_url: "http://192.0.2.1/v1", preflight: false}
    prices: {input: 1.5, output: 6, date: "2025-08-05"}
trajectories: 4
horizon: {steps: 5}
failure: {policy: retry, retries: 2}
"""


def parse(text: str) -> Study:
    import yaml

    return Study.parse(yaml.safe_load(text))


def test_a_plan_counts_calls_tokens_and_usd_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: object) -> None:
        raise AssertionError(f"a plan must not connect: {arguments}")

    monkeypatch.setattr(socket.socket, "connect", refused)
    monkeypatch.setattr(socket, "getaddrinfo", refused)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    path = tmp_path / "study.yaml"
    path.write_text(STUDY, encoding="utf-8")
    output = call("estimate", path, "--output-tokens", "10")
    assert "2 agents on 3 worlds, 24 episodes, at most 120 steps" in output
    assert "prices of 2025-08-05" in output and "1.5 USD per million prompt tokens, 6 USD" in output
    assert "words, symbols and gaps" in output and "tokenizer is not known" in output
    optimal, chat = costs(parse(STUDY), 10)
    assert (optimal.calls, optimal.tokens, optimal.usd) == (60, None, None)
    assert chat.calls == 3 * 4 * 5 * (1 + 2)
    assert chat.prompt is not None
    prompts = round(chat.prompt * 180)
    assert chat.tokens == prompts + 100 * 180
    assert chat.usd == pytest.approx((1.5 * prompts + 6 * 100 * 180) / 1e6)
    assert chat.expected_usd == pytest.approx((1.5 * prompts + 6 * 10 * 180) / 1e6)
    text = parse(STUDY).agents()[1]
    assert f"{chat.calls:,}" in output and f"{chat.tokens:,}" in output and text.name in output


def test_a_history_is_counted_as_it_grows() -> None:
    short = STUDY.replace("model: far-away", "model: far-away\n    task: fog").replace(
        "count: 3", "count: 3, fog_radius: 2"
    )
    long = short + "history: actions\n"
    (_, without), (_, with_history) = costs(parse(short)), costs(parse(long))
    assert without.prompt is not None and with_history.prompt is not None
    # None to four lines such as "(3,4) RIGHT", two on average, of six pieces each.
    assert with_history.prompt - without.prompt == pytest.approx(2 * 6, abs=1)
    assert "grow from step to step" in with_history.how and "grow" not in without.how


def test_the_models_own_tokenizer_counts_where_it_is_there(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE({"</s>": 0, **{sign: 1 + at for at, sign in enumerate(alphabet)}}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    words: Any = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="</s>")
    words.chat_template = "{% for m in messages %}x {{ m.content }}{% endfor %}"
    words.save_pretrained(tmp_path)
    text = STUDY.replace("/v1", f'/v1", mode: completions, tokenizer: "{tmp_path}').replace(
        "model: far-away", "model: far-away\n    reasoning: none"
    )
    (_, chat) = costs(parse(text))
    assert chat.how == "by the model's own tokenizer and chat template"
    agent = parse(text).agents()[1]
    assert agent.name == "far-away" and chat.prompt != costs(parse(STUDY))[1].prompt


def test_a_study_of_scripted_agents_costs_nothing() -> None:
    output = call("estimate", "scripted")
    assert "USD" in output and "no prices" not in output
    assert "a shipped study" in call("estimate", "nowhere.yaml", status=2)


def test_an_estimate_says_what_its_pilot_does_not_tell(tmp_path: Path) -> None:
    path, other, pilot = tmp_path / "study.yaml", tmp_path / "other.yaml", tmp_path / "pilot"
    path.write_text(STUDY, encoding="utf-8")
    grid = "{kind: grid, sizes: [7], densities: [0.5], count: 3}"
    other.write_text(
        f"worlds: [{grid}]\nagents: [{{kind: optimal}}, {{kind: random}}]\ntrajectories: 2\n", encoding="utf-8"
    )
    call("run", other, "--agents", "optimal", "--out", pilot)
    shown = " ".join(call("estimate", path, "--pilot", pilot).split())
    assert "far-away: hours unknown, " in shown
    shown = " ".join(call("estimate", other, "--power", "--pilot", pilot).split())
    assert "pilot: left out" in shown
    assert "standard deviation of 0.05 over grids" in shown
    assert "nothing is predicted" in shown


@pytest.mark.parametrize(
    ("words", "fact"),
    [
        (("--assume-between", "0.1"), "add --power"),
        (("--power", "--assume-mean", "0.5", "--pilot", "somewhere"), "--assume-mean"),
    ],
)
def test_assumptions_that_would_not_count_are_refused(words: tuple[str, ...], fact: str, tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(STUDY, encoding="utf-8")
    assert fact in call("estimate", path, *words, status=2)


def test_what_was_measured_is_printed_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    def act(self: ChatAgent, observations: Sequence[Observation]) -> list[Turn]:
        return [Turn(action=0, text="UP", usage={"prompt_tokens": 9.0, "output_tokens": 1.0}) for _ in observations]

    monkeypatch.setattr(ChatAgent, "act", act)
    words = ["estimate", "baseline", "--agents", "Theseus", "--count", "1", "--sizes", "7", "--measure", "--json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    [expected] = json.loads(done.stdout)["expected"]
    assert expected["agent"] == "Theseus" and expected["asked"] > 0 and expected["usd"] is None
    least, mean, most = expected["seconds"]
    assert 0 < least <= mean <= most and expected["output_tokens"] == expected["turns"]


def test_tokens_are_estimated_from_pieces_about_as_the_vocabulary_of_gpt_oss_counts_them() -> None:
    """The counts of o200k (npm package js-tiktoken 1.0.21) on the baseline's prompts, as means over six densities."""
    counted = {7: 395, 9: 433, 11: 619, 13: 721, 15: 839}
    study = scaled(load_study("baseline", Overrides(agents="GPT-OSS-20B")), 0.02)
    (agent,) = study.agents()
    estimates: dict[int, list[int]] = {size: [] for size in counted}
    for world in study.worlds():
        observation = Observation(view=world.begin_episode(0, "x").view, step=0, episode_id="x", seed=0)
        (message,) = agent.messages(observation)  # type: ignore[attr-defined]
        estimates[world.tags["size"]].append(count_pieces(message.content))  # type: ignore[index]
    for size, numbers in estimates.items():
        assert sum(numbers) / len(numbers) == pytest.approx(counted[size], rel=0.04)
    texts = {"": 0, "a wall: #  _": 6, "1234 internationalisation": 5}
    assert {text: count_pieces(text) for text in texts} == texts


def test_gpu_hours_are_generated_tokens_over_the_rate_and_only_of_models() -> None:
    cost = Cost(name="model", episodes=10, calls=3600, output=1000)
    assert cost.gpu_hours(1000) == pytest.approx(1.0)
    assert cost.gpu_hours(1000, 400) == pytest.approx(0.4) and cost.gpu_hours(1000, 5000) == pytest.approx(1.0)
    assert cost.gpu_hours(1000, 0) == 0
    assert Cost(name="random", episodes=10, calls=3600).gpu_hours(1000) is None
    printed = call("estimate", "baseline", "--agents", "GPT-OSS-20B", "--output-tokens", 400, "--gpu-rate", 3000)
    assert "GPU hours, " in printed and "3,000" in printed
    assert "GPU hours" not in call("estimate", "demo")
