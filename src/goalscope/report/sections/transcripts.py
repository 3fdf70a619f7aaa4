"""Transcripts of some episodes of agents that write: what they saw, thought, answered, and how good it was."""

from collections.abc import Iterator
from itertools import islice

from goalscope.measures.transcript import OUTCOMES, transcript, write_step
from goalscope.report.blocks import counted
from goalscope.report.ledger import RunData
from goalscope.report.specs import Declared, FoldSpec, section

_RULE = (
    "For each agent that answers in words: its first episode that did not reach the goal, its longest one and its "
    "first success, in the order of their worlds' content ids. goalscope show prints any episode, with its prompts."
)
_MOST_AGENTS, _MOST_STEPS, _MOST_TEXT = 4, 12, 1500


@section("transcripts")
def transcripts(run: RunData) -> Iterator[Declared]:
    """What agents wrote in a failure, in their longest episode and in a success."""
    texts = "SELECT 1 FROM steps JOIN episodes ON number = episode WHERE agent = ? AND text IS NOT NULL LIMIT 1"
    agents = [name for name in run.ledger.agents if run.store.query(texts, (name,))]
    folds = [fold for agent in agents[:_MOST_AGENTS] for fold in _folds(run, agent)]
    more = [f"Only the first {_MOST_AGENTS} of {len(agents)} agents are shown."] if len(agents) > _MOST_AGENTS else []
    if folds:
        yield Declared(anchor="transcripts", title="Transcripts", paragraphs=[_RULE, *more], folds=folds)


def _folds(run: RunData, agent: str) -> Iterator[FoldSpec]:
    select = "SELECT id, outcome, length FROM episodes WHERE agent = ? ORDER BY world_id, trajectory, id"
    found = run.store.query(select, (agent,))
    chosen: dict[str, str] = {}  # episode -> why
    for why, row in (
        ("first failure", next((row for row in found if row[1] != "goal"), None)),
        ("longest", max(found, key=lambda row: row[2], default=None)),
        ("first success", next((row for row in found if row[1] == "goal"), None)),
    ):
        if row is not None:
            chosen[row[0]] = f"{chosen[row[0]]} and {why}" if row[0] in chosen else why
    episodes = {episode.id: episode for episode in run.store.episodes(chosen)}
    for identity, why in chosen.items():
        episode = episodes[identity]
        steps = [
            write_step(one, (one.seen or "").splitlines(), most=_MOST_TEXT)
            for one in islice(transcript(episode), _MOST_STEPS)
        ]
        left = len(episode.steps) - len(steps)
        end = f"{counted(left, 'step')} more" if left else f"{agent} {OUTCOMES[episode.outcome]}"
        title = f"{agent}, {why}: {counted(len(episode.steps), 'step')}, {OUTCOMES[episode.outcome]} ({identity})"
        yield FoldSpec(title, code=["\n".join([*steps, "", end]).strip()])
