"""Compare the numbers on the page of an evaluation with the ledger that decided, in both directions.

The page is read as a reader sees it: tiles, sentences, tables, bars and downloads. No function that writes pages is
called, so a number that is rounded, copied or computed wrongly on its way to the page is found.
"""

import csv
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import unescape
from io import StringIO
from typing import Any
from urllib.parse import unquote

from goalscope.goals.decision import RULES
from goalscope.goals.finding import TEXTS as OF_FINDINGS
from goalscope.report.definitions import title_of
from goalscope.report.figures import visible
from goalscope.verdict import Claim, ClaimLedger, Evaluation
from goalscope.verdict.claim_tables import hold_together
from goalscope.verdict.claims import worlds_to_decide
from goalscope.verdict.texts import TEXTS as OF_VERDICTS

ANSWERS = ("yes", "no", "undecided", "untestable")
_NUMBER = re.compile(r"(?<![\w.])[−+-]?\d[\d,]*(?:\.\d+)?(?:e[−+-]?\d+)?(?!\w|\.\d)")
_ESTIMATE = re.compile(r"([−+-]?[\d,.]*\d) \[([−+-]?[\d,.]*\d), ([−+-]?[\d,.]*\d)\]")
_NO_NUMBER = "–"


def deviations(page: str, evaluation: Evaluation) -> list[str]:
    """Return one sentence for each number on a page that differs from the ledger, or that only one of them has."""
    content = Page(page)
    return [
        *_of_the_copy(content, evaluation),
        *_of_the_matrix(content, evaluation),
        *_of_the_differences(content, evaluation),
        *_of_the_figures(content, evaluation),
        *_of_the_links(content, evaluation),
        *(text for suffix, model in _by_suffix(evaluation) for text in _of_model(content, suffix, model)),
    ]


@dataclass(frozen=True)
class Cell:
    """A cell of a table: its texts, and its bar with the sentence that describes it."""

    texts: tuple[str, ...]
    bar: Mapping[str, float]
    label: str

    @property
    def text(self) -> str:
        """All of its text."""
        return " ".join(self.texts)


class Section:
    """A section of a page."""

    def __init__(self, markup: str) -> None:
        self._markup = markup

    @cached_property
    def tiles(self) -> list[list[str]]:
        """The texts of each tile."""
        block = re.search(r'<div class="tiles">(.*?)</div></div>', self._markup, re.S)
        return [[*_texts(tile)] for tile in re.split(r"<div>", block[1])[1:]] if block else []

    @cached_property
    def paragraphs(self) -> list[str]:
        """Its paragraphs."""
        return [" ".join(_texts(text)) for text in re.findall(r"<p(?: [^>]*)?>(.*?)</p>", self._markup, re.S)]

    @cached_property
    def facts(self) -> list[tuple[str, str]]:
        """Its facts: name and text."""
        pairs = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", self._markup, re.S)
        return [(" ".join(_texts(name)), " ".join(_texts(text))) for name, text in pairs]

    @cached_property
    def tables(self) -> list[list[list[Cell]]]:
        """The rows of each table, the head first."""
        tables = re.findall(r"<table .*?</table>", self._markup, re.S)
        return [[_cells(row) for row in re.findall(r"<tr>(.*?)</tr>", table, re.S)] for table in tables]


class Page:
    """The sections of a page by their anchors, the rows of its figures by name, and the record that it carries."""

    def __init__(self, text: str) -> None:
        record = re.search(r'<script type="application/json" id="ledger">(.*?)</script>', text, re.S)
        self.record: dict[str, Any] = json.loads(record[1]) if record else {}
        files = re.findall(r'download="([^"]*)\.csv" href="data:text/csv;charset=utf-8,([^"]*)"', text)
        self.figures = {name: list(csv.DictReader(StringIO(unquote(unescape(file))))) for name, file in files}
        drawn = re.sub(r'<svg role="img".*?</svg>', "", text, flags=re.S)
        parts = re.split(r'<(?:section|div) id="([^"]+)">', drawn)
        self.sections = {unescape(name): Section(markup) for name, markup in zip(parts[1::2], parts[2::2], strict=True)}


