"""The commands `evaluate`, `ledger` and `card`, and the verdicts and claims of an evaluation on the terminal."""

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Final

from goalscope._ground.checks import check_choice
from goalscope._ground.folder import Folder, NamedFile
from goalscope._ground.progress import duration
from goalscope._ground.words import counted
from goalscope.cli.console import console, json_text, progress, say, table
from goalscope.cli.console import show as show_table
from goalscope.cli.generator import OutFile, OutFolder, Positive, Reads, Settings
from goalscope.verdict import Announcement, Evaluation
from goalscope.verdict.cards import check_record, eval_record, model_card
from goalscope.verdict.claim_tables import coverage, reason_of, thresholds_of
from goalscope.verdict.claims import Claim, ClaimLedger, Difference, worlds_to_decide
from goalscope.verdict.compare import differences_table
from goalscope.verdict.failures import FAILURES
from goalscope.verdict.opening import check_claims, read_ledger
from goalscope.verdict.own_environment import twin_sentences
from goalscope.verdict.plan import PAGE
from goalscope.verdict.sentences import paragraphs
from goalscope.verdict.texts import TEXTS

_WIDEST: Final = 26  # letters of a model's column
_QUESTION: Final = 46
MODEL_CARD: Final = "model-card"
EVERY_EVAL_EVER: Final = "every-eval-ever"
_TITLE: Final = "claims with the intervals that decide"


def announce(announcement: Announcement, *, as_json: bool = False) -> None:
    """Print what an evaluation will do, before it begins: its arms (parts, such as "grids") with their expected time
    and cost.

    With ``as_json``, the plan is printed as JSON.
    """
    if as_json and announcement.plan is not None:
        say(announcement.plan.to_json())
        return
    if announcement.table is not None:
        show_table(announcement.table)
    if announcement.expected:
        say(announcement.expected)
    for line in announcement.proposals:
        say(line)
    for line in announcement.plan.beforehand if announcement.plan is not None else ():
        say(line)


def show_whole(result: Evaluation, seconds: float, *, quick: bool = False) -> None:
    """Print the results of an evaluation, the path of its report, what to do next, and what failed.

    Args:
        result: the evaluation.
        seconds: how long it took.
        quick: whether the user chose its size by --quick, beside which --budget is not allowed.
    """
    show(result)
    directory = result.directory
    if Folder(directory).has_file(PAGE):
        page = (directory / PAGE).resolve()
        say(f"Report: {page} (the whole evaluation took {duration(seconds)})")
    has_asked_arms = any(arm.asked for model in result.models if "logs" not in model.access for arm in model.arms)
    larger = "--budget 20m in place of --quick" if quick else "a larger --budget"
    hint = f"; or repeat the command with {larger} to decide more questions" if has_asked_arms else ""
    say(f"next: print everything with goalscope ledger {quote(str(directory))} --json{hint}")
    for text in result.failed:
        say(text, error=True)
    if result.failed:
        fields = {"failures": counted(len(result.failed), "failure"), "file": str(directory / FAILURES)}
        say(TEXTS("failed/retry" if result.can_be_retried else "failed/lasting", **fields), error=True)


def show(result: Evaluation) -> None:
    """Print the results of an evaluation: what each model is after, its claims (answers to questions with their
    estimates).

    It also prints which parts were left out and why, and the differences between models.
    """
    for ledger in result.tested:
        for text in paragraphs(ledger, beside=len(result.tested) > 1):
            say(text)
        if len(result.tested) == 1 and ledger.claims:
            columns = ("question", "answer", "estimate", "threshold", "worlds")
            lines = [
                (
                    claim.question,
                    claim.answer,
                    claim.attributed_estimate or "–",
                    threshold(claim),
                    str(claim.clusters or "–"),
                )
                for claim in ledger.claims
            ]
            table(columns, lines, title=f"{ledger.model}: {_TITLE}", numbers=(2, 3, 4))
            say(coverage([ledger]))
            _reasons(ledger)
    for text in twin_sentences(result):
        say(text)
    if len(result.tested) > 1:
        _matrix(result)
    reasons: dict[tuple[str, str], list[str]] = {}
    for ledger in result.models:
        of_model: dict[str, list[str]] = {}
        for arm in ledger.arms:
            if not arm.asked:
                of_model.setdefault(arm.why, []).append(arm.title)
        for why, titles in of_model.items():
            reasons.setdefault(("; ".join(titles), why), []).append(ledger.model)
    if reasons:
        rows = [(titles, why, "; ".join(names)) for (titles, why), names in reasons.items()]
        table(("not asked", "reason", "model"), rows, title="What was not asked")
    _differences(result.differences)


