"""The page of a run, self-contained and without scripts: declared sections are laid out, drawn and written.

All layout is here. Lines without estimates, tables without lines, curves without points and sections without content
are left out; undefined values are listed with their reasons.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from goalscope._ground import registry
from goalscope._ground.extras import lacking
from goalscope._ground.folder import NamedFile
from goalscope._ground.own import attempt
from goalscope._ground.words import counted
from goalscope.report.blocks import AnyTable, Declared, Figure, FoldSpec, Table, numbers_table
from goalscope.report.figures import as_csv, standalone, themed, visible
from goalscope.report.ledger import RunData
from goalscope.report.sections import about
from goalscope.report.texts import TEXTS
from goalscope.runs.store import Store
from goalscope.stats import Grouped

if TYPE_CHECKING:
    from jinja2 import Environment

_UNQUOTED = " !$()*+,-./:;=?@[]^_`{|}~"
"""Characters of a URL in an attribute that need no quoting, in addition to letters and digits."""
_MAX_UNDEFINED = 40
HOW = "How this is measured and read"
"""Title of the folded explanations of a section."""


def write_report(
    store: Store, path: str | Path, *, ledger_path: str | Path | None = None, covered: bool = False
) -> Path:
    """Write the report of a measured run as one HTML page; the same run gives the same bytes.

    Args:
        store: the run; it must have results for all of its episodes.
        path: the page to write; its folder is created if it is missing, and an existing file is replaced.
        ledger_path: a file for all numbers as JSON; None for no such file.
        covered: whether the caller knows that all episodes have results, which takes seconds to check in a large run.

    Returns:
        The path of the page.

    Raises:
        ValueError: if the run has no episodes, or some have no results.
        ImportError: if jinja2 is not installed (it comes with the extra ``report``).
        OSError: if the page cannot be written.
    """
    if not covered:
        check_covered(store)
    run, title = RunData.of(store), about.title(store)
    numbers = run.ledger.to_json(study=title, content_hash=run.digest)
    text = render_page(title, about.summary(run), sections_of(run), numbers)
    if ledger_path is not None:
        write_page(Path(ledger_path), numbers + "\n")
    return write_page(Path(path), text)


def check_covered(store: Store) -> None:
    """Check that a run is measured: its rows of results must cover exactly its episodes.

    Raises:
        ValueError: if there are no episodes, or the rows do not cover them.
    """
    if lacking_rows := not_measured(store):
        raise ValueError(TEXTS("files/not covered", path=str(store.path), lacking=lacking_rows))


def not_measured(store: Store) -> str:
    """Say how many episodes of a run have no rows of results, or no longer exist; "" if the rows cover exactly all
    episodes.

    Raises:
        ValueError: if there are no episodes.
    """
    episodes = store.episode_ids()
    if not episodes:
        raise ValueError(f"{store.path} contains no episodes: run its study, or import, first")
    missing, gone = set(episodes), set[str]()
    for measure, names in store.row_labels("episode_id"):
        if measure == "success":
            missing.difference_update(names)
        gone.update(name for name in names if name and name not in episodes)
    gone_text = f", {len(gone)} measured ones are gone" if gone else ""
    return f"{len(missing)} of {len(episodes)} are not measured{gone_text}" if missing or gone else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Sections of a page that are folded together under one title until the reader opens them."""

    title: str
    sections: Sequence[Declared]


def render_page(
    title: str,
    summary: Sequence[str],
    parts: Sequence[Declared],
    numbers: str,
    groups: Sequence[Group] = (),
    package: str = "report",
) -> str:
    """Return the HTML text of a page with tables and figures.

    Args:
        title: its title.
        summary: paragraphs below the title.
        parts: sections as `lay_out` returns them.
        numbers: JSON that the page carries for programs.
        groups: further sections, folded below the others.
        package: package of goalscope whose function `figure` draws the figures of this page.

    Raises:
        ImportError: if jinja2 is not installed (it comes with the extra ``report``).
    """
    environment = _environment()
    css = environment.loader.get_source(environment, "report.css")[0] if environment.loader else ""
    safe_numbers = numbers.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")
    text = environment.get_template("report.html.j2").render(
        title=title,
        css=css,
        summary=list(summary),
        sections=list(parts),
        groups=list(groups),
        ledger=safe_numbers,
        package=package,
    )
    return visible(text)


@cache
def _environment() -> "Environment":
    """Return the templates, compiled once per process.

    Raises:
        ImportError: if jinja2 is not installed (it comes with the extra ``report``).
    """
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
    # Three texts are not escaped: our style sheet, our figures, and JSON that cannot end its element.
    environment.filters |= {"own_markup": Markup, "themed": themed, "standalone": standalone}
    environment.filters |= {"csv": as_csv, "file": _file}
    return environment


def _file(text: str, kind: str) -> str:
    """Return a file as a data URL, quoted so that it contains no web address."""
    return f"data:{kind};charset=utf-8,{quote(text, safe=_UNQUOTED)}".replace("http:", "http%3A")


def write_page(path: Path, text: str) -> Path:
    """Write the text of a page to a file, completely or not at all, and return the path."""
    return NamedFile(path).save_text(text)


