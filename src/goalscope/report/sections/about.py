"""The end of the page: what is undefined, what measures mean, all numbers, how the run was made; and the summary."""

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from goalscope.measures.table import CONDITIONS
from goalscope.report.blocks import Table, counted, listed, number, numbers_table
from goalscope.report.definitions import (
    CITED,
    FORMAT_SHARE,
    HEADLINE,
    TASK_CITED,
    UNCERTAINTY,
    Definition,
    definition_of,
)
from goalscope.report.ledger import Key, RunData, describe_key
from goalscope.report.measured import AgentEpisodes
from goalscope.report.specs import Declared, FoldSpec, section
from goalscope.runs.provenance import LIBRARIES, noted
from goalscope.runs.store import Store
from goalscope.runs.study_shard import shard_of
from goalscope.stats import estimate_pooled

_MOST_TEXT = 4000
_MAX_UNDEFINED = 40
_TABLES = ("agent", "agent, size", "agent, density")


def title(store: Store) -> str:
    """Return the name of the study, or of what was imported."""
    study = store.study()
    if study is not None:
        return study.name
    source = noted(store, "import").get("source")
    return f"Imported: {source}" if source else store.path.resolve().name


def summary(run: RunData) -> list[str]:
    """Return what was run as sentences."""
    agents, tasks, episodes = run.ledger.agents, run.worlds == "tasks", run.rows_of("success", episodes=False)
    steps = run.rows_of("steps").value.sum() if tasks else run.measured.counts.get("action optimality", 0)
    known = tasks or steps or not len(episodes)
    clusters = len(episodes.numbered("cluster")[1])
    if tasks:
        on = f"on {counted(clusters, 'task map')}, judged by their actions alone"
    elif known:
        on = f"on {counted(clusters, 'grid')} whose optimal policies are known exactly"
    else:
        on = (
            f"in {counted(clusters, 'world')} whose optimal policies are not known: measures that compare actions with "
            "optimal ones are left out"
        )
    counts = f" with {counted(int(steps), 'step')}" if steps or not len(episodes) else ""
    acted = f"{counted(len(agents), 'agent')} ({listed(agents)}) acted in {counted(len(episodes), 'episode')}"
    parts = []
    for name, words in (("size", "Grid sizes"), ("density", "wall densities")):
        values = sorted({value for value in episodes.numbered(name)[1] if isinstance(value, int | float)})
        if values and not tasks:
            parts.append(f"{words} {listed([number(value) for value in values])}")
    state = unfinished(run.store)
    return [
        *format_lines(run.episodes),
        *([f"{state[:1].upper()}{state[1:]}."] if state else []),
        f"{acted}{counts} {on}.",
        *([f"{', '.join(parts)}."] if parts else []),
        f"Content hash of the run: {run.digest[:16]}… (in full under “How this was run”).",
    ]


def format_lines(episodes: Mapping[str, AgentEpisodes]) -> list[str]:
    """Return a sentence for each agent whose turns held no action more often than `FORMAT_SHARE`, worst first."""
    found = []
    for agent, one in sorted(episodes.items()):
        if not one.turns:
            continue
        turns, invalid = zip(*one.turns.values(), strict=True)
        share = estimate_pooled(invalid, turns, list(one.turns), unit="share", bounds=(0.0, 1.0))
        if share.value > FORMAT_SHARE:
            ends = f" [{100 * share.low:.0f}, {100 * share.high:.0f}]" if share.has_interval else ""
            over = "95 % interval over worlds" if share.has_interval else "too few for an interval"
            found.append(
                (
                    share.value,
                    f"{agent}: {100 * share.value:.0f} %{ends} of {counted(sum(turns), 'turn')} held no action "
                    f"({counted(share.clusters, 'world')}; {over}): what is measured of it is about format, not "
                    "goals.",
                )
            )
    return [text for _, text in sorted(found, key=lambda one: -one[0])]


def unfinished(store: Store) -> str:
    """Return a sentence on what the study of a run still lacks, "" where it is whole or nothing is known of it."""
    study = store.study()
    if study is None:
        return ""
    ((worlds, agents, there),) = store.query(
        "SELECT (SELECT count(*) FROM worlds), (SELECT count(*) FROM agents), (SELECT count(*) FROM episodes)"
    )
    wanted = worlds * agents * study.trajectories
    if there >= wanted:
        return ""
    shard = shard_of(store)
    if shard is not None:
        return (
            f"the run is shard {shard} of its study: {there:,} of {counted(wanted, 'episode')} are there, and the rest "
            "is missing from every number; goalscope merge puts all shards together"
        )
    return (
        f"the run is not finished: {there:,} of {counted(wanted, 'episode')} are there, and the rest is missing from "
        "every number; goalscope run goes on with it"
    )


