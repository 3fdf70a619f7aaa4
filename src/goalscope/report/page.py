"""The report of a run: one self-contained page that needs no script and asks no other machine for anything."""

from collections.abc import Sequence
from pathlib import Path

from goalscope.extras import lacking
from goalscope.measures.invariance import ORIGINAL
from goalscope.report import comparison
from goalscope.report.agent_groups import agent_groups
from goalscope.report.blocks import Section
from goalscope.report.figures import visible
from goalscope.report.ledger import Ledger, build_ledger
from goalscope.report.sections import about, behaviour
from goalscope.report.sections.difficulty import difficulty_tables
from goalscope.report.sections.examples import examples, task_examples
from goalscope.report.sections.exploration_errors import fog_errors
from goalscope.report.sections.fog import fog_tables
from goalscope.report.sections.instrumental_goals import goal_tables
from goalscope.report.sections.invariance import invariance
from goalscope.report.sections.meg import meg_sections
from goalscope.report.sections.probing import probing_sections, split_probing
from goalscope.report.sections.tasks import on_tasks, task_definitions, task_sections, task_summary
from goalscope.rows import Rows
from goalscope.runs.content_hash import content_hash
from goalscope.runs.store import Store


def write_report(store: Store, path: str | Path, *, ledger_path: str | Path | None = None) -> Path:
    """Write the report of a measured run; the same run gives the same bytes.

    Args:
        store: the run; its rows must cover all of its episodes.
        path: the page to write; its folder is made where it is missing, a file of that name is replaced.
        ledger_path: where to write all numbers as JSON beside the page, None for not at all.

    Returns:
        The path of the page.

    Raises:
        ValueError: the run has no episodes, or rows that do not cover them.
        ImportError: jinja2 or matplotlib is not installed (they come with the extra ``report``).
        OSError: the page cannot be written.
    """
    if lacking_rows := not_measured(store):
        raise ValueError(
            f"the rows of a run must cover its episodes, but in {store.path} {lacking_rows}: "
            f"goalscope measure {store.path}"
        )
    rows, probed = split_probing(store.rows())
    ledger = build_ledger(rows, agents=store.agent_names() if store.study() else ())
    digest = content_hash(store)
    title = about.title(store)
    numbers = ledger.to_json(study=title, content_hash=digest)
    summary = task_summary(rows, ledger, digest) if on_tasks(rows) else about.summary(rows, ledger, digest)
    if state := about.unfinished(store):
        summary = [f"{state[:1].upper()}{state[1:]}.", *summary]
    text = _render(title, summary, _sections(store, rows, probed, ledger, digest), numbers)
    if ledger_path is not None:
        _write(Path(ledger_path), numbers + "\n")
    return _write(Path(path), text)


def not_measured(store: Store) -> str:
    """Return how many episodes the rows of a run do not cover, in words; "" where they speak of all and of no others.

    Raises:
        ValueError: there are no episodes.
    """
    episodes = store.episode_ids()
    if not episodes:
        raise ValueError(f"a run must hold episodes, but {store.path} holds none: run its study, or import, first")
    named = store.query("SELECT DISTINCT episode_id, measure = 'success' FROM rows WHERE episode_id != ''")
    measured = {name for name, success in named if success}
    gone = len({name for name, _ in named} - episodes)
    if measured == episodes and not gone:
        return ""
    return f"{len(episodes - measured)} of {len(episodes)} are not measured" + (
        f", {gone} measured ones are gone" if gone else ""
    )


def _sections(store: Store, rows: Rows, probed: Rows, ledger: Ledger, digest: str) -> list[Section]:
    if on_tasks(rows):
        return [
            *task_sections(store, rows, ledger),
            *task_examples(store, rows, ledger.agents),
            behaviour.what_is_undefined(ledger),
            task_definitions(ledger),
            behaviour.all_numbers(ledger),
            about.run_description(store, digest),
        ]
    study = store.study()
    declared = study.analysis.invariance if study and study.analysis else None
    groups = agent_groups(store, ledger)
    # Where transforms are compared with the originals in a section of their own, figures show the originals alone.
    plain = ledger.only("transform", ORIGINAL) if declared else ledger
    goals = goal_tables(rows, ledger, groups)
    elsewhere = [*(["transform"] if declared else []), *(["control"] if goals else [])]
    return [
        behaviour.headline(ledger),
        *invariance(rows, ledger, declared),
        *probing_sections(store, probed),
        *goals,
        *fog_tables(rows, ledger, groups),
        *fog_errors(rows, ledger, groups),
        *about.import_checks(store),
        *behaviour.by_size_and_density(plain),
        *difficulty_tables(rows, plain, groups),
        *behaviour.by_distance(plain),
        *behaviour.uncertainty(plain),
        *([] if goals else behaviour.key_worlds(ledger)),
        *meg_sections(store, rows, ledger),
        *comparison.agents_compared(rows, ledger),
        *comparison.conditions_compared(rows, ledger, without=elsewhere),
        *examples(store, rows, ledger.agents),
        behaviour.what_is_undefined(ledger),
        behaviour.definitions(ledger),
        behaviour.all_numbers(ledger),
        about.run_description(store, digest),
    ]


def _render(title: str, summary: Sequence[str], parts: Sequence[Section], numbers: str) -> str:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise lacking("a report needs jinja2", "report", error) from error
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("goalscope.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Three texts are markup: our style sheet, our own figures, and JSON in which nothing can end its element.
    environment.filters["own_markup"] = Markup
    css = environment.loader.get_source(environment, "report.css")[0] if environment.loader else ""
    safe_numbers = numbers.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")
    text = environment.get_template("report.html.j2").render(
        title=title, css=css, summary=list(summary), sections=list(parts), ledger=safe_numbers
    )
    return visible(text)


def _write(path: Path, text: str) -> Path:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_text(text, encoding="utf-8", newline="\n")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path
