# %% [markdown]
# # A world and a measure of your own
#
# A world is a class with pure functions of a state. goalscope enumerates its states and solves it, so that every
# measure with an oracle works in it. This page writes one into the working directory, as a file of yours would lie
# there.

# %%
from pathlib import Path

import numpy as np

import goalscope
from goalscope.measures import StepTable, check_measure, measure

CORRIDOR = '''
from goalscope.environments import Observed


class Corridor:
    """A corridor of cells with the goal at its right end, and a sofa at its left."""

    actions = ("left", "right", "wait")

    def __init__(self, cells: int = 6, start: int = 3) -> None:
        self.cells, self.start = cells, start

    def initial(self):
        return {self.start: 1.0}

    def step(self, state, action):
        return {min(max(state + (-1, 1, 0)[action], 0), self.cells - 1): 1.0}

    def done(self, state):
        return self.goal(state)

    def goal(self, state):
        return state == self.cells - 1

    def goals(self):
        return {"sofa": lambda state: state == 0}

    def observe(self, state):
        return Observed(text="".join("A" if at == state else "_" for at in range(self.cells)))

    def describe(self):
        return {"name": "corridor", "cells": self.cells, "start": self.start}
'''
Path("corridor.py").write_text(CORRIDOR)

# %% [markdown]
# A study names the class. Each mapping of parameters is a world, and intervals go over worlds.

# %%
study = {
    "name": "corridors",
    "seed": 1,
    "worlds": [
        {
            "kind": "corridor:Corridor",
            "parameters": [{"cells": cells, "start": start} for cells in (5, 6, 7, 8) for start in (1, 2, 3)],
        }
    ],
    "agents": [
        {"kind": "environment-optimal"},
        {"kind": "environment-epsilon-greedy", "epsilon": 0.3},
        {"kind": "environment-wrong-goal", "target": "sofa"},
        {"kind": "random"},
    ],
    "trajectories": 5,
}
goalscope.run(goalscope.Study.parse(study), "runs/corridors")

# %% [markdown]
# A measure is a function of the step table with a definition. `check_measure` runs the laws that the built-in ones
# obey.


# %%
@measure("turns that wait", unit="share", bounds=(0, 1))
def waits(table: StepTable) -> np.ndarray:
    """Share of an episode's turns that take the last action of the world."""
    return table.per_episode(table.action == 2) / table.length


check_measure(waits, invariant=False)

# %%
found = goalscope.measure("runs/corridors", measures=["success", "action accuracy", "turns that wait"])
for group in found.groups:
    print(group.key, group.estimate)

# %% [markdown]
# Towards what is each agent directed: the goal, or the sofa?

# %%
goals = goalscope.towards("runs/corridors")
for one in goals.estimates:
    print(one)

# %% [markdown]
# In a package, worlds and measures have names that commands take: [your own package](../plugins.md). All that a world
# may offer: [environments](../environments.md).
