"""Examine a run, an evaluation, a model or a server: the command `verify`, and what `doctor` reports on each of them.

`verify` compares a run or an evaluation with its checksums. `doctor RUN` reports which parts of a damaged run.db can be
rebuilt, and rebuilds them with `--repair`. A language model is reported on before a study: its chat format, its speed,
sample answers; a server: its abilities.
"""

import math
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any, Final

import numpy as np

from goalscope._ground.folder import NamedFile
from goalscope._ground.rng import stream
from goalscope._ground.words import counted, listed
from goalscope.agents.agent import CHAT, Observation, build_agent
from goalscope.agents.chat import LEAST_MASS, ChatAgent, ways_in_use
from goalscope.agents.models import HttpModel, Server
from goalscope.agents.models.abilities import ServerReport, check_server, needing_record, read_server_info
from goalscope.agents.models.base import Request, Sampling
from goalscope.agents.models.dialect import check_cell_tokens
from goalscope.agents.models.folders import model_folder
from goalscope.agents.models.http_client import Client
from goalscope.agents.models.http_errors import SilentServerError
from goalscope.agents.models.http_settings import RECORDING
from goalscope.agents.models.local import LocalModel
from goalscope.agents.models.reading import token_octets
from goalscope.agents.models.weight_files import read_header
from goalscope.agents.parse import turn, what_helps
from goalscope.cli.console import json_text, progress, safe, say, table
from goalscope.cli.generator import RunDirectory
from goalscope.cli.measuring import measure_run
from goalscope.inside.activations.shards import SHARD, Artifact, artifacts, open_shard, place
from goalscope.inside.probing.probe import Probe
from goalscope.measures.behaviour import BEHAVIOUR
from goalscope.runs import Store, content_hash
from goalscope.runs.dispatch import wanted_by
from goalscope.runs.repair import DAMAGED, VerifiedPart, lines, repair
from goalscope.runs.repair import verify as check
from goalscope.verdict.judging import Reopened, reopened
from goalscope.verdict.opening import AGAIN, compare_claims, is_evaluation, run_folders
from goalscope.verdict.page import compare_page
from goalscope.verdict.subject import find_out
from goalscope.worlds.generate import generate
from goalscope.worlds.grid import AGENT, GOAL, OPEN, WALL, Action, Grid
from goalscope.worlds.gridworld import GridView, GridWorld
from goalscope.worlds.planning.shortest import optimal_actions


def verify(
    run: RunDirectory,
    *,
    expect: str = "",
    as_json: bool = False,
) -> bool:
    """Verify a run, including the files beside run.db, against its checksums, and print its content hash.

    For an evaluation, all of its runs are verified. Then all claims (answers to its questions) are decided again from
    the runs and compared with the ledger, and report.html is compared with its digest in the ledger and with a page
    rebuilt from ledger and runs. The exit status is 1 if anything is damaged or differs, and 2 if a run cannot be
    opened.

    Args:
        run: the run directory (it contains run.db), or the directory of an evaluation.
        expect (HASH): fail unless the run has this content hash.
        as_json: print JSON.

    Examples:
        goalscope verify runs/first
    """
    if expect and is_evaluation(run):
        raise ValueError(f"--expect is the hash of one run, but {run} is an evaluation: give the run of an arm")
    records = {name: _verified(path, as_json) for name, path in run_folders(run).items()}
    sound = all(record["content_hash"] for record in records.values())
    record: dict[str, Any] = {"runs": records}
    if sound and is_evaluation(run):
        sound = _sound_evaluation(run, record, as_json=as_json)
    if as_json:
        say(json_text(record if is_evaluation(run) else records[""]))
    if expect and sound and expect != records[""]["content_hash"]:
        hashed = records[""]["content_hash"]
        say(f"the content hash is {hashed}, not {expect}: this is a different or a changed run", error=True)
        sound = False
    return sound


