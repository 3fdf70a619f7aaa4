"""Interventions of a run end to end: all that its study declares."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from pydantic import BaseModel

from goalscope.activations.replay_target import ReplayTarget, check_model, find_target
from goalscope.agents.agent import agent_id
from goalscope.agents.chat import ChatAgent
from goalscope.interventions.experiment import TAG, Progress, Subject, originals_of, own_rows, settings_id
from goalscope.models.local import LocalModel
from goalscope.rows import Rows
from goalscope.runs import Store
from goalscope.runs.provenance import note_libraries

INFO: Final = "interventions"
"""Name under which a run keeps what was changed last, and how."""

Stage = Callable[[str], AbstractContextManager[Progress]]


@dataclass(frozen=True, slots=True, kw_only=True)
class InterventionSummary:
    """What one experiment found.

    Attributes:
        kind: the kind of the experiment.
        agent: short name of the agent.
        rows: its rows, as the run keeps them.
        about: plain values: settings, numbers of pairs, what was left out.
    """

    kind: str
    agent: str
    rows: Rows
    about: Mapping[str, Any]


@contextmanager
def _silent(label: str) -> Iterator[Progress]:
    yield lambda done, total: None


def study_interventions(
    run: str | Path,
    declared: Sequence[BaseModel] | None = None,
    *,
    model: LocalModel | None = None,
    stage: Stage = _silent,
) -> list[InterventionSummary]:
    """Do all declared experiments on a run, store their rows, and return them; what is stored is not done again.

    Args:
        run: a run directory; nobody else may write to it meanwhile.
        declared: the settings of experiments; by default those of the run's study.
        model: what is changed; by default the local model that the run's study names.
        stage: is called at the beginning of each experiment with its name; gives what shows progress.

    Raises:
        FileNotFoundError: no run there, or no such model.
        ValueError: nothing is declared, a run without token ids, or what an experiment refuses; says what to do.
        ImportError: torch or transformers is missing.
        BlockingIOError: another process writes to the run.
    """
    with Store(run) as store:
        wanted = declared_in(store) if declared is None else tuple(declared)
        if not wanted:
            raise ValueError(
                f"interventions must be declared, the study of {run} has none (analysis: interventions:): name a kind, "
                "e.g. goalscope patch RUN --kind patching"
            )
        targets = [_target(store, one) for one in wanted]
    found = []
    with Store(run, "w") as store:
        note_libraries(store, "interventions")
        for settings, target in zip(wanted, targets, strict=True):
            found.append(_done(store, settings, target, model, stage))
    return found


def declared_in(store: Store) -> tuple[BaseModel, ...]:
    """Return the interventions that the study of a run declares."""
    study = store.study()
    return tuple(study.analysis.interventions) if study is not None and study.analysis is not None else ()


def _done(
    store: Store, settings: Any, target: ReplayTarget, model: LocalModel | None, stage: Stage
) -> InterventionSummary:
    agent, own = _agent(store, target, model, weights=_needs_weights(settings))
    source = f"{settings.kind}/{target.agent_id}"
    identity = settings_id(settings, agent_id(agent))
    tags = {TAG: settings.kind, "agent": target.agent}
    _forget(store, source, f"{source}/{identity}")
    with stage(settings.kind) as show:
        subject = Subject(
            store=store,
            agent=agent,
            model=own,
            originals=originals_of(store, target.agent_id),
            source=f"{source}/{identity}",
            tags=tags,
            show=show,
        )
        about = dict(settings.run(subject))
    kept = store.info().get(INFO)
    about = {**about, "agent": target.agent, "model": own.name}
    store.put_info(INFO, {**(kept if isinstance(kept, dict) else {}), settings.kind: about})
    return InterventionSummary(kind=settings.kind, agent=target.agent, rows=own_rows(store.rows(), tags), about=about)


def _needs_weights(settings: Any) -> bool:
    return bool(getattr(settings, "needs_weights", True))


def _target(store: Store, settings: Any) -> ReplayTarget:
    """Return whose insides or reasoning are changed; the latter needs no token ids."""
    if _needs_weights(settings):
        return find_target(store, settings.agent, ("pre",))
    study = store.study()
    agents = [entry.build() for entry in (study.agents_ if study is not None else ()) if entry.kind == "chat"]
    named = [one for one in agents if settings.agent in (None, one.name)]
    if len(named) != 1:
        there = ", ".join(one.name for one in agents) or "none"
        raise ValueError(
            f"edits of reasoning are made to one chat agent of the run ({there}), got {settings.agent!r}: name one "
            "(agent)"
        )
    identity = agent_id(named[0])
    return ReplayTarget(agent=named[0].name, agent_id=identity, description=named[0].describe(), steps=0)


def _agent(
    store: Store, target: ReplayTarget, model: LocalModel | None, *, weights: bool = True
) -> tuple[ChatAgent, LocalModel]:
    """Return the agent of a run's study, with another model where one is given, and its local model."""
    study = store.study()
    for entry in study.agents_ if study is not None else ():
        if entry.kind not in ("chat",):
            continue
        agent = entry.build()
        if not isinstance(agent, ChatAgent) or agent_id(agent) != target.agent_id:
            continue
        if model is not None:
            check_model(target, model, other_weights=False)
            return ChatAgent(
                model=model, sampling=agent.sampling, name=agent.name, task=agent.task, template=agent.template
            ), model
        if isinstance(agent.model, LocalModel) or not weights:
            return agent, cast(LocalModel, agent.model)  # what needs no weights asks it as any model
    raise ValueError(
        f"{store.path} does not say how {target.agent} is asked and where its model lies: interventions need a run of "
        "a study with a chat agent and a local model (for one behind a server, give --model FOLDER)"
    )


def _forget(store: Store, source: str, kept: str) -> None:
    """Remove the rows of earlier settings of an experiment."""
    for name in store.row_sources():
        if name.startswith(f"{source}/") and not name.startswith(f"{kept}/"):
            store.put_rows(Rows.from_rows([]), source=name)
