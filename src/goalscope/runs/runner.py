"""Run a study: the episodes that are not stored yet, many at a time, resumable at any point."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from goalscope.agents.agent import Agent, Observation, Turn, agent_id, check_fits
from goalscope.runs.codec import EPISODE_COLUMNS
from goalscope.runs.dispatch import (
    AUTO,
    Caller,
    Interrupts,
    Recipe,
    answer_in_worker,
    budget_of,
    check_agents,
    interruptible,
    open_executor,
    suited,
)
from goalscope.runs.episode import LiveEpisode, play_ahead
from goalscope.runs.episode_columns import count_episodes
from goalscope.runs.journal import Journal
from goalscope.runs.provenance import note_packages, parts_of, session, spent_on_checks
from goalscope.runs.record import Episode, EpisodeSpec
from goalscope.runs.shards import StudyShard, keep_to_shard
from goalscope.runs.store import GROUP_SECONDS, Store, writing
from goalscope.runs.study import Study
from goalscope.runs.tables import EncodedEpisode, Usage
from goalscope.worlds.world import World

Progress = Callable[[int, int, int, float | None], None]
"""Called at most every tenth of a second, when steps were taken or answers arrived, with: number of finished episodes,
number of all episodes, steps taken in this session, seconds left (None at first)."""

Item = tuple[EpisodeSpec, World, Agent]
_Waiting = Iterator[tuple[EpisodeSpec, World]]

_LENGTH, _HORIZON = map(EPISODE_COLUMNS.split(", ").index, ("length", "horizon"))
_PROGRESS_SECONDS, _PAGE = 0.1, 4096  # `_PAGE`: episodes (specifications or ids) in memory at a time
_SCRIPTED = 0.01  # time per step as a fraction of a model's, used only to estimate the remaining time


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """What one session of a run has done.

    Attributes:
        episodes: number of episodes run in this session.
        reused: number of episodes stored before.
        steps: number of steps of the episodes run in this session.
        calls: number of calls to models made in this session, which are recorded in the journal.
        replayed: number of answers taken from the journal instead of asking again.
        lost: number of calls that were sent but not answered when an earlier process died.
        seconds: duration of the session.
        directory: path of the run directory, which may have been renamed meanwhile.
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
    directory: str | Path | Store,
    *,
    agents: Sequence[Agent] | None = None,
    progress: Progress | None = None,
    workers: int = 1,
    batch: int = 256,
    arguments: Mapping[str, Any] | None = None,
    shard: StudyShard | None = None,
    executor: str = "threads",
    gpus: float = 0.0,
    again: str = "run the same study on the same directory",
) -> RunSummary:
    """Run the episodes of a study that its run directory does not contain yet.

    The number of workers, the batch size and interruptions do not change results, except for the last bits of the
    likelihoods of a model on this machine. Each answer is committed when it arrives; if an agent reports its answers
    only at the end of a call of `Agent.act`, they are committed together (see `dispatch.Caller`).

    Args:
        study: the study.
        directory: the run directory, created if it is missing; or its store, open for writing, which stays open.
        agents: ready agents to use instead of the study's own.
        progress: called with the progress of the run, see `Progress`.
        workers: maximum number of simultaneous calls of `Agent.act`.
        batch: maximum number of simultaneous episodes per agent.
        arguments: the user's arguments and the defaults, for the record; see `provenance.session`.
        shard: run only this part of the episodes; `merge` joins the directories of all shards.
        executor: where agents with models act: "threads", "processes" or "ray" (see `dispatch.open_executor`); "auto"
            chooses by `dispatch.suited`. Other agents act in threads of this process, as do agents behind a server,
            whose requests are counted one by one. New processes import the main module of the program: guard its code
            by ``if __name__ == "__main__":``.
        gpus: number of GPUs per Ray worker.
        again: instruction for resuming, shown to a user who interrupts the run.

    Returns:
        The summary of the run.

    Raises:
        BlockingIOError: another process is running on the directory.
        ValueError: the directory contains another study, another part of it, or damaged or invalid data.
        KeyboardInterrupt: the run was stopped; finished episodes are stored, and the message says how to resume.
        Exception: an agent's error; finished episodes and journalled answers are stored.
    """
    if executor not in ("threads", AUTO) and agents is not None:
        raise ValueError(
            f"executor={executor!r} builds agents from the study in other processes, so agents cannot be "
            "passed: leave agents out, or use threads"
        )
    if workers < 1 or batch < 1:
        raise ValueError(f"workers and batch must be at least 1, got {workers=} and {batch=}")
    ready = list(study.agents() if agents is None else agents)
    check_agents(ready)
    for agent in ready:
        check_fits(agent, study.view)
    episodes_each = len(study.worlds()) * study.trajectories // (shard.of if shard is not None else 1)
    if executor == AUTO:
        executor, workers = suited(ready, episodes_each, workers) if agents is None else ("threads", workers)
    with (
        open_executor(executor, workers, gpus) as elsewhere,
        writing(directory, study.durability) as store,
    ):
        store.put_study(study)
        keep_to_shard(store, shard)
        store.put_session(session(arguments))
        note_packages(store, parts_of(study))
        store.put_agents([(agent_id(agent), agent.name, agent.describe()) for agent in ready])
        store.put_worlds(study.worlds())
        remote: dict[str, tuple[Executor, Recipe]] = {}
        if elsewhere is not None:
            for entry, agent in zip(study.agents_, ready, strict=True):
                if agent.journalled and budget_of(agent) is None:
                    remote[agent.name] = elsewhere, Recipe.of(entry, agent)
            # The workers load their models while this process makes its first prompts.
            if remote and count_episodes(store) < episodes_each * len(ready):
                for _ in range(workers):
                    elsewhere.submit(answer_in_worker, next(iter(remote.values()))[1], [])
        runner = _Runner(study, store, progress, workers, batch, shard, remote, again)
        return runner.run(ready)


