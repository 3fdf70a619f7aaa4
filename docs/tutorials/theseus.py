# %% [markdown]
# # A verdict on Theseus
#
# Theseus is the bundled language model: 1.3 million parameters, trained to walk through mazes. One call asks whether
# it is directed at the goal. It takes about a minute on two cores and needs the extras `lm` and `report`.

# %%
import goalscope

verdict = goalscope.evaluate("theseus", "runs/theseus", arms=["grids"], quick=True, seed=0)

# %% [markdown]
# A claim is a question with an answer, an estimate, its interval and a threshold. "undecided" is an answer, too:
# the interval holds the threshold then.

# %%
for claim in verdict.claims:
    print(
        claim["name"], "|", claim["answer"], "|", claim["value"], (claim["low"], claim["high"]), "|", claim["threshold"]
    )

# %% [markdown]
# The page has the verdict first, and every number behind it.

# %%
print(verdict.report())

# %% [markdown]
# Behind the verdict lie runs, with every prompt and answer. Read one episode before you believe a mean.

# %%
run = verdict.runs["grids"]
first = run.episodes()[0]["episode_id"]
for step in run.steps(first)[:3]:
    print(step)

# %% [markdown]
# Numbers by any tag, with intervals over grids:

# %%
for group in goalscope.measure(run, by=("agent", "size"), measures=["success", "action accuracy"]).groups:
    print(group.key, group.estimate)

# %% [markdown]
# Next: [how a verdict is reached](../evaluate.md), [a model of your own](own_model.py).
