"""Golden figures: what an engine for goals says of the runs of `golden_runs`, to the last bit, in ``golden.json``.

    python tests/goals/golden_figures.py --write      record the figures of an engine
    python tests/goals/golden_figures.py --compare    compute them again and print each difference in any bit

An engine is a function ``figures(runs)``: name of a run -> its directory, to `Figures`. Another engine becomes
comparable by an entry in `ENGINES`. Hypotheses are named in the keys by their written forms.
"""

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, islice
from pathlib import Path
from typing import Any, Final

from golden_runs import NODE, make_runs

from goalscope.goals import RunDirectedness, directedness
from goalscope.goals.curves import process_of_episode
from goalscope.goals.decision import decide, groups
from goalscope.goals.hypotheses import Undefined, parse
from goalscope.goals.hypotheses.score import LEVEL, evidence, judge
from goalscope.goals.hypotheses.separability import tells_apart
from goalscope.goals.hypotheses.states import answers_of, states_of
from goalscope.goals.hypotheses.written import with_sentinels
from goalscope.goals.reading import asked_hypotheses, read_states
from goalscope.measures import StepTable
from goalscope.meg import RationalityCurve
from goalscope.runs import Store

GOLDEN: Final = Path(__file__).with_name("golden.json")

Key = tuple[str, ...]
Value = float | int | str | tuple[Any, ...]
Figures = dict[str, dict[Key, dict[str, Value]]]
"""Kind of a record (one of `FIELDS`) -> its key -> field -> value."""

FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "estimates": (
        *("signed", "low", "high", "bound", "bound_lowest", "cross_fitted", "null", "null_high", "null_p", "beta"),
        *("utility", "uniform_utility", "highest_utility", "state_blind", "n", "worlds", "grids"),
    ),
    "contrasts": ("difference", "low", "high", "p_value", "adjusted", "grids", "common", "same"),
    "told apart": ("worlds",),
    "verdicts": ("kind", "names", "strengths", "consistencies"),
    "findings": ("answer", "reason", "method", "names", "steps"),
}
"""Kind of a record -> its fields, in the order in which ``golden.json`` holds them.

Keys: of an estimate (run, measurement, agent, cell, hypothesis); of a contrast the same with both hypotheses; of what
is told apart (run, first, second), whose worlds are numbers in the order of their ids; of a verdict of the score, and
of a finding, (run, agent, stratum). Names are those of the bank or the written forms of sentinels; strengths and
consistencies are (name, estimate, lower end, upper end).
"""

_EVALUATED: Final = {"pairs": "all", "state_blind": True}  # as an arm of an evaluation asks
MEASUREMENTS: Final[Mapping[str, Mapping[str, Mapping[str, Any]]]] = {
    "grids": {
        "as evaluated": {"by": ("size",), **_EVALUATED},
        "one world": {"hypotheses": ("goal", "corner top-right")},
    },
    "key-door": {
        "default": {},
        "arrival": {"hypotheses": ("goal", "key held", "cell 1 1"), "utility": "arrival"},
    },
    "task maps": {"a node": {"hypotheses": ("goal", "sub-goals", NODE), **_EVALUATED}},
    "chance": {"as evaluated": _EVALUATED},
    "log": {"default": {}, "a fifth action": {"hypotheses": ("goal", "corner top-left"), "invalid": "action"}},
}
"""Run -> name of a measurement -> options of `directedness`. "one world" reads the first world alone."""

_SHOWN: Final = 200  # differences that are printed
CLOSE: Final = 1e-9
"""Relative tolerance between machines, whose linear algebra differs in the last bits."""
_TIED: Final = ("null_p", "p_value", "adjusted")
_TIES: Final = 0.2
"""Tolerance of p values between machines: they are shares of simulated agents, many of which show the very value that
the agent shows, so that the last bits decide whether these count. Other kernels of OpenBLAS changed them by up to 0.13.
"""


