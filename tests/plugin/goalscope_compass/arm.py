"""Small open grids, on which an agent needs few steps."""

from goalscope.verdict import Arm, arm

arm(
    Arm(
        name="small-grids",
        title="Small open grids",
        needs=frozenset({"grids"}),
        why="it does not act in grids",
        worlds=lambda count: [{"kind": "grid", "sizes": [5], "densities": [0.2], "count": count}],
        agent={"task": "grid"},
        study={"trajectories": 1, "horizon": {"steps": 20}},
        quick=12,
        full=20,
    )
)
