"""The command `show`: list the episodes of a run, or print one of them step by step."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import Any, get_args

from goalscope._ground.arguments import Positive, RunDirectory
from goalscope._ground.checks import check_choice, did_you_mean
from goalscope._ground.words import counted
from goalscope.agents.agent import Agent
from goalscope.cli.console import json_text, say, table
from goalscope.cli.front.measuring import tell_missing
from goalscope.measures.transcript import OUTCOMES, agent_of, transcript, write_step
from goalscope.report.ledger import Run
from goalscope.runs import Outcome, Store
from goalscope.runs.episode_columns import read_heads
from goalscope.runs.export import episode_record, step_records
from goalscope.runs.record import Episode
from goalscope.verdict.opening import run_folders

_LISTED = ("episode", "agent", "world", "outcome", "steps", "invalid turns")
_MIN_ELIDED = 4  # fewer unchanged lines are printed


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A selection of episodes by agent, start of the world's id, outcome, and failed turns."""

    agent: str | None = None
    world: str | None = None
    outcome: str | None = None
    failures: bool = False

    def find(self, store: Store, prefix: str = "") -> Iterator[tuple[Any, ...]]:
        """Yield (id, agent, world id, outcome, steps, failed turns) per episode, in the order of the store.

        Raises:
            ValueError: if the agent or the outcome is unknown.
        """
        agents = [name for (name,) in store.query("SELECT DISTINCT agent FROM episodes ORDER BY agent")]
        if self.agent is not None and self.agent not in agents:
            close = did_you_mean(self.agent, agents)
            raise ValueError(f"--agent: this run has no agent {self.agent!r}{close or '.'} It has {', '.join(agents)}")
        if self.outcome is not None:
            check_choice("--outcome", self.outcome, get_args(Outcome))
        conditions = {"agent = ?": self.agent, "outcome = ?": self.outcome}
        conditions |= {"substr(world_id, 1, length(?)) = ?": self.world, "substr(id, 1, length(?)) = ?": prefix or None}
        active = {condition: value for condition, value in conditions.items() if value is not None}
        values = [value for condition, value in active.items() for _ in range(condition.count("?"))]
        ids = None
        if active:
            rows = store.query(f"SELECT id FROM episodes WHERE {' AND '.join(active)}", values)
            ids = [identity for (identity,) in rows]
        for head in read_heads(store, ids):
            if head.failed or not self.failures:
                yield head.id, head.agent, head.world_id, head.outcome, head.length, head.failed


def show(
    run: RunDirectory,
    episode: str | None = None,
    *,
    agent: str | None = None,
    world: str | None = None,
    outcome: str | None = None,
    failures: bool = False,
    full: bool = False,
    limit: Positive = 20,
    as_json: bool = False,
) -> None:
    """List the episodes of a run, or show one of them step by step.

    Each step shows the prompt, the reasoning and the answer, and whether the move was valid and optimal.

    Args:
        run: the run directory (it contains run.db).
        episode: the id of an episode, or its first characters. Without it, the episodes are listed.
        agent (NAME): list only episodes of this agent.
        world (ID): list only episodes in worlds whose id starts with this.
        outcome (WHICH): list only episodes with this outcome: goal, horizon, failure, stopped or ended.
        failures: list only episodes that contain turns without a valid move.
        full: show every prompt in full, not only the lines that changed.
        limit: list at most this many episodes.
        as_json: print the list, or the episode with all steps, as JSON.

    Examples:
        goalscope show runs/demo --agent Theseus --outcome horizon
        goalscope show runs/demo 5b9409 --full
    """
    selection = Filter(agent=agent, world=world, outcome=outcome, failures=failures)
    folders = list(run_folders(run).values())
    if len(folders) > 1 and selection.agent is not None:  # not every arm is asked of every model
        folders = [folder for folder in folders if selection.agent in Run(folder).agents] or folders
    if episode is not None:
        _show_episode(run, folders, episode, selection, full=full, as_json=as_json)
    elif as_json:
        records = []
        for folder in folders:
            with Store(folder) as store:
                episodes = islice(selection.find(store), limit)
                records += [{"run": str(folder), **dict(zip(_LISTED, row, strict=True))} for row in episodes]
        say(json_text(records))
    else:
        for folder in folders:
            _list_episodes(folder, selection, limit)