class RunPlan:
    """The episodes that a run still has to play: those of a study, or of one of its shards (parts), that are not stored
    yet.

    Iterating yields (specification, world, agent) of each episode, in the order of the study.

    Args:
        study: the study.
        agents: its agents, ready to act.
        shard: the part of the study, None for all of it.
        store: the run directory as it is at the start of the run.
        effort: returns the approximate time of an agent per step.

    Attributes:
        total: number of episodes of the study or shard.
        reused: number of episodes that are stored.
        work: maximum number of remaining steps, each weighted by the effort of its agent.
    """

    def __init__(
        self,
        study: Study,
        agents: Sequence[Agent],
        shard: StudyShard | None,
        store: Store,
        effort: Callable[[Agent], float],
    ) -> None:
        self._study, self._agents, self._shard = study, agents, shard
        stored_ids, parts = _stored_ids(store), list[npt.NDArray[np.bool_]]()
        self.work = 0.0
        specified = self._specified()
        while page := list(islice(specified, _PAGE)):
            parts.append(
                _in_sorted(stored_ids, (spec.id for spec, _, _ in page))
                if len(stored_ids)
                else np.zeros(len(page), bool)
            )
            left = (item for item, is_stored in zip(page, parts[-1].tolist(), strict=True) if not is_stored)
            self.work += sum(spec.horizon * effort(agent) for spec, _, agent in left)
        self._is_stored = np.concatenate(parts) if parts else np.zeros(0, dtype=bool)
        self.total, self.reused = len(self._is_stored), int(self._is_stored.sum())

    def __iter__(self) -> Iterator[Item]:
        for index, item in enumerate(self._specified()):
            if not self._is_stored[index]:
                yield item

    def _specified(self) -> Iterator[Item]:
        all_specs = self._study.specs(self._agents)
        return all_specs if self._shard is None else self._shard.part(all_specs, self._study.trajectories)