def _texts(markup: str) -> Iterator[str]:
    for text in re.split(r"<[^>]*>", markup):
        if text.strip():
            yield " ".join(unescape(text).split())


def _cells(row: str) -> list[Cell]:
    cells = []
    for markup in re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.S):
        bar = re.search(r'<svg class="bar".*?aria-label="(.*?)".*?</svg>', markup, re.S)
        places: dict[str, float] = {}
        if bar:
            for kind, first, second in re.findall(r'<line class="(threshold|ends)" x1="([^"]*)" x2="([^"]*)"', bar[0]):
                places |= {f"{kind} 1": float(first), f"{kind} 2": float(second)}
            places["value"] = float(re.findall(r'<circle cx="([^"]*)"', bar[0])[0])
        cells.append(Cell((*_texts(markup),), places, unescape(bar[1]) if bar else ""))
    return cells


def _by_suffix(evaluation: Evaluation) -> list[tuple[str, ClaimLedger]]:
    """Return the suffix of the anchors of each model under test."""
    return [(f"-{index}" if index else "", model) for index, model in enumerate(evaluation.tested)]


# -- numbers ------------------------------------------------------------------------------------------------------


def number(text: str) -> float:
    """Return a number as a page shows it."""
    return float(text.replace("−", "-").replace(",", ""))


def shows(text: str, exact: float | None) -> bool:
    """Return whether a text shows a number, rounded to the decimals that it has; None is shown as a dash."""
    if exact is None or not _NUMBER.fullmatch(text):
        return text == _NO_NUMBER and exact is None
    if "e" in text:
        return math.isclose(number(text), exact, rel_tol=0.01)
    decimals = len(text.partition(".")[2])
    return abs(number(text) - exact) <= 0.5 * 10.0**-decimals + 1e-9


def shows_three_digits(text: str, exact: float | None) -> bool:
    """Return whether a text shows a number with three significant digits."""
    if exact is None or not _NUMBER.fullmatch(text):
        return text == _NO_NUMBER and exact is None
    return math.isclose(number(text), exact, rel_tol=0.005, abs_tol=1e-12)


Ends = tuple[float | None, float | None, float | None]


def _ends(claim: Any) -> Ends:
    return claim.value, claim.low, claim.high


def _estimates(text: str) -> list[tuple[str, ...]]:
    return [match.groups() for match in _ESTIMATE.finditer(text)]


def _all_shown(texts: Sequence[str], ends: Ends) -> bool:
    return len(texts) == 3 and all(shows(text, end) for text, end in zip(texts, ends, strict=True))


def _has_interval(claim: Claim) -> bool:
    return None not in _ends(claim)


def _in_cell(cell: Cell, claim: Claim) -> bool:
    """Return whether a cell shows the estimate of a claim, or none where it has none."""
    triples = _estimates(cell.text)
    return bool(triples) and _all_shown(triples[0], _ends(claim)) if _has_interval(claim) else not triples


# -- parts of the page --------------------------------------------------------------------------------------------


def _of_the_copy(page: Page, evaluation: Evaluation) -> Iterator[str]:
    """Check the record that the page carries for programs: the ledger without the digest of the page."""
    stored = json.loads(evaluation.model_copy(update={"page": ""}).to_json())
    if page.record != stored:
        yield "the record that the page carries is not the ledger"


