"""Executors of agents: threads of this process, other processes, or Ray actors.

All are `concurrent.futures.Executor`. Workers only act: this process stores each question before it is sent, and each
answer before it is used. A worker builds its agent from the kind and the parameters in the study. Only observations,
turns and this recipe are sent between processes.
"""

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from multiprocessing import get_context, parent_process
from typing import Any, Final

from goalscope._ground import own
from goalscope._ground.extras import lacking
from goalscope._ground.ids import canonical_json
from goalscope._ground.parts import sign
from goalscope._ground.progress import Arrived
from goalscope.agents.agent import Agent, Observation, Turn, agent_id, build_agent
from goalscope.agents.models.decode import own_cores, share_cores
from goalscope.agents.models.local import LocalModel
from goalscope.runs.study import AgentEntry

EXECUTORS: Final = ("threads", "processes", "ray")

AUTO: Final = "auto"
"""The executor that suits the agents of a run: see `suited`."""

_MIN_EPISODES: Final = 400  # minimum number of episodes of small models for which starting processes pays off


@dataclass(frozen=True, slots=True)
class Recipe:
    """A recipe from which a worker builds an agent.

    Attributes:
        kind: kind of the agent.
        parameters: its parameters, as canonical JSON.
        identity: content id that the built agent must have.
    """

    kind: str
    parameters: str
    identity: str

    @classmethod
    def of(cls, entry: AgentEntry, agent: Agent) -> "Recipe":
        """Return the recipe from which a worker process can build an agent again, given the agent and its entry in the
        study.
        """
        name = {} if entry.name is None else {"name": entry.name}
        return cls(entry.kind, canonical_json({**entry.parameters, **name}), agent_id(agent))


def answer(agent: Agent, observations: Sequence[Observation], arrived: Arrived[Turn] | None = None) -> list[Turn]:
    """Ask an agent for its turns, reporting them on arrival if requested.

    Raises:
        ValueError: the agent did not return one turn per observation.
    """
    act: Callable[..., Sequence[Turn]] = agent.act
    turns = list(act(observations) if arrived is None else act(observations, arrived=arrived))
    if len(turns) != len(observations) or not all(isinstance(turn, Turn) for turn in turns):
        raise ValueError(
            f"agent {agent.name!r} must return one Turn per observation: asked {len(observations)}, got "
            f"{len(turns)}: {[type(turn).__name__ for turn in turns[:3]]}"
        )
    return turns


def answer_in_worker(recipe: Recipe, observations: Sequence[Observation]) -> list[Turn]:
    """Return the turns of a recipe's agent, which is built once per worker. Without observations, only load its model.

    Errors name the package that raised them.
    """
    try:
        with _BUILDING:
            agent = _built(recipe)
        if not observations:
            model = getattr(agent, "model", None)
            if isinstance(model, LocalModel):
                _ = model.model  # weights are read when they are first needed
            return []
        return answer(agent, observations)
    except Exception as error:
        sign(error)
        if type(error).__module__ == "builtins" or type(error).__module__.startswith("goalscope."):
            raise
        plain_error = RuntimeError(
            f"{type(error).__name__}: {error}"
        )  # an exception class of another package may not be available in the other process
        vars(plain_error).update(vars(error))
        raise plain_error from None


_BUILDING: Final = threading.Lock()  # several calls may begin at the same time


@lru_cache(maxsize=1)  # agents run one after another, so the weights of the previous one can be freed
def _built(recipe: Recipe) -> Agent:
    agent = build_agent(recipe.kind, json.loads(recipe.parameters))
    if (built_id := agent_id(agent)) != recipe.identity:
        raise ValueError(
            f"the worker built {agent.name!r} as {built_id}, but the run was begun with "
            f"{recipe.identity}: install the same goalscope, packages and model files on the machine of "
            "the worker"
        )
    return agent


def suited(agents: Sequence[Agent], episodes: int, workers: int) -> tuple[str, int]:
    """Return the executor that suits some agents, and its number of workers.

    A model small enough for one core gains nothing from a second thread, which would wait for the Python interpreter.
    With enough episodes, each core gets a process.

    Args:
        agents: the agents of a run.
        episodes: number of episodes per agent.
        workers: the requested number; more than one is kept.
    """
    small = sum(
        isinstance(model := getattr(agent, "model", None), LocalModel) and model.fits_a_core for agent in agents
    )
    cores = own_cores()
    if workers == 1 and cores > 1 and small * episodes >= _MIN_EPISODES:
        return "processes", cores
    return "threads", workers


