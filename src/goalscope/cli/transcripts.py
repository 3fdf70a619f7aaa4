"""Episodes of a run in the terminal: a list to choose from, and one of them step by step."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import Any, get_args

from goalscope.agents.agent import Agent
from goalscope.checks import did_you_mean
from goalscope.cli.console import say, table
from goalscope.measures.transcript import OUTCOMES, agent_of, transcript, write_step
from goalscope.report.blocks import counted
from goalscope.runs import Outcome, Store
from goalscope.runs.record import Episode
from goalscope.runs.walks import read_heads

_ELIDED = 4  # fewer lines that did not change are shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which episodes are meant: of an agent, in worlds whose id begins so, that ended so, with failed turns."""

    agent: str | None = None
    world: str | None = None
    outcome: str | None = None
    failures: bool = False

    def find(self, store: Store, begins: str = "") -> Iterator[tuple[Any, ...]]:
        """Yield (id, agent, world id, outcome, steps, failed turns) of episodes, in the order of the store.

        Raises:
            ValueError: an unknown agent or outcome.
        """
        agents = [name for (name,) in store.query("SELECT DISTINCT agent FROM episodes ORDER BY agent")]
        if self.agent is not None and self.agent not in agents:
            close = did_you_mean(self.agent, agents)
            raise ValueError(f"--agent must be one of this run ({', '.join(agents)}), got {self.agent!r}{close}")
        if self.outcome is not None and self.outcome not in get_args(Outcome):
            raise ValueError(f"--outcome must be one of {', '.join(get_args(Outcome))}, got {self.outcome!r}")
        given = {"agent = ?": self.agent, "outcome = ?": self.outcome}
        given |= {"substr(world_id, 1, length(?)) = ?": self.world, "substr(id, 1, length(?)) = ?": begins or None}
        kept = {condition: value for condition, value in given.items() if value is not None}
        values = [value for condition, value in kept.items() for _ in range(condition.count("?"))]
        ids = None
        if kept:
            named = store.query(f"SELECT id FROM episodes WHERE {' AND '.join(kept)}", values)
            ids = [identity for (identity,) in named]
        for one in read_heads(store, ids):
            if one.failed or not self.failures:
                yield one.id, one.agent, one.world_id, one.outcome, one.length, one.failed


def list_episodes(path: Path, chosen: Filter, limit: int) -> None:
    """Print a table of episodes."""
    with Store(path) as store:
        found = chosen.find(store)
        first = list(islice(found, limit))
        total = len(first) + sum(1 for _ in found)
    if not first:
        say("no such episode")
        return
    lines = [tuple(str(cell) for cell in row) for row in first]
    headings = ("episode", "agent", "world", "outcome", "steps", "invalid turns")
    table(headings, lines, title=f"{counted(total, 'episode')} of {path}", numbers=(4, 5))
    if total > limit:
        say(f"{total - limit:,} more: --limit {total} shows them all, --agent, --world and --outcome fewer")
    say(f"next: goalscope show {quote(str(path))} {first[0][0]}")


def show_episode(path: Path, begins: str, chosen: Filter, *, full: bool) -> None:
    """Print an episode step by step.

    Raises:
        ValueError: no episode or several whose ids begin so.
    """
    with Store(path) as store:
        ids = [row[0] for row in chosen.find(store, begins)] or [
            row[0] for row in Filter().find(store, f"episode-{begins}")
        ]
        if len(ids) != 1:
            what = f"{len(ids)} do ({', '.join(ids[:3])}, ...)" if ids else "none does"
            raise ValueError(
                f"EPISODE must be how the id of one episode of {path} begins, got {begins!r}: {what}; goalscope show "
                f"{quote(str(path))} lists them"
            )
        (episode,) = store.episodes(ids)
        agent = agent_of(store.study(), episode.spec.agent_id)
        calls = store.entries("call", "WHERE calls.episode_id = ? AND attempt = 0", (episode.id,))
        sent = {step: prompt for _, _, prompt, _, step, *_ in calls}
        say(_head(episode, agent))
        before: list[str] = []
        for one in transcript(episode, agent):
            seen = (one.seen or "").splitlines()
            lines = seen if one.prompt is None else one.prompt.splitlines()
            say(write_step(one, lines if full else changed(before, lines, seen), sent.get(one.step.index)))
            before = lines
        say(f"{episode.agent} {OUTCOMES[episode.outcome]} after {counted(len(episode.steps), 'step')}")


def _head(episode: Episode, agent: Agent | None) -> str:
    told = ", ".join(f"{name} {value}" for name, value in episode.world.tags.items() if value is not None)
    where = f"{episode.world.id}{f' ({told})' if told else ''}, trajectory {episode.spec.trajectory}"
    head = f"{episode.id}: {episode.agent} in {where}, at most {counted(episode.spec.horizon, 'action')}"
    if agent is None:
        head += "\nits agent cannot be built here (an import, or its model is elsewhere): prompts are what it saw"
    return head


def changed(before: Sequence[str], now: Sequence[str], seen: Sequence[str]) -> list[str]:
    """Return the lines of a prompt; those that begin and end it as they did before are a note.

    Args:
        before: lines of the prompt before.
        now: lines of this one.
        seen: lines of what is seen, which always stand there.
    """
    most = min(len(before), len(now))
    places = (at for at in range(len(now) - len(seen) + 1) if seen and list(now[at : at + len(seen)]) == list(seen))
    begin = next(places, None)
    above, below = (most, most) if begin is None else (begin, len(now) - begin - len(seen))
    head = next((at for at in range(min(most, above)) if before[at] != now[at]), min(most, above))
    rest = min(most - head, below)
    tail = next((at for at in range(rest) if before[-1 - at] != now[-1 - at]), rest)
    shown = list(now[head : len(now) - tail])
    first = [f"[{head} lines as before]"] if head >= _ELIDED else list(now[:head])
    last = [f"[{tail} lines as before]"] if tail >= _ELIDED else list(now[len(now) - tail :])
    return first + shown + last