def _of_the_matrix(page: Page, evaluation: Evaluation) -> Iterator[str]:
    if len(evaluation.models) == 1 or not any(model.claims for model in evaluation.models):
        return
    head, *rows = page.sections["matrix"].tables[0]
    rates = {rate for model in evaluation.models for rate in _rates(model)}
    for shown in re.findall(r"([\d.]+) %", " ".join(page.sections["matrix"].paragraphs)):
        if not any(math.isclose(float(shown), rate, rel_tol=0.005) for rate in rates):
            yield f"{shown} % stands beside the matrix, and is neither a coverage nor an error rate"
    if [cell.text for cell in head[1:]] != [model.model for model in evaluation.models]:
        yield "the columns of the matrix are not the models"
    questions = evaluation.by_question()
    if len(rows) != len(questions):
        yield f"the matrix has {len(rows)} questions, the ledger {len(questions)}"
    for row, claims in zip(rows, questions, strict=False):
        usual = re.search(r"threshold (\S+)", row[0].texts[-1]) if len(row[0].texts) > 1 else None
        for cell, claim in zip(row[1:], claims, strict=True):
            if claim is None:
                continue
            where = f"the matrix, {claim.question}"
            if claim.answer not in cell.texts or not _in_cell(cell, claim):
                yield f"{where}: {cell.text} stands for {claim.answer} {claim.estimate}"
            beside = re.search(r" vs ([\d.]+)", cell.text)
            threshold = beside or usual
            bound = claim.threshold if _has_interval(claim) else None
            if bound is not None and (threshold is None or not shows_three_digits(threshold[1], bound)):
                yield f"{where}: the threshold {threshold and threshold[1]} stands for {bound}"
            yield from _of_a_bar(where, cell, claim)


def _of_the_differences(page: Page, evaluation: Evaluation) -> Iterator[str]:
    if not evaluation.differences:
        return
    rows = [row for table in page.sections["matrix"].tables[1:] for row in table[1:]]
    shown = {(row[0].text, row[1].text): row for row in rows}
    if len(rows) != len(evaluation.differences):
        yield f"{len(rows)} differences stand on the page, {len(evaluation.differences)} in the ledger"
    left = Counter((one.rule, one.outcome) for one in evaluation.differences)
    for difference in evaluation.differences:
        if left[difference.rule, difference.outcome] > 1:
            continue  # nothing in the row says which models it compares
        row = shown.get((difference.rule, difference.outcome))
        if row is None:
            yield f"the difference “{difference.says}” is missing on the page"
        elif not (
            _all_shown((_estimates(row[2].text) or [()])[0], _ends(difference))
            and shows_three_digits(row[3].text, difference.p)
            and shows(row[4].text, difference.clusters)
        ):
            yield f"{' '.join(cell.text for cell in row)} stands for {difference}"


def _of_the_figures(page: Page, evaluation: Evaluation) -> Iterator[str]:
    """Check the bars of goal-directedness: they are those of the finding that decided."""
    for model in evaluation.tested:
        in_grids = [finding for finding in model.findings if finding.arm == "grids" and not finding.where]
        rows = [row for name in (1, 2) for row in page.figures.get(f"pictures-figure-{name}", [])]
        for row in (row for row in rows if row["series"] == model.model):
            shares = [share for finding in in_grids if (share := finding.figure("share", row["line"])) is not None]
            if row["line"] == "goal-directedness":
                shares = [share for finding in model.findings if (share := finding.figure("share", "goal")) is not None]
            if shares and not any(_equal(row, share) for share in shares):
                yield f"{model.model}: the figure has {row}, the findings {[share.text for share in shares]}"


def _equal(row: Mapping[str, str], share: Any) -> bool:
    return all(
        math.isclose(float(row[name]), exact, rel_tol=1e-6, abs_tol=1e-6)
        for name in ("value", "low", "high", "confidence")
        if (exact := getattr(share, name)) is not None
    )


def _of_the_links(page: Page, evaluation: Evaluation) -> Iterator[str]:
    """Check the claims that stand again at the results of their run."""
    claims = [claim for model in evaluation.tested for claim in model.claims if _has_interval(claim)]
    for anchor, section in page.sections.items():
        ours = [claim for claim in claims if claim.section == anchor]
        facts = section.facts[: len(ours)]
        if [name for name, _ in facts] != [claim.name for claim in ours]:
            yield f"{anchor}: {[name for name, _ in facts]} stand for {[claim.name for claim in ours]}"
        for (name, text), claim in zip(facts, ours, strict=False):
            threshold = re.search(r"threshold (\S+): \S+ (\w+)$", text)
            triples = _estimates(text)
            right = (
                bool(triples)
                and _all_shown(triples[-1], _ends(claim))
                and threshold is not None
                and (shows_three_digits(threshold[1], claim.threshold) and threshold[2] == claim.answer)
            )
            if not right:
                yield f"{anchor}, {name}: “{text}” stands for {claim.estimate} {claim.threshold} {claim.answer}"


