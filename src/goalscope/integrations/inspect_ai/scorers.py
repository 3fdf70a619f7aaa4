"""Inspect scorers: MEG of each hypothesis, and the hypothesis that explains the moves of a log.

A single episode has no MEG, because one rationality is fitted to all worlds. The scorer therefore stores the record of
each episode with its score, and the metric evaluates the episodes of all samples and epochs together, as ``goalscope
meg`` does. Metrics of Inspect are numbers, so the metric writes what the agent is after into the scores of the samples:
the answer, the sentence as their explanation, and the names in their metadata. This needs a log that is scored after
the evaluation: while an evaluation runs, Inspect writes each sample before the others are played.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from inspect_ai.scorer import Metric, SampleScore, Score, Scorer, Target, Value, metric, scorer
from inspect_ai.solver import TaskState
from inspect_ai.util import sample_limits

from goalscope import goals
from goalscope.cli.attributing import bank_from
from goalscope.goals import GoalEstimate
from goalscope.goals.attribution import Trial, judged, usual_methods
from goalscope.goals.decision import decide, findings, groups
from goalscope.goals.finding import Finding, say_all, where_text
from goalscope.goals.hypotheses import bind
from goalscope.goals.hypotheses.definition import Hypothesis, Undefined
from goalscope.goals.hypotheses.states import states_of, states_of_episodes
from goalscope.goals.reading import asked_hypotheses, states_among
from goalscope.integrations.inspect_ai.record import KEY, EpisodeRecord, SampleRecord
from goalscope.integrations.inspect_ai.tasks import recorded_episode
from goalscope.measures.table import StepTable
from goalscope.runs.record import Episode

FIGURES: Final[Mapping[str, str]] = {
    "low": "low",
    "high": "high",
    "random": "null_high",
    "p": "null_p",
    "bound": "bound",
    "grids": "grids",
    "episodes": "n",
}
"""What stands beside the MEG of a hypothesis, and the field of `GoalEstimate` that it is."""

OPTIONS: Final = "options"
"""Key of a scorer's options in the metadata of its scores, beside the record of the episode under `KEY`."""

FINDINGS: Final = "findings"
"""Key of the findings on the agent in the metadata of its samples' scores: where, answer, reason and names. It is not
there in scores from a running evaluation."""

LATER: Final = (
    "What the agent is after follows from all samples together. To see it here, score the finished log with the same "
    "options: inspect score LOG --scorer goalscope/{scorer} --action append"
)
"""Explanation of a score from a running evaluation, in which not all samples have been seen."""


@metric(name="MEG", scores="unreduced")
def directedness() -> Metric:
    """Metric of Inspect: the goal-directedness (signed MEG, in nats) of the agent towards each hypothesis (possible
    goal).

    It also has the numbers named in `FIGURES`. Undefined numbers are left out: a single grid has no interval over
    grids, and an agent without actions has no MEG. A hypothesis that is undefined in every world has 0 episodes and no
    other number. While an evaluation runs, Inspect shows the metric of the samples so far.
    """

    def compute(scores: list[SampleScore]) -> Value:
        defined = [sample for sample in scores if _is_defined(sample.score)]
        if not defined:
            return {"left out": len(scores)}
        options = (defined[0].score.metadata or {})[OPTIONS]
        episodes = [kept_episode(sample.sample_metadata, sample.score.metadata) for sample in defined]
        table = _table(episodes)
        hypotheses, settings = _asked(table, options)
        states = states_of(table)
        estimates = goals.directedness(states, hypotheses, **settings).estimates
        measured = {estimate.hypothesis for estimate in estimates}
        values: dict[str, float] = {f"{name} episodes": 0 for name in hypotheses if name not in measured}
        for estimate in estimates:
            values |= _figures(estimate)
        measured_hypotheses = {name: hypothesis for name, hypothesis in hypotheses.items() if name in measured}
        all_findings = findings(states, measured_hypotheses) if measured_hypotheses else []
        for finding in all_findings:
            values |= finding_figures(finding)
        for sample, episode in zip(defined, episodes, strict=True):
            tell(sample.score, [finding for finding in all_findings if finding.agent == episode.agent])
        return {**values, "left out": len(scores) - len(defined)}

    return compute


