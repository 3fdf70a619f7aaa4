"""Small sound samples of each thing that a command reads, made by goalscope itself, each when it is first needed."""

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np

import goalscope

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))

from gguf_bytes import SOUND as GGUF_ENTRIES
from gguf_bytes import tensor as gguf_tensor
from gguf_bytes import whole as gguf_file

AGENTS: Final[list[dict[str, Any]]] = [
    {"kind": "epsilon-greedy", "epsilon": 0.2, "name": "Theseus"},
    {"kind": "optimal"},
    {"kind": "random"},
]
STUDY: Final = {
    "name": "tiny",
    "seed": 5,
    "worlds": [{"kind": "grid", "sizes": [5], "densities": [0.5], "count": 8}],
    "agents": AGENTS,
    "trajectories": 1,
}
INSIDE: Final = {
    **STUDY,
    "worlds": [{"kind": "grid", "sizes": [7], "densities": [0.4], "count": 4}],
    "agents": [{"kind": "chat", "name": "Theseus", "model": "theseus", "temperature": 0.0, "max_tokens": 48}],
    "horizon": {"steps": 2},
    "analysis": {
        "inside": {
            "reads": ["cognitive-map"],
            "sites": ["pre"],
            "layers": [2],
            "test": 0.5,
            "random": None,
            "probes": {"hidden": 4, "epochs": 1},
        }
    },
}
PROCESS: Final = {
    "horizon": 1,
    "start": [0.5, 0.5],
    "next": [[0, 0], [1, 1]],
    "utility": [[1, -1], [-1, 1]],
    "goals": [[0, 1]],
    "policy": [[0.8, 0.2], [0.2, 0.8]],
}
ROOM = "#####\n#A__#\n#___#\n#__G#\n#####"
EPISODES: Final[list[dict[str, Any]]] = [
    {"type": "world", "id": "room", "grid": ROOM},
    {"type": "episode", "episode": "one", "world": "room", "agent": "a", "horizon": 5, "tags": {"k": 1}},
    {"episode": "one", "step": 0, "position": [1, 1], "action": "RIGHT", "optimal_actions": ["RIGHT", "DOWN"]},
]
MAP: Final = {
    "cells": [[0, 0], [1, 0], [2, 0], [3, 0]],
    "start": [1, 0],
    "goal": "G",
    "nodes": {"A": {"cell": [0, 0], "options": []}, "G": {"cell": [3, 0], "options": [["A"]]}},
}
TASKS: Final[list[dict[str, Any]]] = [{"map": MAP, "actions": ["left", "right"], "agent": "a"}]
POLICY: Final = "lake.policy"
LAKE: Final = {
    "worlds": [{"kind": "gymnasium", "environments": ["FrozenLake-v1"], "options": {"is_slippery": False}}],
    "agents": [{"kind": "policy", "file": POLICY}, {"kind": "random"}],
    "trajectories": 2,
}
KINDS: Final = {
    "kinds": [{"name": "other", "worlds": [{"kind": "grid", "sizes": [5], "densities": [0.2], "count": 3}]}],
    "places": ["goal"],
}
HYPOTHESES: Final = {"hypotheses": ["goal", {"name": "corner", "is": "corner top-right"}]}


@dataclass(frozen=True)
class Sample:
    """One sound thing.

    Attributes:
        name: of the sample.
        paths: where it lies; several where a command takes several of its kind.
        ours: whether goalscope wrote it, so that any change in it must be noticed.
        beside: files that it names, which lie in the working directory; goalscope wrote them.
        heavy: whether it needs a model, so that it is left to the long tests.
    """

    name: str
    paths: tuple[Path, ...]
    ours: bool = True
    beside: tuple[Path, ...] = ()


Run = Callable[..., None]


