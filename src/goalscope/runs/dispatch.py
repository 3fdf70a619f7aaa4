"""Asking an agent: batches cut into portions, several at a time, every answer handed on as soon as it arrives."""

import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from types import FrameType

from goalscope.agents.agent import Agent, Observation, Turn, agent_id
from goalscope.runs.executors import Recipe, answer, answer_in_worker, lost_worker


class Caller:
    """Asks one agent, with some calls of `Agent.act` under way at the same time.

    An agent may have an attribute ``largest_batch``, the most observations that it wants a call: one whose answers
    arrive one by one (one behind a server) says 1, and each answer is committed as soon as it is there. Its attribute
    ``concurrency``, where it is a number, goes before ``workers``.

    Args:
        agent: the agent.
        workers: calls at the same time.
        elsewhere: what the agent acts in and what it is built from there; None for threads of this process.
    """

    def __init__(self, agent: Agent, workers: int, elsewhere: tuple[Executor, Recipe] | None = None) -> None:
        self.agent = agent
        self.identity = agent_id(agent)
        self._workers: int = workers if elsewhere else getattr(agent, "concurrency", None) or workers
        self._elsewhere = elsewhere
        self._threads = ThreadPoolExecutor(self._workers) if self._workers > 1 and not elsewhere else None

    def close(self) -> None:
        """Wait for the calls under way."""
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)

    def ask(
        self,
        observations: Sequence[Observation],
        indices: Sequence[int],
        arrived: Callable[[list[int], list[Turn]], None],
        before: Callable[[list[int]], None] = lambda portion: None,
        failed: Callable[[list[int], Exception], None] = lambda portion, error: None,
    ) -> None:
        """Ask about some observations and hand on the answers of each portion as soon as it is there.

        Where a portion fails, or the user interrupts, no further one is sent, and those under way are awaited and
        handed on before the error goes on: they have been paid for. A second interrupt does not wait.
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
                    asked = [observations[index] for index in portion]
                    if self._elsewhere is not None:
                        pool, recipe = self._elsewhere
                        try:
                            running[pool.submit(answer_in_worker, recipe, asked)] = portion
                        except BrokenExecutor as error:
                            failure = lost_worker(error)
                    elif self._threads is not None:
                        running[self._threads.submit(answer, self.agent, asked)] = portion
                    else:
                        try:
                            ready.append((portion, answer(self.agent, asked)))
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


@contextmanager
def interruptible() -> Iterator[Callable[[], None]]:
    """Yield a function that raises KeyboardInterrupt once SIGINT has arrived, however late it is called.

    Python raises KeyboardInterrupt wherever the program happens to be, and swallows it where that is a destructor. The
    signal is therefore remembered too. Where SIGINT is ignored (a process begun in the background) or handled by
    somebody else, and outside of the main thread, nothing is changed.
    """
    arrived = False

    def remember(number: int, frame: FrameType | None) -> None:
        nonlocal arrived
        arrived = True
        signal.default_int_handler(number, frame)

    def check() -> None:
        if arrived:
            raise KeyboardInterrupt

    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield check
        return
    signal.signal(signal.SIGINT, remember)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
