"""The commands that show what a run holds or write it to files, and that write an environment as a table.

`show` lists or prints episodes, `view` writes a page of them, `figure` one figure or table of a report, and `export`
the tables of a run.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, get_args

from goalscope._ground import registry
from goalscope._ground.checks import check_choice, did_you_mean
from goalscope._ground.folder import Folder, NamedFile, temporary_folder
from goalscope._ground.progress import TALLY, aloud, paced
from goalscope._ground.words import counted
from goalscope.agents.agent import Agent
from goalscope.cli.console import json_text, progress, say
from goalscope.cli.console import table as print_table
from goalscope.cli.generator import Between, OutFile, OutFolder, Positive, Reads, RunDirectory, Writes, prints
from goalscope.cli.logs import import_logs
from goalscope.cli.measuring import measure_missing, tell_missing
from goalscope.measures.transcript import OUTCOMES, agent_of, transcript, write_step
from goalscope.report.blocks import Table, size_in_words
from goalscope.report.exports import Named, find, named_of_run, title_of, write, write_all
from goalscope.report.ledger import Run
from goalscope.runs import Outcome, Store, export_parquet
from goalscope.runs.episode_columns import read_heads
from goalscope.runs.export import episode_record, step_records, write_checksums
from goalscope.runs.record import Episode
from goalscope.verdict.opening import run_folders
from goalscope.verdict.page import named_of
from goalscope.verdict.plan import PLAN
from goalscope.verdict.viewer import serving, write_view
from goalscope.worlds.environments.environment import Environment, build, named_environment
from goalscope.worlds.environments.solution import LIMIT
from goalscope.worlds.environments.stored import save_table
from goalscope.worlds.environments.world import Believed, believe

_LISTED = ("episode", "agent", "world", "outcome", "steps", "invalid turns")
_MIN_ELIDED = 4  # fewer unchanged lines are printed


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Conditions that select episodes of a run; None stands for any value.

    ``agent`` is the agent's name, ``world`` the beginning of the world's id, ``outcome`` how the episode ended, and
    ``failures`` whether to select only episodes with turns that have no valid move.
    """

    agent: str | None = None
    world: str | None = None
    outcome: str | None = None
    failures: bool = False

    def find(self, store: Store, prefix: str = "") -> Iterator[tuple[Any, ...]]:
        """Yield (id, agent, world id, outcome, steps, failed turns) for each episode that fulfils the conditions.

        Args:
            store: the run; its order is kept.
            prefix: the beginning of the episode's id.

        Raises:
            ValueError: if the agent or the outcome is unknown.
        """
        agents = [name for (name,) in store.query("SELECT DISTINCT agent FROM episodes ORDER BY agent")]
        if self.agent is not None and self.agent not in agents:
            close = did_you_mean(self.agent, agents)
            raise ValueError(f"--agent: this run has no agent {self.agent!r}{close or '.'} It has {', '.join(agents)}")
        if self.outcome is not None:
            check_choice("--outcome", self.outcome, get_args(Outcome))
        conditions = {"agent = ?": self.agent, "outcome = ?": self.outcome}
        conditions |= {"substr(world_id, 1, length(?)) = ?": self.world, "substr(id, 1, length(?)) = ?": prefix or None}
        active = {condition: value for condition, value in conditions.items() if value is not None}
        values = [value for condition, value in active.items() for _ in range(condition.count("?"))]
        ids = None
        if active:
            rows = store.query(f"SELECT id FROM episodes WHERE {' AND '.join(active)}", values)
            ids = [identity for (identity,) in rows]
        for head in read_heads(store, ids):
            if head.failed or not self.failures:
                yield head.id, head.agent, head.world_id, head.outcome, head.length, head.failed


