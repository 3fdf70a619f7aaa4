"""The command `organisms`: make agents with known goals, check them, and judge goal-finding methods on them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from goalscope.cli.console import json_text, progress, say, table
from goalscope.cli.generator import Positive, Reads, Writes
from goalscope.cli.program import command

if TYPE_CHECKING:
    from goalscope._ground.sealed import StrictRecord
    from goalscope.organisms import Card
    from goalscope.organisms.inside import InsideFigure
    from goalscope.organisms.judging import Judgement

Row = TypeVar("Row", bound="StrictRecord")

_ACTIONS = ("make", "list", "check", "judge", "gate", "inside", "study", "seal", "claim", "open", "score")
_WITH_METHODS, _WITH_OUT, _WITH_KEY = ("judge", "claim"), ("judge", "gate", "inside", "study", "seal"), ("seal", "open")


@command(
    "organisms",
    summary="Make agents with known goals, and judge methods on them.",
)
def organisms(
    action: str,
    methods: Sequence[str] = (),
    *,
    at: Annotated[Path, Reads("organisms", "challenge"), Writes("directory")] = Path("organisms"),
    out: Annotated[Path | None, Writes("directory")] = None,
    key: Annotated[Path | None, Reads("key"), Writes("file")] = None,
    name: str = "ours",
    families: Sequence[str] = (),
    kinds: Sequence[str] = (),
    seed: int = 0,
    each: Positive = 2,
    workers: Positive = 1,
    as_json: bool = False,
) -> None:
    """Make small agents that learned a known goal, and judge goal-finding methods on them.

    Such an agent is called an organism. Each has a card with its measured behaviour, which may differ from the intended
    one. If you run the command again on the same directories, it continues where it stopped.

    Args:
        action: what to do. make, list and check concern the organisms themselves; judge, gate and inside apply
            attribution methods, the verdict of evaluate and probes to them; study trains small learners and answers the
            questions of docs/small-learners.md; seal, claim, open and score are the steps of a challenge, in which the
            goals stay secret until claims are made.
        methods ([METHODS]...): for judge and claim: attribution methods, all by default.
        at: directory of the organisms; for claim, open and score, of the challenge.
        out: for judge, gate, inside and study: directory for the results; for seal: directory of the new challenge.
        key: for seal and open: secret file with the salts and the true goals.
        name: for claim: name of the claimant.
        families (NAMES): only these families of organisms, separated by commas.
        kinds (NAMES): only these kinds of organisms: table, network, gradient, language or adapter; make makes the
            first two by default.
        seed: for make: root seed of the organisms.
        each: for make: number of networks per family and per agreement, the share of training worlds in which
            goal and proxy call for the same moves. From the third on, organisms of each kind are judged in worlds of
            other sizes and densities, some at temperature 0.
        workers: for judge and gate: number of parallel processes.
        as_json: print JSON.

    Examples:
        goalscope organisms make --at organisms
        goalscope organisms list --at organisms
        goalscope organisms check --at organisms
        goalscope organisms judge score meg --at organisms --out judged
        goalscope organisms gate --at organisms --out gate
        goalscope organisms inside --at organisms --out inside
        goalscope organisms study --out learners
        goalscope organisms seal --at organisms --out challenge --key key.json
        goalscope organisms claim score --at challenge
        goalscope organisms open --at challenge --key key.json
        goalscope organisms score --at challenge
    """
    from goalscope.organisms import folders, make, planned, problems, read_card

    if action not in _ACTIONS:
        raise ValueError(f"the action must be one of {', '.join(_ACTIONS)}, got {action[:60]!r}")
    if methods and action not in _WITH_METHODS:
        raise ValueError(f"methods apply only to judge and claim, got {methods[0][:60]!r} with {action}: leave it out")
    for option_given, option, needs in ((out, "--out DIR", _WITH_OUT), (key, "--key FILE", _WITH_KEY)):
        if (option_given is None) == (action in needs):
            raise ValueError(f"{option} must be given for {', '.join(needs)} and for no other action, got {action}")
    if action == "make":
        cards = make(at, planned(seed=seed, families=families, kinds=kinds, each=each), stage=progress)
        followed = sum(bool(card.rule) for card in cards)
        say(
            f"{len(cards)} organisms in {at}: {followed} follow one of the known rules, "
            f"{sum(not card.marked for card in cards)} the intended one"
        )
        return
    if action in ("claim", "open", "score"):
        _challenge(action, at, key, [*methods], name, as_json=as_json)
        return
    if action == "study":
        assert out is not None
        _study(out, as_json=as_json)
        return
    specs = {path: read_card(path).spec for path in folders(at)}
    chosen = [
        path
        for path, spec in specs.items()
        if (not families or spec.family in families) and (not kinds or spec.kind in kinds)
    ]
    if action == "check":
        faults = [problem for path in chosen for problem in problems(path)]
        for problem in faults:
            say(problem)
        say(
            f"{len(chosen)} organisms: "
            + ("the problems are listed above" if faults else "all hashes and stated goals are correct")
        )
        if faults:
            raise typer.Exit(1)
    elif action == "list":
        cards = [read_card(path) for path in chosen]
        _show(cards, _list, as_json=as_json)
    elif action == "judge":
        from goalscope._ground import registry
        from goalscope.organisms.judging import judge

        assert out is not None
        rows = judge(chosen, [*methods] or list(registry.names("attribution")), out, workers=workers, stage=progress)
        _show(rows, _tables, as_json=as_json)
    elif action == "inside":
        from goalscope._ground.folder import Folder
        from goalscope.organisms.inside import inside, picture
        from goalscope.report.figures import standalone

        assert out is not None
        findings = inside(chosen, out, stage=progress)
        Folder(out).save_text(standalone(picture(findings).svg), "goal.svg")
        _show(findings, _inside, as_json=as_json)
    elif action == "seal":
        from goalscope.organisms.challenge import seal

        assert out is not None and key is not None
        say(f"{len(seal(chosen, out, key))} organisms sealed in {out}; salts and truths in {key}")
    else:
        from goalscope.organisms.gate import gate

        assert out is not None
        rows = gate(chosen, out, workers=workers, stage=progress)
        _show(rows, _gate, as_json=as_json)


def _show(rows: "Sequence[Row]", show: "Callable[[Sequence[Row]], None]", *, as_json: bool) -> None:
    """Print records as JSON, or as tables."""
    if as_json:
        say(json_text([row.plain() for row in rows]))
    else:
        show(rows)


def _challenge(action: str, at: Path, key: Path | None, methods: list[str], name: str, *, as_json: bool) -> None:
    """Make claims about a sealed challenge, open it, or score the claims."""
    from goalscope._ground import registry
    from goalscope.organisms import challenge

    if action == "claim":
        made = challenge.claim(at, [*methods] or list(registry.names("attribution")), name)
        say(
            json_text([claim.id for claim in made])
            if as_json
            else "\n".join(f"{claim.agent}: {claim.id}" for claim in made)
        )
        refused = {
            (method, why)
            for frozen_claim in made
            for stratum in frozen_claim.strata
            for method, why in stratum.refused.items()
        }
        for method, why in sorted(refused) if not as_json else ():
            say(f"{method} gives no claim: {why}")
    elif action == "open":
        assert key is not None
        stood = challenge.open_challenge(at, key)
        say(
            json_text(stood) if as_json else f"{at} is opened and all seals match; {len(stood)} claims were made before"
        )
    else:
        _show(challenge.score(at), lambda scores: _scores(scores, at), as_json=as_json)


def _scores(scores: "Sequence[Judgement]", at: Path) -> None:
    rows = [
        [
            score.organism,
            score.claimant,
            score.method,
            " ".join((score.kind, *score.names)),
            score.rule or "none",
            score.outcome,
            "before" if score.before else "AFTER opening",
            f"{score.log_score:.2f}",
        ]
        for score in scores
    ]
    heads = ("organism", "claimant", "method", "claim", "true", "outcome", "frozen", "log score")
    table(heads, rows, title=f"claims about {at}", numbers=[7])


def _study(out: Path, *, as_json: bool) -> None:
    """Run both studies of small learners, print their figures, and save them as Markdown."""
    from goalscope._ground.folder import Folder
    from goalscope.organisms.layouts import effects, size_or_layout
    from goalscope.organisms.utilities import CONDITIONS, hidden_utilities, tells
    from goalscope.report.blocks import Table
    from goalscope.report.exports import as_markdown

    figures = hidden_utilities(out, stage=progress)
    contrasts = [*effects(size_or_layout(out, stage=progress))]
    tables: dict[str, tuple[tuple[str, ...], Sequence[tuple[object, ...]]]] = {
        "layouts": (
            ("measure", "network", "contrast", "value", "learners", "answer"),
            [(row.measure, row.network, row.quantity, _ends(row.value), row.learners, row.answer) for row in contrasts],
        ),
        "utilities": (
            ("organism", "features", "block", "fitted in worlds", "measure", "value", "worlds", "answer"),
            [
                (
                    *(row.organism, row.features, "" if row.layer is None else row.layer),
                    *(row.condition, row.measure, _ends(row.value), row.worlds, row.answer),
                )
                for row in figures
            ],
        ),
    }
    if as_json:
        say(json_text({"layouts": [row.plain() for row in contrasts], "utilities": [row.plain() for row in figures]}))
    for name, (heads, cells) in tables.items():
        rows = [tuple(map(str, cell)) for cell in cells]
        Folder(out).save_text(as_markdown(Table(headings=heads, rows=tuple(rows))) + "\n", f"{name}.md")
        if not as_json:
            table(heads, [[*row] for row in rows], title=f"{name} (docs/small-learners.md)", numbers=[])
    kinds = dict.fromkeys((row.features, row.layer) for row in figures)
    for condition in () if as_json else CONDITIONS:
        telling = [
            features if layer is None else f"{features} (block {layer})"
            for features, layer in kinds
            if tells(figures, features, condition, layer)
        ]
        say(f"fitted in worlds {condition}, these tell goal from proxy: {', '.join(telling) or 'none'}")


def _list(cards: "Sequence[Card]") -> None:

    rows = [
        [
            card.spec.name,
            card.rule or f"none; {card.nearest} comes nearest",
            _ends(card.shares["apart"][card.nearest]),
            "; ".join(f"{place} {ends[0]:.2f}" for place, ends in card.first.items()),
            "; ".join([card.marked or "as meant", *(f"{check}: {ends[0]:.2f}" for check, ends in card.writes.items())]),
        ]
        for card in cards
    ]
    title = "organisms: measured in worlds that tell goal and proxy apart, with 95 % intervals over worlds"
    table(("organism", "follows", "share of its steps", "reaches first", "marked"), rows, title=title, numbers=[2])


def _tables(rows: "Sequence[Judgement]") -> None:
    from goalscope.organisms.judging import SHARES, WORLDS

    whole = [row for row in rows if row.worlds == WORLDS]
    shares = [f"{share:.0%}" for share in SHARES]
    _table("by the share of worlds that tell goal and proxy apart", whole, lambda row: f"{row.share:.0%}", shares)
    separating = [row for row in rows if row.share == SHARES[-1]]
    _table("by the number of worlds, all of which tell goal and proxy apart", separating, lambda row: str(row.worlds))
    _table(
        "by family, in 40 worlds that tell goal and proxy apart",
        [row for row in whole if row in separating],
        lambda row: row.family,
    )
    no_rule = [row for row in whole if not row.rule]
    _table(
        "organisms that follow no rule, by the share of worlds that tell goal and proxy apart",
        no_rule,
        lambda row: f"{row.share:.0%}",
        shares,
    )
    nothing: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        if row.why:
            nothing.setdefault((row.method, row.why), set()).add(row.organism)
    for (method, why), named in nothing.items():
        say(f"{method} gives no claim about {len(named)} organisms: {why}")


def _table(
    title: str, rows: "Sequence[Judgement]", key: "Callable[[Judgement], str]", order: Sequence[str] | None = None
) -> None:
    """Print the outcomes of each method's claims, grouped by a property, with intervals over organisms."""
    from goalscope.organisms.judging import OUTCOMES, spread_of, together

    rows_shown = []
    for method in dict.fromkeys(row.method for row in rows):
        groups = together([row for row in rows if row.method == method], key)
        for name in [name for name in order or groups if name in groups]:
            cell = spread_of(groups[name])
            counts = [str(cell.counts[outcome]) for outcome in OUTCOMES]
            counts.append(str(sum(row.kind in ("refused", "undecided") for row in groups[name])))
            ceiling = "–" if cell.ceiling is None else f"{cell.ceiling:.2f}"
            scores = [_ends(cell.log_score), f"{cell.random:.2f}", ceiling, f"{cell.calibration:.3f}"]
            cost = [f"{cell.turns:.0f}", f"{cell.seconds:.2f}"]
            rows_shown.append([method, name, *counts, _ends(cell.false), *scores, *cost])
    scored = ("false or unfounded", "log score", "random", "at most", "off", "turns", "seconds")
    heads = ("method", "group", *OUTCOMES, "no claim", *scored)
    table(heads, rows_shown, title=title, numbers=range(2, len(heads)))