def _of_model(page: Page, suffix: str, model: ClaimLedger) -> Iterator[str]:
    head = page.sections[f"verdict{suffix}"]
    parts = (
        _of_sentences(head, model),
        _of_tiles(head.tiles, model),
        _of_claims(page.sections[f"claims{suffix}"], model),
        _of_evidence(page.sections[f"evidence{suffix}"], model),
        _of_arms(page.sections[f"behind{suffix}"], model),
        _of_answers(model),
    )
    for part in parts:
        yield from (f"{model.model}: {text}" for text in part)


def _of_sentences(section: Section, model: ClaimLedger) -> Iterator[str]:
    """Check the sentences: their estimates are those of findings, and their other numbers stand in the ledger."""
    texts = [*section.paragraphs, *(text for _, text in section.facts)]
    held = [
        _ends(estimate)
        for finding in model.findings
        for estimate in (finding.estimate, finding.tested, *finding.evidence.values())
        if estimate is not None
    ] + [_ends(claim) for claim in model.claims]
    known = {*_known(model)}
    for text in (text.replace(model.model, "") for text in texts):
        for triple in _estimates(text):
            if not any(_all_shown(triple, ends) for ends in held):
                yield f"the verdict has {triple}, which no finding holds"
        for shown in _NUMBER.findall(_ESTIMATE.sub("", text)):
            if not any(shows(shown, exact) for exact in known):
                yield f"the verdict has the number {shown}, which the ledger lacks: {text}"


def _known(model: ClaimLedger) -> Iterator[float]:
    """Yield the numbers that sentences about a model may name besides estimates."""
    yield from (len(model.claims), model.look, 100 * model.level, 100 * (1 - model.level))
    for name in ("worlds", "episodes"):
        yield sum(getattr(arm, name) for arm in model.arms)
    answers = Counter(claim.answer for claim in model.claims)
    yield from answers.values()
    yield max(0, answers["undecided"] - 2)  # "and 6 more"
    valid = [claim.value for claim in model.claims if claim.name.startswith("answers hold actions")]
    yield from (100 * (1 - share) for share in valid if share is not None)
    for claim in model.claims:
        if claim.threshold is not None:
            yield from (claim.threshold, 100 * claim.threshold)
        yield from (claim.clusters, claim.n)
    for finding in model.findings:
        yield finding.worlds
        yield from (bound for bound in (finding.bar, finding.threshold) if bound is not None)
    texts = [json.dumps(model.agent), *(str(value) for value in _leaves(model.agent))]
    texts += [text for claim in model.claims for text in (claim.question, claim.by_size, claim.names, claim.why)]
    texts += [
        str(value) for finding in model.findings for value in (finding.why, finding.where, *finding.nouns.values())
    ]
    texts += [arm.why for arm in model.arms]
    texts += [catalogue.text(key) for catalogue in (OF_FINDINGS, OF_VERDICTS) for key in catalogue.keys("")]
    yield from _known_in(*texts)


def _known_in(*texts: str) -> list[float]:
    return [number(shown) for text in texts for shown in _NUMBER.findall(text)]


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _leaves(inner)
    else:
        yield value


def _of_tiles(tiles: Sequence[Sequence[str]], model: ClaimLedger) -> Iterator[str]:
    if not model.claims:
        return
    *aims, questions = tiles
    counts = Counter[str](claim.answer for claim in model.claims)
    shown = [number(text) for text in _NUMBER.findall(" ".join(questions))]
    expected = [counts["yes"] + counts["no"], len(model.claims), *(counts[answer] for answer in ANSWERS)]
    if shown != expected:
        yield f"the tile has {shown} for {expected} answers"
    held = {
        _ends(estimate)
        for finding in model.findings
        for key, estimate in finding.evidence.items()
        if key.split()[0] in ("share", "consistency")
    }
    for tile in aims:
        for triple in _estimates(" ".join(tile)):
            if not any(_all_shown(triple, ends) for ends in held):
                yield f"the tile has {triple}, which no finding holds"


