"""What we expect of a model in kinds of worlds where nobody has seen it, and how far to trust it, for the page.

The prediction is that of `goalscope predict` (`goalscope.goals.prediction`), from the answers in the part that compares
hypotheses: there each step is answered twice, so that held-out worlds can tell how far to trust it.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from goalscope._ground.words import listed
from goalscope.goals.attribution.claim import NONE_OF_PLACES, KindPrediction
from goalscope.goals.hypotheses import FiniteWorld, Undefined, parse
from goalscope.goals.hypotheses.states import Answers, answers_of
from goalscope.goals.hypotheses.written import noun_of
from goalscope.goals.prediction.expected import doubts_about, expect, trust_of
from goalscope.goals.prediction.kinds import ELSEWHERE, KindsOfWorlds
from goalscope.goals.prediction.mixture import RuleTables
from goalscope.goals.prediction.predictor import FEWEST_CLUSTERS, Predictor
from goalscope.goals.reading import read_states
from goalscope.report import Declared, Figure
from goalscope.report.charts import Forest, ForestBar
from goalscope.stats import Estimate
from goalscope.verdict.arms import HYPOTHESES
from goalscope.verdict.claims import Evaluation
from goalscope.verdict.evidence import ArmRun
from goalscope.verdict.judging import Opened
from goalscope.verdict.texts import TEXTS

MOST: Final = 42
"""Number of worlds that a prediction is made from, as many as those that trust was calibrated with."""


def elsewhere(evaluation: Evaluation, runs: Opened) -> Iterator[Declared]:
    """Yield what is expected of each model in other kinds of worlds: a sentence, and a figure of the shares."""
    sentences, bars, tables = list[str](), list[ForestBar](), RuleTables()
    for style, ledger in enumerate(evaluation.tested):
        run = runs.get((HYPOTHESES, ledger.model))
        if run is None or (prediction := predicted(run, ledger.model, tables)) is None:
            continue
        distance, kinds = prediction
        sentences.append(say_elsewhere(ledger.model, distance, kinds))
        for kind in kinds:
            share, low, high = kind.shares[kind.main]
            estimate = Estimate(
                value=share,
                low=min(low, share),
                high=max(high, share),
                n=len(kind.worlds),
                clusters=len(kind.worlds),
                method="prediction",
                unit="share",
                confidence=0.9,
            )
            line = f"{kind.kind}: {_place(kind.main)}"
            bars.append(ForestBar(ledger.model, style, line, estimate, filled=kind.trust == "good"))
    if bars:
        title, label = TEXTS("elsewhere/title"), TEXTS("elsewhere/label")
        figure = Figure(Forest(bars, title=title, x_label=label), label=label, caption=TEXTS("elsewhere/caption"))
        yield Declared(anchor="elsewhere", title=title, paragraphs=sentences, figures=[figure])


def predicted(run: ArmRun, agent: str, tables: RuleTables) -> tuple[float, tuple[KindPrediction, ...]] | None:
    """Return the held-out distance and the prediction of a model; None if its answers allow none, and for logs."""
    if run.part is not None:
        return None
    try:
        states, _ = read_states(run.store, agent)
    except Undefined:
        return None
    return predicted_from(answers_of(states), tables)


def predicted_from(
    all_answers: Sequence[Answers], tables: RuleTables
) -> tuple[float, tuple[KindPrediction, ...]] | None:
    """Return the same from answers in grids; without two answers to each step, or with too few worlds, None."""
    if any("grid" not in answers.world.world.offers for answers in all_answers):
        return None
    worlds = np.linspace(0, len(all_answers) - 1, min(len(all_answers), MOST)).round().astype(int)
    chosen = [all_answers[index] for index in worlds.tolist()]
    if len({answers.cluster for answers in chosen}) < FEWEST_CLUSTERS:
        return None
    design, unseen = _elsewhere()
    predictor = Predictor(chosen, [parse(place) for place in design.places], tables=tables)
    if predictor.distance is None:
        return None
    return predictor.distance, expect(predictor, unseen, doubts_about(predictor, unseen))


@lru_cache(maxsize=1)
def _elsewhere() -> tuple[KindsOfWorlds, dict[str, tuple[FiniteWorld, ...]]]:
    design = KindsOfWorlds.load(ELSEWHERE)
    return design, design.unseen()


def say_elsewhere(model: str, distance: float, kinds: Sequence[KindPrediction]) -> str:
    """Say what is expected of a model elsewhere, where this can be trusted, and where it cannot."""
    rounded = f"{max(distance, 0.0):.2f}"
    trusted = [kind for kind in kinds if kind.trust == "good"]
    if not trusted:
        return TEXTS(f"elsewhere/{trust_of(distance)}", model=model, distance=rounded)
    expected = [
        TEXTS(
            "elsewhere/kind of none" if kind.main == NONE_OF_PLACES else "elsewhere/kind",
            place=_place(kind.main),
            share=f"{kind.shares[kind.main][0]:.0%}",
            kind=kind.kind,
        )
        for kind in trusted
    ]
    sentence = TEXTS("elsewhere/trusted", model=model, expected=listed(expected), distance=rounded)
    doubtful = [kind.kind for kind in kinds if kind not in trusted]
    return f"{sentence} {TEXTS('elsewhere/doubtful', kinds=listed(doubtful, 'or'))}" if doubtful else sentence


def _place(name: str) -> str:
    return TEXTS("elsewhere/nowhere") if name == NONE_OF_PLACES else noun_of(name)
