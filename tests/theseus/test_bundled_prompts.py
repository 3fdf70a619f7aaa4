"""The bundled models read the very bytes that they were trained on, in every shipped study and every arm."""

import hashlib
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from families import long_after
from goalscope.agents import ChatAgent, Turn, build_agent
from goalscope.cli.overrides import load_study
from goalscope.runs import EpisodeSpec, Study
from goalscope.runs.episode import LiveEpisode
from goalscope.worlds import ACTIONS

STEPS = 6
# sha256 of all prompts of the first steps of two worlds, as they were before there was a second template.
SHIPPED: dict[str, str] = {
    "baseline": "52bbffa910303721317f6b26baa896b40aaf1966623e09609d968362d6bf55e4",
    "beliefs": "3716bcefe00ef116f673021fdb37f892b25695cf3605fbbe2eb92371943da2a8",
    "cognitive-map": "3716bcefe00ef116f673021fdb37f892b25695cf3605fbbe2eb92371943da2a8",
    "demo": "94a437d5ec06b9345cd564a6cedf0444d47bf2c0e18a61f70fb98fff56b6374c",
    "distance": "3716bcefe00ef116f673021fdb37f892b25695cf3605fbbe2eb92371943da2a8",
    "explore-exploit": "17371c1e446e1092fcfaeab5acb749e1156fd5d0f8c452f79d27dae69e262e80",
    "fog": "d10fdd958fa33a94d6c6c572650e4d025a942b1482dcc4f3971a174855940f71",
    "harness": "e10da043c4c62d5ed36b52a210007a454612a22bbd28850a66fee257261b50dc",
    "iso-difficulty": "63ce038c5df24894ec44dc1f6143ee23a93c663a1439e0f9d80290e19cb600f6",
    "key-door": "86f56adbdca6e8f0ae49137301e58af03a36a6e029c741df9ab9bdbe865d3340",
    "plans": "3716bcefe00ef116f673021fdb37f892b25695cf3605fbbe2eb92371943da2a8",
    "two-path": "e91860cc1c894e4e2c77156b2dd774f960963a341902c96c0e457b422c9603e5",
}
HISTORIES: dict[tuple[str, str, str], str] = {
    ("baseline", "grid", "none"): "b11ca7f4993ed4f2e1d7faa05ec8a9d944505138e85e20b6593640904dce6839",
    ("baseline", "grid", "conversation"): "143129fc6d2624908a0988329664c952e4888844001bc3d678e22ba64c92f577",
    ("baseline", "grid", "reasoning"): "69d36fa7471b434e2781d9fa8ba90595e8095e45a21d1184f6063a3c3ee1c436",
    ("key-door", "key-door", "none"): "f2ac2e29d4980709b0c294b6c53e3573fecf3bd89975803d4f4dff1f557b02d5",
    ("key-door", "key-door", "conversation"): "b7786eb572e43299c8861b8b5464840363d0ab0eb4f9719828993e208af346f6",
    ("key-door", "key-door", "reasoning"): "e6c39ffa43ce44fb3cd12dc32492c7364e05e2fb48ccd00b938bfd14b4325fbd",
    ("fog", "fog", "none"): "1f6b503480657f8d3ef836bfc84c422880700b461c14f28b96b794f78fbcb40b",
    ("fog", "fog", "actions"): "4307b107651ecf6c602ce2b241f49b384d65ef995f848b4ec22f09ec04134877",
    ("fog", "fog", "conversation"): "2cb3bfccf0b19cb6e8d9b4b09917365784215420d410dddbe76486d1df686d01",
    ("fog", "fog", "reasoning"): "4fbc70890745506b003e4615396c5a905d8c66a12b43906331ee77920fc1d9c3",
}
ARMS: dict[tuple[str, bool, bool], str] = {
    ("base", False, False): "960e9ec98c418aca3d38b5b7175655c4d4f92a3ec954705905e3631ed746ffd1",
    ("base", False, True): "dc2913a7dfbd2f73ffba80d4d3a4c7ca19626fd7e7074f072b0f8fd3c5cbf234",
    ("base", True, False): "ba39fc92262e1c7650a08b6a7bce6f2403d57c0762d0082345919de95a1ef264",
    ("base", True, True): "3ee29b6da2d1edab2710388fcefe2dc6a179d2059767ea29c8a44c56f1c06d20",
    ("exploration", False, False): "286d313d0b5dd554905f533261a78aabd2ccd3a5b33c3666cdedb32b6eaa3947",
    ("exploration", False, True): "51b159965a6bf1fbb10b38ec62062a71667e9f2bc2f23b7ba998991f52def0dd",
    ("exploration", True, False): "dd7cc4fc2d08afa45c8575232212c8312236fd5f477cd0e2dc9d1c51c327e1b7",
    ("exploration", True, True): "325531a4ca398cf72707291865aa49fb2cca3eafa47647cbf694fc18cd03c4a3",
    ("exploitation", False, False): "dbb2500decd4e8ec614e0865523111f38d63809e50e50feace2ee0425b5d05c1",
    ("exploitation", False, True): "12dff8ad2b84de784d4a4b6e5d183e48de1613cdcc8dad48e5dc85fe56832c70",
    ("exploitation", True, False): "7ffa890f1e13ddff4cec2e045f09893e20405ed63ac1c7de96576856450c9d4f",
    ("exploitation", True, True): "1a6a0976ea06b1e414fb70413f5e5883bb99a09af5256210fa173e8b7019eb67",
    ("balance", False, False): "0d4d1ec2a671eb1ea86bac245fce4870c5fe788afee9ea63f80e791bfabc4cc0",
    ("balance", False, True): "4f4dd78e6105fdbeadc3d6b6f3669d6c6d69d6025b49225684978071b087a903",
    ("balance", True, False): "da5f63d0fecc8476c482ed1d8fe2cd80d21ec4bfa4afa4c87f50900c095b34dc",
    ("balance", True, True): "db8ea731ced95839b617a4e1537ad77f0d98441b96514a7151b8f4cb7fdd3bc2",
}


