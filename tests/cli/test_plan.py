"""What `goalscope estimate` says that a study costs: by hand, against runs, and where a model cannot do it."""

import json
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from command_line import call
from families import long_after
from goalscope.agents import ChatAgent, Observation, Turn
from goalscope.cli import app
from goalscope.cli.overrides import StudyOptions, load_study
from goalscope.papers import scaled
from goalscope.runs import Store, Study, run
from goalscope.verdict.preflight.cost import Cost, beyond_reach, costs, count_pieces

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
    study = scaled(load_study("baseline", StudyOptions(agents="GPT-OSS-20B")), 0.02)
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


# What a plan says that a study costs, held against runs whose server reports usage.


TEMPLATE = "{{grid}}\n{{history}}\nGo: "


@pytest.mark.parametrize(
    ("mode", "history"),
    long_after(
        2,
        [
            ("chat", "none"),
            ("completions", "conversation"),
            ("chat", "reasoning"),
            ("chat", "actions"),
            ("chat", "conversation"),
            ("completions", "none"),
            ("completions", "actions"),
            ("completions", "reasoning"),
        ],
        names=2,
    ),
)
def test_no_run_makes_more_calls_than_its_plan_says(mode: str, history: str, tmp_path: Path) -> None:
    from server import Loopback, speaker

    template = tmp_path / "template.txt"
    template.write_text(TEMPLATE, encoding="utf-8")
    model = speaker(positions=16_384)
    model.tokenizer.save_pretrained(tmp_path / "tokenizer")
    with Loopback(model) as server:
        served: dict[str, Any] = {"base_url": server.url, "timeout": 20, "retries": 0, "mode": mode, "preflight": False}
        more = {}
        if mode == "completions":
            served["tokenizer"], more["reasoning"] = str(tmp_path / "tokenizer"), "none"
        study = Study.parse(
            {
                "worlds": [{"kind": "grid", "sizes": [7, 11], "densities": [0.3], "count": 1, "fog_radius": 2}],
                "agents": [
                    {
                        "kind": "chat",
                        "model": "speaker",
                        "task": str(template),
                        "temperature": 1.0,
                        "max_tokens": 4,
                        "reasoning_effort": None,
                        "server": served,
                        **more,
                    }
                ],
                "history": history,
                "failure": {"policy": "retry", "retries": 1},
                "trajectories": 1,
                "horizon": {"steps": 4},
            }
        )
        (cost,) = costs(study)
        run(study, tmp_path / "run")
    with Store(tmp_path / "run") as store:
        ((calls, read, said),) = store.query(
            "SELECT count(*), sum(json_extract(usage, '$.prompt_tokens')), "
            "sum(json_extract(usage, '$.output_tokens')) FROM calls"
        )
    assert cost.prompt is not None and cost.output == 4
    assert cost.tokens == round(cost.prompt * cost.calls) + 4 * cost.calls
    assert calls <= cost.calls and said <= 4 * calls
    if mode == "chat" and history != "reasoning":
        assert read > cost.prompt * calls, "with one token a character, an estimate from words is far from the most"


def test_planning_with_a_bundled_model_imports_no_torch() -> None:
    code = (
        "import sys\nfrom goalscope.cli.program import app\n"
        "app(['estimate', 'cognitive-map', '--count', '1'], standalone_mode=False)\n"
        "sys.exit(9 if 'torch' in sys.modules else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "most output" in done.stdout


@pytest.mark.parametrize("more", [{}, {"prior_symbol": "?"}])
def test_a_run_by_likelihood_takes_what_its_plan_says(more: dict[str, Any], tmp_path: Path) -> None:
    from server import Loopback, speaker

    template = tmp_path / "template.txt"
    template.write_text("{{grid}}\nGo: ", encoding="utf-8")
    model = speaker(positions=16_384)
    model.tokenizer.save_pretrained(tmp_path / "tokenizer")
    with Loopback(model) as server:
        address = {
            "base_url": server.url,
            "mode": "completions",
            "tokenizer": str(tmp_path / "tokenizer"),
            "preflight": False,
        }
        agent = {"kind": "chat", "model": "speaker", "task": str(template), "max_tokens": 4, "reasoning": "none"}
        agent |= {"reasoning_effort": None, "server": address, "answer": "likelihood", "least_mass": 0.0, **more}
        study = Study.parse(
            {
                "worlds": [{"kind": "grid", "sizes": [7], "densities": [0.3], "count": 1, "minimum_distance": 6}],
                "agents": [agent],
                "history": "conversation",
                "trajectories": 1,
                "horizon": {"steps": 3},
            }
        )
        (cost,) = costs(study)
        run(study, tmp_path / "run")
    with Store(tmp_path / "run") as store:
        totals = dict(store.query("SELECT name, SUM(value) FROM usage GROUP BY name"))
    assert totals["requests"] <= cost.calls and totals["requests"] == len(server.log)
    assert cost.prompt is not None and totals["prompt_tokens"] == pytest.approx(cost.prompt * cost.calls, rel=0.02)
    assert cost.output is not None and totals["output_tokens"] == cost.output * cost.calls, "a token for each answer"


# What is said before a run when its largest world is too much for a local model.


def study_of(size: int, agent: dict[str, Any], **more: Any) -> Study:
    worlds = [{"kind": "grid", "sizes": [7, size], "densities": [0.4], "count": 1}]
    return Study.parse({"worlds": worlds, "agents": [agent, {"kind": "optimal"}], "trajectories": 1, **more})


THESEUS = {"kind": "chat", "model": "theseus", "name": "Theseus", "max_tokens": 96}


def test_nothing_is_said_of_worlds_like_those_of_the_training() -> None:
    assert beyond_reach(study_of(15, THESEUS)) == []


def test_a_larger_grid_than_any_of_the_training_is_said() -> None:
    (line,) = beyond_reach(study_of(21, THESEUS))
    assert line.startswith("Theseus: it was trained on grids of up to 15x15 and this study has 21x21")


def test_a_prompt_longer_than_the_positions_is_said() -> None:
    first, second = beyond_reach(study_of(31, THESEUS))
    assert "1,024 positions" in first and "tokens" in first
    assert "31x31" in second


def test_a_history_that_outgrows_the_positions_is_said() -> None:
    (line,) = beyond_reach(study_of(15, THESEUS, history="conversation", horizon={"steps": 60}))
    assert "a shorter history" in line


def test_models_that_are_not_on_this_machine_are_passed_over() -> None:
    server = {"kind": "chat", "model": "theseus", "server": {"base_url": "http://127.0.0.1:9/v1"}}
    assert beyond_reach(study_of(31, server)) == []
    assert beyond_reach(study_of(31, {"kind": "chat", "model": "somebody/some-model"})) == []


@pytest.mark.parametrize(
    "written", ["[1]", "{", "[" * 100_000, '{"goalscope": {"training_data": "[]"}}', '{"goalscope": 1}']
)
def test_a_strange_configuration_is_left_to_whoever_reads_the_model(written: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(written)
    (tmp_path / "model.safetensors").write_bytes(b"\x02" + bytes(7) + b"{}")
    assert beyond_reach(study_of(31, {"kind": "chat", "model": str(tmp_path)})) == []


def test_plan_says_it(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(json.dumps(study_of(21, THESEUS).dump()))
    result = CliRunner().invoke(app, ["estimate", str(path)])
    assert result.exit_code == 0
    assert "trained on grids of up to 15x15" in result.output