def _sound_evaluation(directory: Path, record: dict[str, Any], *, as_json: bool) -> bool:
    """Compare the claims and the page of an evaluation with its runs, which are opened and measured only once."""
    with reopened(directory) as evaluation:
        checked = compare_claims(evaluation)
        record |= asdict(checked)
        for line in (*checked.failed, *checked.deviations, *checked.changed, *checked.added):
            say(line, error=True)
        if checked.failed:
            say("some claims could not be decided again, so no claim was compared", error=True)
        elif not checked.deviations:
            say("all claims agree with the runs", error=as_json)
        if checked.deviations or checked.changed:
            say(f"the ledger does not agree with these runs: {AGAIN}", error=True)
        agrees = not (checked.failed or checked.deviations or checked.changed)
        return _sound_page(evaluation, record, rebuild=agrees, added=bool(checked.added)) and agrees


def _sound_page(evaluation: Reopened, record: dict[str, Any], *, rebuild: bool, added: bool) -> bool:
    """Compare the page of an evaluation with its ledger and runs, and report the result."""
    comparison = compare_page(evaluation, rebuild=rebuild, added=added)
    record |= {"page": comparison.deviation, "page_compared_with": comparison.basis}
    say(
        f"{comparison.deviation}: {AGAIN}"
        if comparison.deviation
        else f"the page was compared with {comparison.basis}",
        error=True,
    )
    return not comparison.deviation


def _verified(run: Path, as_json: bool) -> dict[str, Any]:
    """Verify one run, print the result, and return it as plain values. The content hash is "" if the run is damaged."""
    with Store(run) as store:
        parts = [*check(store), *files(store)]
        sound = not any(part.damaged for part in parts)
        digest = content_hash(store) if sound else ""
    if not as_json:
        rows = [(part.what, f"{part.checked:,}", f"{len(part.damaged):,}") for part in parts]
        table(("what", "checked", "damaged"), rows, title=f"verify {run}")

    def listed(part: VerifiedPart) -> str:
        rest = f" and {len(part.damaged) - 5} more" if len(part.damaged) > 5 else ""
        return f"{part.what}: {'; '.join(part.damaged[:5])}{rest}\n  {part.mend.replace('RUN', quote(str(run)))}"

    for part in parts:
        if part.damaged:
            say(listed(part), error=True)
    if sound and not as_json:
        say(f"content hash {digest}")
    return {"run": str(run), "parts": [asdict(part) for part in parts], "content_hash": digest}


def files(store: Store) -> Iterator[VerifiedPart]:
    """Verify the files of a run beside its database: activations by their digests, probes by their content ids.

    Yields one result per kind of file, with the number of files and what is damaged.
    """

    def shard(artifact: Artifact) -> None:
        with open_shard(
            place(store, artifact), size=artifact.size, capture=str(artifact.tags.get("capture"))
        ) as opened:
            opened.check()

    def probe(artifact: Artifact) -> None:
        path = place(store, artifact)
        if (loaded := Probe.load(path)).id != artifact.tags.get("content"):
            raise ValueError(f"{path} must contain {artifact.tags.get('content')}, but contains {loaded.id}")

    checks = {SHARD: shard, "probe": probe, "plan decoder": probe}
    for kind, sound in checks.items():
        found_artifacts, damaged = list(artifacts(store, kind)), list[str]()
        for artifact in found_artifacts:
            try:
                sound(artifact)
            except (ValueError, OSError) as error:
                damaged.append(str(error)[:300])
        if found_artifacts:
            yield VerifiedPart(what=f"files: {kind}", checked=len(found_artifacts), damaged=tuple(damaged))


def doctor_run(path: Path, *, write: bool) -> bool:
    """Print which parts of a run are sound and which can be rebuilt; with ``write``, rebuild them.

    Returns:
        False if something is lost, or still damaged because ``write`` is false; the exit status is then 1.
    """
    result = repair(path, write=write)
    for line in lines(result):
        say(line)
    if result.sound:
        say(f"nothing is damaged in {path}; goalscope verify {quote(str(path))} also checks the files beside run.db")
        return True
    rows = result.lost.get("rows", [])
    if not write:
        if BEHAVIOUR in rows:
            say("the rows of measure can be recomputed from the episodes")
        say(f"next: goalscope doctor {quote(str(path))} --repair")
        return False
    say(f"rebuilt in {path}; the damaged file is kept as {DAMAGED}")
    if BEHAVIOUR in rows:
        measure_run(path, progress)
    if other_sources := [source for source in rows if source != BEHAVIOUR]:
        say(f"removed the rows of {', '.join(other_sources[:5])}: recompute them with probe, meg or patch")
    for kind, advice in (
        ("call", "lost answers will be asked for again if an episode needs them"),
        ("artifact", "files that are no longer listed will be found or made again by capture and probe"),
        ("study", "the study is lost: restore run.db from a copy"),
        ("agent", "the description of an agent is lost: goalscope run restores it"),
    ):
        if kind in result.lost:
            say(advice)
    if result.unplayed:
        say(f"next: goalscope run STUDY --out {quote(str(path))}, which runs the missing episodes")
    return not result.unplayed