class Samples:
    """The samples of each thing.

    Args:
        folder: where they are made.
        run: calls a command, which must end with exit status 0.
        heavy: whether those that need a model are made, too.
    """

    def __init__(self, folder: Path, run: Run, *, heavy: bool) -> None:
        self._folder, self._run, self._heavy = folder, run, heavy
        self._made: dict[str, Sample] = {}

    def of(self, thing: str) -> list[Sample]:
        """Return the samples of a thing.

        Raises:
            KeyError: there is no sample of it: make one in this module.
        """
        names = [name for name in THINGS[thing] if self._heavy or name not in HEAVY]
        return [self._get(name) for name in names if name not in NEEDS or find_spec(NEEDS[name]) is not None]

    def _get(self, name: str) -> Sample:
        if name not in self._made:
            paths, ours = getattr(self, f"_{name}")(self._folder / name)
            beside = tuple(self._folder / name / file for file in BESIDE.get(name, ()))
            self._made[name] = Sample(name, tuple(paths), ours, beside)
        return self._made[name]

    def _path(self, name: str) -> Path:
        return self._get(name).paths[0]

    def _tiny_run(self, folder: Path) -> tuple[Sequence[Path], bool]:
        for name, agents in (("first", AGENTS), ("second", [{**AGENTS[0], "epsilon": 0.6}, *AGENTS[1:]])):
            study = _json(folder / f"{name}.yaml", {**STUDY, "agents": agents})
            self._run("run", study, "--out", folder / name)
            # Attacks change the first run; the second one must be measured, for it is compared with the first.
            self._run("report" if name == "first" else "measure", folder / name)
        return [folder / "first", folder / "second"], True

    def _answered_run(self, folder: Path) -> tuple[Sequence[Path], bool]:
        asked = {"agents": AGENTS[:1], "analysis": {"hypotheses": ["goal", "corner top-right"]}}
        self._run("run", _json(folder / "study.yaml", {**STUDY, **asked}), "--out", folder / "run")
        return [folder / "run"], True

    def _inside_run(self, folder: Path) -> tuple[Sequence[Path], bool]:
        self._run("run", _json(folder / "inside.yaml", INSIDE), "--out", folder / "run")
        return [folder / "run"], True

    def _shards(self, folder: Path) -> tuple[Sequence[Path], bool]:
        study, paths = _json(folder / "study.yaml", STUDY), [folder / "1", folder / "2"]
        for number, path in enumerate(paths, 1):
            self._run("run", study, "--shard", f"{number}/2", "--out", path)
        return paths, True

    def _tiny_evaluation(self, folder: Path) -> tuple[Sequence[Path], bool]:
        for agent in ("optimal", "random"):
            words = ("--quick", "--arms", "keys", "--out", folder / agent)
            self._run("evaluate", agent, *words)
        return [folder / "optimal", folder / "random"], True

    def _tables(self, folder: Path) -> tuple[Sequence[Path], bool]:
        self._run("organisms", "make", "--at", folder / "set", "--families", "goal,place", "--kinds", "table")
        return [folder / "set"], True

    def _challenges(self, folder: Path) -> tuple[Sequence[Path], bool]:
        for name in ("claimed", "opened"):
            place, key = folder / name, folder / f"{name}-key.json"
            self._run("organisms", "seal", "--at", self._path("tables"), "--out", place, "--key", key)
            self._run("organisms", "claim", "score", "--at", place)
        self._run("organisms", "open", "--at", folder / "opened", "--key", folder / "opened-key.json")
        return [folder / "opened"], True

    def _claimed(self, folder: Path) -> tuple[Sequence[Path], bool]:
        return [self._path("challenges").with_name("claimed")], True

    def _claimed_key(self, folder: Path) -> tuple[Sequence[Path], bool]:
        return [self._path("challenges").with_name("claimed-key.json")], True

    def _study_file(self, folder: Path) -> tuple[Sequence[Path], bool]:
        return [_json(folder / "study.yaml", STUDY)], False

    def _hypotheses_file(self, folder: Path) -> tuple[Sequence[Path], bool]:
        return [_json(folder / "mine.yaml", HYPOTHESES)], False

    def _kinds_file(self, folder: Path) -> tuple[Sequence[Path], bool]:
        return [_json(folder / "kinds.yaml", KINDS)], False

    def _predictions(self, folder: Path) -> tuple[Sequence[Path], bool]:
        worlds = "{kind: grid, sizes: [5], densities: [0.0, 0.4], count: 4}"
        kinds = ("--kinds", self._path("kinds_file"), "--out", folder / "claim")
        self._run("predict", "epsilon-greedy:epsilon=0.2", "--worlds", worlds, *kinds)
        return [folder / "claim"], True

    def _plan_file(self, folder: Path) -> tuple[Sequence[Path], bool]:
        (folder).mkdir()
        return [Path(shutil.copy(self._path("tiny_evaluation") / "evaluation.json", folder / "plan.json"))], False

    def _agent_file(self, folder: Path) -> tuple[Sequence[Path], bool]:
        return [
            _json(folder / f"agent-{number}.yaml", {"kind": "epsilon-greedy", "epsilon": number / 10})
            for number in (2, 6)
        ], False

    def _gguf_file(self, folder: Path) -> tuple[Sequence[Path], bool]:
        folder.mkdir()
        (folder / "tiny.gguf").write_bytes(gguf_file(*GGUF_ENTRIES, tensors=(gguf_tensor("w", [4, 4]),)))
        return [folder / "tiny.gguf"], False

    def _policy_study(self, folder: Path) -> tuple[Sequence[Path], bool]:
        import torch

        from goalscope.environments import save_policy

        folder.mkdir()
        save_policy([torch.nn.Linear(16, 4)], folder / POLICY)
        return [_json(folder / "policy.yaml", LAKE)], False

    def _weights(self, folder: Path) -> tuple[Sequence[Path], bool]:
        bundled = Path(goalscope.__file__).parent / "agents" / "theseus" / "weights"
        return [shutil.copytree(bundled, folder / "model")], False

    def _episodes_log(self, folder: Path) -> tuple[Sequence[Path], bool]:
        return [_lines(folder / "episodes.jsonl", EPISODES)], False

    def _folder_of_logs(self, folder: Path) -> tuple[Sequence[Path], bool]:
        return [_lines(folder / "logs" / "episodes.jsonl", EPISODES).parent], False

    def _tasks_log(self, folder: Path) -> tuple[Sequence[Path], bool]:
        return [_lines(folder / "tasks.jsonl", TASKS)], False

    def _inspect_logs(self, folder: Path) -> tuple[Sequence[Path], bool]:
        self._run("export", self._path("tiny_run"), "--out", folder / "logs", "--format", "inspect")
        return [folder / "logs"], False

    def _json_process(self, folder: Path) -> tuple[Sequence[Path], bool]:
        return [_json(folder / "world.json", PROCESS)], False

    def _array_process(self, folder: Path) -> tuple[Sequence[Path], bool]:
        folder.mkdir()
        arrays: dict[str, Any] = {key: np.asarray(value) for key, value in PROCESS.items()}
        np.savez(folder / "world.npz", **arrays)
        return [folder / "world.npz"], False

    def _prompt_file(self, folder: Path) -> tuple[Sequence[Path], bool]:
        folder.mkdir()
        (folder / "prompt.txt").write_text("Go to the goal.\n{grid}\n", encoding="utf-8")
        return [folder / "prompt.txt"], False