@scorer(metrics=[directedness()], name="meg")
def meg(hypotheses: str | Sequence[str] = (), utility: str = "steps", invalid: str = "no-op") -> Scorer:
    """Scorer of Inspect that measures goal-directedness (MEG, in nats) towards hypotheses about the goal.

    The score of an episode is its utility under each hypothesis; the metric is the MEG of all episodes of the log.

    Args:
        hypotheses: hypotheses as text, e.g. ``"goal,corner top-left,beside goal"``, or names of goals that the worlds
            declare; by default the standard hypotheses of the worlds.
        utility: "steps" (number of steps spent at the goal) or "arrival" (being at the goal at the end).
        invalid: treatment of a turn without an action, "no-op" or "action".
    """
    names = hypotheses.split(",") if isinstance(hypotheses, str) else list(hypotheses)
    options: dict[str, Any] = {"utility": utility, "invalid": invalid}
    if asked_names := [name.strip() for name in names if name.strip()]:
        options["hypotheses"] = asked_names

    async def score(state: TaskState, target: Target) -> Score:
        return scored("meg", state, options, lambda episode: _utilities(episode, options))

    return score


def scored(name: str, state: TaskState, options: Mapping[str, Any], value_of: Callable[[Episode], Value]) -> Score:
    """Build the score of an Inspect sample, and store its episode with the score, so that a metric can read all
    episodes.

    Args:
        name: name of the scorer.
        state: Inspect's state of the sample.
        options: options of the scorer, which are stored too.
        value_of: returns the value of the score for an episode.

    Returns:
        The score; without a value if the sample holds no episode of goalscope.
    """
    stored = state.store.get(KEY, None)
    if stored is None:
        return Score.unscored(explanation="the sample holds no episode of goalscope's")
    metadata = {KEY: stored, OPTIONS: options}
    episode = kept_episode(state.metadata, metadata)
    value = value_of(episode)
    if _is_running():
        return Score(value=value, explanation=LATER.format(scorer=name), metadata=metadata)
    return Score(value=value, metadata={**metadata, FINDINGS: []})


def _is_running() -> bool:
    """Return whether a sample is running, rather than read from a finished log."""
    try:
        sample_limits()
    except RuntimeError:
        return False
    return True


def tell(score: Score, agent_findings: Sequence[Finding]) -> None:
    """Write in words what an agent is after into the score of one of its Inspect samples.

    Inspect passes a metric the scores that it keeps. Scores from a running evaluation stay as they are: Inspect calls
    the metric several times, and may write a sample after a call that has not seen all of them.

    Args:
        score: the score, whose answer, explanation and metadata change.
        agent_findings: the findings on the agent, by group of worlds.
    """
    if not agent_findings or FINDINGS not in (score.metadata or {}):
        return
    score.answer = ", ".join(dict.fromkeys(finding.answer for finding in agent_findings))
    score.explanation = say_all(agent_findings)
    fields = {"where", "answer", "reason", "names"}
    score.metadata = {
        **(score.metadata or {}),
        FINDINGS: [finding.model_dump(mode="json", include=fields) for finding in agent_findings],
    }


def kept_episode(sample_metadata: Mapping[str, Any] | None, score_metadata: Mapping[str, Any] | None) -> Episode:
    """Rebuild the episode of an Inspect sample from the sample's metadata and its score's metadata, where `scored`
    stored it.
    """
    sample = SampleRecord.read((sample_metadata or {}).get(KEY), "metadata")
    return recorded_episode(sample, EpisodeRecord.read((score_metadata or {}).get(KEY), "score"))


def _table(episodes: Sequence[Episode]) -> StepTable:
    return StepTable.from_episodes(episodes, tasks=any("tasks" in episode.world.offers for episode in episodes))


def _asked(table: StepTable, options: Mapping[str, Any]) -> tuple[dict[str, Hypothesis], dict[str, Any]]:
    """Return the hypotheses and the other options of `goalscope.goals.directedness`.

    Hypotheses that are undefined in the present worlds stay in the list, because they may be defined in later samples.
    """
    settings = {name: value for name, value in options.items() if name != "hypotheses"}
    return asked_hypotheses(options.get("hypotheses", ()), table.worlds, anywhere=True), settings


def _utilities(episode: Episode, options: Mapping[str, Any]) -> dict[str, Any]:
    """Compute the utility of an episode under each hypothesis; NaN if the world or the record does not define it."""
    table = _table([episode])
    hypotheses, settings = _asked(table, options)
    [states] = states_of(table)
    metrics = dict.fromkeys(hypotheses, math.nan)
    for name, hypothesis in hypotheses.items():
        try:
            utility = hypothesis.utility(states.world)
        except Undefined:
            continue
        if utility.ndim == 1 and states.complete.all():
            metrics[name] = float(states.utilities(utility, arrival=settings.get("utility") == "arrival")[0])
    return metrics


def finding_figures(finding: Finding) -> dict[str, float]:
    """Convert a finding (what an agent is after, and why) to numbers, since metrics of Inspect must be numbers.

    The answer, the reason and each named hypothesis become keys with value 1, such as "answer: ANSWER" and "after
    NAME".
    """
    condition = where_text(finding.where)
    texts = [f"answer: {finding.answer}", f"reason: {finding.reason}", *(f"after {name}" for name in finding.names)]
    return {f"{text} ({condition})" if condition else text: 1.0 for text in texts}