@cache
def study_of(name: str) -> Study:
    """Return a shipped study, task maps small as those of the training."""
    content = load_study(name).dump()
    for entry in content["worlds"]:
        if "presets" in entry:
            entry["presets"] = [preset.removeprefix("paper-") for preset in entry["presets"]]
    return Study.restore(content)


def digest(study: Study, agent: ChatAgent) -> str:
    found = hashlib.sha256()
    worlds = study.worlds()
    for world in (worlds[0], worlds[-1]):
        kind = study.history_of(agent)
        spec = EpisodeSpec(world_id=world.id, agent_id="agent", trajectory=0, seed=study.seed, horizon=STEPS)
        live = LiveEpisode(spec, world, study, kind)
        for step in range(STEPS):
            if live.outcome is not None:
                break
            found.update(agent.prompt(live.observe()).encode())
            action = ACTIONS[step * 3 % 4]
            text = f'{{"action": "{action.name}"}}'
            live.apply(Turn(action=action, text=text, reasoning="to the goal"))
    return found.hexdigest()


def bundled(study: Study) -> list[ChatAgent]:
    found = [entry.build() for entry in study.agents_ if entry.parameters.get("model") in ("theseus", "ariadne")]
    return [agent for agent in found if isinstance(agent, ChatAgent)]


@pytest.mark.parametrize("name", long_after(1, SHIPPED))
def test_the_prompts_of_shipped_studies_are_those_that_the_bundled_models_were_trained_on(name: str) -> None:
    study = study_of(name)
    whole = hashlib.sha256("".join(digest(study, agent) for agent in bundled(study)).encode()).hexdigest()
    assert whole == SHIPPED[name]


@pytest.mark.parametrize("arm", HISTORIES)
def test_the_prompts_of_theseus_in_every_task_and_history(arm: tuple[str, str, str]) -> None:
    study, task, history = arm
    agent: Any = build_agent("chat", {"model": "theseus", "task": task, "history": history})
    assert digest(study_of(study), agent) == HISTORIES[arm]


@pytest.mark.parametrize("arm", ARMS)
def test_the_prompts_of_ariadne_in_every_arm(arm: tuple[str, bool, bool]) -> None:
    strategy, reasoned, memory = arm
    study, model = study_of("explore-exploit"), {"model": "ariadne", "strategy": strategy}
    agent: Any = build_agent("task-chat", {**model, "reasoned": reasoned, "memory": memory})
    whole = "".join(
        digest(study, replace(agent, history=history)) for history in ("none", "actions", "conversation", "reasoning")
    )
    assert hashlib.sha256(whole.encode()).hexdigest() == ARMS[arm]
