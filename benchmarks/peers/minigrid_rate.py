"""Print MiniGrid's steps a second in an empty 15x15 room, random moves; runs in the peers' environment.

``observed`` makes the observation of each step, as any user of the environment gets it; ``dynamics`` leaves it out, so
that what a step does to the world is timed alone; ``text`` has in its place the text of the grid.
"""

import sys
import time

import gymnasium
import minigrid  # noqa: F401 - registers the environments

COUNT = 3000

env = gymnasium.make("MiniGrid-Empty-16x16-v0").unwrapped
if sys.argv[1] == "dynamics":
    env.gen_obs = dict
if sys.argv[1] == "text":
    env.gen_obs = env.pprint_grid
env.reset(seed=0)
actions = env.np_random.integers(0, 3, size=COUNT).tolist()  # turn left, turn right, forward
best = 0.0
for _ in range(5):
    begin = time.process_time()
    for action in actions:
        _, _, ended, cut, _ = env.step(action)
        if ended or cut:
            env.reset()
    best = max(best, COUNT / (time.process_time() - begin))
print(best)
