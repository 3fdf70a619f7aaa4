"""The summary and the end of the page: undefined values, definitions of measures, all numbers, provenance."""

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from goalscope._ground.words import counted, listed
from goalscope._ground.yaml_text import write_yaml
from goalscope.measures.table import CONDITIONS
from goalscope.report.blocks import Declared, FoldSpec, Table, number, numbers_table, section
from goalscope.report.definitions import (
    CITED,
    FORMAT_SHARE,
    GOALS,
    HEADLINE,
    TASK_CITED,
    UNCERTAINTY,
    Definition,
    definition_of,
)
from goalscope.report.ledger import AgentEpisodes, Key, RunData, describe_key
from goalscope.report.texts import TEXTS, labels
from goalscope.runs.provenance import LIBRARIES, noted, noted_of_answers
from goalscope.runs.shards import shard_of
from goalscope.runs.store import Store
from goalscope.stats import estimate_pooled

_MAX_CHARACTERS = 4000
_MAX_UNDEFINED = 40
_TABLES = ("agent", "agent, size", "agent, density")
_FACTS = {
    "goalscope": "goalscope",
    "python": "Python",
    **{name: name for name in LIBRARIES},
    **labels("labels/facts of runs"),
}


def title(store: Store) -> str:
    """Return the title of a run's report: the name of its study, the source of an import, or else the run's
    directory.
    """
    study = store.study()
    if study is not None:
        return study.name
    source = noted(store, "import").get("source")
    return f"Imported: {source}" if source else store.path.resolve().name


def summary(run: RunData) -> list[str]:
    """Return the sentences at the top of a run's report: numbers of agents, episodes, worlds and steps, sizes, and
    warnings.
    """
    agents, tasks, episodes = run.ledger.agents, run.worlds == "tasks", run.rows_of("success", episodes=False)
    steps = run.rows_of("steps").value.sum() if tasks else run.measured.counts.get("action optimality", 0)
    clusters = len(episodes.numbered("cluster")[1])
    if tasks:
        place, noun = "on task maps", "task map"
    elif not steps and len(episodes):
        place, noun = "in unsolved worlds", "world"
    elif run.measured.values.get("size", (None,)) != (None,):
        place, noun = "on grids", "grid"
    else:  # environments have no size
        place, noun = "in worlds", "world"
    worlds_text = TEXTS(f"summary/{place}", worlds=counted(clusters, noun))
    agents_text = TEXTS("summary/agents", count=counted(len(agents), "agent"), names=listed(agents))
    fields = {"agents": agents_text, "episodes": counted(len(episodes), "episode"), "worlds": worlds_text}
    if steps or not len(episodes):
        counts = TEXTS("summary/counts with steps", steps=counted(int(steps), "step"), **fields)
    else:
        counts = TEXTS("summary/counts", **fields)
    parts = []
    for name, label in (("size", "Grid sizes"), ("density", "wall densities")):
        values = sorted({value for value in episodes.numbered(name)[1] if isinstance(value, int | float)})
        if values and not tasks:
            parts.append(f"{label} {listed([number(value) for value in values])}")
    state = unfinished(run.store)
    return [
        *format_lines(run.episodes),
        *([f"{state[:1].upper()}{state[1:]}."] if state else []),
        counts,
        *([f"{', '.join(parts)}."] if parts else []),
        TEXTS("summary/hash", digest=run.digest[:16]),
    ]


def format_lines(episodes: Mapping[str, AgentEpisodes]) -> list[str]:
    """Return a warning for each agent that gave no valid move in more than 10 % (`FORMAT_SHARE`) of its turns, worst
    first.

    ``episodes`` holds the summary of each agent's episodes.
    """
    lines = []
    for agent, agent_episodes in sorted(episodes.items()):
        if not agent_episodes.turns:
            continue
        turns, invalid = zip(*agent_episodes.turns.values(), strict=True)
        fraction = estimate_pooled(invalid, turns, list(agent_episodes.turns), unit="share", bounds=(0.0, 1.0))
        if fraction.value > FORMAT_SHARE:
            interval = f" [{100 * fraction.low:.0f}, {100 * fraction.high:.0f}]" if fraction.has_interval else ""
            text = TEXTS(
                "summary/mostly format",
                agent=agent,
                percent=f"{100 * fraction.value:.0f}",
                interval=interval,
                turns=counted(sum(turns), "turn"),
                worlds=counted(fraction.clusters, "world"),
                note=TEXTS(f"summary/{'' if fraction.has_interval else 'no '}interval over worlds"),
            )
            lines.append((fraction.value, text))
    return [text for _, text in sorted(lines, key=lambda line: -line[0])]