def sections_of(run: RunData, *names: str) -> list[Declared]:
    """Return the sections of a run's report in the order of the page, with finished tables, figures and sentences.

    Args:
        run: the run.
        names: names of registered sections; all if none is given.

    Raises:
        ValueError: if a name is unknown, or the stored data of a section are invalid.
    """
    specs = ((name, registry.resolve("section", name)) for name in names or registry.names("section"))
    worlds = run.worlds
    return lay_out(
        declared
        for name, spec in specs
        if spec.worlds in (None, worlds)
        for declared in attempt("section", name, partial(_declared, name, spec, run), partial(_missing, name))
    )


def _declared(name: str, spec: Any, run: RunData) -> list[Declared]:
    """Return the declarations of a section. One of another package is first laid out as a test, as it may raise."""
    declared: list[Declared] = list(spec.content(run))
    if not registry.built_in("section", name):
        render_page(name, [], lay_out(declared), "{}")
    return declared


def _missing(name: str, sentence: str) -> list[Declared]:
    """Return the text shown instead of a section that raised an error."""
    return [Declared(anchor=name, title=name, paragraphs=(f"{sentence[:1].upper()}{sentence[1:]}.",))]


def lay_out(sections: Iterable[Declared]) -> list[Declared]:
    """Finish sections of a page: give them unique anchors, and turn specifications into tables, figures and sentences.

    Figures and tables are named by the anchor and their position in the section, e.g. ``maps-figure-2``. A section that
    is laid out again under another anchor gets new names. Empty tables and figures are left out.
    """
    by_anchor: dict[str, Declared] = {}
    for declared in sections:
        base = re.sub(r"[^\w.-]+", "-", declared.anchor, flags=re.ASCII)  # names of figures become names of files
        anchors = chain([base], (f"{base}-{suffix}" for suffix in count(1)))
        anchor = next(text for text in anchors if text not in by_anchor)
        section = _laid_out(declared, anchor)
        if section.figures or not declared.figures_only:
            by_anchor[anchor] = section
    return list(by_anchor.values())


def _laid_out(declared: Declared, anchor: str) -> Declared:
    """Return a section under an anchor, which also names its figures."""
    figures = tuple(
        replace(figure, name=f"{anchor}-figure-{index}")
        for index, spec in enumerate(declared.figures, start=1)
        if (figure := spec if isinstance(spec, Figure) else spec.figure()) is not None
    )
    names = (f"{anchor}-table-{index}" for index in count(1))
    tables = _tables(declared.tables, names)
    facts = tuple((sentence.title, text) for sentence in declared.sentences if (text := sentence.text))
    explained = (*declared.explained, *([declared.rule] if facts and declared.rule else []))
    folds = [
        replace(fold, tables=_tables(fold.tables, names))
        for fold in (*declared.folds, *_undefined(declared), *_counts(declared.counted))
    ]
    return replace(
        declared,
        anchor=anchor,
        paragraphs=(*declared.paragraphs, *([declared.silence] if declared.silence and not facts else [])),
        facts=(*declared.facts, *facts),
        sentences=(),
        rule="",
        silence="",
        tables=tables,
        figures=figures,
        legend=declared.legend if figures else declared.closing,
        folds=(
            *([FoldSpec(HOW, paragraphs=explained)] if explained else []),
            *(fold for fold in folds if fold.tables or fold.code or fold.title == HOW),
        ),
        explained=(),
        undefined=(),
        counted=(),
    )


def _tables(specs: Sequence[AnyTable], names: Iterator[str]) -> tuple[Table, ...]:
    """Return tables without those that have no lines; every declared table uses up a name."""
    tables = (
        (name, spec if isinstance(spec, Table) else spec.table()) for spec, name in zip(specs, names, strict=False)
    )
    return tuple(replace(table, name=name) for name, table in tables if table is not None)


def _undefined(declared: Declared) -> Iterator[FoldSpec]:
    """Yield a list of quantities without value or interval, with reasons; nothing if there are none."""
    rows = []
    for measure, condition, estimate in declared.undefined:
        if not estimate.has_interval:
            why_no_value = declared.why(measure) or estimate.note or "no value is defined"
            why_no_interval = f"no interval: {estimate.note or 'its ends are not known'}"
            rows.append((measure, condition, why_no_value if math.isnan(estimate.value) else why_no_interval))
    if rows:
        unlisted = len(rows) - _MAX_UNDEFINED
        table = Table(headings=("measure", "of", "why"), rows=tuple(rows[:_MAX_UNDEFINED]))
        note = [TEXTS("tables/unlisted", count=unlisted)] if unlisted > 0 else []
        yield FoldSpec(f"What is undefined here ({len(rows)})", [table], paragraphs=note)


def _counts(estimates: Iterable[Grouped]) -> Iterator[FoldSpec]:
    """Yield estimates with n, grids, interval and method; those grouped by the same tags share a table."""
    tables: dict[tuple[str, ...], list[Grouped]] = {}
    for grouped in estimates:
        tables.setdefault(tuple(grouped.key), []).append(grouped)
    title = f"Counts and methods ({counted(sum(map(len, tables.values())), 'estimate')})"
    yield FoldSpec(title, [numbers_table(table) for table in tables.values()])
