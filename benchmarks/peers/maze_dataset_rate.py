"""Print how many bare 15x15 mazes (a 7x7 lattice) maze-dataset carves a second; runs in the peers' environment."""

import time

from maze_dataset.generation import LatticeMazeGenerators

COUNT = 300

for _ in range(20):
    LatticeMazeGenerators.gen_dfs((7, 7))
best = 0.0
for _ in range(5):
    begin = time.process_time()
    for _ in range(COUNT):
        LatticeMazeGenerators.gen_dfs((7, 7))
    best = max(best, COUNT / (time.process_time() - begin))
print(best)