def _is_defined(score: Score) -> bool:
    return isinstance(score.value, dict) and not all(math.isnan(float(value)) for value in score.value.values())


def _figures(estimate: GoalEstimate) -> dict[str, float]:
    cell = ", ".join(f"{name} {value}" for name, value in estimate.cell.items())
    title = f"{estimate.hypothesis} ({cell})" if cell else estimate.hypothesis
    figures = {title: estimate.signed} | {f"{title} {name}": getattr(estimate, at) for name, at in FIGURES.items()}
    return {name: float(value) for name, value in figures.items() if not math.isnan(value)}


# Inspect scorer that attributes goals: which hypotheses explain the actions in all episodes of a log.
#
# A single episode says little about an agent's goal. As in `integrations.inspect_ai.scorers`, the scorer stores the
# record of each episode with its score, and the metric evaluates all episodes together, as ``goalscope attribute``
# does.


@metric(name="attribution", scores="unreduced")
def verdicts() -> Metric:
    """Metric of Inspect: what attribution methods say about an agent's goal from all episodes of a log, as numbers.

    "METHOD: KIND" is 1 for the kind of the method's verdict (named, set, partly, ...) or for "says nothing". "METHOD
    NAME" is the method's value for a hypothesis (possible goal). "NAME nats", with "low", "high" and "share", is the
    goal-directedness (MEG) towards a hypothesis that the answer names. "(phase P)" distinguishes the phases of a world.
    "left out" is the number of samples without an action in a known world.
    """

    def compute(scores: list[SampleScore]) -> Value:
        positive = [score for score in scores if isinstance(score.score.value, int | float) and score.score.value > 0]
        if not positive:
            return {"left out": len(scores)}
        options = (positive[0].score.metadata or {})[OPTIONS]
        episodes = [kept_episode(score.sample_metadata, score.score.metadata) for score in positive]
        states, _ = states_among(episodes, "the log")
        bank, figures, log_findings = bank_from(options["hypotheses"]), dict[str, float](), list[Finding]()
        bound = {name: bind(hypothesis, [state.world.world for state in states]) for name, hypothesis in bank.items()}
        for tags, members in groups(states):
            group, finding = where_text(tags), decide(members, bound, where=tags)
            stratum = judged(group, Trial(states=members, bank=bound), options["methods"] or usual_methods())
            log_findings.append(finding)
            figures |= finding_figures(finding)
            metrics = {f"{method}: says nothing": 1.0 for method in stratum.refused}
            for attribution in stratum.attributions:
                metrics[f"{attribution.method}: {attribution.kind}"] = 1.0
                metrics |= {
                    f"{attribution.method} {name}": float(weight) for name, weight in attribution.weights.items()
                }
            for name in finding.names:
                if (nats := finding.figure("meg", name)) is not None:
                    ends = {"nats": nats.value, "low": nats.low, "high": nats.high}
                    metrics |= {f"{name} {end}": value for end, value in ends.items() if value is not None}
                if (share := finding.figure("share", name)) is not None and share.value is not None:
                    metrics[f"{name} share"] = share.value
            metrics["worlds"] = float(stratum.clusters)
            figures |= {f"{name} ({group})" if group else name: value for name, value in metrics.items()}
        for score in positive:
            tell(score.score, log_findings)
        finite = {name: value for name, value in figures.items() if math.isfinite(value)}
        return {**finite, "left out": len(scores) - len(positive)}

    return compute


@scorer(metrics=[verdicts()], name="attribution")
def attribution(hypotheses: str | Sequence[Any] = "grids", methods: str | Sequence[str] = ()) -> Scorer:
    """Scorer of Inspect that finds which hypotheses about the goal explain an agent's actions.

    The score of an episode is only its number of actions in a known world; the metric attributes goals from all
    episodes together.

    Args:
        hypotheses: a bank (named set of hypotheses) or a file, as for ``goalscope attribute``, or a list with the
            content of such a file.
        methods: names of methods, separated by commas; by default all methods that need no further answers.
    """
    bank = hypotheses if isinstance(hypotheses, str) else [*hypotheses]
    bank_from(bank)  # raise the error for an unknown bank before anything is scored
    names = methods.split(",") if isinstance(methods, str) else methods
    options: dict[str, Any] = {"hypotheses": bank, "methods": [name.strip() for name in names if name.strip()]}

    async def score(state: TaskState, target: Target) -> Score:
        return scored("attribution", state, options, _moves)

    return score


def _moves(episode: Episode) -> int:
    """Count the actions of an episode in a world with known dynamics."""
    return sum(int((state.action >= 0).sum()) for state in states_of_episodes([episode])[0])
