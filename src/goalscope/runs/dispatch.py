"""Calls of an agent: batches in portions, several at a time; answers that cost something are committed at once."""

import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from types import FrameType

from goalscope.agents.agent import Agent, Observation, Turn, agent_id
from goalscope.models.base import NotSentError
from goalscope.models.http_budget import Budget
from goalscope.runs.executors import Recipe, answer, answer_in_worker, lost_worker
from goalscope.runs.journal import Journal, call_for
from goalscope.runs.server_checks import check_before_calls
from goalscope.runs.store import Store


class Caller:
    """Asks one agent, with several simultaneous calls of `Agent.act`.

    An agent may have an attribute ``largest_batch``, the maximum number of observations of a call. It is 1 for an agent
    whose answers arrive one by one (behind a server): each answer is then committed when it arrives. Its attribute
    ``concurrency``, where it is a number, replaces ``workers``.

    Args:
        agent: the agent.
        workers: maximum number of simultaneous calls.
        elsewhere: the executor of the agent and the recipe to build it there; None for threads of this process.
    """

    def __init__(self, agent: Agent, workers: int, elsewhere: tuple[Executor, Recipe] | None = None) -> None:
        self.agent = agent
        self.identity = agent_id(agent)
        self._workers: int = workers if elsewhere else getattr(agent, "concurrency", None) or workers
        self._elsewhere = elsewhere
        self._threads = ThreadPoolExecutor(self._workers) if self._workers > 1 and not elsewhere else None
        self._checked = False  # whether the agent's server was tried

    def close(self) -> None:
        """Wait for the calls under way."""
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)

    def turns(self, observations: Sequence[Observation]) -> list[Turn]:
        """Return a turn for each observation."""
        turns: dict[int, Turn] = {}

        def take(portion: list[int], answered: list[Turn]) -> None:
            turns.update(zip(portion, answered, strict=True))

        self.ask(observations, range(len(observations)), take)
        return [turns[index] for index in range(len(observations))]

    def journalled_turns(
        self, observations: Sequence[Observation], journal: Journal, store: Store
    ) -> tuple[list[Turn], int]:
        """Return a turn for each observation, committed before it is returned, and how many the journal held already.

        Args:
            observations: what the agent is shown.
            journal: the calls of the run.
            store: the run, which stores the checks of the agent's server before the first call.
        """
        calls = [call_for(self.agent, self.identity, observation) for observation in observations]
        turns = {index: turn for index, call in enumerate(calls) if (turn := journal.find(call)) is not None}
        missing = [index for index in range(len(calls)) if index not in turns]
        replayed, counted = len(turns), budget_of(self.agent) is not None

        def send(portion: list[int]) -> None:
            journal.send([calls[index] for index in portion])

        def commit(portion: list[int], answered: list[Turn]) -> None:
            stored = journal.done([(calls[index], turn) for index, turn in zip(portion, answered, strict=True)])
            turns.update(zip(portion, stored, strict=True))

        def withdraw(portion: list[int], error: Exception) -> None:
            # Where each request is counted, none of them is under way any more.
            if counted or isinstance(error, NotSentError):
                journal.withdraw([calls[index] for index in portion])

        if missing and not self._checked:
            check_before_calls(store, self.agent, observations[missing[0]])
            self._checked = True
        self.ask(observations, missing, commit, send, withdraw)
        return [turns[index] for index in range(len(calls))], replayed

    def ask(
        self,
        observations: Sequence[Observation],
        indices: Sequence[int],
        arrived: Callable[[list[int], list[Turn]], None],
        before: Callable[[list[int]], None] = lambda portion: None,
        failed: Callable[[list[int], Exception], None] = lambda portion, error: None,
    ) -> None:
        """Ask about some observations and pass the answers of each portion to ``arrived`` when they arrive.

        Where a portion fails, or the user interrupts, no further one is sent. Those under way are awaited and passed on
        before the error is raised, since they are paid for. A second interrupt does not wait.
        """
        waiting = deque(self._portions(indices))
        running: dict[Future[list[Turn]], list[int]] = {}
        ready: deque[tuple[list[int], list[Turn]]] = deque()
        failure: BaseException | None = None
        while ready or running or (waiting and failure is None):
            try:
                while ready:
                    arrived(*ready[0])
                    ready.popleft()
                while waiting and failure is None and len(running) < self._workers:
                    portion = waiting.popleft()
                    before(portion)
                    questions = [observations[index] for index in portion]
                    if self._elsewhere is not None:
                        pool, recipe = self._elsewhere
                        try:
                            running[pool.submit(answer_in_worker, recipe, questions)] = portion
                        except BrokenExecutor as error:
                            failure = lost_worker(error)
                    elif self._threads is not None:
                        running[self._threads.submit(answer, self.agent, questions)] = portion
                    else:
                        try:
                            ready.append((portion, answer(self.agent, questions)))
                        except Exception as error:
                            failed(portion, error)
                            raise
                        break
                finished = wait(running, return_when=FIRST_COMPLETED).done if running else ()
                for future in finished:
                    portion = running.pop(future)
                    problem = future.exception()
                    if problem is None:
                        ready.append((portion, future.result()))
                    else:
                        if isinstance(problem, Exception):
                            failed(portion, problem)
                        failure = failure or lost_worker(problem) or problem
            except KeyboardInterrupt as interrupt:
                if failure is not None:
                    raise
                failure = interrupt
        if failure is not None:
            raise failure

    def _portions(self, indices: Sequence[int]) -> list[list[int]]:
        size = max(1, -(-len(indices) // self._workers))
        size = max(1, min(size, getattr(self.agent, "largest_batch", size)))
        return [list(indices[begin : begin + size]) for begin in range(0, len(indices), size)]


def budget_of(agent: Agent) -> Budget | None:
    """Return an agent's costs and caps over all sessions of a run, None where answers cost nothing."""
    budget: Budget | None = getattr(agent, "budget", None)
    return budget


@contextmanager
def interruptible() -> Iterator[Callable[[], None]]:
    """Yield a function that raises KeyboardInterrupt once SIGINT has arrived, however late it is called.

    Python raises KeyboardInterrupt at any point of the program, and discards it inside of a destructor. The signal is
    therefore remembered too. Where SIGINT is ignored (a process started in the background) or has another handler, and
    outside of the main thread, nothing is changed.
    """
    arrived = False

    def remember(number: int, frame: FrameType | None) -> None:
        nonlocal arrived
        arrived = True
        signal.default_int_handler(number, frame)

    def check() -> None:
        if arrived:
            raise KeyboardInterrupt

    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield check
        return
    signal.signal(signal.SIGINT, remember)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
