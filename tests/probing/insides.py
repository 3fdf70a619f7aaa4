"""Runs that are read from the inside: a tiny study of the bundled model, and one of a tiny model with planted steps."""

from pathlib import Path
from typing import Any

from replays import local, record

from goalscope.runs import Step

DECLARED: dict[str, Any] = {
    "agent": "Theseus",
    "test": 0.4,
    "layers": [2, 5],
    "random": {"kinds": ["permuted"], "seeds": 2},
    "probes": {"hidden": 8, "epochs": 2},
    "decoders": {"layers": [1, 2], "width": 8, "feedforward": 8, "epochs": 2},
}

STUDY: dict[str, Any] = {
    "name": "Tiny",
    "seed": 5,
    "worlds": [{"kind": "grid", "sizes": [7], "densities": [0.4], "count": 5}],
    "agents": [
        {"kind": "chat", "name": "Theseus", "model": "theseus", "temperature": 0.0, "max_tokens": 96},
        {"kind": "random"},
    ],
    "trajectories": 1,
    "horizon": {"steps": 3},
    "analysis": {"inside": DECLARED},
}


def rooms(count: int, *, door: bool = False) -> tuple[str, ...]:
    """Rooms of one shape; the goal stands somewhere else in each, where a walk in a small circle does not lead."""
    found = []
    for at in range(count):
        cells = [["_"] * 5 for _ in range(3)]
        cells[0][0] = "A"
        cells[at % 3][3 + (at // 3) % 2] = "G"
        if door:
            cells[2][1], cells[2][2] = "K", "D"
        found.append("\n".join(["#######", *(f"#{''.join(row)}#" for row in cells), "#######"]))
    return tuple(found)


def silent_at(number: int) -> Any:
    """Return a change that takes the final answer from the steps of one number, so that they have no site `post`."""

    def change(step: Step) -> Step:
        if step.index != number:
            return step
        return Step(
            index=step.index,
            state=step.state,
            action=step.action,
            prompt_tokens=step.prompt_tokens,
            output_tokens=(step.output_tokens or ())[:4],
        )

    return change


def recorded(directory: Path, **options: Any) -> tuple[Path, Any, Any]:
    """Write a run of a tiny model; return it with the model and one of other weights as its control."""
    model = local(seed=0)
    options.setdefault("grids", rooms(6))
    return record(directory, model, **options), model, local(seed=1)