def figures_of_goals(runs: Mapping[str, Path]) -> Figures:
    """Return what `directedness`, and beside it the score of hypotheses, say of the runs."""
    found: Figures = {kind: {} for kind in FIELDS}
    for run, path in runs.items():
        with Store(path) as store:
            episodes, tasks = list(store.episodes()), run == "task maps"
            table, least = StepTable.from_episodes(episodes, tasks=tasks), min(one.world.id for one in episodes)
            first = StepTable.from_episodes([one for one in episodes if one.world.id == least], tasks=tasks)
            for name, options in MEASUREMENTS[run].items():
                measured, asked = first if name == "one world" else table, dict(options)
                hypotheses = asked_hypotheses(asked.pop("hypotheses", ()), measured.worlds)
                states = states_of(measured, by=asked.get("by", ()))
                _add_directedness(found, (run, name), directedness(states, hypotheses, **asked))
            names = _hypotheses(run, table)
            _add_told_apart(found, run, table, names)
            _add_answers(found, run, store, names)
    return found


def _hypotheses(run: str, table: StepTable) -> tuple[str, ...]:
    """Return the names of all hypotheses that the measurements of a run ask for."""
    asked = [asked_hypotheses(options.get("hypotheses", ()), table.worlds) for options in MEASUREMENTS[run].values()]
    return tuple(dict.fromkeys(name for one in asked for name in one))


def _add_directedness(found: Figures, key: Key, measured: RunDirectedness) -> None:
    for estimate in measured.estimates:
        own = (*key, estimate.agent, _cell(estimate.cell), estimate.hypothesis)
        found["estimates"][own] = {field: getattr(estimate, field) for field in FIELDS["estimates"]}
    for contrast in measured.contrasts:
        own = (*key, contrast.agent, _cell(contrast.cell), contrast.first, contrast.second)
        found["contrasts"][own] = {field: getattr(contrast, field) for field in FIELDS["contrasts"]}


def _cell(tags: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in tags.items())


def _add_told_apart(found: Figures, run: str, table: StepTable, hypotheses: Sequence[str]) -> None:
    places = {(entry.world.world.id, entry.world.horizon): entry.world for entry in states_of(table)}
    worlds = [places[key] for key in sorted(places)]
    for first, second in combinations(hypotheses, 2):
        both, apart = 0, list[int]()
        for number, world in enumerate(worlds):
            try:
                utilities = [parse(name).utility(world) for name in (first, second)]
            except Undefined:
                continue
            both += 1
            within = all(
                RationalityCurve(process_of_episode(world, one, kind="steps", invalid="no-op")).span
                for one in utilities
            )
            if within and tells_apart(world, parse(first), parse(second)):
                apart.append(number)
        if both:
            found["told apart"][run, first, second] = {"worlds": tuple(apart)}


def _add_answers(found: Figures, run: str, store: Store, hypotheses: Sequence[str]) -> None:
    """Add the findings and the verdicts of the score, phase by phase, at the level that `attribute` has."""
    bank = {name: parse(name) for name in hypotheses}
    for agent in sorted({episode.agent for episode in store.episodes()}):
        for where, members in groups(read_states(store, agent)[0]):
            stratum = f"phase {where['phase']}" if where else ""
            finding = decide(members, bank, where=where)
            found["findings"][run, agent, stratum] = {name: getattr(finding, name) for name in FIELDS["findings"]}
            answers = answers_of(members)
            if not answers or any(one.second is None for one in answers):
                continue
            verdict = judge(evidence(answers, with_sentinels(bank), len(bank)), level=LEVEL)
            found["verdicts"][run, agent, stratum] = {
                "kind": verdict.kind,
                "names": verdict.names,
                "strengths": tuple((score.name, *score.strength) for score in verdict.scores),
                "consistencies": tuple((score.name, *score.consistency) for score in verdict.scores),
            }


ENGINES: Final[Mapping[str, Callable[[Mapping[str, Path]], Figures]]] = {"goals": figures_of_goals}
"""Name of an engine -> its function."""


def counts(figures: Figures) -> dict[str, int]:
    """Return the number of estimates and of contrasts whose value and interval are finite."""
    finite = {"estimates": ("signed", "low", "high"), "contrasts": ("difference", "low", "high")}
    return {
        kind: sum(all(math.isfinite(_number(record[name])) for name in names) for record in figures[kind].values())
        for kind, names in finite.items()
    }


def _number(value: Value) -> float:
    assert isinstance(value, int | float), value
    return value


