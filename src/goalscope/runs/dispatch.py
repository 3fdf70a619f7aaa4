"""Calls of an agent, with several portions of a batch at a time, in threads, other processes or Ray actors.

Answers that cost something are committed at once. All executors are `concurrent.futures.Executor`. Workers only act:
this process stores each question before it is sent, and each answer before it is used. A worker builds its agent from
the kind and the parameters in the study. Only observations, turns and this recipe are sent between processes.
"""

import json
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from multiprocessing import get_context, parent_process
from queue import SimpleQueue
from types import FrameType
from typing import Any, Final

from goalscope._ground import own
from goalscope._ground.checks import check_text
from goalscope._ground.extras import lacking
from goalscope._ground.ids import canonical_json, content_id
from goalscope._ground.own import sign
from goalscope._ground.progress import TALLY, Arrived, StoppedError, takes_arrived
from goalscope.agents.agent import Agent, Observation, Turn, agent_id, build_agent
from goalscope.agents.chat import ChatAgent
from goalscope.agents.models.abilities import (
    ServerInfo,
    ServerNeeds,
    ServerReport,
    apply_report,
    check_server,
    most_trial_tokens,
    read_server_info,
)
from goalscope.agents.models.base import NotSentError
from goalscope.agents.models.decode import own_cores, share_cores
from goalscope.agents.models.http import HttpModel
from goalscope.agents.models.http_settings import CallBudget
from goalscope.agents.models.local import LocalModel
from goalscope.runs.codec import encode_tags
from goalscope.runs.journal import Call, Journal, call_for
from goalscope.runs.provenance import SERVERS, checks_of
from goalscope.runs.store import Store
from goalscope.runs.study import AgentEntry

Follow = Callable[[Sequence[tuple[Observation, Turn]], int], Sequence[Observation]]
"""Takes observations with their answers, and how many of these the journal held; returns the observations to ask next.
"""


