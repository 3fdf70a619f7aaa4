"""Calls of an agent: batches in portions, several at a time; answers that cost something are committed at once."""

import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue
from types import FrameType

from goalscope.agents.agent import Agent, Observation, Turn, agent_id
from goalscope.models.base import NotSentError
from goalscope.models.http_budget import CallBudget
from goalscope.progress import TALLY, StoppedError, takes_arrived
from goalscope.runs.executors import Recipe, answer, answer_in_worker, lost_worker
from goalscope.runs.journal import Journal, call_for
from goalscope.runs.server_checks import check_before_calls
from goalscope.runs.store import Store


class Interrupts:
    """The interrupts of the user (SIGINT) during a run.

    While `awaiting` is set, the first one raises nothing: it wakes up whoever awaits the answers under way.
    """

    def __init__(self) -> None:
        self.count = 0
        self.awaiting: SimpleQueue[None] | None = None

    def __call__(self) -> None:
        """Raise KeyboardInterrupt once one has arrived."""
        if self.count:
            raise KeyboardInterrupt

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Handle a SIGINT."""
        self.count += 1
        if self.awaiting is not None and self.count == 1:
            self.awaiting.put(None)
        else:
            signal.default_int_handler(number, frame)


class Caller:
    """Asks one agent, with several simultaneous calls of `Agent.act`.

    An agent may have an attribute ``largest_batch``, the maximum number of observations of a call. It is 1 for an agent
    whose answers arrive one by one (behind a server): each answer is then committed when it arrives. Its attribute
    ``concurrency``, where it is a number, replaces ``workers``. Where ``hands_out`` is true, ``act`` has a parameter
    ``arrived`` and hands out answers during a call (`goalscope.progress.Arrived`): each is committed at once.

    Args:
        agent: the agent.
        workers: maximum number of simultaneous calls.
        elsewhere: the executor of the agent and the recipe to build it there; None for threads of this process.
        interrupts: the interrupts of the run; None where they are not handled.
    """

    def __init__(
        self,
        agent: Agent,
        workers: int,
        elsewhere: tuple[Executor, Recipe] | None = None,
        interrupts: Interrupts | None = None,
    ) -> None:
        self.agent = agent
        self.identity = agent_id(agent)
        self._workers: int = workers if elsewhere else getattr(agent, "concurrency", None) or workers
        self._elsewhere = elsewhere
        self._hands_out = elsewhere is None and bool(getattr(agent, "hands_out", False)) and takes_arrived(agent.act)
        self._in_threads = elsewhere is None and (self._workers > 1 or self._hands_out)
        self._interrupts = interrupts or Interrupts()
        self._asked = list[Future[list[Turn]]]()  # in threads of this process, until they are done
        self.checked = False  # whether the agent's server was tried

    def close(self) -> None:
        """Wait for what ends soon: calls of an agent that hands out its answers, unless its server is slow."""
        if self._hands_out and budget_of(self.agent) is None:
            wait(self._asked)

    def turns(self, observations: Sequence[Observation]) -> list[Turn]:
        """Return a turn for each observation."""
        turns: dict[int, Turn] = {}

        def take(portion: list[int], answered: list[Turn]) -> None:
            turns.update(zip(portion, answered, strict=True))

        self.ask(observations, range(len(observations)), take)
        return [turns[index] for index in range(len(observations))]

    def journalled_turns(
        self,
        observations: Sequence[Observation],
        journal: Journal,
        store: Store,
        committed: Callable[[int], None] = lambda count: None,
    ) -> tuple[list[Turn], int]:
        """Return a turn for each observation, committed before it is returned, and how many the journal held already.

        Args:
            observations: what the agent is shown.
            journal: the calls of the run.
            store: the run, which stores the checks of the agent's server before the first call.
            committed: called with the number of new answers whenever some were committed; 0 when some were asked for.
        """
        calls = [call_for(self.agent, self.identity, observation) for observation in observations]
        turns = {index: turn for index, call in enumerate(calls) if (turn := journal.find(call)) is not None}
        missing = [index for index in range(len(calls)) if index not in turns]
        replayed, counted, under_way = len(turns), budget_of(self.agent) is not None, set[int]()

        def send(portion: list[int]) -> None:
            journal.send([calls[index] for index in portion])
            under_way.update(portion)
            TALLY.add(begun=len(portion), under_way=len(portion))
            committed(0)

        def commit(portion: list[int], answered: list[Turn]) -> None:
            stored = journal.done([(calls[index], turn) for index, turn in zip(portion, answered, strict=True)])
            turns.update(zip(portion, stored, strict=True))
            new = [turns[index] for index in portion if index in under_way]
            under_way.difference_update(portion)
            TALLY.add(
                under_way=-len(new),
                answers=len(new),
                invalid=sum(turn.action is None for turn in new),
                told_prompt=int(sum(turn.usage.get("prompt_tokens", 0) for turn in new)),
                told_output=int(sum(turn.usage.get("output_tokens", 0) for turn in new)),
            )
            committed(len(new))

        def withdraw(portion: list[int], error: Exception) -> None:
            # Where each request is counted, none of them is under way any more; what a model here did not answer
            # cost nothing.
            if counted or isinstance(error, NotSentError | StoppedError):
                journal.withdraw([calls[index] for index in portion])

        if missing and not self.checked:
            check_before_calls(store, self.agent, observations[missing[0]])
            self.checked = True
        try:
            self.ask(observations, missing, commit, send, withdraw)
        finally:
            self._interrupts.awaiting = None
            TALLY.add(under_way=-len(under_way))
        return [turns[index] for index in range(len(calls))], replayed

    def ask(
        self,
        observations: Sequence[Observation],
        indices: Sequence[int],
        arrived: Callable[[list[int], list[Turn]], None],
        before: Callable[[list[int]], None] = lambda portion: None,
        failed: Callable[[list[int], Exception], None] = lambda portion, error: None,
    ) -> None:
        """Ask about some observations and pass the answers to ``arrived`` when they arrive.

        Where a portion fails, or the user interrupts, no further one is sent. Those under way are awaited and passed on
        before the error is raised, since they are paid for; a model of this process is stopped after its present pass.
        A second interrupt does not wait.
        """
        waiting = deque(self._portions(indices))
        running: dict[Future[list[Turn]], _Portion] = {}
        ready: deque[tuple[list[int], list[Turn]]] = deque()
        woken, stop = SimpleQueue[None](), threading.Event()
        failure: BaseException | None = None
        self._interrupts.awaiting = woken if self._in_threads or self._elsewhere is not None else None
        while ready or running or (waiting and failure is None):
            try:
                if count := len(ready):
                    groups = [ready[number] for number in range(count)]
                    arrived(
                        [index for portion, _ in groups for index in portion],
                        [turn for _, turns in groups for turn in turns],
                    )
                    for _ in range(count):
                        ready.popleft()
                if self._interrupts.count and failure is None and (running or waiting):
                    raise KeyboardInterrupt
                while waiting and failure is None and len(running) < self._workers:
                    portion = waiting.popleft()
                    before(portion)
                    questions = [observations[index] for index in portion]
                    if self._elsewhere is None and not self._in_threads:
                        try:
                            ready.append((portion, answer(self.agent, questions)))
                        except Exception as error:
                            failed(portion, error)
                            raise
                        break
                    asked = _Portion(portion, ready, woken, stop)
                    try:
                        future = self._submit(asked, questions)
                    except BrokenExecutor as error:
                        failure = lost_worker(error)
                        break
                    running[future] = asked
                    future.add_done_callback(lambda _: woken.put(None))
                if running and not ready and not any(future.done() for future in running):
                    woken.get()
                for future in [each for each in running if each.done()]:
                    asked, problem = running.pop(future), future.exception()
                    rest = [index for index in asked.indices if index not in asked.handed]
                    if problem is None:
                        by_index = dict(zip(asked.indices, future.result(), strict=True))
                        ready.append((rest, [by_index[index] for index in rest]))
                        continue
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
                under_way = sum(len(each.indices) - len(each.handed) for each in running.values())
                if under_way:
                    TALLY.tell(self._ending(under_way))
        if failure is not None:
            raise failure

    def _submit(self, portion: "_Portion", questions: Sequence[Observation]) -> Future[list[Turn]]:
        """Have a portion answered, in a thread of its own or elsewhere."""
        if self._elsewhere is not None:
            pool, recipe = self._elsewhere
            return pool.submit(answer_in_worker, recipe, questions)
        future: Future[list[Turn]] = Future()

        def work() -> None:
            try:
                future.set_result(answer(self.agent, questions, portion.take if self._hands_out else None))
            except BaseException as error:  # noqa: BLE001 - whatever the code of an agent raises is raised in `ask`
                future.set_exception(error)

        # The process does not wait for it at its end: after a second interrupt nobody wants the answer.
        threading.Thread(target=work, daemon=True).start()
        self._asked = [each for each in self._asked if not each.done()] + [future]
        return future

    def _ending(self, under_way: int) -> str:
        """Say what an interrupt ends now."""
        calls = f"{under_way} {'call' if under_way == 1 else 'calls'} under way"
        if self._hands_out and budget_of(self.agent) is None:
            return f"stopping: answers that are there are kept, {calls} end with the model's present pass"
        return f"stopping: {calls} awaited, since they are paid for; a second Ctrl-C does not wait and gives them up"

    def _portions(self, indices: Sequence[int]) -> list[list[int]]:
        size = max(1, -(-len(indices) // self._workers))
        size = max(1, min(size, getattr(self.agent, "largest_batch", size)))
        return [list(indices[begin : begin + size]) for begin in range(0, len(indices), size)]


def budget_of(agent: Agent) -> CallBudget | None:
    """Return an agent's costs and caps over all sessions of a run, None where answers cost nothing."""
    budget: CallBudget | None = getattr(agent, "budget", None)
    return budget


@dataclass(slots=True)
class _Portion:
    """Questions that were asked together, and which of them are answered."""

    indices: list[int]
    ready: deque[tuple[list[int], list[Turn]]]
    woken: SimpleQueue[None]
    stop: threading.Event
    handed: set[int] = field(default_factory=set)

    def take(self, turns: Sequence[tuple[int, Turn]]) -> None:
        """Take answers when they arrive, from any thread; end the call where the run is stopped."""
        if turns:
            found = [self.indices[index] for index, _ in turns]
            self.ready.append((found, [turn for _, turn in turns]))
            self.handed.update(found)
            self.woken.put(None)
        if self.stop.is_set():
            raise StoppedError


@contextmanager
def interruptible() -> Iterator[Interrupts]:
    """Yield what raises KeyboardInterrupt once SIGINT has arrived, however late it is called.

    Python raises KeyboardInterrupt at any point of the program, and discards it inside of a destructor. The signal is
    therefore remembered too. Where SIGINT is ignored (a process started in the background) or has another handler, and
    outside of the main thread, nothing is changed.
    """
    interrupts = Interrupts()
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield interrupts
        return
    signal.signal(signal.SIGINT, interrupts.handle)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