def differences(expected: Figures, found: Figures, tolerance: float = 0.0) -> Iterator[str]:
    """Yield a line for each record that one side lacks, and for each value that differs.

    Args:
        expected, found: figures; only the kinds that ``found`` has are compared.
        tolerance: relative; of values nearer to 0 than 0.001 it is that of 0.001. 0 asks for the same bits, and any
            other tolerance lets p values differ by `_TIES`.
    """
    for kind, records in found.items():
        for key in dict.fromkeys((*expected[kind], *records)):
            place = f"{kind}: {' | '.join(key)}"
            if key not in records or key not in expected[kind]:
                yield f"{place}: {'no longer there' if key in expected[kind] else 'new'}"
                continue
            for field, value in expected[kind][key].items():
                own, nearest = (_TIES, 1.0) if tolerance and field in _TIED else (tolerance, 1e-3)
                if not _same(value, records[key][field], own, nearest):
                    yield f"{place}: {field} was {value!r}, is {records[key][field]!r}"


def _same(first: Any, second: Any, tolerance: float, nearest: float) -> bool:
    if isinstance(first, tuple | list):
        return len(first) == len(second) and all(
            _same(one, other, tolerance, nearest) for one, other in zip(first, second, strict=True)
        )
    if not isinstance(first, float):
        return bool(first == second)
    if not tolerance or not math.isfinite(first):
        return first.hex() == float(second).hex()
    return math.isclose(first, second, rel_tol=tolerance, abs_tol=tolerance * nearest)


def to_text(figures: Figures) -> str:
    """Return figures as JSON, a line for each record; floats are texts of `float.hex`."""
    kinds = []
    for kind in sorted(figures):
        lines = [
            f"{json.dumps(' | '.join(key))}: {json.dumps([_plain(record[field]) for field in FIELDS[kind]])}"
            for key, record in sorted(figures[kind].items())
        ]
        kinds.append(f"{json.dumps(kind)}: " + "{\n" + ",\n".join(lines) + "\n}")
    return "{\n" + ",\n".join(kinds) + "\n}\n"


def read(path: Path = GOLDEN) -> Figures:
    """Return the figures of a file that `to_text` made."""
    plain = json.loads(path.read_text(encoding="utf-8"))
    return {
        kind: {
            tuple(key.split(" | ")): dict(zip(FIELDS[kind], map(_value, record), strict=True))
            for key, record in records.items()
        }
        for kind, records in plain.items()
    }


_FLOAT: Final = "="
"""Sign before the hexadecimal digits of a float, which sets it apart from other texts."""


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return f"{_FLOAT}{value.hex()}" if isinstance(value, float) else value


def _value(plain: Any) -> Any:
    if isinstance(plain, list):
        return tuple(map(_value, plain))
    is_float = isinstance(plain, str) and plain.startswith(_FLOAT)
    return float.fromhex(plain.removeprefix(_FLOAT)) if is_float else plain


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or compare the figures; return 1 where some differ."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    task = parser.add_mutually_exclusive_group(required=True)
    task.add_argument("--write", action="store_true", help=f"write the figures to {GOLDEN.name}")
    task.add_argument("--compare", action="store_true", help="print every difference, exit with 1 if there is any")
    parser.add_argument("--engine", choices=ENGINES, default="goals")
    parser.add_argument("--kinds", nargs="+", choices=FIELDS, default=[*FIELDS], help="compare these kinds only")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        figures = ENGINES[chosen.engine](make_runs(Path(folder)))
    _show(", ".join(f"{len(records)} {kind}" for kind, records in figures.items()))
    finite = ", ".join(f"{count} {kind}" for kind, count in counts(figures).items())
    _show(f"finite with their intervals: {finite}")
    if chosen.write:
        GOLDEN.write_text(to_text(figures), encoding="utf-8")
        return 0
    lines = list(differences(read(), {kind: figures[kind] for kind in chosen.kinds}))
    for line in islice(lines, _SHOWN):
        _show(line)
    _show(f"{len(lines)} differences" + (f", {_SHOWN} of them shown" if len(lines) > _SHOWN else ""))
    return 1 if lines else 0


def _show(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
