"""The printed result of the command `attribute`."""

from goalscope.cli.console import json_text, say, table
from goalscope.cli.estimate import print_cost
from goalscope.cli.front.attributing import Attributed, attribute, plain, planned, summary
from goalscope.cli.generator import prints
from goalscope.cli.hypotheses import bound, needs_of
from goalscope.cli.overrides import WorldOptions
from goalscope.goals.hypotheses import load_hypotheses
from goalscope.goals.hypotheses.need import LAPSES, sentences
from goalscope.goals.reading import by_phase


def say_costs(
    *,
    agent: str,
    hypotheses: str,
    worlds: str | None,
    separating: str | None,
    episodes: int,
    seed: int,
    changes: WorldOptions,
) -> None:
    """Print the maximum cost of asking an agent, and what it takes to name each hypothesis in each phase."""
    if worlds is None:
        raise ValueError("--dry-run needs an agent and --worlds: add --worlds (attributing a stored run costs nothing)")
    study = planned(agent, worlds, changes, episodes=episodes, seed=seed)
    say("worlds: each step with a valid move is answered twice")
    print_cost(study)
    if separating is not None:
        say("separating worlds: each step with a valid move is answered twice")
        print_cost(planned(agent, separating, episodes=episodes, seed=seed))
    bank = bound(load_hypotheses(hypotheses), study)
    for phase, of_phase in by_phase(study.worlds()).items():
        for line in sentences(needs_of(bank, of_phase, study, LAPSES[0], episodes)):
            say(f"phase {phase}: {line}" if phase else line)


@prints(attribute, dry=say_costs)
def show_attributed(attributed: Attributed, *, dry: bool = False, as_json: bool = False) -> None:
    """Find which hypothesis best explains an agent's moves, or report that none does. Each step is answered twice.

    The command first derives a claim, freezes it and prints its hash. Only then does it open the worlds of --separating
    and score there how well the claim predicts single moves. To resume, run the same command on the same directory; no
    answer is asked for again.

    Args:
        dry: ask nothing; print the maximum cost.
        as_json: print JSON.

    Examples:
        goalscope attribute epsilon-greedy:epsilon=0.3 --hypotheses grids --worlds grid --out runs/after
        goalscope attribute runs/first --hypotheses 'grids;key' --methods meg
    """
    if as_json:
        say(json_text(plain(attributed)))
        return
    say(attributed.sentence)
    for line in summary(attributed):
        say(line)
    _print_scores(attributed)
    _print_tests(attributed)


def _print_scores(attributed: Attributed) -> None:
    for stratum in attributed.claim.strata:
        for attribution in stratum.attributions:
            rows = [
                [
                    score.name if score.asked else f"({score.name})",
                    *("{:.2f} [{:.2f}, {:.2f}]".format(*ends) for ends in (score.strength, score.consistency)),
                    f"{score.steps:.0%}",
                    "; ".join(score.not_where) or "–",
                ]
                for score in (() if attribution.score is None else attribution.score.scores)
            ]
            if rows:
                title = f"{stratum.name or 'all worlds'}: {attribution.method}; added rivals in parentheses"
                heads = ("hypothesis", "strength", "consistency", "steps", "does not explain the moves in")
                table(heads, rows, title=title, numbers=range(1, 4))


def _print_tests(attributed: Attributed) -> None:

    rows = [
        [
            test.stratum or "all worlds",
            test.method,
            f"{test.log_score[0]:.3f} [{test.log_score[1]:.3f}, {test.log_score[2]:.3f}]",
            f"{test.random:.3f}",
            "–" if test.ceiling is None else f"{test.ceiling:.3f}",
            "–" if test.distance is None else "{:.3f} [{:.3f}, {:.3f}]".format(*test.distance),
        ]
        for test in attributed.tests
    ]
    if rows:
        title = f"{attributed.claim.id}, tested in {attributed.tests[0].clusters} worlds: nats per move"
        heads = ("worlds", "method", "log score", "random moves", "ceiling", "distance from its own probabilities")
        table(heads, rows, title=title, numbers=range(2, 6))