def _of_claims(section: Section, model: ClaimLedger) -> Iterator[str]:
    rows = [row for table in section.tables for row in table[1:]]
    ordered = [claim for arm in model.arms for claim in model.claims if claim.arm == arm.name]
    if len(rows) != len(model.claims):
        yield f"{len(rows)} claims stand on the page, {len(model.claims)} in the ledger"
    for row, claim in zip(rows, ordered, strict=False):
        question, answer, estimate, threshold, worlds = row
        where = f"claims, {claim.question}"
        if question.texts[0] != claim.question or claim.answer not in answer.texts:
            yield f"{where} {claim.answer}: the page has {question.text} {answer.text}"
        if not _in_cell(estimate, claim):
            yield f"{where}: {estimate.text} stands for {claim.estimate}"
        bound = claim.threshold if _has_interval(claim) else None
        if not shows_three_digits(threshold.texts[0], bound):
            yield f"{where}: the threshold {threshold.text} stands for {bound}"
        if claim.threshold_rule and bound is not None and claim.threshold_rule not in threshold.text:
            yield f"{where}: {claim.threshold_rule} is missing beside the threshold"
        if not shows(worlds.texts[0], claim.clusters or None):
            yield f"{where}: {worlds.text} worlds stand for {claim.clusters}"
        enough = worlds_to_decide(claim)
        if [*worlds.texts[1:]] != ([] if enough is None else [OF_VERDICTS("page/would decide", worlds=f"{enough:,}")]):
            yield f"{where}: {worlds.texts[1:]} stand for {enough} worlds"
        subject = claim.quantity if _has_interval(claim) else claim.says
        if question.texts[1:] != _words(subject):
            yield f"{where}: {question.texts[1:]} stand for {subject}"
        yield from _of_a_bar(where, answer, claim)
    yield from _of_the_rates(section, model)


def _words(text: str) -> tuple[str, ...]:
    """Return a text as the texts of a cell."""
    return (" ".join(text.split()),) if text else ()


def _rates(model: ClaimLedger) -> set[float]:
    """Return the error rate and the coverages of a ledger in per cent."""
    rates = {model.level, 1 - model.level, *(claim.confidence for claim in model.claims if claim.confidence)}
    return {round(100 * rate, 6) for rate in rates}


def _of_the_rates(section: Section, model: ClaimLedger) -> Iterator[str]:
    """Check the error rates below the claims: each coverage that differs is stated, and no other number."""
    text = " ".join(section.paragraphs)
    shown = [number(shown) for shown in _NUMBER.findall(text)]
    tested = [claim for claim in model.claims if claim.answer != "untestable" and _has_interval(claim)]
    if not tested:
        return
    rates = _rates(model)
    if missing := [rate for rate in rates if not any(math.isclose(rate, one, rel_tol=0.005) for one in shown)]:
        yield f"the coverages or error rates {missing} are not stated"
    answered = [claim for claim in tested if claim.answer in ("yes", "no")]
    counts = {len(tested), len(answered), len(hold_together(model)), *_known_in(*(claim.question for claim in tested))}
    for one in shown:
        if not any(math.isclose(one, exact, rel_tol=0.005) for exact in {*rates, *counts, 0, 1}):
            yield f"{one} stands below the claims, and is neither an error rate nor a count of the ledger: {text}"


def _of_a_bar(where: str, cell: Cell, claim: Claim) -> Iterator[str]:
    """Check a bar by the ends of its scale, which its description states with three digits."""
    if bool(cell.bar) != _has_interval(claim):
        yield f"{where}: a bar without an interval, or the reverse"
    if not cell.bar:
        return
    ends = re.search(r"scale (\S+) to (\S+)$", cell.label)
    triples, threshold = _estimates(cell.label), re.search(r"threshold ([^;]+);", cell.label)
    if not triples or not _all_shown(triples[0], _ends(claim)) or ends is None:
        yield f"{where}: the bar says {cell.label} for {claim.estimate}"
        return
    if threshold is None or threshold[1] != str(claim.threshold):
        yield f"{where}: the bar says {cell.label} for the threshold {claim.threshold}"
    low, high = number(ends[1]), number(ends[2])
    slack = 0.01 * max(abs(low), abs(high), 1e-9)
    exact = {"value": claim.value, "ends 1": claim.low, "ends 2": claim.high, "threshold 1": claim.threshold}
    for kind, value in exact.items():
        drawn = cell.bar.get(kind)
        if (drawn is None) != (value is None) or (
            drawn is not None and value is not None and abs(low + (drawn - 4) / 100 * (high - low) - value) > slack
        ):
            yield f"{where}: the bar draws {kind} at {drawn} for {value}"


