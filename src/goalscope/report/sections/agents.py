"""Comparisons between agents, and of each agent with itself under paired conditions; example episodes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, islice

import numpy as np

from goalscope._ground.words import counted, listed
from goalscope.measures.behaviour import COMPARED
from goalscope.measures.comparison import SideRows
from goalscope.measures.transcript import OUTCOMES, transcript, write_step
from goalscope.report.blocks import Declared, Figure, FoldSpec, number, section
from goalscope.report.comparison import family_table
from goalscope.report.figures import drawn_picture, episode_picture, graph_picture
from goalscope.report.ledger import RunData, describe_key
from goalscope.report.sections.behaviour import MAX_PAIRS, has_goal_tables
from goalscope.report.texts import TEXTS
from goalscope.runs.record import Episode
from goalscope.stats.rows import Rows, Tag
from goalscope.worlds.things import kinds_in
from goalscope.worlds.world import World

OWN_LEGEND = TEXTS("examples/own legend")
_MAX_AGENTS = 12
_MAX_WRITERS, _MAX_STEPS, _MAX_CHARACTERS = 4, 12, 1500


@section("agents compared", worlds="grids")
def agents_compared(run: RunData) -> Iterator[Declared]:
    """Yield the report's section that compares every pair of agents of a run, in the worlds of its largest condition.

    There is none for a single agent; with too many pairs, the section only says so.
    """
    agents = run.ledger.agents
    pairs = len(agents) * (len(agents) - 1) // 2
    if pairs > MAX_PAIRS:
        text = TEXTS("compared/too many agents", agents=len(agents), pairs=pairs)
        yield Declared(anchor="comparison", title="Agents compared", paragraphs=(text,))
    elif pairs:
        rows = run.rows_of(*COMPARED, episodes=False)
        # The condition with most grids, the first of ties.
        group = max(run.ledger.groups("agent"), key=lambda key: len(rows.select(**key).numbered("cluster")[1]))
        sides = [SideRows(agent, rows.select(agent=agent, **group)) for agent in agents]
        condition = f" ({describe_key(group)}, the largest part of this run)" if group else ""
        text = TEXTS("compared/agents", noun=run.ledger.noun, condition=condition)
        pairs_of_sides = list(combinations(sides, 2))
        yield _compared(pairs_of_sides, "pairs", "comparison", "Agents compared", text, noun=run.ledger.noun)


@section("conditions compared", worlds="grids")
def conditions_compared(run: RunData) -> Iterator[Declared]:
    """Yield the report's section that compares each agent with itself under two conditions.

    The conditions are transformed and original grids, and worlds with a key and their control worlds, unless another
    section shows this comparison.
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
        text, caution = TEXTS("compared/conditions", noun=run.ledger.noun), TEXTS("compared/not equal")
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
    how = TEXTS("compared/how", noun=noun, tests=counted(len(tests), "test"))
    return Declared(
        anchor=anchor, title=title, paragraphs=(" ".join(filter(None, (text, how, closing))),), tables=[table]
    )


@section("examples")
def examples(run: RunData) -> Iterator[Declared]:
    """Yield the report's section that draws the path of one success and one failure of each agent."""
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
        paragraphs=[
            TEXTS("examples/rule"),
            *([f"{'; '.join(missing)}."] if missing else []),
            *_cut_note(agents, _MAX_AGENTS),
        ],
        figures=list(figures.values()),
        layout="pictures",
        legend=legend_of([episodes[identity].world for identity in chosen.values()]),
    )


def _cut_note(agents: Sequence[str], maximum: int) -> list[str]:
    return [TEXTS("examples/cut", shown=maximum, agents=len(agents))] if len(agents) > maximum else []


def legend_of(worlds: Iterable[World]) -> str:
    """Return a sentence on what the signs in pictures of episodes mean, with the objects that these worlds contain."""
    present = kinds_in(world.grid for world in worlds if "grid" in world.offers)
    signs = [f"{kind.symbol} is {kind.legend}" for kind in present]
    things = f" {TEXTS('examples/things', symbols=listed(signs))}" if signs else ""
    return TEXTS("examples/legend", things=things)


def episode_figure(episode: Episode, opening: str = "") -> Figure | None:
    """Draw the world of an episode with the agent's path, and a caption.

    Args:
        episode: the episode.
        opening: beginning of the caption; the name of the agent by default.

    Returns:
        The figure; None if the world has no picture, or cannot be drawn on this machine.
    """
    tags = episode.world.tags
    condition = ", ".join(f"{name} {number(tags[name])}" for name in ("kind", "size", "density") if name in tags)
    steps = counted(len(episode.steps), "step")
    world = condition or episode.world.id
    end = TEXTS(f"labels/ends of episodes/{episode.outcome}")
    caption = f"{opening or episode.agent}: {end} after {steps} ({world}); {episode.id}"
    if "drawing" in episode.world.offers:
        return Figure(episode_picture(episode, caption), caption=caption)
    try:
        drawings = [episode.world.drawing(state) for state in (*(step.state for step in episode.steps), episode.final)]
    except (ImportError, ValueError):  # of an environment whose package is elsewhere
        return None
    visible = [drawing for drawing in drawings if drawing is not None and (drawing.rows or drawing.nodes)]
    if not visible or drawings[0] is not visible[0]:  # a state after the end may have none
        return None
    shown = drawn_picture(visible, caption) if visible[0].rows else graph_picture(visible[-1], caption)
    return Figure(shown, caption=caption)


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


@section("transcripts")
def transcripts(run: RunData) -> Iterator[Declared]:
    """Yield the report's section with the texts that each agent wrote in a failure, in its longest episode, and in a
    success.
    """
    by_agent = {agent: episodes for agent in run.ledger.agents if (episodes := _chosen(run, agent))}
    folds = [fold for agent in [*by_agent][:_MAX_WRITERS] for fold in _folds(agent, by_agent[agent])]
    if folds:
        rule = [TEXTS("examples/transcripts"), *_cut_note([*by_agent], _MAX_WRITERS)]
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
