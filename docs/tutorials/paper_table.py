# %% [markdown]
# # A table of a paper
#
# `goalscope reproduce --list` names every table and figure of the three papers that can be made here. Each is one
# item with the printed numbers. This page makes MacDermott et al.'s Cliff World table for known utilities; it needs
# no model.

# %%
from goalscope.papers.cliff_world import cliff_study

study = cliff_study(neural_seeds=0)
for case in study.by_goal_length:
    print(case.setting, round(case.known, 2), "printed:", case.printed_known)

# %% [markdown]
# The command writes the table, the printed numbers beside ours, and a page:
#
#     goalscope reproduce "meg table k" --out runs/cliff
#
# Where a printed number cannot be had from the printed definitions, [published numbers,
# recomputed](../corrections.md) says why, with a runnable example. What of each paper was made:
# [papers](../papers.md).