def show(
    run: RunDirectory,
    episode: str | None = None,
    *,
    agent: str | None = None,
    world: str | None = None,
    outcome: str | None = None,
    failures: bool = False,
    full: bool = False,
    limit: Positive = 20,
    as_json: bool = False,
) -> None:
    """List the episodes of a run, or show one of them step by step.

    Each step shows the prompt, the reasoning and the answer, and whether the move was valid and optimal.

    Args:
        run: the run directory (it contains run.db).
        episode: the id of an episode, or its first characters. Without it, the episodes are listed.
        agent (NAME): list only episodes of this agent.
        world (ID): list only episodes in worlds whose id starts with this.
        outcome (WHICH): list only episodes with this outcome: goal, horizon, failure, stopped or ended.
        failures: list only episodes that contain turns without a valid move.
        full: show every prompt in full, not only the lines that changed.
        limit: list at most this many episodes.
        as_json: print the list, or the episode with all steps, as JSON.

    Examples:
        goalscope show runs/demo --agent Theseus --outcome horizon
        goalscope show runs/demo 5b9409 --full
    """
    selection = Filter(agent=agent, world=world, outcome=outcome, failures=failures)
    folders = list(run_folders(run).values())
    if len(folders) > 1 and selection.agent is not None:  # not every arm is asked of every model
        folders = [folder for folder in folders if selection.agent in Run(folder).agents] or folders
    if episode is not None:
        _show_episode(run, folders, episode, selection, full=full, as_json=as_json)
    elif as_json:
        records = []
        for folder in folders:
            with Store(folder) as store:
                episodes = islice(selection.find(store), limit)
                records += [{"run": str(folder), **dict(zip(_LISTED, row, strict=True))} for row in episodes]
        say(json_text(records))
    else:
        for folder in folders:
            _list_episodes(folder, selection, limit)


def _list_episodes(path: Path, selection: Filter, limit: int) -> None:
    """Print a table of episodes."""
    with Store(path) as store:
        tell_missing(store)
        rows = selection.find(store)
        first = list(islice(rows, limit))
        total = len(first) + sum(1 for _ in rows)
    if not first:
        say("no episode matches")
        return
    lines = [tuple(str(cell) for cell in row) for row in first]
    print_table(_LISTED, lines, title=f"{counted(total, 'episode')} of {path}", numbers=(4, 5))
    if total > limit:
        say(f"{total - limit:,} more: --limit {total} lists all; --agent, --world and --outcome narrow the list")
    say(f"next: goalscope show {quote(str(path))} {first[0][0]}")


def _show_episode(
    path: Path, folders: Sequence[Path], prefix: str, selection: Filter, *, full: bool, as_json: bool
) -> None:
    """Print one episode step by step.

    Raises:
        ValueError: if no episode, or more than one, has an id that starts with the prefix.
    """
    places = list[tuple[Path, str]]()
    for folder in folders:
        with Store(folder) as store:
            places += [(folder, row[0]) for row in selection.find(store, prefix)] or [
                (folder, row[0]) for row in Filter().find(store, f"episode-{prefix}")
            ]
    if len(places) != 1:
        ids = [identity for _, identity in places]
        matches = f"{len(ids)} episodes match ({', '.join(ids[:3])}, ...)" if ids else "no episode matches"
        raise ValueError(
            f"EPISODE must be the start of exactly one episode id in {path}, got {prefix!r}: {matches}; list the ids "
            f"with goalscope show {quote(str(path))}"
        )
    [(folder, identity)] = places
    if as_json:
        with Store(folder) as store:
            (episode,) = store.episodes([identity])
        say(json_text({"run": str(folder), **episode_record(episode), "steps": step_records(episode)}))
        return
    with Store(folder) as store:
        (episode,) = store.episodes([identity])
        agent = agent_of(store.study(), episode.spec.agent_id)
        calls = store.entries("call", "WHERE calls.episode_id = ? AND attempt = 0", (episode.id,))
        sent = {step: prompt for _, _, prompt, _, step, *_ in calls}
        say(_head(episode, agent))
        before: list[str] = []
        for turn in transcript(episode, agent):
            observed = (turn.seen or "").splitlines()
            lines = observed if turn.prompt is None else turn.prompt.splitlines()
            say(write_step(turn, lines if full else changed(before, lines, observed), sent.get(turn.step.index)))
            before = lines
        say(f"{episode.agent} {OUTCOMES[episode.outcome]} after {counted(len(episode.steps), 'step')}")


