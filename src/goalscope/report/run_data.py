"""What the sections of a report are told of a run: its rows, its estimates, its agents."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from goalscope.measures.invariance import ORIGINAL
from goalscope.measures.table import CONDITIONS
from goalscope.report.ledger import Ledger, build_ledger
from goalscope.rows import Rows, Tag
from goalscope.runs.analysis import Analysis
from goalscope.runs.content_hash import content_hash
from goalscope.runs.store import Store
from goalscope.runs.study import Study

PROBED = "head"
"""Tag that all rows about activations have, and no others: the form of the probe."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunData:
    """A measured run.

    Attributes:
        store: the run.
        rows: its rows about behaviour.
        probed: its rows about activations, see `PROBED`.
        ledger: the estimates of behaviour.
        groups: its agents.
        study: its study, None for an import.
        digest: its content hash.
    """

    store: Store = field(repr=False)
    rows: Rows = field(repr=False)
    probed: Rows = field(repr=False)
    ledger: Ledger = field(repr=False)
    groups: AgentGroups
    study: Study | None
    digest: str

    @classmethod
    def of(cls, store: Store) -> "RunData":
        """Read a measured run and estimate its ledger.

        Raises:
            ValueError: the run has no rows.
        """
        rows, probed = split_probing(store.rows())
        study = store.study()
        ledger = build_ledger(rows, agents=store.agent_names() if study else ())
        return cls(
            store=store,
            rows=rows,
            probed=probed,
            ledger=ledger,
            groups=agent_groups(store, ledger),
            study=study,
            digest=content_hash(store),
        )

    @property
    def analysis(self) -> Analysis:
        """What the study declares about its analysis."""
        return self.study.analysis if self.study and self.study.analysis else Analysis()

    @property
    def worlds(self) -> str:
        """The kind of its worlds, "grids" or "tasks"."""
        return "tasks" if on_tasks(self.rows) else "grids"

    @property
    def originals(self) -> Ledger:
        """The estimates that figures show: of original grids alone where transforms have a section of their own."""
        return self.ledger.only("transform", ORIGINAL) if self.analysis.invariance else self.ledger

    def settings(self) -> list[tuple[dict[str, Tag], dict[str, Tag]]]:
        """Return each group of conditions as the ledger names it, and with the conditions that do not vary."""
        constant: dict[str, Tag] = {}
        for name in CONDITIONS:
            if name not in self.ledger.conditions:
                found = set(self.rows.tags[name].tolist()) if name in self.rows.tags else {None}
                constant[name] = found.pop() if len(found) == 1 else None
        return [(group, {**constant, **group}) for group in self.ledger.groups("agent")]


def agent_groups(store: Store, ledger: Ledger) -> AgentGroups:
    """Return the agents of a run: which are models, and what they are shown of earlier steps."""
    study = store.study()
    shared = "none" if study is None else study.history
    about = dict(store.agents().values())
    models = tuple(name for name in ledger.agents if about.get(name, {}).get("kind") == "chat")
    return AgentGroups(
        models=models,
        scripted=tuple(name for name in ledger.agents if name not in models),
        history={name: str(about.get(name, {}).get("history", shared)) for name in ledger.agents},
    )


def split_probing(rows: Rows) -> tuple[Rows, Rows]:
    """Return the rows about behaviour, and those about activations."""
    probed = rows.known(PROBED)
    return rows.where(~probed), rows.where(probed)


def on_tasks(rows: Rows) -> bool:
    """Return whether a run was made in task worlds."""
    return "exploration error" in set(rows.measure.tolist())