class Interrupts:
    """Counts the user's interrupts (Ctrl-C, signal SIGINT) during a run, so that the run can stop at a safe point.

    Calling the object raises KeyboardInterrupt if an interrupt has arrived. While `awaiting` is set, the first
    interrupt raises nothing: it only wakes up the code that waits for pending answers.
    """

    def __init__(self) -> None:
        self.count = 0
        self.awaiting: SimpleQueue[None] | None = None

    def __call__(self) -> None:
        """Raise KeyboardInterrupt if an interrupt has arrived."""
        if self.count:
            raise KeyboardInterrupt

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Handle the signal SIGINT (Ctrl-C): count it, and raise KeyboardInterrupt unless the run waits for pending
        answers.

        Args:
            number: number of the signal.
            frame: the frame that was interrupted.
        """
        self.count += 1
        if self.awaiting is not None and self.count == 1:
            self.awaiting.put(None)
        else:
            signal.default_int_handler(number, frame)


_BESIDE: Final = list[Interrupts]()  # interrupts of runs outside the main thread


class Caller:
    """Asks one agent for its turns, with several simultaneous calls of `Agent.act`, and stores answers that cost
    something.

    An agent can have these optional attributes. ``largest_batch`` is the maximum number of observations per call; it is
    1 for an agent whose answers arrive one by one (behind a server), so that each answer is committed on arrival.
    ``concurrency``, if it is a number, replaces ``workers``. If ``hands_out`` is true, ``act`` has a parameter
    ``arrived`` and reports answers during a call (`goalscope._ground.progress.Arrived`); each is committed at once. If
    ``joins`` is true, calls of ``act`` may begin at any time and share the work of those under way, as those of a local
    model do; answers must not depend on it.

    Args:
        agent: the agent.
        workers: maximum number of simultaneous calls.
        elsewhere: the executor of the agent and the recipe to build it there; None for threads of this process.
        interrupts: the interrupts of the run; None if they are not handled.
    """

    def __init__(
        self,
        agent: Agent,
        workers: int,
        elsewhere: "tuple[Executor, Recipe] | None" = None,
        interrupts: Interrupts | None = None,
    ) -> None:
        self.agent = agent
        self.identity = agent_id(agent)
        self._workers: int = workers if elsewhere else getattr(agent, "concurrency", None) or workers
        self._elsewhere = elsewhere
        self._hands_out = elsewhere is None and bool(getattr(agent, "hands_out", False)) and takes_arrived(agent.act)
        self._in_threads = elsewhere is None and (self._workers > 1 or self._hands_out)
        # Whether what follows from an answer is asked at once, however long other answers take.
        self._joins = bool(getattr(agent, "joins", False))
        self._continuous = self._joins or getattr(agent, "largest_batch", 0) == 1
        self._interrupts = interrupts or Interrupts()
        self._asked = list[Future[list[Turn]]]()  # calls in threads of this process that are not done
        self.checked = False  # whether the agent's server was checked

    def close(self) -> None:
        """Wait for calls of the agent that are still running and will end soon, before the run ends.

        Calls to a server are not awaited, since they may take long.
        """
        if self._hands_out and budget_of(self.agent) is None:
            wait(self._asked)

    def turns(self, observations: Sequence[Observation]) -> list[Turn]:
        """Ask the agent about each observation, and return its turns in the same order; nothing is stored."""
        questions = [_Question(observation) for observation in observations]

        def take(answered: Sequence[tuple[_Question, Turn]]) -> None:
            for question, turn in answered:
                question.turn = turn

        self._ask(deque(questions), take)
        return [question.turn for question in questions if question.turn is not None]

    def journalled_turns(self, observations: Sequence[Observation], journal: Journal, store: Store) -> list[Turn]:
        """Ask the agent about each observation, and return its turns in the same order, after storing each in the
        journal.

        Answers that the journal already has are used again instead of asking.
        """
        turns: dict[int, Turn] = {}

        def take(answered: Sequence[tuple[Observation, Turn]], replayed: int) -> list[Observation]:
            turns.update((id(observation), turn) for observation, turn in answered)
            return []

        self.converse(observations, take, journal, store)
        return [turns[id(observation)] for observation in observations]

    def converse(
        self,
        observations: Sequence[Observation],
        follow: Follow,
        journal: Journal,
        store: Store,
        committed: Callable[[int], None] = lambda count: None,
    ) -> None:
        """Ask the agent about observations, then about the observations that follow from its answers, until none
        follow.

        Each answer is stored before the question that follows from it is sent. If an agent returns answers one by one,
        or takes further questions while it works on others, the next question is sent as soon as its answer has
        arrived, however long other answers take. Any other agent is asked again only when all answers have arrived. The
        shapes of its batches, and with them the last bits of a local model's likelihoods, therefore do not depend on
        timing.

        Args:
            observations: the first observations to ask about.
            follow: called with (observation, turn) pairs and how many of them the journal held; returns the
                observations to ask about next. Answers that the journal already has are passed on first.
            journal: the calls of the run.
            store: the run, which stores the checks of the agent's server before the first call.
            committed: called with the number of newly committed answers; with 0 when questions were sent.

        Raises:
            KeyboardInterrupt: the user interrupted the run; answers so far are stored.
        """
        waiting, under_way = deque[_Question](), set[_Question]()
        counted = budget_of(self.agent) is not None

        def enter(new: Sequence[Observation]) -> None:
            while new and not self._interrupts.count:
                answered_turns = list[tuple[Observation, Turn]]()
                for observation in new:
                    call = call_for(self.agent, self.identity, observation)
                    if (turn := journal.find(call)) is None:
                        waiting.append(_Question(observation, call))
                    else:
                        answered_turns.append((observation, turn))
                new = follow(answered_turns, len(answered_turns)) if answered_turns else []

        def send(portion: list[_Question]) -> None:
            journal.send([question.asked for question in portion])
            under_way.update(portion)
            TALLY.add(begun=len(portion), under_way=len(portion))
            committed(0)

        def commit(answered: Sequence[tuple[_Question, Turn]]) -> None:
            stored = journal.done([(question.asked, turn) for question, turn in answered])
            for (question, _), turn in zip(answered, stored, strict=True):
                question.turn = turn
            new = [turn for (question, _), turn in zip(answered, stored, strict=True) if question in under_way]
            under_way.difference_update(question for question, _ in answered)
            TALLY.add(
                under_way=-len(new),
                answers=len(new),
                invalid=sum(turn.action is None for turn in new),
                told_prompt=int(sum(turn.usage.get("prompt_tokens", 0) for turn in new)),
                told_output=int(sum(turn.usage.get("output_tokens", 0) for turn in new)),
            )
            committed(len(new))

        def withdraw(portion: list[_Question], error: Exception) -> None:
            # If requests are counted individually, none is pending any more; unanswered questions to a local model cost
            # nothing.
            if counted or isinstance(error, NotSentError | StoppedError):
                journal.withdraw([question.asked for question in portion])

        def go_on(answered: Sequence[_Question]) -> None:
            enter(
                follow([(question.observation, question.turn) for question in answered if question.turn is not None], 0)
            )

        enter(observations)
        while waiting:
            self._interrupts()
            if not self.checked:
                check_before_calls(store, self.agent, waiting[0].observation)
                self.checked = True
            questions = [] if self._continuous else list(waiting)
            try:
                self._ask(waiting, commit, send, withdraw, go_on if self._continuous else None)
            finally:
                self._interrupts.awaiting = None
                TALLY.add(under_way=-len(under_way))
            go_on(questions)
        self._interrupts()

    def _ask(
        self,
        waiting: "deque[_Question]",
        arrived: "Callable[[Sequence[tuple[_Question, Turn]]], None]",
        before: "Callable[[list[_Question]], None]" = lambda portion: None,
        failed: "Callable[[list[_Question], Exception], None]" = lambda portion, error: None,
        go_on: "Callable[[Sequence[_Question]], None] | None" = None,
    ) -> None:
        """Ask all waiting questions, and pass the answers to ``arrived`` as they arrive.

        After each answer, ``go_on`` may add questions. If a portion fails or the user interrupts, no further portion is
        sent. Pending portions are awaited and passed on before the error is raised, because they are paid for; a model
        in this process stops after its current pass. A second interrupt does not wait.
        """
        size, most_running = self._portions(len(waiting))
        running: dict[Future[list[Turn]], _Portion] = {}
        ready = deque[list[tuple[_Question, Turn]]]()
        woken, stop = SimpleQueue[None](), threading.Event()
        failure: BaseException | None = None
        self._interrupts.awaiting = woken if self._in_threads or self._elsewhere is not None else None
        while ready or running or (waiting and failure is None):
            try:
                if count := len(ready):
                    answered = [pair for number in range(count) for pair in ready[number]]
                    arrived(answered)
                    for _ in range(count):
                        ready.popleft()
                    if go_on is not None and failure is None:
                        try:
                            go_on([question for question, _ in answered])
                        except Exception as error:  # noqa: BLE001 - raised when what is under way has arrived
                            failure = error
                if self._interrupts.count and failure is None and (running or waiting):
                    raise KeyboardInterrupt
                while waiting and failure is None and len(running) < most_running:
                    portion = [waiting.popleft() for _ in range(min(size, len(waiting)))]
                    before(portion)
                    observations = [question.observation for question in portion]
                    if self._elsewhere is None and not self._in_threads:
                        try:
                            ready.append(list(zip(portion, answer(self.agent, observations), strict=True)))
                        except Exception as error:
                            failed(portion, error)
                            raise
                        break
                    portion_asked = _Portion(portion, ready, woken, stop)
                    try:
                        future = self._submit(portion_asked, observations)
                    except BrokenExecutor as error:
                        failure = lost_worker(error)
                        break
                    running[future] = portion_asked
                    future.add_done_callback(lambda _: woken.put(None))
                if running and not ready and not any(future.done() for future in running):
                    woken.get()
                for future in [each for each in running if each.done()]:
                    portion_asked, problem = running.pop(future), future.exception()
                    if problem is None:
                        turns = zip(portion_asked.questions, future.result(), strict=True)
                        ready.append([pair for number, pair in enumerate(turns) if number not in portion_asked.handed])
                        continue
                    rest = [
                        question
                        for number, question in enumerate(portion_asked.questions)
                        if number not in portion_asked.handed
                    ]
                    if rest and isinstance(problem, Exception):
                        failed(rest, problem)
                    if not (stop.is_set() and isinstance(problem, StoppedError)):
                        failure = failure or lost_worker(problem) or problem
            except KeyboardInterrupt as interrupt:
                if failure is not None:
                    raise
                failure = interrupt
                stop.set()
                if (budget := budget_of(self.agent)) is not None:
                    budget.stopped.set()
                under_way = sum(
                    len(portion_running.questions) - len(portion_running.handed) for portion_running in running.values()
                )
                if under_way:
                    TALLY.tell(self._ending(under_way))
        if failure is not None:
            raise failure

    def _portions(self, count: int) -> tuple[int, int]:
        """Return the maximum size of a portion, and of the number of portions at a time, for ``count`` questions."""
        per_worker = 1 if self._elsewhere is None else getattr(self._elsewhere[0], "calls_per_worker", 1)
        if self._joins and per_worker > 1:
            return 1, self._workers * per_worker
        if self._joins and self._hands_out:
            return sys.maxsize, sys.maxsize  # each portion joins those that the model already decodes
        size = max(1, -(-count // self._workers))
        return max(1, min(size, getattr(self.agent, "largest_batch", size))), self._workers

    def _submit(self, portion: "_Portion", questions: Sequence[Observation]) -> Future[list[Turn]]:
        """Submit a portion for answering, in a thread of its own or to the executor."""
        if self._elsewhere is not None:
            pool, recipe = self._elsewhere
            return pool.submit(answer_in_worker, recipe, questions)
        future: Future[list[Turn]] = Future()

        def work() -> None:
            try:
                future.set_result(answer(self.agent, questions, portion.take if self._hands_out else None))
            except BaseException as error:  # noqa: BLE001 - regardless of the code of an agent raises is raised in `ask`
                future.set_exception(error)

        # The process does not wait for this thread on exit, because nobody needs the answer after a second interrupt.
        threading.Thread(target=work, daemon=True).start()
        self._asked = [call for call in self._asked if not call.done()] + [future]
        return future

    def _ending(self, under_way: int) -> str:
        """Describe what happens after an interrupt."""
        calls = f"{under_way} {'call' if under_way == 1 else 'calls'} under way"
        if self._hands_out and budget_of(self.agent) is None:
            return f"stopping: answers that are there are kept, {calls} end with the model's present pass"
        return f"stopping: {calls} awaited, since they are paid for; a second Ctrl-C does not wait and gives them up"


def check_agents(agents: Sequence[Agent]) -> None:
    """Check that agents can run together and that their answers can be stored.

    Raises:
        ValueError: there is no agent, two have the same name or id, or a name or tag cannot be stored.
    """
    if not agents:
        raise ValueError("a run needs at least one agent, got none")
    for agent in agents:
        check_text("the name of an agent", agent.name)
        encode_tags(getattr(agent, "tags", None) or {})
    for attribute, values in (
        ("names", [agent.name for agent in agents]),
        ("ids", [agent_id(agent) for agent in agents]),
    ):
        if len(set(values)) < len(values):
            raise ValueError(f"the agents of a run must have different {attribute}, got {', '.join(values)}")


def budget_of(agent: Agent) -> CallBudget | None:
    """Return the budget of an agent (what it has spent, and its limits); None if its answers cost nothing."""
    budget: CallBudget | None = getattr(agent, "budget", None)
    return budget


@dataclass(slots=True, eq=False)
class _Question:
    """An observation, its call if the agent's calls are journalled, and its answer once it has arrived."""

    observation: Observation
    call: Call | None = None
    turn: Turn | None = None

    @property
    def asked(self) -> Call:
        assert self.call is not None
        return self.call


