"""The measured batch: the first turns of some episodes of a study, asked before all others, timed, and kept.

The answers are committed to the journal of the run directory, from which the run later takes them. The measurements are
stored beside them and not repeated. The batch begins with one turn, whose time may include what an agent does only
once; portions of twice as many follow as long as they fit its limits, spread over the worlds of the study.
"""

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from goalscope._ground.progress import lines
from goalscope._ground.rng import spread
from goalscope._ground.words import counted
from goalscope.agents.agent import Agent, Observation, Turn, agent_id, check_action
from goalscope.agents.chat import ChatAgent, ways_in_use
from goalscope.agents.models.base import NotSentError
from goalscope.agents.models.http import HttpModel
from goalscope.agents.models.http_client import Client
from goalscope.agents.models.local import Answering
from goalscope.agents.models.reading import common_prefix
from goalscope.agents.parse import IN_REASONING, LITTLE_MASS, Cause, cause_of, fault_words, what_helps
from goalscope.runs import Store, Study
from goalscope.runs.dispatch import Caller, budget_of, check_before_calls
from goalscope.runs.episode import LiveEpisode
from goalscope.runs.journal import Journal
from goalscope.runs.opening import unmade
from goalscope.runs.provenance import (
    FIRST_TURNS,
    note,
    note_packages,
    noted,
    parts_of,
    session,
    spent_on_checks,
)
from goalscope.runs.record import EpisodeSpec
from goalscope.runs.store import writing
from goalscope.runs.tables import DATABASE
from goalscope.verdict.preflight.cost import counter, taken
from goalscope.verdict.texts import TEXTS
from goalscope.worlds.planning.shortest import oracle
from goalscope.worlds.world import TimedOracle, World

SECONDS: Final = 30.0
"""Maximum time of a batch after its first answer, unless a single answer takes longer."""

PATIENCE: Final = 100.0
"""Seconds after which a server without an answer is given up, unless its settings name a timeout."""

FEWEST: Final = 5
"""Minimum number of answers, none with an action, after which a model counts as not answering."""

MOST: Final = 64
"""Maximum number of turns of a portion; a whole batch has at most twice as many minus one."""

UNUSABLE_SECONDS: Final = 100.0
"""Maximum time of a batch as long as no answer contains an action, by default."""


