"""`goalscope reproduce --all`, which reproduces all items with shared, resumable runs into one table and one page."""

from collections.abc import Mapping
from pathlib import Path
from time import process_time

from goalscope._ground.folder import Folder, NamedFile
from goalscope._ground.ids import content_id
from goalscope._ground.untrusted import UntrustedError
from goalscope.cli.console import fail, say
from goalscope.cli.front.measuring import can_report
from goalscope.papers.costs import scale_of, seconds
from goalscope.papers.item import Item, items
from goalscope.papers.stored import key_of, overview, read_result, write_all
from goalscope.papers.working import asked_in, compute_exact, published_study, read_run, run_item, takes
from goalscope.report.exports import as_markdown
from goalscope.runs import Store, Study
from goalscope.runs.episode_columns import count_episodes
from goalscope.runs.tables import DATABASE

_MARKS = ("<!-- items: written by goalscope reproduce --all -->\n", "<!-- end of items -->\n")


def reproduce_all(begin: str, out: Path, scale: str, markdown: Path | None, workers: int) -> None:
    """Run all items whose name begins with ``begin`` and that are not done, then write the table and page of all
    results.

    Raises:
        ValueError: no item has such a name, or some items failed; the others are run first.
    """
    chosen = {name: item for name, item in items().items() if name.startswith(begin.casefold())}
    if not chosen:
        raise ValueError(
            f"no item's name begins with {begin!r}: run goalscope reproduce --list to see the names, or "
            "give --all without a name"
        )
    page = markdown or out / "table.md"
    _around(page)  # raise errors about unwritable files before anything is run
    work = [item for item in chosen.values() if not item.why_not]
    scales = {item.name: scale_of(item, scale) if item.study else 0.0 for item in work}
    studies = {item.name: published_study(item, scales[item.name]) for item in work if item.study}
    folders = {name: out / "items" / name.replace(" ", "-") for name in scales}
    runs = {item.name: out / "runs" / _run_name(item, studies[item.name]) for item in work if item.study}
    left = [item for item in work if not _done(item, folders[item.name], scales[item.name])]
    played = {runs[name] for name, study in studies.items() if _played(runs[name], study)}
    say(f"{len(work)} items, {len(work) - len(left)} of them done; {takes(_left(left, studies, runs, played))}")
    failed, ran = [], set[Path]()
    Folder(out).make()
    for number, item in enumerate(left, 1):
        seconds_of_item, rest = (
            takes(_left(part, studies, runs, played | ran)) for part in ([item], left[number - 1 :])
        )
        say(f"{number} of {len(left)}: {item.name}: {seconds_of_item}; with all that is left {rest}")
        began = process_time()
        try:
            if item.study:
                study, run = studies[item.name], runs[item.name]
                if run not in ran:
                    run_item(item, study, run, scales[item.name], workers)
                    ran.add(run)
                Folder(folders[item.name]).make()
                read_run(item, run, folders[item.name], asked_in(study), scale=scales[item.name])
            else:
                compute_exact(item, folders[item.name])
        except (ValueError, OSError, ImportError) as error:
            failed.append(f"{item.name}: {error}")
            fail(failed[-1])
        say(f"{item.name}: took {process_time() - began:.0f} s of processor time", error=True)
        _write(chosen, folders, page, out)  # after each item, so that a run of hours shows what it has
    _write(chosen, folders, page, out)
    say(f"Table of all items: {page}")
    if can_report():
        say(f"One page of all items: {out / 'report.html'}")
    if failed:
        raise ValueError("these items failed:\n" + "\n".join(failed))


def _write(chosen: Mapping[str, Item], folders: Mapping[str, Path], page: Path, out: Path) -> None:
    """Write the table and the page of all results so far."""
    results = {name: result for name, folder in folders.items() if (result := read_result(folder)) is not None}
    before, after = _around(page)
    tables = "\n".join(map(as_markdown, overview(results, chosen)))
    NamedFile(page).save_text(f"{before}{_MARKS[0]}\n{tables}\n{_MARKS[1]}{after}")
    if can_report():
        write_all(results, chosen, out / "report.html")


def _run_name(item: Item, study: Study) -> str:
    """Return the directory name of a run. Items whose studies have equal settings share a run."""
    return f"{item.study}-{content_id('run', [study.dump(), item.full]).partition('-')[2][:8]}"


def _done(item: Item, folder: Path, scale: float) -> bool:
    """Return whether the result of the item's current declaration exists with its page, which is written last."""
    result = read_result(folder)
    page = bool(item.exact) or not can_report() or Folder(folder).has_file("report.html")
    return result is not None and result.key == key_of(item, scale) and page


def _played(run: Path, study: Study) -> bool:
    """Return whether a run is complete: all episodes are stored and, if activations are read, its page is written."""
    looks = study.analysis is not None and bool(study.analysis.inside or study.analysis.interventions)
    if not Folder(run).has_file(DATABASE) or (looks and can_report() and not Folder(run).has_file("report.html")):
        return False
    with Store(run) as store:
        return count_episodes(store) >= study.size().episodes


def _left(
    left: list[Item], studies: dict[str, Study], runs: dict[str, Path], played: set[Path]
) -> tuple[float, float, float] | None:
    """Estimate the total seconds (least, expected, most) of the remaining items; None if an estimate is missing.

    Complete runs are only read, so only the reading counts for these.
    """
    total, seen = (0.0, 0.0, 0.0), set(played)
    for item in left:
        run = runs.get(item.name)
        seconds_of_item = seconds(item, studies.get(item.name), shared=run in seen)
        if seconds_of_item is None:
            return None
        total = (total[0] + seconds_of_item[0], total[1] + seconds_of_item[1], total[2] + seconds_of_item[2])
        seen |= {run} if run is not None else set()
    return total


def _around(path: Path) -> tuple[str, str]:
    """Return the text before and after the table in a page; two empty strings if the page does not exist yet."""
    if not NamedFile(path).is_there():
        return "", ""
    try:
        before, mark, rest = NamedFile(path).load_text().partition(_MARKS[0])
    except UntrustedError as error:
        raise ValueError(f"{path} is not a text file: {error}; give another file to --markdown") from error
    _, end, after = rest.partition(_MARKS[1])
    if not mark or not end:
        raise ValueError(
            f"{path} exists but has no place for the table: add the lines "
            f"{' and '.join(map(str.strip, _MARKS))}, or give a new file to --markdown"
        )
    return before, after