def unfinished(store: Store) -> str:
    """Return a sentence on how many of a study's episodes are stored; "" if the run is complete or has no study."""
    study = store.study()
    if study is None:
        return ""
    ((worlds, agents, stored),) = store.query(
        "SELECT (SELECT count(*) FROM worlds), (SELECT count(*) FROM agents), (SELECT count(*) FROM episodes)"
    )
    expected = worlds * agents * study.trajectories
    if stored >= expected:
        return ""
    shard = shard_of(store)
    numbers = {"stored": f"{stored:,}", "expected": counted(expected, "episode")}
    if shard is None:
        return TEXTS("summary/unfinished", **numbers)
    return TEXTS("summary/shard", shard=str(shard), **numbers)


@section("undefined")
def undefined(run: RunData) -> Iterator[Declared]:
    """Yield the report's section that lists estimates without a value or an interval, with the reasons.

    It covers the tables by agent, by size and by density.
    """
    reasons: dict[tuple[str, str], list[str]] = {}
    for table in _TABLES:
        for grouped in run.ledger.tables[table]:
            if not grouped.estimate.has_interval:
                note = grouped.estimate.note or "no value is defined"
                reasons.setdefault((str(grouped.key["measure"]), note), []).append(f"{table}: {_key_text(grouped.key)}")
    rows = [
        (*why, str(len(scope)), "; ".join([*scope[:3], *([f"and {len(scope) - 3} more"] if scope[3:] else [])]))
        for why, scope in reasons.items()
    ]
    undefined_table = Table(
        caption=TEXTS("undefined/caption"),
        headings=("measure", "reason", "cases", "where"),
        rows=tuple(rows[:_MAX_UNDEFINED]),
        numbers=(2,),
    )
    unlisted = len(rows) - _MAX_UNDEFINED
    text = [TEXTS("undefined/more", count=unlisted)] if unlisted > 0 else []
    if not rows:
        text = [TEXTS("undefined/nothing")]
    tables, title = [undefined_table] if rows else [], "What is undefined"
    yield Declared(anchor="undefined", title=title, paragraphs=text, tables=tables, folded=True)


@section("definitions")
def definitions(run: RunData) -> Iterator[Declared]:
    """Yield the report's section with the definition and source of each measure of the run."""
    tasks = run.worlds == "tasks"
    unregistered = TEXTS(f"definitions/{'unregistered' if tasks else 'foreign'}")
    noun = "world" if run.ledger.noun == "world" else "grid"  # worlds of other kinds have the definitions of grids
    # In task worlds all measures have one source: the closing text cites it.
    columns = 3 if tasks else 4
    rows = []
    for name, unit in run.ledger.measures.items():
        registered = definition_of(run.measured.places.get(name, name), run.worlds)
        definition = GOALS if name in run.measured.goals else registered or Definition(unregistered, "–")
        texts = (definition.text.replace("grid", noun), definition.source.replace("grid", noun))
        rows.append((name, unit, *texts)[:columns])
    headings = ("measure", "unit", "definition", "source")[:columns]
    yield Declared(
        anchor="definitions",
        title="What the measures mean",
        folded=True,
        tables=[Table(headings=headings, rows=tuple(rows))],
        closing=TASK_CITED if tasks else CITED,
    )