def _of_evidence(section: Section, model: ClaimLedger) -> Iterator[str]:
    rows = [row for table in section.tables for row in table[1:]]
    if len(rows) != len(model.claims):
        yield f"{len(rows)} rows of evidence stand for {len(model.claims)} claims"
    for row, claim in zip(rows, model.claims, strict=False):
        name, estimate, quantity, compared, worlds, count, p, method, checked = row
        if name.text != claim.name or not _in_cell(estimate, claim):
            yield f"evidence, {name.text}: {estimate.text} stands for {claim.name} {claim.estimate}"
        if not (shows(worlds.text, claim.clusters or None) and shows(count.text, claim.n or None)):
            yield f"evidence, {name.text}: {worlds.text}, {count.text} stand for {claim.clusters}, {claim.n}"
        if not shows_three_digits(p.text, claim.p):
            yield f"evidence, {name.text}: p {p.text} stands for {claim.p}"
        subject = claim.says if claim.value is None else claim.quantity
        texts = [(quantity, subject), (compared, claim.compared), (checked, claim.validity)]
        yield from (f"evidence: {cell.text} stands for {text}" for cell, text in texts if cell.texts != _words(text))
        if not all(text in method.text for text in (claim.method, claim.note, claim.by_size)):
            yield f"evidence, {name.text}: {method.text} stands for {claim.method} {claim.note} {claim.by_size}"


def _of_arms(section: Section, model: ClaimLedger) -> Iterator[str]:
    for row, arm in zip(section.tables[0][1:], model.arms, strict=True):
        shown = [number(text) for cell in row[1:] for text in _NUMBER.findall(cell.text)]
        if arm.episodes and shown != [count for count in (arm.worlds, arm.episodes) if count]:
            yield f"{arm.title}: {shown} stand for {arm.worlds} worlds and {arm.episodes} episodes"


def _of_answers(model: ClaimLedger) -> Iterator[str]:
    """Check that each answer follows from the interval and the threshold beside it, or that a text says why."""
    for claim in model.claims:
        if claim.low is None or claim.high is None or claim.threshold is None or claim.answer == "untestable":
            continue
        side = "yes" if claim.low > claim.threshold else "no" if claim.high < claim.threshold else "undecided"
        if side != claim.answer and not _explained(claim):
            yield f"{claim.name} is {claim.answer} by {claim.estimate} against {claim.threshold}, which is {side}"


def _explained(claim: Claim) -> bool:
    """Return whether a text beside the threshold says more than what the threshold is a share of."""
    return bool(claim.threshold_rule) and not claim.threshold_rule.startswith((*RULES.values(),))


# -- the report of a study ----------------------------------------------------------------------------------------


def study_deviations(page: str) -> list[str]:
    """Return one sentence for each number on the report of a run that differs from the record that it carries."""
    content = Page(page)
    tables = content.record["tables"]
    record = {
        name: [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]] for name, table in tables.items()
    }
    return [
        *_of_all_numbers(content, record),
        *_of_estimates(content, record),
        *_of_differences_in_words(content),
    ]


def _of_all_numbers(page: Page, record: Mapping[str, list[dict[str, Any]]]) -> Iterator[str]:
    """Check each line that gives an estimate with its measure and tags, and that the last table has them all."""
    by_measure: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in (row for rows in record.values() for row in rows):
        by_measure.setdefault((row["measure"], str(row.get("agent"))), []).append(row)
    for anchor, section in page.sections.items():
        for head, *rows in filter(None, section.tables):
            names = [cell.text for cell in head]
            if not {"measure", "agent", "value", "95 % interval", "n"} <= {*names}:
                continue
            for cells in rows:
                line = dict(zip(names, (cell.text for cell in cells), strict=True))
                candidates = by_measure.get((line["measure"], line["agent"]), [])
                if candidates and not any(_is_line(line, row) for row in candidates):
                    yield f"{anchor}: {line} is not among the estimates of the record"
    agents = [table for section in page.sections.values() for table in section.tables if _is_of_agents(table, record)]
    if not agents and record["agent"]:
        yield "no table has all estimates by agent"


