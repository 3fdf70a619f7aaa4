"""One episode of a task world while it is run: the same rules of failures and records as on a grid, other moves."""

from goalscope.agents.agent import History, Turn
from goalscope.agents.task_agent import TaskObservation
from goalscope.runs.entries import FailurePolicy
from goalscope.runs.episode import LiveEpisode
from goalscope.runs.record import EpisodeSpec
from goalscope.runs.study import Study
from goalscope.runs.taskworld import TaskWorld
from goalscope.worlds.dynamics import State
from goalscope.worlds.tasks.knowledge import Knowledge
from goalscope.worlds.tasks.memory import Memory


class TaskLive(LiveEpisode):
    """An episode of a task world that is being run.

    Args:
        spec: what is run; its horizon is the map's budget.
        world: where.
        study, history, failure: as of any live episode.
        knows_map: whether the agent is told the whole map.
    """

    def __init__(
        self,
        spec: EpisodeSpec,
        world: TaskWorld,
        study: Study,
        history: History | None = None,
        failure: FailurePolicy | None = None,
        *,
        knows_map: bool = False,
    ) -> None:
        super().__init__(spec, world, study, history, failure)
        self._map = world.task_map
        self._knows_map = knows_map
        self._knowledge = Knowledge(world.task_map)
        self._memory = Memory()
        self._memory.add(self._knowledge.report())
        self._answers: list[str] = []

    def observe(self) -> TaskObservation:
        """Return what the agent is shown now."""
        return TaskObservation(
            memory=self._memory,
            step=len(self.steps),
            attempt=len(self._attempts),
            episode_id=self.spec.id,
            seed=self.spec.seed,
            history_as=self._history_as,
            answers=tuple(self._answers),
            task_map=self._map if self._knows_map else None,
        )

    def _state(self) -> State:
        return State(self._map.frame.row_col(self._map.board.cell(self._knowledge.position)))

    def _take(self, turn: Turn) -> None:
        if self._history_as in ("conversation", "reasoning"):
            said = [turn.reasoning] if self._history_as == "reasoning" else []
            # The one form in which earlier answers are shown: see `goalscope.agents.memory.render_answer`.
            self._answers.append("\n\n".join(part for part in (*said, turn.text) if part))
        self._knowledge.move(turn.action)
        self._memory.add(self._knowledge.report(), turn.action)

    def _arrived(self) -> bool:
        return self._knowledge.ending == "goal"