def _stored_ids(store: Store) -> npt.NDArray[np.bytes_]:
    """Return the sorted ids of all stored episodes, without those that no specification can have."""
    pages, width = list[npt.NDArray[np.bytes_]](), len(_EXAMPLE.id)
    with store.snapshot() as database:
        # From the table, because the index of a damaged file may have other ids, which no reader would find.
        cursor = database.execute("SELECT id FROM episodes NOT INDEXED")
        while page := cursor.fetchmany(_PAGE):
            ids = [
                identity
                for (identity,) in page
                if isinstance(identity, str) and len(identity) == width and identity.isascii()
            ]
            pages.append(np.array(ids, dtype=f"S{width}"))
    return np.sort(np.concatenate(pages)) if pages else np.zeros(0, dtype=f"S{width}")


def _in_sorted(stored: npt.NDArray[np.bytes_], ids: Iterable[str]) -> npt.NDArray[np.bool_]:
    """Return, for each given id, whether it is stored; the stored ids are sorted."""
    wanted_ids = np.array(list(ids), dtype=stored.dtype)
    index = np.minimum(np.searchsorted(stored, wanted_ids), len(stored) - 1)
    result: npt.NDArray[np.bool_] = stored[index] == wanted_ids
    return result


_EXAMPLE = EpisodeSpec(world_id="", agent_id="", trajectory=0, seed=0, horizon=1)  # all ids have the same length


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
        again: str,
    ) -> None:
        self._study, self._store, self._progress, self._shard = study, store, progress, shard
        self._workers, self._batch, self._elsewhere, self._again = workers, batch, elsewhere, again
        self._journal = Journal(store)
        self._finished: list[tuple[Episode, Usage]] = []
        self._episodes = self._reused = self._total = self._steps = 0
        self._calls = self._replayed = 0
        # In steps of a model; an episode that ends early counts as its whole horizon.
        self._work = self._work_total = 0.0
        # Steps that are answered but not yet counted as work, and work whose answers came from the journal without
        # delay.
        self._round_work = self._replayed_work = 0.0
        # `_asked`: time of the last question to the agent.
        self._start = self._group_start = self._last_report = self._rate_start = self._asked = time.monotonic()

    def run(self, agents: Sequence[Agent]) -> RunSummary:
        plan = RunPlan(self._study, agents, self._shard, self._store, _effort)
        self._total, self._reused, self._work_total = plan.total, plan.reused, plan.work
        try:
            with interruptible() as interrupts:
                for _, items in groupby(plan, key=lambda item: id(item[2])):
                    first = next(items)
                    waiting = ((spec, world) for spec, world, _ in chain([first], items))
                    self._run_part(first[2], waiting, interrupts)
        except KeyboardInterrupt:
            self._flush()
            answers = f", and all answers that arrived ({self._calls} now)" if self._calls else ""
            raise KeyboardInterrupt(
                f"stopped with {self._reused + self._episodes} of {self._total} episodes stored in "
                f"{self._directory()}{answers}: {self._again} to go on, nothing stored is repeated"
            ) from None
        except (Exception, SystemExit) as error:  # whatever the code of an agent raises
            error.add_note(f"what was finished is stored: {self._again} to go on")
            self._flush()
            raise
        self._flush()
        self._report(last=True)
        return RunSummary(
            episodes=self._episodes,
            reused=self._reused,
            steps=self._steps,
            calls=self._calls,
            replayed=self._replayed,
            lost=self._journal.lost,
            seconds=time.monotonic() - self._start,
            directory=str(self._store.settled()),
        )

    def _run_part(self, agent: Agent, waiting: _Waiting, interrupts: Interrupts) -> None:
        budget = budget_of(agent)
        try:
            with closing(Caller(agent, self._workers, self._elsewhere.get(agent.name), interrupts)) as caller:
                if budget is not None:
                    spent = Counter(self._journal.spent(caller.identity))
                    budget.begin(spent + Counter(spent_on_checks(self._store, caller.identity)), self._journal)
                if self._study.answers == 1:
                    waiting = play_ahead(agent, waiting, partial(self._put_played, _effort(agent), interrupts))
                self._run_agent(caller, waiting, interrupts)
        finally:
            if budget is not None:
                budget.end()

    def _run_agent(self, caller: Caller, waiting: _Waiting, check_interrupt: Callable[[], None]) -> None:
        live: dict[str, LiveEpisode] = {}
        agent, effort = caller.agent, _effort(caller.agent)
        history, failure = self._study.history_of(agent), self._study.failure_of(agent)
        knows_world = bool(getattr(agent, "knows_world", False))

        def begin() -> list[Observation]:
            """Fill the batch with further episodes."""
            new = [
                LiveEpisode(spec, world, self._study, history, failure, knows_world=knows_world)
                for spec, world in islice(waiting, self._batch - len(live))
            ]
            live.update((episode.spec.id, episode) for episode in new)
            return [episode.observe() for episode in new]

        def follow(answered: Sequence[tuple[Observation, Turn]], replayed: int) -> list[Observation]:
            """Apply turns; return the next observations of the agent."""
            self._replayed, self._replayed_work = self._replayed + replayed, self._replayed_work + replayed * effort
            going_on = []
            for observation, turn in answered:
                episode = live[observation.episode_id]
                before = len(episode.steps)
                episode.apply(turn)
                self._work += (len(episode.steps) - before) * effort
                if episode.outcome is None:
                    going_on.append(episode)
                    continue
                self._work += (episode.spec.horizon - len(episode.steps)) * effort
                if not self._finished:
                    self._group_start = time.monotonic()
                self._finished.append((episode.record(agent.name, getattr(agent, "tags", None)), episode.usage))
                del live[episode.spec.id]
            self._round_work = 0.0
            now = time.monotonic()
            # Finished episodes must not stay uncommitted for long while an agent works.
            if agent.journalled or now - self._group_start + (now - self._asked) > GROUP_SECONDS:
                self._flush()
            self._report()
            self._asked = time.monotonic()
            return [*(episode.observe() for episode in going_on), *begin()]

        def committed(count: int) -> None:
            if not count and not self._calls:
                self._rate_start = time.monotonic()  # the weights have been read
            self._calls += count
            self._round_work += count * effort
            self._report()

        self._asked = time.monotonic()
        observations = begin()
        if agent.journalled:
            caller.converse(observations, follow, self._journal, self._store, committed)
        while observations and not agent.journalled:
            check_interrupt()
            observations = follow(list(zip(observations, caller.turns(observations), strict=True)), 0)

    def _put_played(self, effort: float, interrupts: Interrupts, played: Sequence[EncodedEpisode]) -> None:
        """Commit episodes that were played together."""
        interrupts()
        self._store.put_encoded(played)
        self._episodes, self._steps = (
            self._episodes + len(played),
            self._steps + sum(episode_row[1][_LENGTH] for episode_row in played),
        )
        self._work += sum(header[_HORIZON] for _, header, _ in played) * effort
        self._report()

    def _directory(self) -> Path:
        try:
            return self._store.settled()
        except FileNotFoundError:
            return self._store.path

    def _flush(self) -> None:
        """Commit the finished episodes; repeating it after an interruption does no harm."""
        group = self._finished
        if group:
            self._store.put_episodes(
                (episode for episode, _ in group), usage={episode.id: usage for episode, usage in group if usage}
            )
            self._episodes += len(group)
            self._steps += sum(len(episode.steps) for episode, _ in group)
            self._finished = []

    def _report(self, last: bool = False) -> None:
        now = time.monotonic()
        if self._progress is None or (now - self._last_report < _PROGRESS_SECONDS and not last):
            return
        self._last_report = now
        done = self._work + self._round_work
        made = done - self._replayed_work
        left = (now - self._rate_start) * (self._work_total - done) / made if made > 0 else None
        unwritten = len(self._finished)
        steps = self._steps + sum(len(episode.steps) for episode, _ in self._finished)
        self._progress(self._reused + self._episodes + unwritten, self._total, steps, 0.0 if last else left)


def _effort(agent: Agent) -> float:
    """Return the approximate time of an agent per step, relative to that of a model."""
    return 1.0 if agent.journalled else _SCRIPTED