def _head(episode: Episode, agent: Agent | None) -> str:
    tags = ", ".join(f"{name} {value}" for name, value in episode.world.tags.items() if value is not None)
    place = f"{episode.world.id}{f' ({tags})' if tags else ''}, trajectory {episode.spec.trajectory}"
    head = f"{episode.id}: {episode.agent} in {place}, at most {counted(episode.spec.horizon, 'action')}"
    if agent is None:
        head += "\nits agent cannot be rebuilt here (imported, or its model is missing): observations replace prompts"
    return head


def changed(before: Sequence[str], now: Sequence[str], seen: Sequence[str]) -> list[str]:
    """Return the lines of a prompt for printing, with a note in place of those that equal the previous prompt.

    Only unchanged lines at the beginning and at the end are replaced.

    Args:
        before: lines of the previous prompt.
        now: lines of this prompt.
        seen: lines of the observation, which are never replaced.
    """
    shorter = min(len(before), len(now))
    starts = (at for at in range(len(now) - len(seen) + 1) if seen and list(now[at : at + len(seen)]) == list(seen))
    start = next(starts, None)
    above, below = (shorter, shorter) if start is None else (start, len(now) - start - len(seen))
    same_first = next((at for at in range(min(shorter, above)) if before[at] != now[at]), min(shorter, above))
    limit = min(shorter - same_first, below)
    same_last = next((at for at in range(limit) if before[-1 - at] != now[-1 - at]), limit)
    middle = list(now[same_first : len(now) - same_last])
    first = [f"[{same_first} lines unchanged]"] if same_first >= _MIN_ELIDED else list(now[:same_first])
    last = [f"[{same_last} lines unchanged]"] if same_last >= _MIN_ELIDED else list(now[len(now) - same_last :])
    return first + middle + last


def export(
    run: RunDirectory,
    *,
    out: OutFolder,
    activations: Sequence[str] = (),
    capture: Sequence[str] = (),
    format: str = "",
) -> None:
    """Export the worlds, episodes, steps and rows of a run as Parquet files, optionally with its activations.

    Args:
        run: the run directory (it contains run.db).
        out: the directory to write to.
        activations (FORMATS): also export the captured activations: parquet, safetensors or parquet,safetensors.
        capture (IDS): with --activations: export only these captures, separated by commas.
        format (NAME): instead of Parquet, use the format of another package, e.g. inspect for logs that the Inspect
            viewer and Scout can open.

    Examples:
        goalscope export runs/demo --out tables
        goalscope export runs/baseline --out tables --activations parquet,safetensors
    """
    if format and (activations or capture):
        raise ValueError("--format cannot export activations: leave out --activations and --capture")
    if capture and not activations:
        raise ValueError("--capture selects among the exported activations: add --activations parquet")
    for name, folder in run_folders(run).items():
        place = Folder(out).below(name).checked() if name else out
        if format:
            _export_as(folder, place, format)
        else:
            _export_run(folder, place, activations, capture)


def _export_run(path: Path, out: Path, formats: Sequence[str], captures: Sequence[str]) -> None:
    with Store(path) as store:
        if formats:  # first, to refuse a format that cannot be written before writing the tables
            from goalscope.inside.activations.exchange import README, export_activations

            folder_path = Folder(out).below("activations").checked()
            with progress("files of activations") as show:
                folders = export_activations(store, folder_path, formats=formats, chosen=captures, progress=show)
        written = export_parquet(store, out)
    say(f"checksums: {write_checksums(out, [*written.values(), *(folders if formats else ())])}")
    for name, file in sorted(written.items()):
        say(f"{name}: {file} ({size_in_words(NamedFile(file).status().st_size)})")
    for folder in folders if formats else ():
        size = sum(status.st_size for _, status in Folder(folder).entries())
        say(f"activations: {folder} ({size_in_words(size)}), described in {README}")