def _list_episodes(path: Path, selection: Filter, limit: int) -> None:
    """Print a table of episodes."""
    with Store(path) as store:
        tell_missing(store)
        rows = selection.find(store)
        first = list(islice(rows, limit))
        total = len(first) + sum(1 for _ in rows)
    if not first:
        say("no episode matches")
        return
    lines = [tuple(str(cell) for cell in row) for row in first]
    table(_LISTED, lines, title=f"{counted(total, 'episode')} of {path}", numbers=(4, 5))
    if total > limit:
        say(f"{total - limit:,} more: --limit {total} lists all; --agent, --world and --outcome narrow the list")
    say(f"next: goalscope show {quote(str(path))} {first[0][0]}")


def _show_episode(
    path: Path, folders: Sequence[Path], prefix: str, selection: Filter, *, full: bool, as_json: bool
) -> None:
    """Print one episode step by step.

    Raises:
        ValueError: if no episode, or more than one, has an id that starts with the prefix.
    """
    places = list[tuple[Path, str]]()
    for folder in folders:
        with Store(folder) as store:
            places += [(folder, row[0]) for row in selection.find(store, prefix)] or [
                (folder, row[0]) for row in Filter().find(store, f"episode-{prefix}")
            ]
    if len(places) != 1:
        ids = [identity for _, identity in places]
        matches = f"{len(ids)} episodes match ({', '.join(ids[:3])}, ...)" if ids else "no episode matches"
        raise ValueError(
            f"EPISODE must be the start of exactly one episode id in {path}, got {prefix!r}: {matches}; list the ids "
            f"with goalscope show {quote(str(path))}"
        )
    [(folder, identity)] = places
    if as_json:
        with Store(folder) as store:
            (episode,) = store.episodes([identity])
        say(json_text({"run": str(folder), **episode_record(episode), "steps": list(step_records(episode))}))
        return
    with Store(folder) as store:
        (episode,) = store.episodes([identity])
        agent = agent_of(store.study(), episode.spec.agent_id)
        calls = store.entries("call", "WHERE calls.episode_id = ? AND attempt = 0", (episode.id,))
        sent = {step: prompt for _, _, prompt, _, step, *_ in calls}
        say(_head(episode, agent))
        before: list[str] = []
        for turn in transcript(episode, agent):
            observed = (turn.seen or "").splitlines()
            lines = observed if turn.prompt is None else turn.prompt.splitlines()
            say(write_step(turn, lines if full else changed(before, lines, observed), sent.get(turn.step.index)))
            before = lines
        say(f"{episode.agent} {OUTCOMES[episode.outcome]} after {counted(len(episode.steps), 'step')}")


def _head(episode: Episode, agent: Agent | None) -> str:
    tags = ", ".join(f"{name} {value}" for name, value in episode.world.tags.items() if value is not None)
    place = f"{episode.world.id}{f' ({tags})' if tags else ''}, trajectory {episode.spec.trajectory}"
    head = f"{episode.id}: {episode.agent} in {place}, at most {counted(episode.spec.horizon, 'action')}"
    if agent is None:
        head += "\nits agent cannot be rebuilt here (imported, or its model is missing): observations replace prompts"
    return head


def changed(before: Sequence[str], now: Sequence[str], seen: Sequence[str]) -> list[str]:
    """Return the lines of a prompt, with a note in place of unchanged lines at its beginning and end.

    Args:
        before: lines of the previous prompt.
        now: lines of this prompt.
        seen: lines of the observation, which are never replaced.
    """
    shorter = min(len(before), len(now))
    starts = (at for at in range(len(now) - len(seen) + 1) if seen and list(now[at : at + len(seen)]) == list(seen))
    start = next(starts, None)
    above, below = (shorter, shorter) if start is None else (start, len(now) - start - len(seen))
    same_first = next((at for at in range(min(shorter, above)) if before[at] != now[at]), min(shorter, above))
    limit = min(shorter - same_first, below)
    same_last = next((at for at in range(limit) if before[-1 - at] != now[-1 - at]), limit)
    middle = list(now[same_first : len(now) - same_last])
    first = [f"[{same_first} lines unchanged]"] if same_first >= _MIN_ELIDED else list(now[:same_first])
    last = [f"[{same_last} lines unchanged]"] if same_last >= _MIN_ELIDED else list(now[len(now) - same_last :])
    return first + middle + last
