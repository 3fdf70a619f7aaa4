"""Agents act in other processes, in and in Ray actors as they do here: the same run, call by call."""

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from command_line import call
from contents import hash_of
from goalscope.agents import Observation
from goalscope.cli.overrides import StudyOptions, load_study
from goalscope.runs import Store, Study, StudyShard, merge, run
from goalscope.runs.dispatch import Caller, Recipe, answer_in_worker, lost_worker, open_executor, suited
from goalscope.runs.episode import LiveEpisode

SCRIPT = Path(__file__).with_name("executor_runs.py")


def study() -> Study:
    """A bundled model and a scripted agent on four small grids."""
    return Study.parse(
        {
            "seed": 3,
            "worlds": [{"kind": "grid", "sizes": [5, 7], "densities": [0.5], "count": 2}],
            "agents": [{"kind": "chat", "model": "theseus", "max_tokens": 96}, {"kind": "random"}],
            "trajectories": 2,
        }
    )


@pytest.mark.parametrize(
    ("cores", "episodes", "workers", "found"),
    [
        (2, 400, 1, ("processes", 2)),
        (2, 399, 1, ("threads", 1)),
        (1, 900, 1, ("threads", 1)),
        (2, 900, 3, ("threads", 3)),
    ],
)
def test_small_models_have_a_process_a_core_where_it_is_worth_it(
    cores: int, episodes: int, workers: int, found: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOALSCOPE_CORES", "")
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(cores)), raising=False)
    theseus, scripted = study().agents()
    assert suited([theseus, scripted], episodes, workers) == found
    assert suited([scripted], 1000, 1) == ("threads", 1)
    monkeypatch.setattr("goalscope.agents.models.local.SMALL", 1000)  # more parameters than one core computes
    assert suited([theseus], episodes, workers) == ("threads", workers)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("threads")
    run(study(), directory)
    return hash_of(directory)


@pytest.mark.full
def test_sixteen_shards_and_two_processes_make_the_run_that_one_process_makes(tmp_path: Path, expected: str) -> None:
    shards = [tmp_path / f"{number}" for number in range(1, 17)]
    for number, shard in enumerate(shards, 1):
        run(study(), shard, shard=StudyShard(number, 16))
    merge(shards, tmp_path / "merged")
    run(study(), tmp_path / "two", executor="processes", workers=2, batch=3)
    assert [hash_of(tmp_path / name) for name in ("merged", "two")] == [expected] * 2


