"""What was run, in words and in settings: the summary, the run description, how to reproduce it, import checks."""

import json
import shlex
from collections.abc import Mapping
from typing import Any

import yaml

from goalscope.report.blocks import Fold, Plain, Section, counted, listed, number
from goalscope.report.ledger import Ledger
from goalscope.rows import Rows
from goalscope.runs.provenance import LIBRARIES
from goalscope.runs.store import Store

_MOST_TEXT = 4000


def title(store: Store) -> str:
    """Return the name of the study, or of what was imported."""
    study = store.study()
    if study is not None:
        return study.name
    source = _mapping(store.info().get("import")).get("source")
    return f"Imported: {source}" if source else store.path.resolve().name


def summary(rows: Rows, ledger: Ledger, digest: str) -> list[str]:
    """Return what was run as sentences."""
    episodes = rows.where(rows.measure == "success")
    grids = len(set(episodes.grid_id.tolist()))
    steps = int((rows.measure == "action optimality").sum())
    agents = f"{counted(len(ledger.agents), 'agent')} ({listed(ledger.agents)})"
    acted = f"{agents} acted in {counted(len(episodes), 'episode')}"
    sentences = [
        f"{acted} with {counted(steps, 'step')} on {counted(grids, 'grid')} whose optimal policies are known exactly."
        if steps or not len(episodes)
        else f"{acted} in {counted(grids, 'world')} whose optimal policies are not known: measures that compare "
        "actions with optimal ones are left out."
    ]
    values = {
        name: sorted({value for value in rows.tags.get(name, ()) if isinstance(value, int | float)})
        for name in ("size", "density")
    }
    parts = [
        f"{words} {listed([number(value) for value in values[name]])}"
        for name, words in (("size", "Grid sizes"), ("density", "wall densities"))
        if values[name]
    ]
    if parts:
        sentences.append(f"{', '.join(parts)}.")
    sentences.append(f"Content hash of the run: {digest[:16]}… (in full under “How this was run”).")
    return sentences


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
    return (
        f"the run is not finished: {there:,} of {counted(wanted, 'episode')} are there, and the rest is missing from "
        "every number; goalscope run goes on with it"
    )


def run_description(store: Store, digest: str) -> Section:
    """Return settings, versions, commit, content hash and the commands that make the run again."""
    info, study = store.info(), store.study()
    facts = [("content hash", digest)]
    if study is not None:
        facts += [("study", f"{study.name} ({study.id})"), ("seed", str(study.seed))]
    facts += [(name, _text(info[key])) for key, name in _FACTS.items() if info.get(key) not in (None, "", {})]
    facts.append(("commit", _commit(info)))
    sessions = info.get("sessions")
    if isinstance(sessions, list) and len(sessions) > 1:
        facts.append(("sessions", f"{len(sessions)}: the run was interrupted and resumed"))
    folds: list[Fold] = []
    code: tuple[str, ...] = ()
    paragraphs: tuple[str, ...] = ()
    if study is not None:
        text = _yaml(study.dump())
        folds.append(Fold(title="The study, with every default written out", code=(text,)))
        paragraphs = (
            "Save the study below as study.yaml; with the same version of goalscope these commands make the "
            "same run, with the same content hash:",
        )
        code = ("goalscope run study.yaml --out RUN\ngoalscope measure RUN\ngoalscope report RUN",)
    elif "import" in info:
        source = shlex.quote(str(_mapping(info["import"]).get("source", "PATH")))
        paragraphs = ("With the same files and the same version of goalscope these commands make the same run:",)
        code = (f"goalscope import {source} --out RUN\ngoalscope measure RUN\ngoalscope report RUN",)
    agents = [(name, _json(about)) for name, about in store.agents().values()]
    if agents:
        table = Plain(caption="", headings=("agent", "description"), rows=tuple(sorted(agents)))
        folds.append(Fold(title="The agents", plain=(table,)))
    return Section(
        anchor="run",
        title="How this was run",
        facts=tuple(facts),
        paragraphs=paragraphs,
        code=code,
        folds=tuple(folds),
    )


def import_checks(store: Store) -> list[Section]:
    """Return what was compared with the recorded values when the run is an import."""
    found = _mapping(store.info().get("import"))
    if not found:
        return []
    counts = {str(name): count for name, count in _mapping(found.get("counts")).items()}
    problems = found.get("problems", 0)
    checked = [name.removesuffix(" checked") for name in counts if name.endswith(" checked")]
    rows = [
        (
            name,
            str(counts[f"{name} checked"]),
            str(counts.get(f"{name} agreeing", 0)),
            str(int(counts[f"{name} checked"]) - int(counts.get(f"{name} agreeing", 0))),
        )
        for name in checked
    ]
    plain = (
        [
            Plain(
                caption="Every recorded value was computed again and compared.",
                headings=("recorded value", "checked", "agree", "disagree"),
                rows=tuple(rows),
                numbers=(1, 2, 3),
            )
        ]
        if rows
        else []
    )
    compared = {f"{name} {end}" for name in checked for end in ("checked", "agreeing")}
    others = tuple((name, str(count)) for name, count in counts.items() if name not in compared)
    state = "No problem was found" if not problems else f"{counted(int(problems), 'problem')} found"
    text = f"{state} in the imported files ({_text(found.get('source', ''))})."
    return [
        Section(
            anchor="import", title="Checks of the imported data", paragraphs=(text,), plain=tuple(plain), facts=others
        )
    ]


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


def _yaml(value: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(value), sort_keys=False, allow_unicode=True, width=100, default_flow_style=None)
