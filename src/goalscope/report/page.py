"""The report of a run: one self-contained page that needs no script and asks no other machine for anything."""

from collections.abc import Sequence
from pathlib import Path

from goalscope.extras import lacking
from goalscope.report.blocks import Section
from goalscope.report.engine import sections_of
from goalscope.report.figures import visible
from goalscope.report.run_data import RunData
from goalscope.report.sections import about
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
    run, title = RunData.of(store), about.title(store)
    numbers = run.ledger.to_json(study=title, content_hash=run.digest)
    text = _render(title, about.summary(run), sections_of(run), numbers)
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