@section("undefined")
def undefined(run: RunData) -> Iterator[Declared]:
    """What has no value or no interval in the tables by agent, size and density, and why."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for table in _TABLES:
        for one in run.ledger.tables[table]:
            if not one.estimate.has_interval:
                note = one.estimate.note or "no value is defined"
                reasons.setdefault((str(one.key["measure"]), note), []).append(f"{table}: {_where(one.key)}")
    rows = [
        (
            measure,
            reason,
            str(len(where)),
            "; ".join([*where[:3], *([f"and {len(where) - 3} more"] if where[3:] else [])]),
        )
        for (measure, reason), where in reasons.items()
    ]
    plain = Table(
        caption="A number without an interval is never shown as a finding.",
        headings=("measure", "reason", "cases", "where"),
        rows=tuple(rows[:_MAX_UNDEFINED]),
        numbers=(2,),
    )
    text = [f"{len(rows) - _MAX_UNDEFINED} further kinds are in the JSON."] if len(rows) > _MAX_UNDEFINED else []
    if not rows:
        text = ["Every measure has a value and an interval for every agent, size and density of this run."]
    yield Declared(anchor="undefined", title="What is undefined", paragraphs=text, tables=[plain] if rows else [])


@section("definitions")
def definitions(run: RunData) -> Iterator[Declared]:
    """The definition and source of each measure of the run."""
    tasks = run.worlds == "tasks"
    unknown = ("" if tasks else "not one of goalscope's own measures; ") + "see where its rows were made"
    known = {measure: definition_of(measure, run.worlds) or Definition(unknown, "–") for measure in run.ledger.measures}
    rows = [(name, unit, known[name].text, known[name].source) for name, unit in run.ledger.measures.items()]
    # In task worlds all have one source, which is said once.
    shown = 3 if tasks else 4
    headings = ("measure", "unit", "definition", "source")[:shown]
    yield Declared(
        anchor="definitions",
        title="What the measures mean",
        tables=[Table(headings=headings, rows=tuple(row[:shown] for row in rows))],
        closing=TASK_CITED if tasks else CITED,
    )


@section("numbers")
def all_numbers(run: RunData) -> Iterator[Declared]:
    """Every estimate by agent and the main ones by size and density, with counts and method."""
    folds = []
    for name in _TABLES:
        main = {*HEADLINE, *UNCERTAINTY} if name != "agent" else set(run.ledger.measures)
        found = [one for one in run.ledger.tables[name].listed if one.key["measure"] in main]
        if found:
            folds.append(FoldSpec(title=f"By {name} ({len(found)} estimates)", tables=(numbers_table(found),)))
    text = (
        "All estimates of this run, those by size and density together and by distance too, are embedded in this page "
        "as JSON (element “ledger”). n counts values: a value is one episode, one grid or one step."
    )
    yield Declared(anchor="numbers", title="All numbers", paragraphs=(text,), folds=folds)


@section("run")
def run_description(run: RunData) -> Iterator[Declared]:
    """Settings, versions, commit, content hash and the commands that make the run again."""
    info, study = run.store.info(), run.study
    facts = [("content hash", run.digest)]
    if study is not None:
        facts += [("study", f"{study.name} ({study.id})"), ("seed", str(study.seed))]
    facts += [(name, _text(info[key])) for key, name in _FACTS.items() if info.get(key) not in (None, "", {})]
    facts += [("server", line) for line in _servers(info.get("servers"))]
    facts.append(("commit", _commit(info)))
    sessions = info.get("sessions")
    if isinstance(sessions, list) and len(sessions) > 1:
        facts.append(("sessions", f"{len(sessions)}: the run was interrupted and resumed"))
    folds, code, text = list[FoldSpec](), "", ""
    if study is not None:
        layout: dict[str, Any] = {"sort_keys": False, "allow_unicode": True, "width": 100, "default_flow_style": None}
        text_of_study = yaml.safe_dump(dict(study.dump()), **layout)
        folds.append(FoldSpec("The study, with every default written out", code=(text_of_study,)))
        text = (
            "Save the study below as study.yaml; with the same version of goalscope these commands make the "
            "same run, with the same content hash:"
        )
        code = "goalscope run study.yaml"
    elif "import" in info:
        code = f"goalscope import {shlex.quote(str(_mapping(info['import']).get('source', 'PATH')))}"
        text = "With the same files and the same version of goalscope these commands make the same run:"
    agents = sorted((name, _json(about)) for name, about in run.store.agents().values())
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


_FACTS = {
    "goalscope": "goalscope",
    "python": "Python",
    **{name: name for name in LIBRARIES},
    "libraries of capture": "libraries of the capture",
    "libraries of probes": "libraries of the probes",
    "sqlite": "SQLite",
    "platform": "platform",
    "processors": "processor cores",
    "started": "started",
    "device": "device",
    "durability": "durability",
    "journal_mode": "journal",
    "journal_notice": "notice",
    "arguments": "arguments",
    "schema": "layout of run.db, version",
}


def _servers(entries: Any) -> list[str]:
    """Return a line for each server that was tried or told of itself: what it says, and what it was seen to do."""
    found = []
    for entry in entries if isinstance(entries, list) else ():
        told, report = _mapping(_mapping(entry).get("server")), _mapping(_mapping(entry).get("report"))
        seen = [_mapping(one) for one in report.get("abilities", ()) if isinstance(report.get("abilities"), list)]
        parts = [f"{name} {text}" for name, text in told.items()]
        parts += [f"{one.get('name')}: {one.get('state')}" for one in seen]
        found.append(f"{_mapping(entry).get('model')} at {_mapping(entry).get('address')}: {', '.join(parts)}")
    return list(dict.fromkeys(found))


def _commit(info: Mapping[str, Any]) -> str:
    commit = info.get("commit")
    if not commit:
        return "not recorded: goalscope was not run from a working tree"
    states = {True: "with uncommitted changes", False: "no uncommitted changes", None: "changes not known"}
    state = states[info.get("dirty")]
    return f"{commit} ({state})"


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _json(value) if isinstance(value, Mapping | list) else str(value)


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]} … ({len(text)} characters)"


def _where(key: Key) -> str:
    plain = [number(value) for name, value in key.items() if name not in ("measure", *CONDITIONS) if value is not None]
    under = describe_key({name: value for name, value in key.items() if name in CONDITIONS})
    return ", ".join([*plain, under] if under else plain)