@section("numbers")
def all_numbers(run: RunData) -> Iterator[Declared]:
    """Yield the report's section with every estimate by agent and the main ones by size and density, with counts and
    method.
    """
    folds = []
    for name in _TABLES:
        measures = {*HEADLINE, *UNCERTAINTY} if name != "agent" else set(run.ledger.measures)
        estimates = [grouped for grouped in run.ledger.tables[name].listed if grouped.key["measure"] in measures]
        if estimates:
            table = numbers_table(estimates, run.ledger.noun)
            folds.append(FoldSpec(title=f"By {name} ({len(estimates)} estimates)", tables=(table,)))
    text = TEXTS("numbers/where", noun=run.ledger.noun)
    yield Declared(anchor="numbers", title="All numbers", paragraphs=(text,), folds=folds, folded=True)


@section("run")
def run_description(run: RunData) -> Iterator[Declared]:
    """Yield the report's section on how the run was made: settings, versions, commit, content hash, and commands to
    repeat it.
    """
    info, study = run.store.info(), run.study
    facts = [("content hash", run.digest)]
    if study is not None:
        facts += [("study", f"{study.name} ({study.id})"), ("seed", str(study.seed))]
    facts += [(name, _text(info[key])) for key, name in _FACTS.items() if info.get(key) not in (None, "", {})]
    facts += [("server", line) for line in _servers(info.get("servers"))]
    facts += [("answers", line) for line in noted_of_answers(run.store)]
    facts.append(("commit", _commit(info)))
    sessions = info.get("sessions")
    if isinstance(sessions, list) and len(sessions) > 1:
        facts.append(("sessions", TEXTS("run/resumed", count=len(sessions))))
    folds, code, text = list[FoldSpec](), "", ""
    if study is not None:
        layout: dict[str, Any] = {"sort_keys": False, "allow_unicode": True, "width": 100, "default_flow_style": None}
        text_of_study = write_yaml(dict(study.dump()), **layout)
        folds.append(FoldSpec("The study, with every default written out", code=(text_of_study,)))
        text = TEXTS("run/study")
        code = "goalscope run study.yaml"
    elif "import" in info:
        code = f"goalscope import {shlex.quote(str(_mapping(info['import']).get('source', 'PATH')))}"
        text = TEXTS("run/import")
    agents = sorted((name, _json(description)) for name, description in run.store.agents().values())
    if agents:
        folds.append(FoldSpec("The agents", [Table(headings=("agent", "description"), rows=tuple(agents))]))
    yield Declared(
        anchor="run",
        title="How this was run",
        facts=facts,
        paragraphs=(text,) if text else (),
        code=(f"{code} --out RUN\ngoalscope measure RUN\ngoalscope report RUN",) if code else (),
        folds=folds,
    )


def _servers(entries: Any) -> list[str]:
    """Return a line for each server with its own metadata and the state of each tested ability."""
    lines = []
    for entry in entries if isinstance(entries, list) else ():
        metadata, report = _mapping(_mapping(entry).get("server")), _mapping(_mapping(entry).get("report"))
        abilities = report.get("abilities")
        parts = [f"{name} {text}" for name, text in metadata.items()]
        for ability in map(_mapping, abilities if isinstance(abilities, list) else ()):
            parts.append(f"{ability.get('name')}: {ability.get('state')}")
        lines.append(f"{_mapping(entry).get('model')} at {_mapping(entry).get('address')}: {', '.join(parts)}")
    return list(dict.fromkeys(lines))


def _commit(info: Mapping[str, Any]) -> str:
    commit = info.get("commit")
    if not commit:
        return TEXTS("run/no commit")
    states = {True: "with uncommitted changes", False: "no uncommitted changes", None: "changes not known"}
    state = states[info.get("dirty")]
    return f"{commit} ({state})"


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _json(value) if isinstance(value, Mapping | list) else str(value)


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]} … ({len(text)} characters)"


def _key_text(key: Key) -> str:
    values = [number(value) for name, value in key.items() if name not in ("measure", *CONDITIONS) if value is not None]
    conditions = describe_key({name: value for name, value in key.items() if name in CONDITIONS})
    return ", ".join([*values, conditions] if conditions else values)
