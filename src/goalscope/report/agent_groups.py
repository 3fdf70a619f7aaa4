"""The agents of a run as arms of a study: which are models, and what they are shown of earlier steps."""

from collections.abc import Mapping
from dataclasses import dataclass

from goalscope.measures.table import CONDITIONS
from goalscope.report.ledger import Ledger
from goalscope.rows import Rows, Tag
from goalscope.runs.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentGroups:
    """The agents of a run in the order of the ledger.

    Attributes:
        models: the language models.
        scripted: all others, agents with goals that were planted among them.
        history: agent -> what it was shown of earlier steps, in words.
    """

    models: tuple[str, ...]
    scripted: tuple[str, ...]
    history: Mapping[str, str]

    @property
    def subjects(self) -> tuple[str, ...]:
        """Whom the study is about: the models, or the first agent where there is none."""
        return self.models or self.scripted[:1]

    @property
    def others(self) -> tuple[str, ...]:
        """All agents that are not subjects."""
        return tuple(agent for agent in self.scripted if agent not in self.subjects)


def agent_groups(store: Store, ledger: Ledger) -> AgentGroups:
    """Return the agents of a run as arms."""
    study = store.study()
    shared = "none" if study is None else study.history
    about = dict(store.agents().values())
    models = tuple(name for name in ledger.agents if about.get(name, {}).get("kind") == "chat")
    return AgentGroups(
        models=models,
        scripted=tuple(name for name in ledger.agents if name not in models),
        history={name: str(about.get(name, {}).get("history", shared)) for name in ledger.agents},
    )


def settings(rows: Rows, ledger: Ledger) -> list[tuple[dict[str, Tag], dict[str, Tag]]]:
    """Return each group of conditions of a run as the ledger names it, and with the conditions that do not vary."""
    constant: dict[str, Tag] = {}
    for name in CONDITIONS:
        if name not in ledger.conditions:
            found = set(rows.tags[name].tolist()) if name in rows.tags else {None}
            constant[name] = found.pop() if len(found) == 1 else None
    return [(group, {**constant, **group}) for group in ledger.groups("agent")]