@contextmanager
def open_executor(name: str, workers: int, gpus: float = 0.0) -> Iterator[Executor | None]:
    """Yield the executor of the agents and close it at the end; None for threads, whose number each agent decides.

    Args:
        name: "threads"; "processes" of this machine; or "ray", for actors of the cluster that RAY_ADDRESS names or, if
            the variable is not set, of this machine.
        workers: number of workers.
        gpus: for Ray, the number of GPUs per worker; 0.5 lets two workers share one.

    Raises:
        ValueError: for another name, or GPUs without Ray.
        ImportError: if Ray is not installed.
    """
    if name not in EXECUTORS:
        raise ValueError(f"executor must be one of {', '.join(EXECUTORS)}, got {name!r}")
    if gpus and name != "ray":
        raise ValueError(
            f"--gpus needs --executor ray, got {gpus:g} with {name}: leave --gpus out; the device of the "
            "model determines where it runs"
        )
    if name == "threads":
        yield None
        return
    with _safe_path(), _processes(workers) if name == "processes" else _RayActors(workers, gpus) as executor:
        yield executor


@contextmanager
def _safe_path() -> Iterator[None]:
    """Keep new processes from importing modules of the working directory, which Python does by default.

    Otherwise a file `multiprocessing.py` in a folder from somebody else would run in each worker. The path of this
    process, which workers take over once they have started, stays unchanged.
    """
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before


def lost_worker(problem: BaseException) -> OSError | None:
    """Return the error for a worker that died before it answered, or None for any other problem."""
    if not isinstance(problem, BrokenExecutor):
        return None
    message = next(iter(str(problem).splitlines()), "") or type(problem).__name__
    return OSError(
        f"a worker must live until it has answered, but one ended before ({message}): see whether memory ran out, take "
        "fewer --workers, and run the same command again to go on"
    )


def _processes(workers: int) -> Executor:
    # A forked child of a process with threads (as PyTorch has) may hang, so children are started afresh.
    arguments = (workers, own.current())
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_begin, initargs=arguments)


def _begin(workers: int, allowed: own.Consent) -> None:
    """Prepare a worker process: limit its cores, ignore Ctrl-C, end with the parent, and copy the user's consent."""
    own.adopt(allowed)
    parent = parent_process()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run waits for pending answers
    os.environ.setdefault("OMP_NUM_THREADS", str(share_cores(workers)))  # before torch is imported
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Any) -> None:
    parent.join()  # end with the parent, because nobody reads the answers of a killed run
    os._exit(1)


class _RayActors(Executor):
    """Ray actors, each of which keeps its agent. One that is lost is replaced, and its calls are sent again.

    Attributes:
        calls_per_worker: maximum number of simultaneous calls of an actor.
    """

    calls_per_worker: Final = 128
    _MOST_LOST: Final = 3  # actors per worker that may be lost without any answer in between

    def __init__(self, workers: int, gpus: float = 0.0) -> None:
        try:
            import ray
        except ImportError as error:
            raise lacking("--executor ray needs ray", "ray", error) from error
        self._ray = ray
        # On this machine, start as many actors as requested regardless of its cores; a cluster has its own number.
        local_options: dict[str, Any] = (
            {} if os.environ.get("RAY_ADDRESS") else {"num_cpus": workers, "include_dashboard": False}
        )
        ray.init(log_to_driver=False, **local_options)
        options = {"max_concurrency": self.calls_per_worker, **({"num_gpus": gpus} if gpus else {})}
        self._start = partial(ray.remote(_Actor).options(**options).remote, own.current())
        self._calls = {self._start(): 0 for _ in range(workers)}  # actor -> number of its calls
        self._lost = 0  # actors lost since the last answer
        self._lock = threading.RLock()  # answers arrive in threads of Ray

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Have the actor with the fewest calls call a function."""
        answered: Future[Any] = Future()
        self._send(answered, lambda actor: actor.call.remote(fn, *args, **kwargs))
        return answered

    def _send(self, answered: Future[Any], call: Callable[[Any], Any]) -> None:
        with self._lock:
            actor = min(self._calls, key=self._calls.__getitem__)
            self._calls[actor] += 1
            reference = call(actor)
        reference.future().add_done_callback(partial(self._hand_on, actor, answered, call))

    def _hand_on(self, actor: Any, answered: Future[Any], call: Callable[[Any], Any], future: Future[Any]) -> None:
        problem = future.exception()
        with self._lock:
            if isinstance(problem, self._ray.exceptions.RayActorError):
                if actor in self._calls:  # the first of its calls that is reported
                    del self._calls[actor]
                    self._lost += 1
                    self._calls[self._start()] = 0
                send_again = self._lost <= self._MOST_LOST * len(self._calls)
            else:
                self._lost, send_again = 0, False
                self._calls[actor] -= 1
        if send_again:
            self._send(answered, call)
        elif problem is None:
            answered.set_result(future.result())
        else:  # an error of the function, or the loss of too many actors
            answered.set_exception(getattr(problem, "cause", None) or BrokenExecutor(str(problem)))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the actors."""
        self._ray.shutdown()


class _Actor:
    def __init__(self, allowed: own.Consent) -> None:
        own.adopt(allowed)

    def call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        return function(*arguments, **options)
