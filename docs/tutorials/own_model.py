# %% [markdown]
# # A model of your own
#
# Any causal language model that transformers can load is asked by its folder or its hub name. This page makes a
# folder, so that it runs without a download: an untrained Llama of four layers with the tokenizer of Theseus. Put
# your own folder in its place. It needs the extra `lm`.

# %%
import shutil
from importlib.resources import files
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import goalscope

torch.manual_seed(0)
folder = Path("mine")
settings = LlamaConfig(vocab_size=512, hidden_size=32, intermediate_size=64, num_hidden_layers=4, num_attention_heads=4)
LlamaForCausalLM(settings).save_pretrained(folder)
for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
    shutil.copy(str(files("goalscope") / "agents" / "theseus" / "weights" / name), folder / name)

# %% [markdown]
# An untrained model answers with noise. It still finds some actions likelier than others, and the setting `answer:
# likelihood` asks for that: the probability of each action as the answer, in place of free text. `least_mass=0`
# accepts models that give the four actions little probability together.

# %%
verdict = goalscope.evaluate(
    "./mine",
    "runs/mine",
    arms=["grids"],
    sizes=[7],
    settings={"answer": "likelihood", "least_mass": 0},
    quick=True,
)
for claim in verdict.claims:
    print(claim["name"], "|", claim["answer"])

# %% [markdown]
# `goalscope doctor --model ./mine` says what a model is like before anything is asked: template, cells as tokens,
# reasoning, memory and speed. More: [language models](../models.md).