def _gate(judgements: "Sequence[Judgement]") -> None:
    from goalscope.organisms.gate import ALLOWED, by_condition, counts, holds
    from goalscope.organisms.judging import together

    rows = []
    for condition, claims in by_condition(judgements).items():
        for name, members in {**together(claims, lambda row: row.family), "all": claims}.items():
            count = counts(members)
            numbers = (count.organisms, count.decidable, count.false)
            rows.append(
                [condition, name, *map(str, numbers), f"{count.bound:.3f}", str(count.right), str(count.open_false)]
            )
    of_decidable = ("with a false claim", "upper 95 % bound", "with a right claim")
    heads = ("condition", "family", "organisms", "decidable", *of_decidable, "open ones with a false claim")
    table(heads, rows, title="goalscope evaluate on organisms", numbers=range(2, 8))
    for condition, claims in by_condition(judgements).items():
        for name, members in together(claims, lambda row: row.organism).items():
            if any(claim.is_false for claim in members):
                phases = "; ".join(
                    f"{row.phase}: {' '.join((row.kind, *row.names))} ({row.outcome})" for row in members
                )
                say(f"{condition}: {name}, follows {members[0].rule or 'no rule'}: {phases}")
    limits = ", ".join(f"{condition} {most:.2f}" for condition, most in ALLOWED.items())
    say(f"the gate {'holds' if holds(judgements) else 'does not hold'}; allowed upper bounds: {limits}")


def _inside(findings: "Sequence[InsideFigure]") -> None:

    rows = [
        [
            finding.organism,
            f"{finding.hypothesis} ({finding.role})",
            f"{finding.thing} {finding.measure}",
            finding.where,
            "" if finding.network == "own" else finding.network,
            _ends(finding.value) if finding.value is not None else finding.why,
            str(finding.worlds),
        ]
        for finding in findings
    ]
    title = (
        "inside: “readable” is a share of worlds; “used” and “swappable” are changes of the probability of its moves"
    )
    table(
        ("organism", "hypothesis", "measure", "where", "random network", "value", "worlds"),
        rows,
        title=title,
        numbers=[6],
    )


def _ends(ends: Sequence[float]) -> str:
    return f"{ends[0]:.2f}" if ends[1] != ends[1] else "{:.2f} [{:.2f}, {:.2f}]".format(*ends)
