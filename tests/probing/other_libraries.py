"""Compare exported activations with those that TransformerLens and nnsight read: `other_libraries.py RUN FOLDER`.

It prints a JSON object: the greatest difference to each, relative to the greatest entry, over all steps, sites and
layers; and whether the library `datasets` reads the Parquet files as they are meant.
"""

import json
import sys
from typing import Any

import numpy as np
import torch
from datasets import load_dataset  # type: ignore[import-not-found]
from nnsight import LanguageModel
from transformer_lens.model_bridge import TransformerBridge  # type: ignore[import-not-found]
from transformers import AutoModelForCausalLM, AutoTokenizer

from goalscope.agents.models.folders import model_folder
from goalscope.runs import Store


def main(run: str, folder: str) -> None:
    with Store(run) as store:
        steps = {(one.id, step.index): step for one in store.episodes() for step in one.steps}
    weights = str(model_folder("theseus"))
    plain = AutoModelForCausalLM.from_pretrained(weights, dtype=torch.float32)
    words = AutoTokenizer.from_pretrained(weights)
    bridge = TransformerBridge.boot_transformers(weights, hf_model=plain, tokenizer=words, dtype=torch.float32)
    traced = LanguageModel(AutoModelForCausalLM.from_pretrained(weights, dtype=torch.float32), tokenizer=words)
    worst = {"transformer_lens": 0.0, "nnsight": 0.0}
    whole, seen = "equal", 0
    for site in ("pre", "post"):
        file = f"{folder}/{site}.parquet"
        found: Any = load_dataset("parquet", data_files=file, split="train", cache_dir=f"{folder}/cache")
        if type(found.features["vectors"]).__name__ != "Array2D":
            whole = f"vectors are {found.features['vectors']}"
        for row in found.with_format("numpy"):
            step = steps[str(row["episode_id"]), int(row["step"])]
            ids = torch.tensor([[*(step.prompt_tokens or ()), *(step.output_tokens or ())]])
            mine, at, layer = np.asarray(row["vectors"]), np.asarray(row["positions"]), int(row["layer"])
            with torch.no_grad():
                _, cache = bridge.run_with_cache(ids)
                with traced.trace(ids):
                    other = traced.model.layers[layer].output.save()
            theirs = {"transformer_lens": cache[str(row["hook"])], "nnsight": other}
            for name, vectors in theirs.items():
                tensor = vectors[0] if isinstance(vectors, tuple) else vectors
                both = tensor.reshape(-1, tensor.shape[-1])[torch.tensor(at)].detach().float().numpy()
                worst[name] = max(worst[name], float(np.abs(both - mine).max() / np.abs(mine).max()))
            seen += 1
    print(json.dumps({**worst, "datasets": whole, "rows": seen}))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
