"""Running a study: what is specified minus what is stored, many episodes at a time, resumable at any point."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any

from goalscope.agents.agent import Agent, Observation, Turn, agent_id, check_fits
from goalscope.checks import check_text
from goalscope.models.base import NotSentError
from goalscope.models.http_budget import Budget
from goalscope.runs.codec import encode_tags
from goalscope.runs.dispatch import Caller, interruptible
from goalscope.runs.episode import LiveEpisode
from goalscope.runs.executors import AUTO, Recipe, answer_in_worker, open_executor, suited
from goalscope.runs.journal import Journal, call_for
from goalscope.runs.plan import RunPlan
from goalscope.runs.provenance import session
from goalscope.runs.record import Episode, EpisodeSpec
from goalscope.runs.server_checks import check_before_calls, spent_on_checks
from goalscope.runs.store import GROUP_SECONDS, Store
from goalscope.runs.study import Study
from goalscope.runs.study_shard import StudyShard, keep_to_shard
from goalscope.runs.tables import Usage
from goalscope.runs.walks import count_episodes
from goalscope.worlds.world import World

Progress = Callable[[int, int, int, float | None], None]
"""Told every tenth of a second: episodes done, episodes in all, steps taken now, seconds left (None at first)."""

_Waiting = Iterator[tuple[EpisodeSpec, World]]

_PROGRESS_SECONDS = 0.1
_SCRIPTED = 0.01  # a hundredth: only the time that is said to be left depends on it


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """What a run did.

    Attributes:
        episodes: number of episodes run now.
        reused: number of episodes that were stored before.
        steps: number of steps of the episodes run now.
        calls: number of journalled calls made now.
        replayed: number of answers taken from the journal instead of asking again.
        lost: number of calls that an earlier process had in flight when it died.
        seconds: time that the run took.
        directory: where the run directory lies, which may have been renamed meanwhile.
    """

    episodes: int
    reused: int
    steps: int
    calls: int
    replayed: int
    lost: int
    seconds: float
    directory: str


def run(
    study: Study,
    directory: str | Path,
    *,
    agents: Sequence[Agent] | None = None,
    progress: Progress | None = None,
    workers: int = 1,
    batch: int = 256,
    arguments: Mapping[str, Any] | None = None,
    shard: StudyShard | None = None,
    executor: str = "threads",
    gpus: float = 0.0,
) -> RunSummary:
    """Run the episodes of a study that its run directory does not hold yet.

    Neither the number of workers, the size of a batch nor interruptions change a result. Answers count as arrived when
    `Agent.act` returns them, all of its batch at once; see `dispatch.Caller` for agents whose answers arrive one
    by one.

    Args:
        study: what is to be run.
        directory: the run directory, made where it is missing.
        agents: ready agents in place of the study's own.
        progress: is told how far the run is, see `Progress`.
        workers: calls of `Agent.act` at the same time.
        batch: episodes of an agent that are live at the same time.
        arguments: what the user passed and what was defaulted, for the record; see `provenance.session`.
        shard: only this part of the episodes; `merge` puts the directories of all shards together.
        executor: where agents act whose answers are worth minutes, see `executors.open_executor`; "auto" for what suits
            them, see `executors.suited`. Others act here, and so do agents whose requests are counted one by one (those
            behind a server), in threads. New processes import the main module of the program: guard what it does by
            ``if __name__ == "__main__":``.
        gpus: GPUs of each worker, where Ray gives them.

    Returns:
        What was done.

    Raises:
        BlockingIOError: another process runs on the directory.
        ValueError: the directory holds another study, or another part of it, or something is wrong with what it holds.
        KeyboardInterrupt: the run was stopped; finished episodes are stored, the message says how to go on.
        Exception: what an agent raised; finished episodes and journalled answers are stored.
    """
    if executor not in ("threads", AUTO) and agents is not None:
        raise ValueError(
            f"agents that act in other processes must be built from the study, got ready ones with {executor=}: leave "
            "agents out, or use threads"
        )
    if workers < 1 or batch < 1:
        raise ValueError(f"workers and batch must be at least 1, got {workers=} and {batch=}")
    acting = list(study.agents() if agents is None else agents)
    _check_agents(acting)
    for agent in acting:
        check_fits(agent, study.view)
    each = len(study.worlds()) * study.trajectories // (shard.of if shard is not None else 1)
    if executor == AUTO:
        executor, workers = suited(acting, each, workers) if agents is None else ("threads", workers)
    with (
        open_executor(executor, workers, gpus) as elsewhere,
        Store(directory, "w", durability=study.durability) as store,
    ):
        store.put_study(study)
        keep_to_shard(store, shard)
        store.put_session(session(arguments))
        store.put_agents([(agent_id(agent), agent.name, agent.describe()) for agent in acting])
        store.put_worlds(study.worlds())
        places: dict[str, tuple[Executor, Recipe]] = {}
        if elsewhere is not None:
            for entry, agent in zip(study.agents_, acting, strict=True):
                if agent.journalled and _budget(agent) is None:
                    places[agent.name] = elsewhere, Recipe.of(entry, agent)
            # The workers load what they need while this process makes its first prompts.
            if places and count_episodes(store) < each * len(acting):
                for _ in range(workers):
                    elsewhere.submit(answer_in_worker, next(iter(places.values()))[1], [])
        runner = _Runner(study, store, progress, workers, batch, shard, places)
        return runner.run(acting)


class _Runner:
    def __init__(
        self,
        study: Study,
        store: Store,
        progress: Progress | None,
        workers: int,
        batch: int,
        shard: StudyShard | None,
        elsewhere: Mapping[str, tuple[Executor, Recipe]],
    ) -> None:
        self._study, self._store, self._progress, self._shard = study, store, progress, shard
        self._workers, self._batch, self._elsewhere = workers, batch, elsewhere
        self._journal = Journal(store)
        self._finished: list[tuple[Episode, Usage]] = []
        self._episodes = self._reused = self._total = self._steps = 0
        self._calls = self._replayed = 0
        self._checked = False  # whether the server of the agent at work was tried
        # In steps of a model; an episode that ends early counts as its whole horizon.
        self._work = self._work_total = 0.0
        self._began = self._group_began = self._told = time.monotonic()
        self._round_seconds = 0.0

    def run(self, agents: Sequence[Agent]) -> RunSummary:
        plan = RunPlan(self._study, agents, self._shard, self._store, _effort)
        self._total, self._reused, self._work_total = plan.total, plan.reused, plan.work
        try:
            with interruptible() as check_interrupt:
                for _, items in groupby(plan, key=lambda item: id(item[2])):
                    first = next(items)
                    waiting = ((spec, world) for spec, world, _ in chain([first], items))
                    self._run_part(first[2], waiting, check_interrupt)
        except KeyboardInterrupt:
            self._flush()
            raise KeyboardInterrupt(
                f"stopped with {self._reused + self._episodes} of {self._total} episodes stored in {self._place()}: "
                "run the same study on the same directory to go on, nothing stored is repeated"
            ) from None
        except Exception as error:
            error.add_note("what was finished is stored: run the same study on the same directory to go on")
            self._flush()
            raise
        self._flush()
        self._tell(last=True)
        return RunSummary(
            episodes=self._episodes,
            reused=self._reused,
            steps=self._steps,
            calls=self._calls,
            replayed=self._replayed,
            lost=self._journal.lost,
            seconds=time.monotonic() - self._began,
            directory=str(self._store.settled()),
        )

    def _run_part(self, agent: Agent, waiting: _Waiting, check_interrupt: Callable[[], None]) -> None:
        budget, self._checked = _budget(agent), False
        try:
            with closing(Caller(agent, self._workers, self._elsewhere.get(agent.name))) as caller:
                if budget is not None:
                    spent = Counter(self._journal.spent(caller.identity))
                    budget.begin(spent + Counter(spent_on_checks(self._store, caller.identity)), self._journal)
                self._run_agent(caller, waiting, check_interrupt)
        finally:
            if budget is not None:
                budget.end()

    def _run_agent(self, caller: Caller, waiting: _Waiting, check_interrupt: Callable[[], None]) -> None:
        live: list[LiveEpisode] = []
        agent, effort = caller.agent, _effort(caller.agent)
        history, failure = self._study.history_of(agent), self._study.failure_of(agent)
        told = bool(getattr(agent, "knows_world", False))
        while True:
            check_interrupt()
            for spec, world in islice(waiting, self._batch - len(live)):
                live.append(LiveEpisode(spec, world, self._study, history, failure, knows_world=told))
            if not live:
                return
            # What is finished is never left uncommitted for long while an agent thinks.
            if agent.journalled or time.monotonic() - self._group_began + self._round_seconds > GROUP_SECONDS:
                self._flush()
            began = time.monotonic()
            turns = self._answers(caller, [episode.observe() for episode in live])
            for episode, turn in zip(live, turns, strict=True):
                before = len(episode.steps)
                episode.apply(turn)
                self._work += (len(episode.steps) - before) * effort
                if episode.outcome is not None:
                    self._work += (episode.spec.horizon - len(episode.steps)) * effort
                    if not self._finished:
                        self._group_began = time.monotonic()
                    self._finished.append((episode.record(agent.name, getattr(agent, "tags", None)), episode.usage))
            live = [episode for episode in live if episode.outcome is None]
            self._round_seconds = time.monotonic() - began
            if time.monotonic() - self._group_began > GROUP_SECONDS:
                self._flush()
            self._tell()

    def _answers(self, caller: Caller, observations: Sequence[Observation]) -> list[Turn]:
        """Return a turn for each observation; journalled ones are committed before they are returned."""
        turns: list[Turn | None] = [None] * len(observations)

        def take(indices: list[int], answered: list[Turn]) -> None:
            for index, turn in zip(indices, answered, strict=True):
                turns[index] = turn

        if not caller.agent.journalled:
            caller.ask(observations, range(len(observations)), take)
            return [turn for turn in turns if turn is not None]
        calls = [call_for(caller.agent, caller.identity, observation) for observation in observations]
        turns = [self._journal.find(call) for call in calls]
        missing = [index for index, turn in enumerate(turns) if turn is None]
        self._replayed += len(calls) - len(missing)

        def send(indices: list[int]) -> None:
            self._journal.send([calls[index] for index in indices])

        def commit(indices: list[int], answered: list[Turn]) -> None:
            stored = self._journal.done([(calls[index], turn) for index, turn in zip(indices, answered, strict=True)])
            self._calls += len(indices)
            take(indices, stored)

        counted = _budget(caller.agent) is not None

        def withdraw(indices: list[int], error: Exception) -> None:
            # Where each request is counted by itself, none of them is under way any more.
            if counted or isinstance(error, NotSentError):
                self._journal.withdraw([calls[index] for index in indices])

        if missing and not self._checked:
            check_before_calls(self._store, caller.agent, observations[missing[0]])
            self._checked = True
        caller.ask(observations, missing, commit, send, withdraw)
        return [turn for turn in turns if turn is not None]

    def _place(self) -> Path:
        try:
            return self._store.settled()
        except FileNotFoundError:
            return self._store.path

    def _flush(self) -> None:
        """Commit what is finished; a second call after an interrupted one does no harm."""
        group = self._finished
        if group:
            self._store.put_episodes(
                (episode for episode, _ in group), usage={episode.id: cost for episode, cost in group if cost}
            )
            self._episodes += len(group)
            self._steps += sum(len(episode.steps) for episode, _ in group)
            self._finished = []

    def _tell(self, last: bool = False) -> None:
        now = time.monotonic()
        if self._progress is None or (now - self._told < _PROGRESS_SECONDS and not last):
            return
        self._told = now
        left = (now - self._began) * (self._work_total - self._work) / self._work if self._work else None
        unwritten = len(self._finished)
        steps = self._steps + sum(len(episode.steps) for episode, _ in self._finished)
        self._progress(self._reused + self._episodes + unwritten, self._total, steps, 0.0 if last else left)


def _budget(agent: Agent) -> Budget | None:
    """Return what an agent has spent and may spend over all sessions of a run, None where answers cost nothing."""
    budget: Budget | None = getattr(agent, "budget", None)
    return budget


def _effort(agent: Agent) -> float:
    """Return about how long an agent takes for a step beside one whose answers come from a model."""
    return 1.0 if agent.journalled else _SCRIPTED


def _check_agents(agents: Sequence[Agent]) -> None:
    if not agents:
        raise ValueError("a run must have at least one agent, got none")
    for agent in agents:  # before anything is asked: what it answers could not be stored
        check_text("the name of an agent", agent.name)
        encode_tags(getattr(agent, "tags", None) or {})
    for what, values in (("names", [agent.name for agent in agents]), ("ids", [agent_id(agent) for agent in agents])):
        if len(set(values)) < len(values):
            raise ValueError(f"the agents of a run must have different {what}, got {', '.join(values)}")
