"""Read a run: its episodes, steps, rows and estimates as plain records and as data frames."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goalscope.measures.behaviour import BEHAVIOUR
from goalscope.measures.transcript import TranscriptStep, agent_of, transcript
from goalscope.report.measured import MeasuredRows
from goalscope.runs.export import episode_record, step_records
from goalscope.runs.record import Episode
from goalscope.runs.store import Store
from goalscope.stats import Grouped
from goalscope.stats.records import Records, html_table
from goalscope.stats.rows import Rows

if TYPE_CHECKING:
    from goalscope.runs.study import Study


@dataclass(frozen=True, slots=True)
class Run:
    """A run directory for reading. Nothing stays open: each access opens the run and closes it.

    Attributes:
        path: the directory.
    """

    path: Path

    @property
    def study(self) -> "Study | None":
        """The study; None for imported trajectories."""
        with Store(self.path) as store:
            return store.study()

    @property
    def agents(self) -> list[str]:
        """The names of its agents."""
        with Store(self.path) as store:
            return list(store.agent_names())

    def episodes(self) -> list[dict[str, Any]]:
        """Return one record per episode: ids, agent, outcome, number of steps, and the tags of the episode and its
        world.
        """
        with Store(self.path) as store:
            return [{**episode.world.tags, **episode.tags, **episode_record(episode)} for episode in store.episodes()]

    def steps(self, episode: str) -> list[dict[str, Any]]:
        """Return one record per step of an episode: state, action, text, reasoning, tokens.

        Args:
            episode: id of the episode.

        Raises:
            KeyError: if the run has no such episode.
        """
        with Store(self.path) as store:
            (matching,) = store.episodes([episode])
        return list(step_records(matching))

    def transcripts(self) -> Iterator[tuple[Episode, Iterator[TranscriptStep]]]:
        """Yield each episode with its replayed steps: observation, prompt, answer, and verdict on the move.

        If an agent cannot be built on this machine, for instance because its model is elsewhere, its steps have no
        prompts.
        """
        agents = dict[str, Any]()
        with Store(self.path) as store:
            study = store.study()
            for episode in store.episodes():
                if (identity := episode.spec.agent_id) not in agents:
                    try:
                        agents[identity] = agent_of(study, identity)
                    except ImportError:
                        agents[identity] = None
                yield episode, transcript(episode, agents[identity])

    def rows(self, **equal: str | int | float | bool | None) -> Rows:
        """Return all rows, or those with given values of ``measure``, ``cluster`` or tags.

        Raises:
            KeyError: if no row has such a name.
        """
        with Store(self.path) as store:
            rows = store.rows()
        return rows.select(**equal) if equal else rows

    def estimates(self, by: Sequence[str] = ("agent",), measures: Collection[str] | None = None) -> "RunEstimates":
        """Return the estimates of the measured run with their intervals over grids.

        Args:
            by: tags to group by.
            measures: measures to return; None for all.
        """
        with Store(self.path) as store:
            return RunEstimates(MeasuredRows(store, BEHAVIOUR).estimated(by, measures))

    def _repr_html_(self) -> str:
        with Store(self.path) as store:
            [(count,)] = store.query("SELECT COUNT(*) FROM episodes")
        return html_table(("run", "agents", "episodes"), [(self.path, ", ".join(self.agents), count)])


@dataclass(frozen=True, slots=True)
class RunEstimates(Records):
    """Estimates for groups of rows, each with its interval over grids.

    Attributes:
        groups: each group with its estimate.
    """

    groups: Sequence[Grouped]

    @property
    def records(self) -> list[dict[str, Any]]:
        """One record per group: measure, tags, value, interval, unit, counts, method, note."""
        fields = ("value", "low", "high", "confidence", "unit", "n", "clusters", "method", "note")
        return [{**group.key, **{name: getattr(group.estimate, name) for name in fields}} for group in self.groups]

    def _repr_html_(self) -> str:
        keys = list(self.groups[0].key) if self.groups else []
        rows = [
            (*group.key.values(), str(group.estimate), group.estimate.unit, group.estimate.clusters)
            for group in self.groups
        ]
        return html_table((*keys, "estimate", "unit", "grids"), rows)
