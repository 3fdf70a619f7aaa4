# %% [markdown]
# # What is inside
#
# A probe reads something from activations; a control says whether that means anything. This page reads the walls of
# the grid from Theseus and from random networks of its architecture. It takes about two minutes and needs the extra
# `lm`.

# %%
import goalscope
from goalscope.inside.probing import Inside, study_inside

study = {
    "name": "inside",
    "seed": 1,
    "worlds": [{"kind": "grid", "sizes": [7], "densities": [0.2, 0.6, 1.0], "count": 12}],
    "agents": [{"kind": "chat", "model": "theseus", "temperature": 0.7, "max_tokens": 96}],
}
goalscope.run(goalscope.Study.parse(study), "runs/inside")

# %% [markdown]
# Layers, sites and random networks are declared. Two random networks are few; the default is five of each kind.

# %%
asked = {"reads": ["cognitive-map"], "sites": ["pre"], "layers": [7], "probes": {"epochs": 5}}
asked["random"] = {"kinds": ["permuted"], "seeds": 2}
done = study_inside("runs/inside", Inside.parse(asked))

# %% [markdown]
# One row a grid, tagged by head and control. The difference to the control is the evidence, never the score alone.

# %%
from goalscope.stats import estimate_rows  # noqa: E402

rows = done.rows["cognitive-map"]
print(sorted(set(rows.measure)))
for found in estimate_rows(rows.select(measure="cell accuracy"), by=("head", "control"))[:8]:
    print(found.key, found.estimate)

# %% [markdown]
# That a probe reads a wall does not show that the model uses it. [Interventions](../interventions.md) ask that. More:
# [probes](../probes.md), [random networks](../inside.md#which-model).