def _export_as(folder: Path, place: Path, format: str) -> None:
    """Write a run in a registered format."""
    write = registry.resolve("exporter", format)
    with Store(folder) as store, progress("episodes") as show:
        written = write(store, place, show)
    say(f"checksums: {write_checksums(place, written)}")
    for file in written:
        say(f"{format}: {file} ({size_in_words(NamedFile(file).status().st_size)})")


def figure(
    run: Annotated[Path, Reads("run", "evaluation")],
    name: str | None = None,
    *,
    out: OutFile = None,
    listed: bool = False,
    everything: Annotated[Path | None, Writes("directory")] = None,
) -> None:
    """Write a figure or table of a report to a file, list their names, or write all of them.

    Args:
        run: the directory of a run or of an evaluation.
        name: name of the figure or table. The page shows it below the figure or table; --list prints all names.
        out: file to write: .svg, .pdf, .png or .csv for a figure; .tex, .md or .csv for a table.
        listed: list the names of all figures and tables.
        everything: write all of them to this directory: figures as SVG and CSV, tables as LaTeX, Markdown and CSV.

    Examples:
        goalscope figure runs/demo --list
        goalscope figure runs/demo maps-figure-1 --out maps.pdf
        goalscope figure runs/demo results-table-1 --out results.tex
        goalscope figure runs/theseus --all runs/figures
    """
    if (name is None) != (out is None) or [name is not None, listed, everything is not None].count(True) != 1:
        raise ValueError(
            "give either the NAME of a figure or table with --out FILE, or --list to print all names, or --all DIR to "
            "write all"
        )
    by_name = _named(run)
    if listed:
        rows = [
            (label, "table" if isinstance(block, Table) else "figure", title_of(block))
            for label, block in by_name.items()
        ]
        print_table(("name", "what", "shows"), rows, title=f"Figures and tables of {run}")
    elif everything is not None:
        files = write_all(by_name, everything)
        say(f"{counted(len(files), 'file')}: {everything}; checksums: {write_checksums(everything, files)}")
    elif name is not None and out is not None:
        write(find(by_name, name), out)
        say(f"{name}: {out}")


def _named(run: Path) -> Named:
    if Folder(run).has_file(PLAN):
        return named_of(run)
    measure_missing(run, progress)
    return named_of_run(run)


def view(
    paths: Annotated[Sequence[Path], Reads("run", "evaluation", "log")],
    *,
    out: OutFile = None,
    reader: str | None = None,
    serve: bool = False,
    port: Annotated[int, Between(0, 65535)] = 0,
) -> None:
    """Write one HTML page that shows every episode step by step: what the agent saw, thought and did.

    Each move is marked as optimal or not. Episodes of several runs or logs in the same world stand side by side.
    The page works offline and without a server. If it exceeds 20 MB, part of it is stored in a folder beside it.

    Args:
        paths (RUN|EVALUATION|LOG ...): directories of runs or evaluations, or log files that import can read.
        out: the page to write. Default: view.html in the directory, or beside the first log.
        reader (MODULE:FUNCTION): for Inspect logs of other tasks: a function that turns a sample into an episode.
        serve: also serve the page, to this machine alone, until you press Ctrl-C.
        port: with --serve: the port; 0 chooses a free one.

    Examples:
        goalscope view runs/theseus
        goalscope view runs/demo --out demo.html --serve
        goalscope view first.eval second.eval
    """
    is_log = NamedFile(paths[0]).is_there()
    if out is None and len(paths) > 1 and not is_log:
        raise ValueError("several directories were given, so the page has no default path: add --out FILE")
    page = out or (paths[0].parent if is_log else paths[0]) / "view.html"
    with temporary_folder() as place:
        names = _distinct([path.stem for path in paths])
        directories = [_directory_of(path, place.path / name, reader) for path, name in zip(paths, names, strict=True)]
        written = write_view(directories, page)
    say(f"{counted(written.episodes, 'episode')}, {size_in_words(written.octets)}: {written.page.resolve()}")
    if written.shards:
        say(f"{counted(written.shards, 'file')} in {written.page.stem}.data: send this folder with the page")
    if serve:
        with serving(written.page, port) as (address, wait):
            say(f"{address} (this machine alone; Ctrl-C ends it)")
            wait()