@pytest.mark.full
def test_two_workers_of_a_cluster_make_the_run_that_one_process_makes(tmp_path: Path, expected: str) -> None:
    if find_spec("ray") is None:
        pytest.skip("ray is not installed: pip install '.[ray]'")
    # In a process of its own: the daemons that it starts end with it.
    script = f"from test_executors import study, run; run(study(), {str(tmp_path)!r}, executor='ray', workers=2)"
    (tmp_path / "main.py").write_text(f"if __name__ == '__main__':\n    {script}\n")
    paths = os.pathsep.join([str(SCRIPT.parent), str(SCRIPT.parents[1]), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": paths, "RAY_AUTH_MODE": "disabled"}
    subprocess.run([sys.executable, tmp_path / "main.py"], check=True, env=environment, timeout=600)
    assert hash_of(tmp_path) == expected


KILLER = """
import os, signal, sqlite3, sys, threading, time
from pathlib import Path
from test_executors import study, run

directory, killed = Path(sys.argv[1]), []

def kill():
    answers = 0
    while len(killed) < 3:
        time.sleep(0.05)
        try:
            database = sqlite3.connect(f"file:{directory / 'run.db'}?mode=ro", uri=True)
            count = database.execute("SELECT count(*) FROM calls WHERE state = 'done'").fetchone()[0]
        except sqlite3.Error:
            continue
        for process in Path("/proc").glob("[0-9]*") if count > answers else ():
            try:
                is_ours = str(directory).encode() in (process / "environ").read_bytes()
                if is_ours and b"ray::_Actor" in (process / "cmdline").read_bytes() and process not in killed:
                    os.kill(int(process.name), signal.SIGKILL)
                    killed.append(process)
                    answers = count
                    break
            except OSError:
                continue

if __name__ == "__main__":
    threading.Thread(target=kill, daemon=True).start()
    run(study(), directory, executor="ray", workers=2)
    print(len(killed))
"""


@pytest.mark.full
def test_killed_actors_of_a_cluster_change_nothing(tmp_path: Path, expected: str) -> None:
    if find_spec("ray") is None or not Path("/proc/self/environ").exists():
        pytest.skip("ray is not installed: pip install '.[ray]'")
    (tmp_path / "main.py").write_text(KILLER)
    paths = os.pathsep.join([str(SCRIPT.parent), str(SCRIPT.parents[1]), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": paths, "RAY_AUTH_MODE": "disabled", "MARK": str(tmp_path / "run")}
    command = [sys.executable, tmp_path / "main.py", tmp_path / "run"]
    said = subprocess.run(command, check=True, env=environment, timeout=600, stdout=subprocess.PIPE, text=True).stdout
    assert said.split()[-1] == "3" and hash_of(tmp_path / "run") == expected


@pytest.mark.parametrize("name", ["fog", "explore-exploit", "harness", "demand"])
def test_what_agents_of_shipped_studies_see_and_say_passes_between_processes(name: str) -> None:
    loaded = load_study(name, StudyOptions(trajectories=1))
    seen = set()
    for spec, world, agent in loaded.specs():
        if agent.name in seen:
            continue
        seen.add(agent.name)
        episode = LiveEpisode(spec, world, loaded, loaded.history_of(agent), loaded.failure_of(agent))
        if getattr(agent, "knows_world", False):
            continue  # an oracle; it acts where its world is
        for _ in range(3):
            observation = episode.observe()
            copied = pickle.loads(pickle.dumps(observation))  # noqa: S301 - what was just written
            if agent.journalled:  # a model: its prompt is what it sees
                assert agent.prompt(copied) == agent.prompt(observation)  # type: ignore[attr-defined]
                break
            (turn,) = agent.act([copied])
            assert [turn] == list(agent.act([observation]))
            assert pickle.loads(pickle.dumps(turn)) == turn  # noqa: S301
            episode.apply(turn)
            if episode.outcome is not None:
                break
    assert seen == {agent.name for agent in loaded.agents()}


def test_a_worker_builds_the_very_agent_or_none() -> None:
    made = study()
    recipe = Recipe.of(made.agents_[0], made.agents()[0])
    assert answer_in_worker(recipe, []) == []
    other = Recipe(recipe.kind, recipe.parameters.replace("96", "97"), recipe.identity)
    with pytest.raises(ValueError, match="begun with"):
        answer_in_worker(other, [])


def test_wrong_uses_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="threads, processes, ray"):
        run(study(), tmp_path / "run", executor="slurm")
    with pytest.raises(ValueError, match="the study"):
        run(study(), tmp_path / "run", executor="processes", agents=study().agents())
    assert not (tmp_path / "run").exists()
    assert "must be one of" in call("run", "scripted", "--out", tmp_path / "run", "--executor", "x", status=2)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match="extra ray"), open_executor("ray", 2):
        pass


def start(mode: str, directory: Path) -> subprocess.Popen[str]:
    command = [sys.executable, str(SCRIPT), mode, str(directory)]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def finish(mode: str, directory: Path) -> dict[str, Any]:
    """Run to the end and return the summary."""
    with start(mode, directory) as process:
        said, problem = process.communicate(timeout=120)
    assert process.returncode == 0, problem
    return dict(json.loads(said))


def ended(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_for(there: Any, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < until
        time.sleep(0.02)


def workers_of(directory: Path) -> list[int]:
    return sorted({int(line.split()[0]) for line in log_of(directory)})


def log_of(directory: Path) -> list[str]:
    path = directory / "acted"
    return path.read_text().splitlines() if path.exists() else []


def test_two_processes_make_the_run_of_one(tmp_path: Path) -> None:
    assert finish("whole", tmp_path / "whole")["episodes"] == 6
    assert finish("here", tmp_path / "here")["episodes"] == 6
    assert hash_of(tmp_path / "whole") == hash_of(tmp_path / "here")


@pytest.mark.full
def test_two_processes_end_with_a_killed_run_whose_answers_are_kept(tmp_path: Path) -> None:
    finish("whole", tmp_path / "whole")
    with start("slow", tmp_path / "killed") as process:
        wait_for(lambda: len(log_of(tmp_path / "killed")) >= 6)
        process.send_signal(signal.SIGKILL)
    workers = workers_of(tmp_path / "killed")
    assert workers and process.pid not in workers
    wait_for(lambda: all(map(ended, workers)))
    with Store(tmp_path / "killed", "w") as store:
        answered = {f"{a} {b} {c}" for a, b, c in store.query(
            "SELECT episode_id, step, attempt FROM calls WHERE state = 'done'"
        )}  # fmt: skip
        on_the_way = store.query("SELECT count(*) FROM calls WHERE state = 'sent'")[0][0]
    assert answered and on_the_way <= 2
    before = len(log_of(tmp_path / "killed"))
    assert finish("whole", tmp_path / "killed")["lost"] == on_the_way
    asked = [line.split(maxsplit=1)[1] for line in log_of(tmp_path / "killed")[before:]]
    assert not answered & set(asked) and len(asked) == len(set(asked))
    assert hash_of(tmp_path / "killed") == hash_of(tmp_path / "whole")


def test_a_worker_that_dies_ends_the_run_with_a_sentence_and_nothing_stored_is_lost(tmp_path: Path) -> None:
    with start("slow", tmp_path) as process:
        wait_for(lambda: len(log_of(tmp_path)) >= 6)
        os.kill(workers_of(tmp_path)[0], signal.SIGKILL)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 1 and "a worker must live until it has answered" in said
    with Store(tmp_path) as store:
        assert store.query("SELECT count(*) FROM calls WHERE state = 'done'")[0][0] > 0


class Broken(Executor):
    def __init__(self) -> None:
        self.asked: list[int] = []

    def submit(self, fn: Callable[..., Any], /, *given: Any, **more: Any) -> Future[Any]:
        self.asked.append(len(given[-1]))
        raise BrokenExecutor("a worker is gone")


def test_an_executor_that_is_broken_before_it_is_asked_is_told_the_same_way() -> None:
    made = study()
    agent = made.agents()[0]
    broken = Broken()
    caller = Caller(agent, 2, (broken, Recipe.of(made.agents_[0], agent)))
    with pytest.raises(OSError, match="worker"):
        caller.turns([Observation(view=None)] * 4)  # type: ignore[arg-type]
    assert broken.asked == [2]  # nothing further is sent


def test_only_the_end_of_a_worker_is_told_as_one() -> None:
    assert lost_worker(ValueError("x")) is None
    lost = lost_worker(BrokenExecutor("task"))
    assert isinstance(lost, OSError) and "run the same command again" in str(lost)


def test_ray_replaces_a_lost_actor_and_sends_only_its_calls_again(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[int, int, Future[int]]] = []
    asked: dict[str, Any] = {}

    class Handle:
        """An actor of a Ray that is not there: its calls end when the test says so."""

        def __init__(self, number: int) -> None:
            self.call, self.number = self, number

        def remote(self, function: Any, argument: int) -> Any:
            begun.append((self.number, argument, Future()))
            return SimpleNamespace(future=lambda made=begun[-1][2]: made)

    numbers = iter(range(99))
    made = SimpleNamespace(remote=lambda decision: Handle(next(numbers)))
    made.options = lambda **options: asked.update(options) or made
    errors = SimpleNamespace(RayActorError=type("RayActorError", (Exception,), {}))
    ray = SimpleNamespace(
        init=lambda **options: None, shutdown=lambda: None, remote=lambda kind: made, exceptions=errors
    )
    monkeypatch.setitem(sys.modules, "ray", ray)
    with open_executor("ray", 2, 0.5) as pool:
        assert pool is not None and asked == {"num_gpus": 0.5, "max_concurrency": 128}
        answers = [pool.submit(abs, number) for number in range(4)]
        assert [(actor, number) for actor, number, _ in begun] == [(0, 0), (1, 1), (0, 2), (1, 3)]
        begun[1][2].set_result(10)
        begun[0][2].set_exception(errors.RayActorError("gone"))
        begun[2][2].set_exception(errors.RayActorError("gone"))
        assert [(actor, number) for actor, number, _ in begun[4:]] == [(2, 0), (1, 2)]
        begun[4][2].set_exception(OSError("its own"))
        for at, value in ((3, 30), (5, 20)):
            begun[at][2].set_result(value)
        assert [answer.result() for answer in answers[1:]] == [10, 20, 30]
        assert isinstance(answers[0].exception(), BrokenExecutor)
        last = pool.submit(abs, 9)
        while not last.done():
            begun[-1][2].set_exception(errors.RayActorError("gone"))
        assert len(begun) == 6 + 1 + 6 and isinstance(last.exception(), BrokenExecutor)
    with pytest.raises(ValueError, match="--executor ray"), open_executor("processes", 2, 1.0):
        pass
