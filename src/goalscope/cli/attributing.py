"""The command `attribute`, and what it prints."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from goalscope._ground.arguments import Positive, Reads, Writes
from goalscope._ground.folder import Folder
from goalscope.cli.console import json_text, progress, say, table
from goalscope.cli.estimate import print_cost
from goalscope.cli.front import attributing
from goalscope.cli.hypotheses import bound, needs_of
from goalscope.cli.overrides import WorldOptions, worlds_of
from goalscope.goals.hypotheses import load_hypotheses
from goalscope.goals.hypotheses.need import LAPSES, sentences
from goalscope.goals.reading import by_phase
from goalscope.runs import Study


def attribute(
    agent: Annotated[str, Reads("run", "agent", "model")],
    *,
    hypotheses: Annotated[str, Reads("hypotheses")],
    worlds: Annotated[str | None, Reads("study")] = None,
    separating: Annotated[str | None, Reads("study", "run")] = None,
    out: Annotated[Path | None, Writes("directory")] = None,
    methods: Sequence[str] = (),
    by: Sequence[str] = (),
    name: str = "",
    episodes: Positive = 1,
    seed: int = 0,
    workers: Positive = 1,
    dry: bool = False,
    as_json: bool = False,
    changes: WorldOptions,
) -> None:
    """Say which of some hypotheses an agent's actions follow, or that none does; each step is answered twice.

    The claim is frozen, and its hash printed, before the worlds that separate are opened; its predictions of single
    actions are then scored. Called again on the same directory it repeats no answer.

    Args:
        agent (AGENT|RUN): an agent, as goalscope evaluate takes it, or a run directory.
        hypotheses (FILE|NAMES): files (.yaml, .json), banks (grids, keys, doors, task-maps, sentinels) and written
            forms such as 'corner top-right' or 'goal within 5 steps', with ';' between them.
        worlds (STUDY|KIND): the worlds in which an agent is asked, as goalscope separate takes them; none for a run.
        separating (STUDY|KIND|RUN): worlds in which the claim is tested, opened once it is frozen; for a run another
            run of the same agent.
        out: directory of answers, claim and result; a run needs none.
        methods (NAMES): such as score, meg, likelihood, counterfactual; by default all that ask for no further turns.
        by (TAGS): also a verdict for each value of these tags of worlds, e.g. size.
        name: the agent, where a run holds several.
        episodes: episodes on each world.
        seed: added to the seeds of the worlds; root seed of resamples.
        workers: calls of the agent at the same time.
        dry: ask nothing, say what it costs at most.
        as_json: print JSON.
        changes: of the worlds, see `WorldOptions`.

    Examples:
        goalscope attribute epsilon-greedy:epsilon=0.3 --hypotheses grids --worlds grid --out runs/after
        goalscope attribute runs/first --hypotheses 'grids;key' --methods meg
    """
    is_run = Folder(agent).is_there() and worlds is None
    first = worlds if worlds is None else worlds_of(worlds, changes)
    later: Any = separating if separating is None or is_run else worlds_of(separating, WorldOptions())
    if dry:
        if is_run or first is None:
            raise ValueError("--dry-run must come with an agent and --worlds, got none: a run costs nothing")
        studies = [attributing.planned(agent, each, episodes=episodes, seed=seed) for each in (first, later) if each]
        _print_costs(studies)
        _print_needs(hypotheses, studies[0], episodes)
        return
    found = attributing.attribute(
        agent,
        out,
        hypotheses=hypotheses,
        worlds=first,
        separating=later,
        methods=methods,
        by=by,
        name=name,
        episodes=episodes,
        seed=seed,
        workers=workers,
        stage=progress,
    )
    if as_json:
        say(json_text(attributing.plain(found)))
        return
    say(found.sentence)
    for line in attributing.summary(found):
        say(line)
    _print_scores(found)
    _print_tests(found)


def _print_costs(studies: list[Any]) -> None:
    for label, study in zip(("worlds", "separating worlds"), studies, strict=False):
        say(f"{label}: each step that has an action is answered twice")
        print_cost(study)


def _print_needs(hypotheses: str, study: Study, episodes: int) -> None:
    """Print what names need in the worlds of a study, phase by phase."""
    bank = bound(load_hypotheses(hypotheses), study)
    for phase, worlds in by_phase(study.worlds()).items():
        for line in sentences(needs_of(bank, worlds, study, LAPSES[0], episodes)):
            say(f"phase {phase}: {line}" if phase else line)


def _print_scores(found: attributing.Attributed) -> None:
    for stratum in found.claim.strata:
        for said in stratum.attributions:
            rows = [
                [
                    one.name if one.asked else f"({one.name})",
                    *("{:.2f} [{:.2f}, {:.2f}]".format(*ends) for ends in (one.strength, one.consistency)),
                    f"{one.steps:.0%}",
                    "; ".join(one.not_where) or "–",
                ]
                for one in (() if said.score is None else said.score.scores)
            ]
            if rows:
                title = f"{stratum.name or 'all worlds'}: {said.method}; in parentheses rivals that nobody asked for"
                heads = ("hypothesis", "strength", "consistency", "steps", "not followed where it is")
                table(heads, rows, title=title, numbers=range(1, 4))


def _print_tests(found: attributing.Attributed) -> None:

    rows = [
        [
            test.stratum or "all worlds",
            test.method,
            f"{test.log_score[0]:.3f} [{test.log_score[1]:.3f}, {test.log_score[2]:.3f}]",
            f"{test.random:.3f}",
            "–" if test.ceiling is None else f"{test.ceiling:.3f}",
            "–" if test.distance is None else "{:.3f} [{:.3f}, {:.3f}]".format(*test.distance),
        ]
        for test in found.tests
    ]
    if rows:
        title = f"{found.claim.id}, tested in {found.tests[0].clusters} worlds: nats an action"
        heads = ("of", "method", "log score", "random", "at most", "distance from its own probabilities")
        table(heads, rows, title=title, numbers=range(2, 6))
