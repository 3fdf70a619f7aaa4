"""Under fog: which cells had been seen by a step, and how well the walls among them alone are read."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted import half_walls, wall_map
from sklearn.metrics import roc_auc_score

from goalscope._ground.rng import stream
from goalscope.inside.probing import WALL, Cells, FitSettings, ProbeInputs, Split, probe_cells, undetermined
from goalscope.inside.probing.labels import seen_cells
from goalscope.inside.probing.suite import SEEN
from goalscope.runs import Episode, Store, Study, run
from goalscope.worlds import visible

WORLDS: dict[str, Any] = {"kind": "grid", "sizes": [7, 9], "densities": [0.4], "count": 2, "minimum_distance": 5}


def played(directory: Path, **worlds: Any) -> list[Episode]:
    study = {"worlds": [{**WORLDS, **worlds}], "agents": [{"kind": "optimal"}], "trajectories": 1}
    run(Study.parse({**study, "horizon": {"factor": 2.0}}), directory)
    with Store(directory) as store:
        return list(store.episodes())


def every_step(episodes: list[Episode], frame: int) -> Cells:
    steps = [(one, at) for one in episodes for at in range(len(one.steps))]
    count = len(steps)
    return Cells(
        frame=frame,
        labels=np.zeros((count, frame**2), dtype=np.int8),
        shape=np.array([one.world.grid.walls.shape for one, _ in steps]),
        density=np.full(count, 0.4),
        reasoning=np.full(count, "", dtype=object),
        episode_id=np.array([one.id for one, _ in steps], dtype=object),
        step=np.array([at for _, at in steps]),
        cluster=np.array([one.world.cluster_id for one, _ in steps], dtype=object),
    )


def test_what_was_seen_is_what_was_visible_from_every_cell_so_far(tmp_path: Path) -> None:
    episodes = played(tmp_path / "fog", fog_radius=3)
    cells = every_step(episodes, 9)
    found = seen_cells(cells, episodes).reshape(-1, 9, 9)
    by_id = {one.id: one for one in episodes}
    for row, (identity, number) in enumerate(zip(cells.episode_id, cells.step, strict=True)):
        walls = by_id[identity].world.grid.walls
        wanted = np.zeros((9, 9), dtype=bool)
        for step in by_id[identity].steps[: number + 1]:
            wanted[: walls.shape[0], : walls.shape[1]] |= visible(walls, step.state.position, 3)
        assert np.array_equal(found[row], wanted)
    assert 0 < found.mean() < cells.inside().mean()


def test_without_fog_the_whole_grid_was_seen(tmp_path: Path) -> None:
    episodes = played(tmp_path / "clear")
    cells = every_step(episodes, 9)
    assert np.array_equal(seen_cells(cells, episodes), cells.inside())


def test_the_walls_that_were_seen_are_scored_alone_as_by_scikit_learn() -> None:
    cells = half_walls(grids=60)
    train = np.arange(len(cells)) < 40
    split = Split(train=train, test=~train, cluster=cells.cluster)
    own = wall_map(cells)
    data = ProbeInputs(activations=[own], cells=cells, split=split)
    seen = stream(1, "seen").random(cells.labels.shape) < 0.4
    settings = FitSettings(penalties=(1e-2,))
    fitted = probe_cells(data, suite=[("percell", "none")], settings=settings, seen=seen)
    plain = probe_cells(data, suite=[("percell", "none")], settings=settings)
    told = fitted.rows.where(fitted.rows.known("cells"))
    assert set(told["cells"].tolist()) == {SEEN} and set(told.measure.tolist()) == {"area under the curve"}
    assert len(plain.rows) == len(fitted.rows) - len(told) and "cells" not in plain.rows.tags
    said = fitted.probe("percell", own).predict(own.where(~train)).natural
    tested, masks = cells.where(~train), undetermined(cells, train)[5, 5][:, WALL]
    for row in told.select(**{"class": "wall"}):
        at = int(np.flatnonzero(tested.cluster == row.cluster)[0])
        counted = seen[~train][at] & masks
        truth = tested.labels[at][counted] == WALL
        if len(set(truth.tolist())) == 2:
            assert row.value == pytest.approx(roc_auc_score(truth, said[at, counted, WALL]))
        else:  # only walls, or none, were seen
            assert np.isnan(row.value)