def _of_estimates(page: Page, record: Mapping[str, list[dict[str, Any]]]) -> Iterator[str]:
    """Check that cells of measures in the record show one of its estimates."""
    ends: dict[tuple[str, str], list[Ends]] = {}
    for entry in (entry for entries in record.values() for entry in entries):
        for agent in (entry.get("agent"), ""):
            found = entry["value"], entry["low"], entry["high"]
            ends.setdefault((title_of(entry["measure"]), str(agent)), []).append(found)
    for anchor, section in page.sections.items():
        for head, *rows in filter(None, section.tables):
            for row in rows:
                for heading, cell in zip(head[1:], row[1:], strict=True):
                    label, above = row[0].text, heading.texts[0] if heading.texts else ""
                    known = ends.get((above, label)) or ends.get((label, ""))
                    for triple in _estimates(cell.text)[:1] if known else ():
                        if not any(_all_shown(triple, found) for found in known or ()):
                            yield f"{anchor}, {label}, {above}: {cell.text} is not among the estimates of the record"


def _is_of_agents(table: list[list[Cell]], record: Mapping[str, list[dict[str, Any]]]) -> bool:
    return bool(table) and table[0][0].text == "measure" and len(table) - 1 == len(record["agent"])


def _is_line(line: Mapping[str, str], row: Mapping[str, Any]) -> bool:
    """Return whether a line of a table shows an estimate of the record."""
    interval = line["95 % interval"]
    ends = re.findall(r"[^\[\], ]+", interval)
    intervals = interval == "undefined" if None in (row["low"], row["high"]) else len(ends) == 2
    value = line["value"] == "undefined" if row["value"] is None else shows(line["value"], row["value"])
    counts = all(shows(line[name], float(row[name])) for name in ("n", "grids") if name in line)
    shown_ends = interval == "undefined" or all(map(shows, ends, (row["low"], row["high"])))
    tags = [name for name in line if name in row and name not in ("value", "n", "grids", "method", "note", "unit")]
    same = all(
        line[name] in (visible(str(row[name])), f"{row[name]:g}" if isinstance(row[name], float) else "", "–")
        for name in tags
    )
    return bool(intervals and value and counts and shown_ends and same)


def _same(triple: Sequence[str], beside: Sequence[str]) -> bool:
    """Return whether two estimates are the same; one may be shown with fewer decimals."""
    for first, second in zip(triple, beside, strict=True):
        decimals = min(len(first.partition(".")[2]), len(second.partition(".")[2]))
        if abs(number(first) - number(second)) > 0.5 * 10.0**-decimals + 1e-9:
            return False
    return True


_SIDES = {
    "higher for": lambda low, high: low >= 0,
    "lower for": lambda low, high: high <= 0,
    "no difference was shown for": lambda low, high: low <= 0 <= high,
}


def _of_differences_in_words(page: Page) -> Iterator[str]:
    """Check that sentences on differences have the sign of their interval, and that a table has the same estimate."""
    for anchor, section in page.sections.items():
        shown = [
            triple
            for table in section.tables
            for row in table
            for triple in _estimates(" ".join(cell.text for cell in row))
        ]
        for name, text in section.facts:
            for part in text.split("; "):
                opening = next((words for words in _SIDES if part.startswith(words)), "")
                for low, high in ((number(low), number(high)) for _, low, high in _estimates(part) if opening):
                    if not _SIDES[opening](low, high):
                        yield f"{anchor}, {name}: {part}"
                for triple in _estimates(part) if opening and shown else ():
                    if not any(_same(triple, beside) for beside in shown):
                        yield f"{anchor}, {name}: {triple} stands in no table beside it"