@dataclass(slots=True)
class _Portion:
    """Questions that are asked together, and the positions of those already answered."""

    questions: list[_Question]
    ready: deque[list[tuple[_Question, Turn]]]
    woken: SimpleQueue[None]
    stop: threading.Event
    handed: set[int] = field(default_factory=set)

    def take(self, turns: Sequence[tuple[int, Turn]]) -> None:
        """Accept answers as they arrive, from any thread; end the call if the run is stopped."""
        if turns:
            self.ready.append([(self.questions[place], turn) for place, turn in turns])
            self.handed.update(place for place, _ in turns)
            self.woken.put(None)
        if self.stop.is_set():
            raise StoppedError


def interrupt_others() -> None:
    """Interrupt the runs in threads other than the main thread, which Ctrl-C does not reach by itself."""
    for interrupts in list(_BESIDE):
        interrupts.count += 1
        if interrupts.awaiting is not None:
            interrupts.awaiting.put(None)


@contextmanager
def interruptible() -> Iterator[Interrupts]:
    """Context in which Ctrl-C (SIGINT) is remembered; it yields a function that raises KeyboardInterrupt if one has
    arrived.

    Python may raise KeyboardInterrupt anywhere and discards it inside a destructor, so the signal is also remembered.
    Nothing changes if SIGINT is ignored (as in a background process) or has another handler. Outside the main thread,
    `interrupt_others` replaces the signal.
    """
    interrupts = Interrupts()
    if threading.current_thread() is not threading.main_thread():
        _BESIDE.append(interrupts)
        try:
            yield interrupts
        finally:
            _BESIDE.remove(interrupts)
        return
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield interrupts
        return
    signal.signal(signal.SIGINT, interrupts.handle)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