def _reasons(ledger: ClaimLedger, of: str = "") -> None:
    """Say why answers do not follow from the numbers and thresholds that were printed, or why there are no numbers."""
    questions: dict[tuple[str, str], list[str]] = {}
    for claim in ledger.claims:
        if why := reason_of(claim) or (claim.why if claim.answer == "untestable" else ""):
            questions.setdefault((claim.answer, why.rstrip(".")), []).append(claim.question)
        if (enough := worlds_to_decide(claim)) is not None:
            why = TEXTS("page/would decide", worlds=f"{enough:,}")
            questions.setdefault((claim.answer, why), []).append(claim.question)
    for (answer, why), among in questions.items():
        say(of + TEXTS("page/reason", question=" ".join(among), answer=answer.capitalize(), why=why))


def _matrix(result: Evaluation) -> None:
    """Print the answers by question, with as many models side by side as fit the terminal."""
    questions = result.by_question()
    together = max(2, (console().width - _QUESTION) // _WIDEST)
    for start in range(0, len(result.models) if questions else 0, together):
        models = result.models[start : start + together]
        lines = []
        for claims in questions:
            first_claim = next(claim for claim in claims if claim is not None)
            among, thresholds = claims[start : start + together], thresholds_of(claims)
            answered = [claim for claim in among if claim is not None]
            counts = sorted({claim.clusters for claim in answered if claim.clusters})
            worlds = f"  {'–'.join(dict.fromkeys(f'{count:,}' for count in (*counts[:1], *counts[-1:])))} worlds"
            lines.append(
                (
                    first_claim.question,
                    threshold(first_claim) if len(thresholds) == 1 else "",
                    *("not asked" if claim is None else claim.answer for claim in among),
                )
            )
            lines.append(
                (
                    worlds if counts else "",
                    "",
                    *("" if claim is None else _measured(claim, several=len(thresholds) > 1) for claim in among),
                )
            )
        headings = ("question", "threshold", *(ledger.model for ledger in models))
        table(headings, lines, title=f"Side by side: {_TITLE}", numbers=(1,))
    if questions:
        say(coverage(result.models))
    for ledger in result.models:
        _reasons(ledger, f"{ledger.model}: ")


def _measured(claim: Claim, *, several: bool) -> str:
    """Return the estimate of a claim, with its threshold where several were applied to its question."""
    estimate = claim.attributed_estimate or "–"
    return f"{estimate} against {threshold(claim)}" if several and claim.estimate else estimate


def _differences(differences: Sequence[Difference]) -> None:
    """Print the significant differences between models, and count the other comparisons by outcome."""
    shown_differences = [difference for difference in differences if difference.shown]
    if shown_differences:
        show_table(
            differences_table(
                shown_differences, f"Differences, p after Holm's correction over all {len(differences):,}"
            )
        )
    for why, count in Counter(difference.outcome for difference in differences if not difference.shown).items():
        say(f"{counted(count, 'further comparison' if shown_differences else 'comparison')}: {why}")


def threshold(claim: Claim) -> str:
    """Return the number that the estimate of a claim must exceed or stay below, as text; a dash if there is none."""
    return "–" if claim.threshold is None else f"{claim.threshold:.3g}"


def ledger(
    path: Annotated[Path, Reads("evaluation")],
    *,
    as_json: bool = False,
) -> None:
    """Print the claims of an evaluation: question, answer, estimate with interval, threshold and number of worlds.

    Args:
        path (DIR): the directory of an evaluation, or its ledger.json.
        as_json: print everything as JSON.

    Examples:
        goalscope ledger runs/theseus
        goalscope ledger runs/theseus --json
    """
    result = _checked(path)
    if as_json:
        say(result.to_json())
    else:
        show(result)
        say(f"{counted(len(result.models), 'model')}; --json prints everything; goalscope card makes a model card")


def card(
    path: Annotated[Path, Reads("evaluation")],
    *,
    format: str = MODEL_CARD,
    name: str = "",
    out: OutFile = None,
) -> None:
    """Make a card of an evaluation: its claims with intervals, numbers of worlds, versions, hashes, and what is absent.

    Args:
        path (DIR): the directory of an evaluation.
        format: model-card for a section of a model card in Markdown, or every-eval-ever for a record in that schema,
            validated by the package every-eval-ever if that is installed (extra cards, Python 3.12 or later).
        name (NAME): the model, if the evaluation has several.
        out: the file to write; without it, the card is printed.

    Examples:
        goalscope card runs/theseus
        goalscope card runs/theseus --format every-eval-ever --out theseus.json
    """
    check_choice("--format", format, (MODEL_CARD, EVERY_EVAL_EVER))
    result = _checked(path)
    models = {model.model: model for model in result.models}
    if name:
        check_choice("--name", name, tuple(models))
    elif len(result.tested) > 1:
        raise ValueError(f"a card is about one model: add --name with one of {', '.join(models)}")
    chosen = models[name] if name else (result.tested or result.models)[0]
    if format == MODEL_CARD:
        text = model_card(result, chosen)
    else:
        record = eval_record(result, chosen)
        try:
            check_record(record)
        except ImportError as error:
            say(f"not validated: {error}", error=True)
        text = json_text(record)
    if out is None:
        say(text)
    else:
        NamedFile(out).save_text(text + "\n")
        say(f"card of {chosen.model}: {out.resolve()}")


def _checked(path: Path) -> Evaluation:
    """Read an evaluation, and decide its claims again if that takes only seconds."""
    result = read_ledger(path)
    if Folder(path).is_there() and (left := check_claims(path)):
        say(left, error=True)
    return result


def evaluate(
    models: Annotated[Sequence[str], Reads("model", "agent", "run")] = (),
    *,
    out: OutFolder,
    budget: str = "",
    quick: bool = False,
    arms: Sequence[str] = (),
    sizes: Sequence[int] | None = None,
    worlds: Annotated[str, Reads("study")] = "",
    env: str = "",
    hypotheses: Annotated[str, Reads("hypotheses")] = "",
    answer: str | None = None,
    template: str | None = None,
    temperature: float | None = None,
    dtype: str | None = None,
    device: str | None = None,
    batch: Positive | None = None,
    settings: Settings = (),
    seed: int | None = None,
    workers: Positive = 1,
    dry: bool = False,
    plan: Annotated[Path | None, Reads("plan")] = None,
    as_json: bool = False,
) -> bool:
    """Judge whether a model is goal-directed, how strongly and towards what.

    The evaluation first times the model on a few moves, and prints the expected time and cost. Run the same command on
    the same directory to resume an evaluation. A larger --budget adds worlds, and further models or arms are added to
    those already there; no call is repeated. The exit status is 1 if any part failed.

    Args:
        out: directory of the evaluation; an existing one is resumed.
        models (MODEL ...): one or more models or agents. Each is a bundled model (theseus or ariadne); a model folder,
            a GGUF file or a hub name; openai:NAME@URL or completions:NAME@URL for a server; a YAML file that describes
            an agent, or the same on one line as chat:model=NAME,KEY=VALUE; an agent kind with parameters, as in
            epsilon-greedy:epsilon=0.3; a run directory; or module:Class from a file in the working directory.
        budget (LIMIT): time, money or tokens to spend: 20m, 2h, 5usd or 200k-tokens. Default: 7m.
        quick: use the smallest evaluation that still answers something.
        arms (NAMES): run only these parts of the evaluation. Choose from grids, keys, transforms, fog, tasks,
            competence, wordings, hypotheses, depends, inside, patching, reasoning, plans, beliefs.
        sizes (LIST): side lengths of the grids, e.g. 7 or 7,9.
        worlds (STUDY): evaluate only in the environments or grids of this study (e.g. toy-text), phase by phase.
        env (ENV): evaluate only in this environment: module:Class of a file in the working directory, an id of
            Gymnasium such as FrozenLake-v1, MiniGrid-DoorKey-6x6-v0 or module:MyLevel-v0, or a file that goalscope
            table wrote. Parameters follow after a colon, as in warehouse:Warehouse:slip=0.1. Agents with planted goals
            play beside the models.
        hypotheses (FILE|NAMES): goals to test instead of the goal and the corners, as in goalscope separate.
        answer (HOW): for language models: generated (read the action from the text) or likelihood (of each action).
        template (FORM): for language models, the form of the prompt: example (shows a filled-in answer), schema or
            completion.
        temperature (T): for language models: sampling temperature; 0 always takes the most likely token.
        dtype (TYPE): for models run on this machine: auto, float32, bfloat16 or float16.
        device (NAME): for models run on this machine: auto, cpu, cuda or cuda:1.
        batch: for models run on this machine: maximum number of requests decoded at once.
        settings (KEY=VALUE): any parameter of the language models, e.g. max_tokens=64, or any key of the studies, e.g.
            horizon.factor=2. Repeatable.
        seed: random seed of the worlds.
        workers: number of simultaneous calls to a model.
        dry: time the model on a few moves (their answers are kept), print the expected time and cost, and stop.
        plan (FILE): run this plan instead of naming models. --dry-run --json prints one, and evaluation.json contains
            one.
        as_json: with --dry-run: print the plan as JSON.

    Examples:
        goalscope evaluate theseus --quick --out runs/theseus
        goalscope evaluate theseus epsilon-greedy:epsilon=0.3 --budget 20m --out runs/two
        goalscope evaluate HuggingFaceTB/SmolLM2-135M-Instruct --arms grids --answer likelihood --out runs/smollm2
        goalscope evaluate openai:gpt-oss-20b@http://127.0.0.1:8000/v1 --budget 200k-tokens --out runs/gpt
        goalscope evaluate random --env FrozenLake-v1 --quick --out runs/lake
        goalscope evaluate --plan runs/gpt/evaluation.json --out runs/again
    """
    from goalscope import verdict as evaluation

    if (plan is None) == (not models):
        raise ValueError(
            "name at least one model, e.g. goalscope evaluate theseus --out DIR, or give --plan FILE without models"
        )
    if as_json and not dry:
        raise ValueError("--json prints the plan of --dry-run: add --dry-run")
    asks = evaluation.Plan.read(plan, edited=True) if plan is not None else [*models]
    options = {"answer": answer, "template": template, "dtype": dtype, "device": device, "slots": batch}
    chosen = [f"{name}={value}" for name, value in options.items() if value is not None]
    chosen += [] if temperature is None else [f"temperature={temperature!r}"]
    options_of_all: dict[str, Any] = {
        "budget": budget,
        "quick": quick,
        "arms": arms,
        "sizes": sizes or (),
        "worlds": worlds,
        "env": env,
        "hypotheses": hypotheses,
        "settings": [*chosen, *settings],
        "workers": workers,
        **({} if seed is None else {"seed": seed}),
    }
    began = time.monotonic()
    if dry:
        announcement = evaluation.estimate(asks, out, **options_of_all)
        announce(announcement, as_json=as_json)
        complete = not announcement.failed
    else:
        evaluated = evaluation.evaluate(asks, out, announce=announce, stage=progress, **options_of_all)
        show_whole(evaluated, time.monotonic() - began, quick=quick)
        complete = evaluated.complete
    return complete