THINGS: Final[dict[str, tuple[str, ...]]] = {
    "agent": ("agent_file",),
    "challenge": ("challenges", "claimed"),
    "evaluation": ("tiny_evaluation",),
    "hypotheses": ("hypotheses_file",),
    "key": ("claimed_key",),
    "kinds": ("kinds_file",),
    "log": ("episodes_log", "folder_of_logs", "tasks_log", "inspect_logs"),
    "model": ("weights", "gguf_file"),
    "organisms": ("tables",),
    "plan": ("plan_file",),
    "claim": ("predictions",),
    "process": ("json_process", "array_process"),
    "prompt": ("prompt_file",),
    "run": ("tiny_run", "answered_run", "inside_run"),
    "shard": ("shards",),
    "study": ("study_file", "policy_study"),
}
HEAVY: Final = ("inside_run", "weights", "inspect_logs", "policy_study")
"""Samples that need a model or another library."""
BESIDE: Final = {"policy_study": (POLICY,)}
"""Files that a sample names, by their names relative to the working directory."""
NEEDS: Final = {"inspect_logs": "inspect_ai", "policy_study": "gymnasium"}
"""Samples that are left out where a library is not installed."""


def _json(path: Path, value: Any) -> Path:
    """Write JSON, which is YAML, too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def _lines(path: Path, values: Sequence[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(value)}\n" for value in values), encoding="utf-8")
    return path