# Executors

EXECUTORS: Final = ("threads", "processes", "ray")

AUTO: Final = "auto"
"""The executor that suits the agents of a run: see `suited`."""

_MIN_EPISODES: Final = 400  # minimum number of episodes of small models for which starting processes pays off


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a worker process needs to build an agent again: its kind, parameters and expected id.

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
        """Return the recipe from which a worker process can build an agent again.

        Args:
            entry: the agent's entry in the study.
            agent: the agent as it was built in this process.
        """
        name = {} if entry.name is None else {"name": entry.name}
        return cls(entry.kind, canonical_json({**entry.parameters, **name}), agent_id(agent))


def answer(agent: Agent, observations: Sequence[Observation], arrived: Arrived[Turn] | None = None) -> list[Turn]:
    """Ask an agent about some observations, and check that it returns one turn for each.

    Args:
        agent: the agent.
        observations: what it is asked about.
        arrived: called with turns as soon as they arrive; None for an agent that does not support this.

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
    """Build an agent in a worker process, once per process, ask it about some observations and return its turns.

    Without observations, only the weights of its model are loaded. Errors name the package that raised them.

    Raises:
        ValueError: the agent built in the worker differs from that of the run.
        RuntimeError: replaces an exception whose class may be missing in the other process.
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
    """Choose where the agents of a run act: in threads of this process, or in several processes.

    A model small enough for one core gains nothing from a second thread, which would wait for the Python interpreter.
    With enough episodes, each core gets a process.

    Args:
        agents: the agents of a run.
        episodes: number of episodes per agent.
        workers: the requested number; more than one is kept.

    Returns:
        The name of the executor ("threads" or "processes", see `open_executor`), and its number of workers.
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
    """Context that opens the executor in which agents act, and closes it at the end.

    It yields None for threads, whose number each agent decides.

    Args:
        name: "threads"; "processes" of this machine; or "ray", for actors of the cluster that RAY_ADDRESS names or, if
            the variable is not set, of this machine.
        workers: number of workers.
        gpus: for Ray, the number of GPUs per worker; 0.5 lets two workers share one.

    Raises:
        ValueError: the name is unknown, or GPUs are requested without Ray.
        ImportError: Ray is not installed.
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
    """Return the error to raise if a problem means that a worker process died before it answered.

    The result is None for other problems.
    """
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


