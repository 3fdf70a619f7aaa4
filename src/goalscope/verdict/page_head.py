"""The head of the page: the main answers as tiles, and the episodes that a reader should see first."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from goalscope._ground.words import counted, listed, short
from goalscope.goals.finding import Finding, part_in_words, where_text
from goalscope.report import Declared, Figure
from goalscope.report.sections.agents import OWN_LEGEND, episode_figure, legend_of
from goalscope.stats.rows import Rows
from goalscope.verdict.arms import GIVEN, HYPOTHESES
from goalscope.verdict.claims import ClaimLedger
from goalscope.verdict.evidence import ArmData, ArmRun
from goalscope.verdict.sentences import aims_of, sizes_of
from goalscope.verdict.texts import TEXTS
from goalscope.worlds import World

Tile = tuple[str, str, str]
"""Label, large text, and small text below."""

DRAWN: Final = (GIVEN, HYPOTHESES, "grids", "tasks")
"""The arms whose episodes can be shown; the first one that was asked is used."""

_RANKED: Final = ("action accuracy", "success")
"""The measures that can rank episodes; the first one with values is used."""


def tiles_of(ledger: ClaimLedger) -> list[Tile]:
    """Return the tiles: what a model is directed at, how strongly, and how many questions were answered; [] without
    claims.
    """
    if not ledger.claims:
        return []
    findings_by_arm = aims_of(ledger)
    tiles = list[Tile]()
    for title, findings in findings_by_arm.items():
        for finding in findings:
            if finding.where:
                label = TEXTS("tiles/aim where", where=where_text(finding.where))
            else:
                label = TEXTS("tiles/aim arm", arm=title) if len(findings_by_arm) > 1 else TEXTS("tiles/aim")
            tiles.append((label, _aim(finding), finding.answer))
    decided = deciding_finding(ledger)
    if decided is not None:
        sizes = sizes_of(ledger, decided)
        for label, strength, below in _strength(decided):
            below = TEXTS("tiles/strength in sizes", strength=below, sizes=sizes) if sizes else below
            tiles.append((label, strength, below))
    counts = Counter(claim.answer for claim in ledger.claims)
    by_answer = {answer: counts[answer] for answer in ("yes", "no", "undecided", "untestable")}
    answered = TEXTS("tiles/answers", answered=counts["yes"] + counts["no"], asked=len(ledger.claims))
    return [*tiles, (TEXTS("tiles/questions"), answered, TEXTS("tiles/by answer", **by_answer))]


def deciding_finding(ledger: ClaimLedger) -> Finding | None:
    """Return the finding that gives the verdict, or None if there is none or more than one."""
    findings = [finding for group in aims_of(ledger).values() for finding in group]
    return findings[0] if len(findings) == 1 else None


def _aim(finding: Finding) -> str:
    """Name what an agent is directed at according to a finding."""
    if finding.answer != "yes":
        return TEXTS(f"tiles/{finding.answer}")
    names = listed([finding.nouns.get(name, name) for name in finding.names])
    if finding.reason in ("partly", "weakly or partly"):
        return TEXTS("tiles/partly" if finding.reason == "partly" else "tiles/weakly", names=names)
    return TEXTS("tiles/together", names=names) if finding.reason == "not told apart" else names


def _strength(finding: Finding) -> Iterator[Tile]:
    """Yield the tile on how strongly an agent is directed at what the verdict names."""
    if finding.answer != "yes":
        return
    name = finding.names[0]
    noun = finding.nouns.get(name, name)
    if finding.part is not None and finding.estimate is not None:
        part, share = part_in_words(finding.part), short(finding.part.share, "share")
        below = TEXTS("tiles/strength in part", subject=noun, part=part, share=share)
        yield TEXTS("tiles/strength"), finding.estimate.text, below
        return
    for quantity, key in (("share", "tiles/strength of optimal"), ("consistency", "tiles/strength of consistency")):
        estimate = finding.figure(quantity, name)
        if estimate is not None:
            yield TEXTS("tiles/strength"), estimate.text, TEXTS(key, subject=noun)
            return


def episodes_of(ledger: ClaimLedger, runs: Mapping[tuple[str, str], ArmRun]) -> Declared | None:
    """Draw a typical, the best and the worst episode of a model; None if its worlds cannot be drawn."""
    played_arms = (arm for arm in DRAWN if (arm, ledger.model) in runs)
    for arm in played_arms:
        data = ArmData.of(runs[arm, ledger.model], ledger.model)
        measure = next((measure for measure in _RANKED if len(_defined(data.among(measure)))), "")
        figures, worlds = _figures(data, _defined(data.among(measure))) if measure else ([], [])
        if figures:
            title = next((report.title for report in ledger.arms if report.name == arm), arm)
            count = len(_defined(data.among(measure)))
            rule = TEXTS("episodes/rule", measure=measure, episodes=counted(count, "episode"), arm=title)
            rule = rule if arm == GIVEN else f"{rule} {TEXTS('episodes/ties')}"
            heading = TEXTS("episodes/title")
            return Declared(
                anchor="episodes",
                title=heading,
                paragraphs=[rule],
                figures=figures,
                layout="pictures",
                legend=OWN_LEGEND if arm == GIVEN else legend_of(worlds),
            )
    return None


def _defined(rows: Rows) -> Rows:
    return rows.where(~np.isnan(rows.value))


def _figures(data: ArmData, rows: Rows) -> tuple[list[Figure], list[World]]:
    """Draw the episodes with the median, the highest and the lowest value; return the figures, and their worlds."""
    order = np.lexsort((rows.episode_id, _off_centre(rows), rows.value))
    best = order[rows.value[order] == rows.value.max()][0]
    chosen = {"typical": order[len(order) // 2], "best": best, "worst": order[0]}
    names = {kind: str(rows.episode_id[index]) for kind, index in chosen.items()}
    episodes = {episode.id: episode for episode in data.run.store.episodes(names.values())}
    figures = list[Figure]()
    for kind, name in names.items():
        first = list(names.values()).index(name) == list(names).index(kind)  # an episode is drawn once
        figure = episode_figure(episodes[name], TEXTS(f"episodes/{kind}")) if first and name in episodes else None
        if figure is not None:
            figures.append(figure)
    return figures, [episode.world for episode in episodes.values()]


def _off_centre(rows: Rows) -> npt.NDArray[np.float64]:
    """Return by how much the size of each row's world differs from the median size; 0 for worlds without a size."""
    sizes = [size for size in rows["size"].tolist() if isinstance(size, int)] if "size" in rows.tags else []
    if len(sizes) != len(rows):
        return np.zeros(len(rows))
    return np.abs(np.array(sizes) - np.median(sizes))