def _distinct(names: Sequence[str]) -> list[str]:
    """Return names of which repeated ones are numbered."""
    before = [names[:number].count(name) for number, name in enumerate(names)]
    return [f"{name}-{count + 1}" if count else name for name, count in zip(names, before, strict=True)]


def _directory_of(path: Path, place: Path, reader: str | None) -> Path:
    """Return a directory of a run or an evaluation; a log becomes a run in a temporary place.

    Raises:
        ValueError: no episode of the log could be read.
    """
    if not NamedFile(path).is_there():
        return path
    result = import_logs(path, place, reader=reader)
    for problem in result.problems:
        say(f"{problem}", error=True)
    if not Folder(place).is_there():
        advice = f"goalscope import {quote(str(path))} --check lists why"
        raise ValueError(f"{path} holds no episode that can be shown; {advice}")
    return place


def table(
    env: Annotated[str | Callable[[], Environment[Any]], Reads("process")],
    out: Annotated[str | Path, Writes("file")],
    *,
    limit: Annotated[int, Between(1, 2_000_000)] = LIMIT,
) -> Believed:
    """Write an environment to a file as a finite decision process: plain arrays, for other tools and for goalscope.

    All states are enumerated. A sample of the transitions and some episodes are then compared with the environment. In
    Python, ``env`` may also be a class or function that makes the environment.

    Args:
        env (ENV): the environment, as in evaluate --env: module:Class of a file in the working directory, the name of
            a registered kind, an id of Gymnasium, or a file of arrays. Parameters follow after a colon, as in
            warehouse:Warehouse:slip=0.1.
        out (FILE): the .npz file to write.
        limit: maximum number of states.

    Returns:
        The environment: its states are enumerated and solved, and its rules were checked by playing episodes.

    Raises:
        ValueError: if it has more states, behaves differently from its description, or is no environment.
        OSError: if the file cannot be written.
    """
    make = partial(build, *named_environment(env)) if isinstance(env, str) else env
    tell = paced("listing states")
    with aloud():
        believed = believe(make, limit, found=lambda count: tell(f"{count:,} states found"))
        found = believed.table
        played = believed.played
        TALLY.tell(
            f"{len(found.states):,} states, {len(found.actions)} actions and {len(found.triples):,} transitions; asked "
            f"again for {played.asked:,} states with an action and played for {played.episodes} episodes, with "
            "the same results"
        )
    save_table(believed, out)
    return believed


@prints(table)
def show_table(believed: Believed, *, out: Path) -> None:
    """Write an environment as a table of states, actions, transitions and goals, for other tools and for goalscope.

    NumPy reads the file without goalscope. Studies, `goalscope meg`, and --worlds of `separate` and `design` read it,
    too.

    Examples:
        goalscope table world.npz --out copy.npz
        goalscope table warehouse:Warehouse:slip=0.1 --out warehouse.npz
    """
    found = believed.table
    say(
        f"{counted(len(found.states), 'state')}, {counted(len(found.actions), 'action')}, "
        f"{counted(len(found.triples), 'transition')}; goals: {', '.join(found.goals)}; stored in {out}"
    )