# A language model

SIZES: Final = (7, 9, 15)
"""Sizes of the grids of the three sample prompts, in cells."""

SAMPLE_TOKENS: Final = 512
"""Maximum number of output tokens of a sample answer."""

_DENSITY = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One answer of a model that is tested: the answer to a prompt that shows a grid.

    Attributes:
        size: rows and columns of the grid.
        prompt_tokens: tokens of its prompt.
        text: the parsed answer, without reasoning.
        reasoning: the reasoning before it, or None.
        finish: how the answer ended, "stop" or "length".
        verdict: the name of the parsed action, or the problem of the answer.
        valid: whether the answer contains an action.
        optimal: whether that action is on a shortest path; None without an action.
        mass: total probability of the four actions at their position in the answer; None if not computed.
    """

    size: int
    prompt_tokens: int
    text: str
    reasoning: str | None
    finish: str
    verdict: str
    valid: bool
    optimal: bool | None
    mass: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReport:
    """What `goalscope doctor --model` finds out about a model: its size, its prompts, its speed and three answers.

    Attributes:
        name: short name.
        source: "folder", "GGUF file" or "hub".
        architecture: class of the model.
        quantisation: quantisation type of a GGUF file, or "".
        parameters: number of weights.
        device, dtype: device of the model, and type of its weights.
        weight_octets: size of the weights in bytes.
        token_octets: size of one token's keys and values in bytes; None if the configuration does not tell.
        positions: maximum number of tokens of prompt and output together, or None.
        tokenizer: which checks the tokenizer passed, in words.
        chat_template: whether there is a chat template; base models have none.
        reasoning: style that separates reasoning from the answer.
        cells: tokens of each symbol of a grid in a prompt.
        cell_problems: one sentence for each cell of the sample grids that is not a token of its own.
        prompt_tokens: size -> tokens of the prompt of a grid of that size.
        read_rate: prompt tokens per second; tokens that prompts share count once per prompt.
        write_rate: output tokens per second for three simultaneous answers; NaN if they are too short to measure.
        samples: three answers.
        meaning: conclusions as sentences.
    """

    name: str
    source: str
    architecture: str
    quantisation: str
    parameters: int
    device: str
    dtype: str
    weight_octets: int
    token_octets: int | None
    positions: int | None
    tokenizer: str
    chat_template: bool
    reasoning: str
    cells: Mapping[str, tuple[str, ...]]
    cell_problems: tuple[str, ...]
    prompt_tokens: Mapping[int, int]
    read_rate: float
    write_rate: float
    samples: tuple[Sample, ...]
    meaning: tuple[str, ...]


def report_model(model: str, *, device: str = "auto", chat_template: str | None = None) -> ModelReport:
    """Load a model, ask it for a move in three grids, and report its size, its prompts, its speed and its answers.

    Each stage is announced on standard error.

    Args:
        model: a folder, a GGUF file, a bundled model, or a name on the hub.
        device: the device, see `LocalModel`.
        chat_template: name of the chat template, for a model that has several.

    Raises:
        FileNotFoundError, ValueError: there is no such model, or it cannot be read.
        ImportError: torch or transformers is missing, or a package that reads GGUF files.
        OSError: the hub does not have the model, or cannot be reached.
    """
    say("reading the tokenizer", error=True)
    defaults = find_out(model, network=True, chat_template=chat_template)
    agent: Any = build_agent(CHAT, {**defaults.parameters, "device": device})
    assert isinstance(agent, ChatAgent) and isinstance(agent.model, LocalModel)
    local = agent.model
    say("loading the weights", error=True)
    network = local.model
    grids = [generate(size, _DENSITY, rng=stream(0, "doctor", size)) for size in SIZES]
    observations = [
        Observation(view=GridView(grid=grid), episode_id=f"doctor {size}")
        for grid, size in zip(grids, SIZES, strict=True)
    ]
    requests = [agent.request(observation) for observation in observations]
    say(f"answering {len(requests)} prompts", error=True)
    samples, rates = _samples(agent, requests, grids)
    first = next(network.parameters())
    config = network.config.get_text_config(decoder=True)
    positions = getattr(config, "max_position_embeddings", None)
    folder = model_folder(model)
    gguf = folder is not None and NamedFile(folder).is_there()
    cells, problems = _cells(local, agent, observations)
    report = ModelReport(
        name=defaults.name,
        source="hub" if folder is None else "GGUF file" if gguf else "folder",
        architecture=type(network).__name__,
        quantisation=read_header(folder).quantisation if folder is not None and gguf else "",
        parameters=sum(weights.numel() for weights in network.parameters()),
        device=str(first.device),
        dtype=str(first.dtype).removeprefix("torch."),
        weight_octets=sum(weights.numel() * weights.element_size() for weights in network.parameters()),
        token_octets=token_octets(config, first.element_size()),
        positions=positions if isinstance(positions, int) and positions > 0 else None,
        tokenizer=local.tokenizer_checks,
        chat_template=not local.base,
        reasoning=local.marks.title,
        cells=cells,
        cell_problems=problems,
        prompt_tokens={size: sample.prompt_tokens for size, sample in zip(SIZES, samples, strict=True)},
        read_rate=rates[0],
        write_rate=rates[1],
        samples=tuple(samples),
        meaning=(),
    )
    return replace(report, meaning=tuple(_conclusions(report, model, ways_in_use(agent))))


def _samples(
    agent: ChatAgent, requests: Sequence[Request], grids: Sequence[Grid]
) -> tuple[list[Sample], tuple[float, float]]:
    """Return the answers, and the tokens per second while reading and while writing."""
    model: Any = agent.model
    started = time.perf_counter()
    read = model.complete(requests, replace(agent.sampling, max_tokens=1))
    reading = time.perf_counter() - started
    max_tokens = min(SAMPLE_TOKENS, agent.sampling.max_tokens)
    started = time.perf_counter()
    written = model.complete(requests, replace(agent.sampling, max_tokens=max_tokens))
    writing = time.perf_counter() - started - reading
    masses: list[float | None] = [None] * len(requests)
    if model.style == "none":
        likelihoods = model.likelihoods(requests, agent.sampling, reasoned=False)
        masses = [math.fsum(map(math.exp, scored.logprobs)) for scored in likelihoods]
    samples = []
    for completion, grid, mass in zip(written, grids, masses, strict=True):
        answer = turn(completion)
        best = optimal_actions(grid, grid.start) if grid.start is not None else frozenset()
        samples.append(
            Sample(
                size=grid.height,
                prompt_tokens=len(completion.prompt_tokens or ()),
                text=completion.answer,
                reasoning=completion.reasoning,
                finish=completion.finish,
                verdict=answer.failure or Action(answer.action or 0).name,
                valid=answer.failure is None,
                optimal=None if answer.failure is not None else answer.action in best,
                mass=mass,
            )
        )
    tokens = sum(len(completion.output_tokens or ()) - 1 for completion in written)
    rate = tokens / writing if writing > 0 and tokens > 0 else math.nan
    return samples, (sum(len(completion.prompt_tokens or ()) for completion in read) / reading, rate)


def _cells(
    model: LocalModel, agent: ChatAgent, observations: Sequence[Observation]
) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    """Return the tokens of each symbol after a blank, and one sentence for each cell that is not a single token."""
    symbols = {}
    for symbol in (WALL, OPEN, AGENT, GOAL):
        before, with_symbol = model.encode("0 _ _"), model.encode(f"0 _ _ {symbol}")
        pairs = enumerate(zip(before, with_symbol, strict=False))
        prefix = next((index for index, (old, new) in pairs if old != new), len(before))
        symbols[symbol] = tuple(model.text([token]) for token in with_symbol[prefix:])
    problems: list[str] = []
    for observation in observations:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # they are returned, too
            problems += check_cell_tokens(model, observation.grid.render(), prompt=agent.prompt(observation)).problems
    return symbols, tuple(problems)


def _conclusions(report: ModelReport, model: str, used: Sequence[str]) -> list[str]:
    """Return conclusions in sentences: for `run`, for `probe`, and recommended changes."""
    samples = report.samples
    valid = sum(sample.valid for sample in samples)
    lines = [f"run: {valid} of {len(samples)} sample answers held an action."]
    masses = [sample.mass for sample in samples if sample.mass is not None]
    if valid < len(samples):
        if masses and min(masses) >= LEAST_MASS:
            lines.append(
                f"Where an answer names its action, the four moves have {np.mean(masses):.2f} of the probability: with "
                f"constrained choice these turns would be valid (`goalscope evaluate {model} --answer "
                "likelihood`; another agent, never pooled with generated answers)."
            )
        else:
            failures = Counter(sample.verdict for sample in samples if not sample.valid)
            lines.append(f"What helps, in options of evaluate: {what_helps(failures, used=used)}.")
    longest = max(report.prompt_tokens.values())
    if report.positions is not None and longest >= report.positions:
        lines.append(
            f"A prompt of {longest} tokens does not fit the model's {report.positions} positions: use smaller worlds."
        )
    if not report.chat_template:
        lines.append("It is a base model: prompts are texts with one worked example an action, which it goes on with.")
    if report.quantisation:
        lines.append(
            f"Its weights were quantised ({report.quantisation}) and are taken apart into {report.dtype}: an agent "
            "of its own, beside one with the original weights. Reading the file takes long each time; a folder that "
            "it was converted to does not (docs/models.md)."
        )
    if report.cell_problems:
        lines.append(
            f"probe: not every cell is one token of its own ({report.cell_problems[0]}): the site grid cannot be "
            "captured."
        )
    else:
        lines.append(
            "probe: in these prompts, each cell's symbol is within one token that contains no other cell, so every "
            "site of the prompt can be captured."
        )
    if report.reasoning == "none":
        lines.append("Without marked reasoning there is no site post, which readings leave out with a notice.")
    else:
        lines.append(f"Reasoning is marked ({report.reasoning}): sites before and after it can be read (pre, post).")
    if report.source == "hub":
        lines.append(
            "It is named by its place on the hub: name a commit (revision) in a study whose results must last."
        )
    return lines


# Report on what a server of language models can do, before it is used in a study.

_GRID = "#####\n#A__#\n###_#\n#G__#\n#####"
_SAMPLING = Sampling(max_tokens=256, reasoning_effort=None)


def examine_server(model: HttpModel, template: str = "") -> ServerReport:
    """Test what a model server can do, by prompting it with a small grid, and return the report.

    ``template`` is the form of the prompt, "" for the default.
    """
    agent = ChatAgent(model=model, sampling=_SAMPLING, template=template)
    observation = Observation(view=GridWorld(grid=Grid.parse(_GRID)).begin().view)
    return check_server(model, replace(wanted_by(agent, observation), everything=True))


def _only_model(server: Server) -> str:
    """Return the name of the only model of a server; raise a ValueError if it names none or several."""
    names = read_server_info(Client(server)).models
    if len(names) == 1:
        return names[0]
    answer = f"it names {', '.join(names[:20])}" if names else "the server names none"
    raise ValueError(f"the model must be known, {answer}: give --model NAME")


# `goalscope doctor --model NAME` reports on a model, `doctor --server URL` on the abilities of a server.

_MAX_CHARACTERS = 300  # characters of a sample answer


def doctor_model(model: str, *, device: str, chat_template: str | None, as_json: bool) -> None:
    """Load a model, ask it for a move in three grids, and print a report on it; ``as_json`` prints it as JSON."""
    report = report_model(model, device=device, chat_template=chat_template)
    if as_json:
        say(json_text(asdict(report)))
        return
    table(("what", "found"), _rows(report), title=f"goalscope doctor: {report.name}")
    for number, sample in enumerate(report.samples, 1):
        say(f"sample {number}, a grid of {sample.size}x{sample.size}: {_verdict(sample)}")
        if sample.reasoning:
            say(f"  reasoning: {_brief(sample.reasoning)}")
        say(f"  answer: {_brief(sample.text)}")
    for line in report.meaning:
        say(line)


def _rows(report: ModelReport) -> list[tuple[str, str]]:
    cache = "" if report.token_octets is None else f", and {report.token_octets / 1e3:.3g} kB per token and row"
    rate = report.write_rate
    write_speed = "too short to be measured" if math.isnan(rate) else f"{rate:.3g} per second"
    counts = {symbol: len(tokens) for symbol, tokens in report.cells.items()}
    cells = "a symbol and the blank before it are " + ", ".join(
        f"{counted(count, 'token')} ({symbol})" for symbol, count in counts.items()
    )
    return [
        ("read from", report.source + (f", {report.quantisation}" if report.quantisation else "")),
        ("architecture", report.architecture),
        ("tokenizer", report.tokenizer),
        ("chat template", "yes" if report.chat_template else "none: a base model"),
        ("reasoning", report.reasoning),
        ("cells", cells + (f"; {len(report.cell_problems)} problems" if report.cell_problems else "")),
        ("parameters", f"{report.parameters:,}"),
        ("type, device", f"{report.dtype}, {report.device}"),
        ("memory", f"{report.weight_octets / 1e9:.3g} GB of weights{cache}"),
        ("positions", "no limit" if report.positions is None else f"{report.positions:,}"),
        ("prompt tokens", ", ".join(f"{report.prompt_tokens[size]} at {size}x{size}" for size in SIZES)),
        ("tokens read", f"{report.read_rate:,.0f} per second"),
        ("tokens written", write_speed + (f", {len(report.samples)} answers at a time" if report.samples else "")),
    ]


def _verdict(sample: Sample) -> str:
    mass_note = "" if sample.mass is None else f"; the four moves together have probability {sample.mass:.3f}"
    if not sample.valid:
        return f"no action ({sample.verdict}){mass_note}"
    return f"{sample.verdict}, {'on' if sample.optimal else 'not on'} a shortest path{mass_note}"


def _brief(text: str) -> str:
    """Return the text of an answer on one line, truncated if it is long."""
    line = safe(text.replace("\n", " ⏎ "))
    return line if len(line) <= _MAX_CHARACTERS else f"{line[:_MAX_CHARACTERS]} … ({len(text)} characters)"


def doctor_server(url: str, model: str | None, *, as_json: bool = False, **settings: str | None) -> None:
    """Test what a model server can do, with the given model or the only one that it has, and print the results.

    Args:
        url: address of the server up to /v1.
        model: name of the served model; None if the server has a single one.
        as_json: whether to print JSON.
        settings: further settings of the server, such as ``mode`` and ``tokenizer``.

    Raises:
        ValueError: a setting does not fit, or the server names no model or several.
        ConnectionError: the server cannot be reached.
    """
    settings_given = {name: value for name, value in settings.items() if value is not None}
    server = Server.of({"base_url": url, "retries": 2, **settings_given})
    try:
        Client(server).check_reachable()
        served = HttpModel(model or _only_model(server), server=server)
        if not as_json:
            say(f"trying {served.name} at {url}", error=True)
        report = examine_server(served)
    except SilentServerError as error:  # its whole text speaks of the stored answers of a run
        problem = error.problem if url in error.problem else f"{url} did not answer: {error.problem}"
        raise ConnectionError(f"{problem}: {error.advice}") from None
    if as_json:
        say(json_text({"model": served.name, "mode": served.server.mode, **report.model_dump(mode="json")}))
        return
    metadata = ", ".join(f"{name} {text}" for name, text in report.told.server.items()) or "nothing"
    rows = [("reported by the server", "", metadata)]
    rows += [(ability.name, ability.state, ability.detail) for ability in report.abilities]
    table(("what", "state", "seen"), rows, title=f"{served.name} at {url}, mode {served.server.mode}")
    say(f"{served.budget.calls} requests, {served.budget.tokens} tokens")
    if missing := needing_record(report):
        say(
            f"This server lacks: {listed(missing)}. A study that needs one of these is refused; {RECORDING} to continue"
        )