# Tests of a server before the first call


def wanted_by(agent: ChatAgent, observation: Observation) -> ServerNeeds:
    """Return what an agent requires of its model's server, which determines the tests of the server before a run.

    Args:
        agent: the agent.
        observation: an observation, whose prompt serves as the example.
    """
    request, choice = agent.request(observation), agent.choice
    return ServerNeeds(
        sampling=agent.sampling,
        messages=request.messages,
        answers=request.answers,
        written=choice is None or choice.after == "reasoning",
        scored=choice is not None,
    )


def check_before_calls(store: Store, agent: Agent, observation: Observation) -> None:
    """Test the server of an agent before the first call of a run, and configure its model accordingly.

    A server that this run has tested before is not tested again. For agents without a server nothing happens. What the
    server says about itself is stored with each session.

    Args:
        store: the run, open for writing.
        agent: the agent.
        observation: an observation, whose prompt serves as the example.

    Raises:
        NotSentError: a cap leaves no room for the tests.
        ValueError: the study cannot be run on this server.
        ConnectionError, PermissionError: see `goalscope.agents.models.abilities.check_server`.
    """
    model = getattr(agent, "model", None)
    if not isinstance(agent, ChatAgent) or not isinstance(model, HttpModel):
        return
    if not model.server.preflight:
        _note_server(store, model, read_server_info(model.client))
        return
    needs, identity = wanted_by(agent, observation), agent_id(agent)
    settings = content_id("server", {"model": dict(model.describe()), **needs.settings(model.server)})
    accepted = [entry for entry in checks_of(store) if entry.get("settings") == settings and entry.get("accepted")]
    if accepted:
        apply_report(model, needs, ServerReport.model_validate(accepted[-1]["report"]))
        _note_server(store, model, read_server_info(model.client))
        return
    budget = model.budget
    before = budget.calls, budget.tokens, budget.usd
    requests, prompts, outputs = most_trial_tokens(needs, model.server)
    cost_limit: dict[str, float] = {"requests": requests, "tokens_at_most": prompts + outputs}
    if budget.priced:
        cost_limit["usd"] = budget.usd_of(prompts, outputs)
    entry: dict[str, Any] = {
        "address": model.server.base_url,
        "model": model.served,
        "agent": identity,
        "settings": settings,
        "accepted": False,
    }
    entries = checks_of(store)
    # Store the maximum cost first, in case the process is killed during the trials.
    store.put_info(SERVERS, [*entries, {**entry, "usage": cost_limit}])
    try:
        report = check_server(model, needs)
        entry |= {"server": dict(report.told.server), "report": report.model_dump(mode="json")}
        apply_report(model, needs, report)
        entry["accepted"] = True
    finally:
        requests_made, tokens, usd = budget.calls - before[0], budget.tokens - before[1], budget.usd - before[2]
        entry["usage"] = {"requests": requests_made, "prompt_tokens": tokens, **({"usd": usd} if budget.priced else {})}
        store.put_info(SERVERS, [*entries, entry])


def _note_server(store: Store, model: HttpModel, metadata: ServerInfo) -> None:
    """Store a server's metadata unless the run has them already."""
    entries = checks_of(store)
    report = {"address": model.server.base_url, "model": model.served, "server": dict(metadata.server)}
    # Only answers contain the fingerprint; the server's other pages do not.
    stored = [
        {**entry, "server": {name: text for name, text in entry.get("server", {}).items() if name != "fingerprint"}}
        for entry in entries
    ]
    if metadata.server and not any(report.items() <= entry.items() for entry in stored):
        store.put_info(SERVERS, [*entries, report])
