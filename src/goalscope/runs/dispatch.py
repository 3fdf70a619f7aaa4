"""Asking an agent: batches cut into portions, several at a time, every answer handed on as soon as it arrives."""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from goalscope.agents.agent import Agent, Observation, Turn, agent_id


@runtime_checkable
class Portioned(Protocol):
    """An agent that wants at most so many observations a call.

    An agent whose answers arrive one by one (one behind a server) says 1: each answer is then committed as soon as it
    is there, and as many are under way as the run has workers.
    """

    @property
    def largest_batch(self) -> int:
        """Most observations of one call, >= 1."""
        ...


@runtime_checkable
class Concurrent(Protocol):
    """An agent that says how many calls at the same time it wants."""

    @property
    def concurrency(self) -> int | None:
        """Calls at the same time, >= 1; None for as many as the run has workers."""
        ...


class Caller:
    """Asks one agent, with some calls under way at the same time.

    Args:
        agent: the agent; its own `Concurrent.concurrency` goes before `workers`.
        workers: calls at the same time, >= 1; with more than one, `Agent.act` is called from several threads.
    """

    def __init__(self, agent: Agent, workers: int) -> None:
        self.agent = agent
        workers = (agent.concurrency if isinstance(agent, Concurrent) else None) or workers
        self.identity = agent_id(agent)
        self._workers = workers
        self._pool = ThreadPoolExecutor(workers) if workers > 1 else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

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

        Args:
            observations: what may be asked about.
            indices: the ones to ask about.
            arrived: called with the indices and the turns of a portion; may be called again after an interrupt.
            before: called with the indices of a portion just before it is sent.
            failed: called with the indices of a portion that the agent did not answer, and the error that it raised.
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
                    if self._pool is None:
                        try:
                            ready.append((portion, self._answer(asked)))
                        except Exception as error:
                            failed(portion, error)
                            raise
                        break
                    running[self._pool.submit(self._answer, asked)] = portion
                finished = wait(running, return_when=FIRST_COMPLETED).done if running else ()
                for future in finished:
                    portion = running.pop(future)
                    problem = future.exception()
                    if problem is None:
                        ready.append((portion, future.result()))
                    else:
                        if isinstance(problem, Exception):
                            failed(portion, problem)
                        failure = failure or problem
            except KeyboardInterrupt as interrupt:
                if failure is not None:
                    raise
                failure = interrupt
        if failure is not None:
            raise failure

    def _portions(self, indices: Sequence[int]) -> list[list[int]]:
        size = max(1, -(-len(indices) // self._workers))
        if isinstance(self.agent, Portioned):
            size = max(1, min(size, self.agent.largest_batch))
        return [list(indices[begin : begin + size]) for begin in range(0, len(indices), size)]

    def _answer(self, observations: list[Observation]) -> list[Turn]:
        turns = list(self.agent.act(observations))
        if len(turns) != len(observations) or not all(isinstance(turn, Turn) for turn in turns):
            raise TypeError(
                f"agent {self.agent.name!r} must answer each observation with a Turn: {len(observations)} asked, got "
                f"{len(turns)}: {[type(turn).__name__ for turn in turns[:3]]}"
            )
        return turns