class Portion(BaseModel):
    """Several first turns of an agent that were asked at the same time, with the time that they took.

    Attributes:
        turns: number of turns.
        tokens: total number of prompt tokens, 0 if unknown.
        longest: number of output tokens of the longest answer, 0 if unknown or if none is written.
        seconds: time until the last answer was stored.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    turns: int = Field(ge=1)
    tokens: float = Field(default=0.0, ge=0)
    longest: int = Field(default=0, ge=0)
    seconds: float = Field(ge=0)


class FirstTurns(BaseModel):
    """What was learned from the first turns of an agent, which are asked before all others, timed and stored.

    Attributes:
        asked: number of turns.
        failures: name of a failure -> number of turns without an action for this reason.
        causes: cause that explains a failure further (see `goalscope.agents.parse`) -> number of turns.
        marks: the marks in an answer that show the first of these causes.
        used: settings against such causes that the agent already has, see `goalscope.agents.parse`.
        example: the beginning of an answer without an action; "" if every answer has one.
        scored, optimal: number of turns with an action in states with known optimal actions, and how many of these are
            optimal.
        shared: share of a prompt, by bytes, that is the common beginning of all prompts; 0 for agents without a prompt.
        counted: mean number of prompt tokens in these turns by `verdict.preflight.cost.counter`; 0 for agents without a
            prompt.
        usage: total usage of all turns, by name, such as "output_tokens".
        portions: the turns in the groups that were asked at the same time, in order.
        memory: maximum memory of this process so far, in bytes; 0 if unknown.
        mass: mean total probability of all actions in the turns that failed because it was too small; None without such
            turns.
        longest, longest_valid: maximum number of output tokens of an answer, and of an answer with an action.
        silent: why a server gave no answer in time, and what helps; "" if there are answers.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    asked: int = Field(default=0, ge=0)
    failures: dict[str, int] = Field(default_factory=dict)
    causes: dict[str, int] = Field(default_factory=dict)
    marks: tuple[str, ...] = ()
    used: tuple[str, ...] = ()
    example: str = ""
    scored: int = Field(default=0, ge=0)
    optimal: int = Field(default=0, ge=0)
    shared: float = Field(default=0.0, ge=0, le=1)
    counted: float = Field(default=0.0, ge=0)
    usage: dict[str, float] = Field(default_factory=dict)
    portions: tuple[Portion, ...] = ()
    memory: int = Field(default=0, ge=0)
    mass: float | None = Field(default=None, ge=0)
    longest: int = Field(default=0, ge=0)
    longest_valid: int = Field(default=0, ge=0)
    silent: str = ""

    @property
    def invalid(self) -> float:
        """Share of the first turns in which the answer contains no action; 0 if no turn was asked."""
        return sum(self.failures.values()) / max(1, self.asked)

    @property
    def seconds(self) -> float:
        """Total time that the first turns took, in seconds."""
        return sum(portion.seconds for portion in self.portions)

    @property
    def unusable(self) -> bool:
        """Whether the model gave no answer, or at least `FEWEST` answers of which none contains an action."""
        return bool(self.silent) or (self.asked >= FEWEST and self.invalid == 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of time and cost for asking an agent's first turns; one turn is always asked.

    Attributes:
        seconds: maximum time after the first answer.
        unusable: maximum time, in seconds, as long as no answer contains an action and there are fewer than `FEWEST`
            answers.
        usage: "tokens" or "usd" -> maximum; None for no such limit.
    """

    seconds: float = SECONDS
    unusable: float = UNUSABLE_SECONDS
    usage: Mapping[str, float] | None = None


def without_action(first: FirstTurns) -> str:
    """Say how many of a model's first turns have a valid move, what the other answers contain, and what helps.

    The text is "" if all turns have a valid move.
    """
    if not first.failures:
        return ""
    kinds = _kinds(first)
    words = ", ".join(_fault(name, count, first.mass) for name, count in kinds.most_common())
    valid = first.asked - sum(first.failures.values())
    fields: dict[str, str | int] = {
        "asked": first.asked,
        "kinds": words,
        "example": TEXTS("plan/example", answer=first.example) if first.example else "",
        "helps": what_helps(kinds, marks=first.marks, used=first.used),
    }
    return TEXTS("plan/no move in some", valid=valid, **fields) if valid else TEXTS("plan/no move in any", **fields)


def _fault(name: str, count: int, mass: float | None) -> str:
    """Say how many answers have a fault, and for improbable actions how improbable they are."""
    if name != LITTLE_MASS or mass is None:
        return f"{count} {fault_words(name)}"
    return TEXTS("plan/little mass", count=count, fault=fault_words(name), mass=f"{mass:.2g}")


def _kinds(first: FirstTurns) -> Counter[str]:
    """Count the failures of a batch; failures with a known cause are counted under the cause."""
    kinds = Counter(first.failures)
    for cause, count in first.causes.items():
        failure = "empty" if cause == IN_REASONING else "markers"
        kinds[failure] -= count
        kinds[cause] += count
    return +kinds


def why_unusable(first: FirstTurns) -> str:
    """Say why a model is asked nothing after its first turns; "" if its answers are usable."""
    if first.silent:
        return first.silent
    return without_action(first) if first.unusable else ""


def announced(name: str, most: int, limits: Limits, patient: bool = False) -> str:
    """Return the line that says that the first turns of a model are going to be asked and timed.

    Args:
        name: name of the model.
        most: maximum number of turns.
        limits: limits of time and cost.
        patient: whether to wait for a server as long as its settings allow.
    """
    fields = {"seconds": f"{limits.seconds:.0f}", "patience": f"{limits.unusable:.0f}"}
    if patient:
        return TEXTS("plan/first moves", name=name, most=most, **fields)
    return TEXTS("plan/first moves of a server", name=name, most=most, silence=f"{PATIENCE:.0f}", **fields)


def found(name: str, first: FirstTurns, limits: Limits) -> list[str]:
    """Return the lines that report what the first turns of a model showed; empty if a server gave no answer.

    Args:
        name: name of the model.
        first: its first turns.
        limits: the limits of time and cost that applied.
    """
    if first.silent:
        return []
    valid = round(first.asked * (1 - first.invalid))
    alone = first.asked == 1 and first.seconds > limits.seconds / 2
    seconds, moves = f"{first.seconds:.3g}", counted(first.asked, "first move")
    lines = [TEXTS(f"plan/timed{' once' if alone else ''}", name=name, moves=moves, seconds=seconds, valid=valid)]
    if first.invalid > 0.5:
        lines.append(f"{name}: {without_action(first)}")
    return lines


def stored_first_turns(run: Path | Store, agent: Agent) -> FirstTurns | None:
    """Return what a run stores about the first turns of an agent; None if it stores nothing, or in an unreadable
    form.
    """
    if not isinstance(run, Store) and unmade(run / DATABASE):
        return None
    with nullcontext(run) if isinstance(run, Store) else Store(run) as store:
        record = noted(store, FIRST_TURNS).get(agent_id(agent))
    try:
        return None if record is None else FirstTurns.model_validate(record)
    except ValidationError:
        return None  # it is measured again; the answers are in the journal


def most_turns(study: Study) -> int:
    """Return how many first turns may be asked of one agent at most: a tenth of the turns of all episodes."""
    steps = study.size().steps // len(study.agents_)
    return min(2 * MOST - 1, steps // 10)


def ask_first_turns(
    study: Study,
    agent: Agent,
    parameters: Mapping[str, Any],
    directory: Path | Store,
    limits: Limits,
    *,
    workers: int = 1,
    most: int = 2 * MOST - 1,
    patient: bool = False,
    arguments: Mapping[str, Any] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> FirstTurns:
    """Ask an agent for the first turns of some episodes of a study, and time them; return stored results if there are
    any.

    Args:
        study: the study.
        agent: one of its agents, ready to act.
        parameters: its parameters as the study gives them.
        directory: the run directory of the study, in which answers that cost something are stored (created if missing);
            or its store, open for writing.
        limits: limits of time, tokens or USD.
        workers: maximum number of simultaneous calls.
        most: maximum number of turns.
        patient: wait for a server as long as its settings say; otherwise see `PATIENCE`.
        arguments: the user's arguments, for the record.
        clock: returns the time, seconds.

    Returns:
        How long the turns took, what they used, and how many answers contain an action.

    Raises:
        Exception: whatever the agent raises. If a server does not answer, this is raised only with ``patient``;
            otherwise see `FirstTurns.silent`.
    """
    if agent.journalled and (stored := stored_first_turns(directory, agent)) is not None:
        return stored
    if isinstance(model := getattr(agent, "model", None), Answering):
        model.prepare()  # reading the weights belongs to no turn
    if not agent.journalled:
        with closing(Caller(agent, workers)) as caller:
            return _Batch(study, agent, parameters, caller, clock).run(limits, most)
    with writing(directory, study.durability) as store, _waits(agent, patient), lines(f"first turns of {agent.name}"):
        store.put_study(study)
        store.put_session(session(arguments))
        note_packages(store, parts_of(study))
        store.put_agents([(agent_id(agent), agent.name, agent.describe())])
        store.put_worlds(study.worlds())
        journal, budget = Journal(store), budget_of(agent)
        with closing(Caller(agent, workers)) as caller:
            if budget is not None:
                spent = Counter(journal.spent(caller.identity))
                budget.begin(spent + Counter(spent_on_checks(store, caller.identity)), journal)
            try:
                return _Batch(study, agent, parameters, caller, clock, journal, store).run(limits, most, patient)
            finally:
                if budget is not None:
                    budget.end()


class _Batch:
    """The turns of a batch so far; with a journal and a store, answers and measurements are kept in these."""

    def __init__(
        self,
        study: Study,
        agent: Agent,
        parameters: Mapping[str, Any],
        caller: Caller,
        clock: Callable[[], float],
        journal: Journal | None = None,
        store: Store | None = None,
    ) -> None:
        self._study, self._agent, self._caller, self._clock = study, agent, caller, clock
        self._journal, self._store = journal, store
        self._count = counter(agent, parameters)[0] if isinstance(agent, ChatAgent) else None
        self._told = FirstTurns()
        self._turns = list[tuple[Turn, Cause | None, bool | None]]()  # whether the action is optimal, if known

    def run(self, limits: Limits, most: int, patient: bool = False) -> FirstTurns:
        """Ask one portion after another within the limits; the measurements so far are stored after each portion.

        If the trials refuse a server, a few turns are asked nevertheless. If none contains an action, this is what the
        user needs to know about the model, rather than what its server lacks.
        """
        specs = list(spread([(spec, world) for spec, world, _ in self._study.specs([self._agent])]))
        self._told = FirstTurns(shared=self._shared(specs[:_COMPARED]))
        items, size, tried, refusal = iter(specs), 1, False, None
        while portion := list(itertools.islice(items, min(size, most - self._told.asked))):
            try:
                if not tried:
                    refusal, tried = self._refusal(self._live(*portion[0]).observe()), True
                self._take(portion)
            except ValueError as error:
                raise refusal or error from None
            except ConnectionError as error:
                if patient:
                    raise
                if self._told.asked:
                    return self._told  # what is left is for the run, which waits as long as its settings say
                return FirstTurns(silent=_why_silent(error))
            if refusal is None:
                if self._store is not None:
                    record = self._told.model_dump(mode="json")
                    note(self._store, FIRST_TURNS, {self._caller.identity: record})
            elif self._told.unusable:
                return self._told
            elif self._told.invalid < 1:
                raise refusal
            size = self._next(limits, size)
        if refusal is not None:
            raise refusal
        return self._told

    def _refusal(self, observation: Observation) -> ValueError | None:
        """Test the abilities of the server, which counts as no turn; return why the server is refused, or None."""
        if self._store is None:
            return None
        try:
            check_before_calls(self._store, self._agent, observation)
        except NotSentError:
            raise  # a cap has no room for the trials
        except ValueError as error:
            self._caller.checked = True  # so that a few turns are asked nevertheless
            return error
        return None

    def _shared(self, items: Sequence[tuple[EpisodeSpec, World]]) -> float:
        """Return the share of a prompt that all first prompts of some episodes begin with."""
        if not isinstance(self._agent, ChatAgent):
            return 0.0
        prompts = [self._agent.prompt(self._live(*item).observe()).encode() for item in items]
        return common_prefix(prompts) * len(prompts) / sum(map(len, prompts)) if len(prompts) > 1 else 0.0

    def _live(self, spec: EpisodeSpec, world: World) -> LiveEpisode:
        study, agent = self._study, self._agent
        knows_world = bool(getattr(agent, "knows_world", False))
        history, failure = study.history_of(agent), study.failure_of(agent)
        return LiveEpisode(spec, world, study, history, failure, knows_world=knows_world)

    def _next(self, limits: Limits, size: int) -> int:
        """Return the size of the next portion; 0 if none fits."""
        turns_so_far, last = self._told, self._told.portions[-1]
        seconds_per_turn = last.seconds / last.turns
        unusable = turns_so_far.invalid == 1
        seconds = limits.unusable if unusable and turns_so_far.asked < FEWEST else limits.seconds
        target = min(2 * size, MOST)
        if unusable and turns_so_far.asked < FEWEST:
            target = min(target, FEWEST - turns_so_far.asked)
        # The first answer may include what happens only once, such as reading weights: a second one tells.
        began = 0.0 if unusable else turns_so_far.portions[0].seconds
        room = int((seconds - turns_so_far.seconds + began) / seconds_per_turn) if seconds_per_turn > 0 else target
        if len(turns_so_far.portions) == 1 and 0 < began <= UNUSABLE_SECONDS:
            room = max(1, room)
        for name, limit in (limits.usage or {}).items():
            spent = tokens_of(turns_so_far.usage) if name == "tokens" else turns_so_far.usage.get(name, 0.0)
            room = min(room, int((limit - spent) / (spent / turns_so_far.asked)) if spent else target)
        return max(0, min(target, room))

    def _take(self, portion: Sequence[tuple[EpisodeSpec, World]]) -> None:
        """Ask the turns of a portion, and count what all turns so far contain."""
        agent, live = self._agent, [self._live(*item) for item in portion]
        observations = [episode.observe() for episode in live]
        began = self._clock()
        if self._journal is None or self._store is None:
            turns = self._caller.turns(observations)
        else:
            turns = self._caller.journalled_turns(observations, self._journal, self._store)
        seconds, tokens = self._clock() - began, 0.0
        if self._count is not None and isinstance(agent, ChatAgent):
            tokens = sum(self._count(agent.messages(observation)) for observation in observations)
        longest = max(int(turn.usage.get("output_tokens", 0)) for turn in turns)
        portion_asked = Portion(turns=len(turns), tokens=tokens, longest=longest, seconds=seconds)
        portions = (*self._told.portions, portion_asked)
        for turn, episode, (_, world), observation in zip(turns, live, portion, observations, strict=True):
            check_action(turn, observation.view.actions)
            best = None if turn.failure is not None else _optimal(world, episode.state)
            cause = None if turn.failure is None else cause_of(turn, observation.view.actions)
            self._turns.append((turn, cause, None if best is None else bool(best[int(turn.action or 0)])))
        usage = Counter[str]()
        for turn, _, _ in self._turns:
            usage.update(turn.usage)
        failed = [(turn, cause) for turn, cause, _ in self._turns if turn.failure is not None]
        causes = [cause for _, cause in failed if cause is not None]
        texts = (" ".join((turn.text or turn.reasoning or "").split())[:_EXAMPLE] for turn, _ in failed)
        masses = [float(turn.extra["likelihood"]["mass"]) for turn, _ in failed if turn.failure == LITTLE_MASS]
        scored = [is_optimal for _, _, is_optimal in self._turns if is_optimal is not None]
        written = [(int(turn.usage.get("output_tokens", 0)), turn.failure is None) for turn, _, _ in self._turns]
        self._told = FirstTurns(
            asked=len(self._turns),
            failures=dict(Counter(str(turn.failure) for turn, _ in failed)),
            causes=dict(Counter(cause.name for cause in causes)),
            marks=next((cause.marks for cause in causes if cause.marks), ()),
            used=ways_in_use(agent),
            example=next(filter(None, texts), ""),
            scored=len(scored),
            optimal=sum(scored),
            shared=self._told.shared,
            counted=sum(portion.tokens for portion in portions) / len(self._turns),
            usage=dict(usage),
            portions=portions,
            memory=taken(agent),
            mass=sum(masses) / len(masses) if masses else None,
            longest=max(tokens for tokens, _ in written),
            longest_valid=max((tokens for tokens, is_valid in written if is_valid), default=0),
        )


def _why_silent(error: ConnectionError) -> str:
    """Say why a server gave no answer to a first prompt, and what helps."""
    problem, advice = getattr(error, "problem", ""), getattr(error, "advice", "")
    return TEXTS("plan/silent", error=problem or " ".join(str(error).split()), advice=advice or "check the server")


_EXAMPLE: Final = 80  # characters of an answer
_COMPARED: Final = 8  # prompts whose common beginning is looked for


def _optimal(world: World, state: Sequence[int]) -> Any:
    """Return which of A actions are optimal in a state ``[A]``, or None if that is unknown."""
    plan = oracle(world)
    if plan is None or isinstance(plan, TimedOracle) or plan.length < 0:
        return None
    return plan.look_up(np.array([state], dtype=np.int64))[0][0]


def tokens_of(usage: Mapping[str, float]) -> float:
    """Return the total number of tokens of some calls; if the server reported none, the most that they can have had.

    Args:
        usage: name of a quantity, such as "output_tokens" -> its total.
    """
    return sum(usage.get(name, 0.0) for name in ("prompt_tokens", "output_tokens", "tokens_at_most"))


@contextmanager
def _waits(agent: Agent, patient: bool) -> Iterator[None]:
    """Inside this context, wait for a server at most `PATIENCE` seconds, or as long as a timeout that the user set."""
    model = getattr(agent, "model", None)
    if patient or not isinstance(model, HttpModel):
        yield
        return
    server, client = model.server, model.client
    named = "timeout" in server.model_fields_set
    waits = {
        "timeout": server.timeout if named else min(server.timeout, PATIENCE),
        "patience": min(server.patience, PATIENCE / 2),
    }
    model.server = server.model_copy(update=waits)
    model.client = Client(model.server)
    try:
        yield
    finally:
        model.server, model.client = server, client
