"""Comparisons between agents, and of each agent with itself under paired conditions; example episodes."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, islice

import numpy as np

from goalscope._ground.words import counted
from goalscope.measures.behaviour import COMPARED
from goalscope.measures.comparison import SideRows
from goalscope.measures.transcript import OUTCOMES, transcript, write_step
from goalscope.report.blocks import number
from goalscope.report.comparison import family_table
from goalscope.report.ledger import RunData, describe_key
from goalscope.report.pictures import drawn_picture, episode_picture
from goalscope.report.sections.environments import MAX_PAIRS, has_goal_tables
from goalscope.report.specs import Declared, Figure, FoldSpec, section
from goalscope.runs.record import Episode
from goalscope.stats.rows import Rows, Tag


@section("agents compared", worlds="grids")
def agents_compared(run: RunData) -> Iterator[Declared]:
    """Compare all pairs of agents of a run."""
    agents = run.ledger.agents
    pairs = len(agents) * (len(agents) - 1) // 2
    if pairs > MAX_PAIRS:
        text = (
            f"This run has {len(agents)} agents, {pairs} pairs: too many for one family of tests to say anything. "
            "Name the agents that matter: goalscope compare RUN --agents 'A;B'."
        )
        yield Declared(anchor="comparison", title="Agents compared", paragraphs=(text,))
    elif pairs:
        rows = run.rows_of(*COMPARED, episodes=False)
        # The condition with most grids, the first of ties.
        group = max(run.ledger.groups("agent"), key=lambda key: len(rows.select(**key).numbered("cluster")[1]))
        sides = [SideRows(agent, rows.select(agent=agent, **group)) for agent in agents]
        condition = f" ({describe_key(group)}, the largest part of this run)" if group else ""
        text = f"All pairs of agents on the {run.ledger.noun}s that both acted on{condition}"
        pairs_of_sides = list(combinations(sides, 2))
        yield _compared(pairs_of_sides, "pairs", "comparison", "Agents compared", text, noun=run.ledger.noun)


@section("conditions compared", worlds="grids")
def conditions_compared(run: RunData) -> Iterator[Declared]:
    """Compare each agent with itself: transforms with originals, keys with controls, unless another section
    shows this.
    """
    groups = run.ledger.groups("agent")
    elsewhere = {"transform": run.analysis.invariance is not None, "control": has_goal_tables(run)}
    comparisons: list[tuple[str, dict[str, Tag], dict[str, Tag]]] = []
    for tag, base in (("transform", "identity"), ("control", False)):
        for group in groups:
            base_group = {**group, tag: base}
            if not elsewhere[tag] and group.get(tag) not in (None, base) and base_group in groups:
                comparisons.append((tag, group, base_group))
    # Conditions that both sides share are written only if comparisons differ in them.
    shared = [
        describe_key({name: value for name, value in base_group.items() if name != tag})
        for tag, _, base_group in comparisons
    ]
    pairs = []
    for (tag, group, base_group), condition in zip(comparisons, shared, strict=True):
        suffix = f", {condition}" if len(set(shared)) > 1 and condition else ""
        for agent in run.ledger.agents:
            agent_rows = run.rows_of(*COMPARED, episodes=False).select(agent=agent)
            first = SideRows(f"{agent}{suffix}, {describe_key({tag: group[tag]})}", agent_rows.select(**group))
            pairs.append((first, SideRows(f"{agent}{suffix}", agent_rows.select(**base_group))))
    if pairs:
        caution = (
            " A difference that is not significant is no proof of equality: read the interval, or declare a margin in "
            "the study (analysis: invariance)."
        )
        text = f"Each agent on paired versions of the same {run.ledger.noun}s"
        yield _compared(pairs, "conditions", "conditions", "Conditions compared", text, caution, noun=run.ledger.noun)


def _compared(
    pairs: Sequence[tuple[SideRows, SideRows]],
    name: str,
    anchor: str,
    title: str,
    text: str,
    closing: str = "",
    *,
    noun: str,
) -> Declared:
    tests, table = family_table(pairs, "", name=name, clusters=f"{noun}s")
    text += (
        f": the mean difference by {noun} with its interval, and p, the level at which it leaves out 0. p (Holm) is "
        f"corrected for all {counted(len(tests), 'test')} of this table, declared as one family. The effect is the "
        "signed matched-pairs rank correlation, from −1 (first always lower) to +1 (first always higher)."
    )
    return Declared(anchor=anchor, title=title, paragraphs=(f"{text}{closing}",), tables=[table])


RULE = (
    "For each agent one episode that arrived and one that did not, where there are any: the first by content id, in "
    "grids of those nearest to the middle size and the middle density of the run."
)
LEGEND = (
    "S start, G goal, K key, D door. Blue moves lie on a shortest path, orange ones do not. Each move is drawn a "
    "little to the right of its direction, so that a path walked back and forth appears as two lines. The number in "
    "a ring counts actions that had no effect in that cell, such as a bump into a wall; a red cross marks turns "
    "without a valid move. Other worlds use their own drawing; there the path is blue and starts at the circle."
)
OWN_LEGEND = (
    "The cells are those that the environment draws. The path of the agent is blue and starts at the circle; each move "
    "is drawn a little to the right of its direction, so that a path walked back and forth appears as two lines."
)
_MAX_AGENTS = 12


@section("examples")
def examples(run: RunData) -> Iterator[Declared]:
    """Draw one success and one failure of each agent."""
    rows, agents = run.rows_of("success"), run.ledger.agents
    centres = {name: _centre(rows, name) for name in ("size", "density")}
    kinds = [(agent, success) for agent in agents[:_MAX_AGENTS] for success in (True, False)]
    chosen = {
        (agent, success): identity
        for agent, success in kinds
        if (identity := _middle(rows.where(rows.among("agent", [agent]) & (rows.value == float(success))), centres))
    }
    episodes = {episode.id: episode for episode in run.store.episodes(chosen.values())} if chosen else {}
    figures = {
        key: figure for key, identity in chosen.items() if (figure := episode_figure(episodes[identity])) is not None
    }
    chosen = {key: identity for key, identity in chosen.items() if key in figures}  # some worlds have no picture
    if not chosen:
        return
    missing = [
        f"{agent} has no episode that {'arrived' if success else 'failed'}"
        for agent, success in kinds
        if (agent, success) not in chosen
    ]
    yield Declared(
        anchor="examples",
        title="Example trajectories",
        paragraphs=[RULE, *([f"{'; '.join(missing)}."] if missing else []), *_cut_note(agents, _MAX_AGENTS)],
        figures=list(figures.values()),
        layout="pictures",
        legend=LEGEND,
    )


def _cut_note(agents: Sequence[str], maximum: int) -> list[str]:
    return [f"Only the first {maximum} of {len(agents)} agents are shown."] if len(agents) > maximum else []


def episode_figure(episode: Episode, opening: str = "") -> Figure | None:
    """Draw an episode with a caption; None if its world has no picture, or cannot be drawn on this machine.

    Args:
        episode: the episode.
        opening: beginning of the caption; the name of the agent by default.
    """
    ends = {
        "goal": "arrived",
        "horizon": "did not arrive within its horizon",
        "failure": "ended by a turn without an action",
        "stopped": "its record stops before the goal",
        "ended": "ended without the goal",
    }
    tags = episode.world.tags
    condition = ", ".join(f"{name} {number(tags[name])}" for name in ("kind", "size", "density") if name in tags)
    steps = counted(len(episode.steps), "step")
    world = condition or episode.world.id
    caption = f"{opening or episode.agent}: {ends[episode.outcome]} after {steps} ({world}); {episode.id}"
    if "drawing" in episode.world.offers:
        return Figure(episode_picture(episode, caption), caption=caption)
    try:
        drawings = [episode.world.drawing(state) for state in (*(step.state for step in episode.steps), episode.final)]
    except (ImportError, ValueError):  # of an environment whose package is elsewhere
        return None
    visible = [drawing for drawing in drawings if drawing is not None and drawing.rows]
    # A state after the end may have none.
    return Figure(drawn_picture(visible, caption), caption=caption) if visible and drawings[0] is visible[0] else None


def _middle(rows: Rows, centres: Mapping[str, float]) -> str:
    """Return the episode closest to the median size and density (the first id if several are); "" if there is none."""

    nearest = rows
    for name, centre in centres.items():
        codes, labels = nearest.numbered(name)
        far = (abs(float(label) - centre) if isinstance(label, int | float) else np.inf for label in labels)
        distances = np.fromiter(far, dtype=float)
        nearest = nearest.where(distances[codes] == distances[codes].min(initial=np.inf))
    return min(map(str, nearest.numbered("episode_id")[1]), default="")


def _centre(rows: Rows, name: str) -> float:
    values = {value for value in rows.numbered(name)[1] if isinstance(value, int | float)}
    return float(np.median(sorted(values))) if values else 0.0


_TRANSCRIPT_RULE = (
    "For each agent that answers in words: its first episode that did not reach the goal, its longest one and its "
    "first success, in the order of their worlds' content ids. goalscope show prints any episode, with its prompts."
)
_MAX_WRITERS, _MAX_STEPS, _MAX_CHARACTERS = 4, 12, 1500


@section("transcripts")
def transcripts(run: RunData) -> Iterator[Declared]:
    """Show the texts of each agent in a failure, in its longest episode, and in a success."""
    by_agent = {agent: episodes for agent in run.ledger.agents if (episodes := _chosen(run, agent))}
    folds = [fold for agent in [*by_agent][:_MAX_WRITERS] for fold in _folds(agent, by_agent[agent])]
    if folds:
        rule = [_TRANSCRIPT_RULE, *_cut_note([*by_agent], _MAX_WRITERS)]
        yield Declared(anchor="transcripts", title="Transcripts", paragraphs=rule, folds=folds)


def _chosen(run: RunData, agent: str) -> list[tuple[str, Episode]]:
    """Return the episodes of an agent's transcripts, each with the reason why it was chosen; empty if its steps have no
    text.
    """
    reasons: dict[str, list[str]] = {}
    chosen = run.episodes[agent].chosen if agent in run.episodes else {}
    for reason in ("first failure", "longest", "first success"):
        if reason in chosen:
            reasons.setdefault(chosen[reason].id, []).append(reason)
    episodes = {episode.id: episode for episode in run.store.episodes(reasons)}
    if all(step.text is None for episode in episodes.values() for step in episode.steps):
        return []
    return [(" and ".join(names), episodes[identity]) for identity, names in reasons.items()]


def _folds(agent: str, chosen: Sequence[tuple[str, Episode]]) -> Iterator[FoldSpec]:
    for reason, episode in chosen:
        steps = [
            write_step(entry, (entry.seen or "").splitlines(), most=_MAX_CHARACTERS)
            for entry in islice(transcript(episode), _MAX_STEPS)
        ]
        remaining = len(episode.steps) - len(steps)
        closing = f"{counted(remaining, 'step')} more" if remaining else f"{agent} {OUTCOMES[episode.outcome]}"
        title = f"{agent}, {reason}: {counted(len(episode.steps), 'step')}, {OUTCOMES[episode.outcome]} ({episode.id})"
        yield FoldSpec(title, code=["\n".join([*steps, "", closing]).strip()])
