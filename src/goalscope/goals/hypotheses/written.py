"""Hypotheses as text and in files: ``corner top-right``, ``key if not key held, else goal``, banks, YAML and JSON.

The forms are those that are registered, in that order (`goals.hypotheses.rules`, `places`, packages). What stands
in their braces is, by its name there: `hypothesis`, `place`, `event` and `condition` again a written form, in
parentheses where it has parts; `places` several with a comma and a blank between; `terms` NUMBER * EVENT + NUMBER *
EVENT; `whole` a whole number; `offset` rows and columns with their signs, +0,+2; `corner`, `sides` (up or right),
`cells` (9x9 1 7, 7x7 1 5), `source` (module:function), `object` (key or door) and `name`, any words.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from goalscope._ground import registry
from goalscope._ground.checks import check_number, near_miss
from goalscope._ground.folder import package_text
from goalscope._ground.own import consent
from goalscope._ground.untrusted import shorten
from goalscope._ground.yaml_text import read_yaml, read_yaml_text
from goalscope.goals.hypotheses.definition import FIELD, Hypothesis
from goalscope.goals.hypotheses.rules import SIDES
from goalscope.worlds.grid import CORNERS
from goalscope.worlds.planning.process import process_of
from goalscope.worlds.world import World

_LONGEST_NAME: Final = 200
_MOST: Final = 2_000  # characters of a written form
_DEEPEST: Final = 20  # forms within each other
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d{1,3})?"
_PATTERNS: Final[Mapping[str, str]] = {
    "hypothesis": ".+?",
    "place": ".+",
    "event": ".+",
    "condition": ".+?",
    "places": ".+",
    "terms": rf"{_NUMBER} \* .+",
    "whole": r"\d{1,6}",
    "offset": r"[+-]\d{1,4},[+-]\d{1,4}",
    "corner": r"\S+",
    "sides": r"\S+(?: or \S+)*",
    "cells": r"\d{1,4}x\d{1,4} \d{1,4} \d{1,4}(?:, \d{1,4}x\d{1,4} \d{1,4} \d{1,4})*",
    "source": r"[A-Za-z_][\w.]*:[A-Za-z_]\w*",
    "object": "key|door",
    "name": r"[^\[\]]+",
}
NAMED: Final = "{name}"
"""The form of a goal that a world itself names, such as ``crate held``; it is read where no other form fits."""
_NAMES: Final = (NAMED, f"event {NAMED}")
_NAME = re.compile(r"(?!.*\S [*+] )[^\[\];]+")
"""What a goal that a world names may be called: no square brackets, semicolons, or "+" and "*" between words."""
_SIMPLE_NAME = re.compile(r"(?!.*\b(?:if|else|within)\b)[\w./'-]+(?: [\w./'-]+)*")
"""A name that needs no parentheses within another form."""
_INNER = {"place": ("place",), "event": ("event", "place"), "condition": ("condition", "event", "place")}
_OWN: Final = ("place", "event", "utility", "policy", "table")


def parse(text: str) -> Hypothesis:
    """Return a hypothesis from its written form, the inverse of `Hypothesis.text`.

    Raises:
        ValueError: none of the forms; the message has near misses.
    """
    if not isinstance(text, str) or not text.strip() or len(text) > _MOST or not text.isprintable():
        raise ValueError(f"a hypothesis must be written in 1 to {_MOST} printable characters, got {shorten(text)}")
    hypothesis = _read(" ".join(text.split()), 0)
    if hypothesis.kind == "condition":
        raise ValueError(f"a condition must stand behind a hypothesis and the word if, got {shorten(text)} alone")
    return hypothesis


def _read(text: str, depth: int) -> Hypothesis:
    text = _bare(text)
    if depth > _DEEPEST:
        raise ValueError(f"a hypothesis must have at most {_DEEPEST} forms within each other, got {shorten(text)}")
    masked, forms = _masked(text), [form for form in registry.names("hypothesis") if form != NAMED]
    for form in forms:
        pattern, fields = _compiled(form)
        if (match := pattern.fullmatch(masked)) is not None:
            spans = [text[slice(*match.span(index + 1))] for index in range(len(fields))]
            if form in _NAMES:
                return _named(spans[0], depth)
            return made(form, [_part(field, span, depth + 1) for field, span in zip(fields, spans, strict=True)])
    # A world may name a goal "goals" or "key in door", so only what is close to a form that begins with a word of its
    # own and has parts, such as "corner {corner}", is surely wrong.
    with_parts = [form for form in forms if "{" in form[1:] and form[0] != "{" and not form.startswith("event ")]
    close = _closest(text, with_parts, cutoff=0.85)
    begun = any(text.startswith(words) for form in with_parts if (words := form.split("{")[0]).count(" ") > 1)
    if close or begun or not _NAME.fullmatch(text) or text.count("(") != text.count(")"):
        advice = f"; did you mean {close!r}?" if close else "; docs/hypotheses.md lists the forms"
        raise ValueError(
            f"a hypothesis must have one of the registered forms, or be a goal that a world names, got "
            f"{shorten(text)}{advice}"
        )
    return made(NAMED, (text,))


def _named(name: str, depth: int) -> Hypothesis:
    """Return the goal that a world names, from the longer form ``event NAME``: the name alone, where that is enough."""
    try:
        hypothesis = _read(name, depth + 1)
    except ValueError:
        return made(f"event {NAMED}", (name,))
    return (
        hypothesis
        if hypothesis.text == name and hypothesis.kind in ("place", "event")
        else made(f"event {NAMED}", (name,))
    )


def _closest(text: str, forms: Sequence[str], *, cutoff: float = 0.7) -> str:
    """Return the written form that a text is closest to, "" where none is close.

    Where a form has a part in braces, the word of the text at that place is taken for it. Goals that worlds name are
    not known here, see `bind`.
    """
    words, candidates = text.lower().split(), list[str]()
    for form in forms:
        pieces = form.split()
        if not any("{" in piece for piece in pieces[len(words) :]):
            filled = [_filled(piece, words[at]) if "{" in piece else piece for at, piece in enumerate(pieces)]
            candidates += [" ".join(filled)] if all(filled) else []
    matches = get_close_matches(
        text.lower(), [candidate for candidate in candidates if candidate != text.lower()], n=1, cutoff=cutoff
    )
    return matches[0] if matches else ""


def _filled(field: str, word: str) -> str:
    """Return the word that may stand in the place of a part of a form, "" where the word is none and close to none."""
    valid: Sequence[str] | None
    if field.strip("{}") in ("hypothesis", *_INNER):
        valid = [form for form in registry.names("hypothesis") if "{" not in form]
    else:
        valid = {"{corner}": tuple(CORNERS), "{sides}": tuple(SIDES), "{object}": ("key", "door")}.get(field)
    if valid is not None:
        return next(iter(get_close_matches(word, valid, n=1)), "")
    pattern = _PATTERNS.get(field.strip("{}"), ".+")
    return word if re.fullmatch(pattern, word) else ""


@lru_cache(maxsize=1024)
def _compiled(form: str) -> tuple[re.Pattern[str], tuple[str, ...]]:
    """Return the pattern of a form and the names of its parts."""
    pieces = FIELD.split(form)
    pattern = [re.escape(piece) if index % 2 == 0 else f"({_PATTERNS[piece]})" for index, piece in enumerate(pieces)]
    return re.compile("".join(pattern)), tuple(pieces[1::2])


def made(form: str, parts: Sequence[Any]) -> Hypothesis:
    """Return the hypothesis of a registered form with its parts."""
    written = iter([_text(part) for part in parts])
    return Hypothesis(form=form, parts=tuple(parts), text=FIELD.sub(lambda _: next(written), form))


def _text(part: Any) -> str:
    if isinstance(part, Hypothesis):
        nested = any(isinstance(inner, Hypothesis | tuple) for inner in part.parts)
        nested |= part.form == NAMED and not _SIMPLE_NAME.fullmatch(part.text)
        return f"({part.text})" if nested and part.kind != "condition" else part.text
    if not isinstance(part, tuple):
        return str(part)
    if isinstance(part[0], int):
        return f"{part[0]:+d},{part[1]:+d}"
    if isinstance(part[0], str):
        return " or ".join(part)
    if isinstance(part[0], Hypothesis):
        return ", ".join(_text(place) for place in part)
    if len(part[0]) == 2:
        return " + ".join(f"{weight!r} * {_text(term)}" for weight, term in part)
    return ", ".join(f"{height}x{width} {row} {col}" for height, width, row, col in part)


def _part(field: str, text: str, depth: int) -> Any:
    """Return what stands in the braces of a form."""
    if field in ("hypothesis", *_INNER):
        return _of_kind(_read(text, depth), field)
    if field == "places":
        return tuple(_of_kind(_read(part, depth), "place") for part in _split(text, ", "))
    if field == "terms":
        terms = [re.fullmatch(rf"({_NUMBER}) \* (.+)", part) for part in _split(text, " + ")]
        if None in terms:
            raise ValueError(f"a utility must be NUMBER * EVENT + NUMBER * EVENT, got {shorten(text)}")
        return tuple((_finite(float(term[1])), _of_kind(_read(term[2], depth), "event")) for term in terms if term)
    if field == "whole":
        return int(text)
    if field == "offset":
        return tuple(map(int, text.split(",")))
    if field == "cells":
        return tuple(sorted(tuple(map(int, re.findall(r"\d+", part))) for part in text.split(", ")))
    valid = {"corner": tuple(CORNERS), "sides": tuple(SIDES)}.get(field)
    words = tuple(text.split(" or ")) if field == "sides" else (text,)
    for word in words if valid else ():
        if valid and word not in valid:
            raise ValueError(f"{field} must be of {', '.join(valid)}, got {shorten(word)}{near_miss(word, valid)}")
    return words if field == "sides" else text


def _finite(weight: float) -> float:
    if not math.isfinite(weight):
        raise ValueError(f"a weight must be a finite number, got {weight}")
    return weight


def _of_kind(hypothesis: Hypothesis, field: str) -> Hypothesis:
    if (kinds := _INNER.get(field)) and hypothesis.form == NAMED and "event" not in kinds:
        forms = [form for form in registry.names("hypothesis") if registry.resolve("hypothesis", form).kind in kinds]
        close = _closest(hypothesis.text, forms)
        advice = f"; did you mean {close!r}?" if close else ""
        raise ValueError(f"a {field} must stand here, got {shorten(hypothesis.text)}{advice}")
    if kinds and hypothesis.kind not in kinds:
        raise ValueError(f"{' or '.join(kinds)} must stand here, got {shorten(hypothesis.text)}, a {hypothesis.kind}")
    if field == "hypothesis" and hypothesis.kind == "condition":
        raise ValueError(f"a hypothesis must stand here, got the condition {shorten(hypothesis.text)}")
    return hypothesis


def _masked(text: str) -> str:
    """Return a text with a sign of its own in place of all within parentheses, so that no form is found there."""
    level, signs = 0, []
    for sign in text:
        level -= sign == ")"
        signs.append("\0" if level > 0 else sign)
        level += sign == "("
    return "".join(signs)


def _bare(text: str) -> str:
    """Return a text without parentheses around all of it."""
    text = text.strip()
    while re.fullmatch(r"\(\0+\)", _masked(text)):
        text = text[1:-1].strip()
    return text


def _split(text: str, separator: str) -> Iterator[str]:
    masked, begin = _masked(text), 0
    while (end := masked.find(separator, begin)) >= 0:
        yield text[begin:end]
        begin = end + len(separator)
    yield text[begin:]


def banks() -> dict[str, tuple[str, ...]]:
    """Return the shipped banks: name -> written forms."""
    text = package_text("goalscope.goals.hypotheses", "banks.yaml")
    return {name: tuple(forms) for name, forms in read_yaml_text(text, "banks.yaml").items()}


def noun_of(text: str) -> str:
    """Return a hypothesis as a noun phrase from its written form, see `Hypothesis.says`; another text in quotes."""
    try:
        return parse(text).says
    except ValueError:
        return f"“{text}”"


def with_sentinels(bank: Mapping[str, Hypothesis]) -> dict[str, Hypothesis]:
    """Return a bank, and behind it the shipped sentinels that it does not hold."""
    rest = [parse(text) for text in banks()["sentinels"]]
    return {
        **bank,
        **{sentinel.text: sentinel for sentinel in rest if sentinel not in bank.values() and sentinel.text not in bank},
    }


def read_hypotheses(plain: Any) -> dict[str, Hypothesis]:
    """Return the hypotheses that a user wrote: name -> hypothesis. The functions that they name may be imported.

    Args:
        plain: a list, or a mapping whose key ``hypotheses`` holds it. Each entry is a written form, ``{name: ..., is:
            FORM}``, ``{name: ..., utility: {EVENT: NUMBER}}``, or with place, event, utility, policy or table as key a
            function of the working directory, ``module:function``.

    Raises:
        ValueError: another form, or a name or hypothesis that stands there twice.
    """
    consent(plain)
    return restore_hypotheses(plain)


def restore_hypotheses(plain: Any) -> dict[str, Hypothesis]:
    """Return stored hypotheses like `read_hypotheses`; nothing follows from names in them, see `goalscope.own`."""
    entries = plain.get("hypotheses") if isinstance(plain, Mapping) else plain
    if not isinstance(entries, list | tuple) or not entries:
        raise ValueError(f"hypotheses must be a list of written forms or mappings, got {shorten(plain)}")
    return _distinct(_numbered(number, entry) for number, entry in enumerate(entries, 1))


def _numbered(number: int, entry: Any) -> tuple[str, Hypothesis]:
    """Return the name and the hypothesis of an entry of a list, whose errors say which one it is."""
    try:
        return _entry(entry)
    except ValueError as error:
        written = entry if isinstance(entry, str) else entry.get("is") if isinstance(entry, Mapping) else None
        quoted = f" ({shorten(written)})" if isinstance(written, str) else ""
        raise ValueError(f"entry {number}{quoted} of the hypotheses: {error}") from error


def _entry(entry: Any) -> tuple[str, Hypothesis]:
    if isinstance(entry, str):
        return (hypothesis := parse(entry)).text, hypothesis
    keys = [key for key in ("is", *_OWN) if isinstance(entry, Mapping) and key in entry]
    if len(keys) != 1 or set(entry) - {"name", *keys}:
        raise ValueError(
            f"a hypothesis in a file must be a written form, or have a name and one of is, {', '.join(_OWN)}, got "
            f"{shorten(entry)}"
        )
    value = entry[keys[0]]
    if keys[0] == "utility" and isinstance(value, Mapping):
        if not value:
            raise ValueError(f"a utility must have a place or an event with its weight, got {shorten(entry)}")
        for weight in value.values():
            check_number("the weight of a utility", weight, -1e9, 1e9)
        value = " + ".join(f"{weight} * ({term})" for term, weight in value.items())
    else:
        value = value if keys[0] == "is" else f"{keys[0]} {value}"
    hypothesis, name = parse(value), entry.get("name")
    fits = isinstance(name, str) and bool(name.strip()) and name.isprintable() and len(name) <= _LONGEST_NAME
    if name is not None and not fits:
        raise ValueError(
            f"the name of a hypothesis must be one line of at most {_LONGEST_NAME} characters, got {shorten(name)}"
        )
    return name or hypothesis.text, replace(hypothesis, name=name or hypothesis.text)


def _distinct(entries: Iterable[tuple[str, Hypothesis]]) -> dict[str, Hypothesis]:
    result: dict[str, Hypothesis] = {}
    for name, hypothesis in entries:
        if name in result or hypothesis in result.values():
            raise ValueError(f"hypotheses must be different and have names of their own, got {shorten(name)} twice")
        result[name] = hypothesis
    return result


def write_hypotheses(bank: Mapping[str, Hypothesis]) -> list[Any]:
    """Return hypotheses as plain values, the inverse of `read_hypotheses`.

    Raises:
        ValueError: a hypothesis that was made from a function in Python.
    """
    if made_here := [name for name, hypothesis in bank.items() if any(inner.own for inner in _within(hypothesis))]:
        raise ValueError(
            f"a hypothesis that is written to a file must have a written form, got the function {made_here[0]!r}: put "
            "it into a file of yours and name it as module:function"
        )
    return [
        hypothesis.text if name == hypothesis.text else {"name": name, "is": hypothesis.text}
        for name, hypothesis in bank.items()
    ]


def load_hypotheses(text: str) -> dict[str, Hypothesis]:
    """Return the hypotheses of the command line: files (.yaml, .json), banks and written forms, with ';' between them.

    Raises:
        ValueError: none of these, or a hypothesis that stands there twice.
        OSError: a file that cannot be read.
    """
    shipped, entries = banks(), list[tuple[str, Hypothesis]]()
    for part in (part.strip() for part in text.split(";") if part.strip()):
        if part.endswith((".yaml", ".yml", ".json")):
            plain = read_yaml(Path(part).expanduser())
            try:
                entries.extend(read_hypotheses(plain).items())
            except ValueError as error:
                raise ValueError(f"{part}: {error}") from error
        elif part in shipped:
            entries.extend(map(_entry, shipped[part]))
        else:
            consent(part)
            try:
                entries.append(_entry(part))
            except ValueError as error:
                raise ValueError(f"{error}; or a bank: {', '.join(shipped)}; or a file (.yaml, .json)") from error
    if not entries:
        raise ValueError(f"hypotheses must be named, got {text!r}: give a file, a bank or written forms")
    return _distinct(entries)


def bind(hypothesis: Hypothesis, worlds: Sequence[World]) -> Hypothesis:
    """Return a hypothesis whose places of a phase have cells: where the goal always stood in the worlds of the phase.

    That is one cell for each size of grid; sizes with several are left out. Other hypotheses are unchanged.

    Raises:
        ValueError: a name that is no registered form and that none of the worlds gives a goal.
    """
    if hypothesis.own is not None:
        return hypothesis
    if hypothesis.form in _NAMES:
        _check_named(hypothesis.parts[0], worlds)
    if hypothesis.form == "where the goal stood in phase {name}":
        goals: dict[tuple[int, int], set[tuple[int, int]]] = {}
        for world in worlds:
            if (
                "grid" in world.offers
                and world.tags.get("phase") == hypothesis.parts[0]
                and world.grid.goal is not None
            ):
                goals.setdefault((world.grid.height, world.grid.width), set()).add(world.grid.goal)
        cells = tuple(
            sorted((*shape, *next(iter(positions))) for shape, positions in goals.items() if len(positions) == 1)
        )
        return (
            replace(made(f"{hypothesis.form} [{{cells}}]", (hypothesis.parts[0], cells)), name=hypothesis.name)
            if cells
            else hypothesis
        )
    parts = [_bound(part, worlds) for part in hypothesis.parts]
    return (
        replace(made(hypothesis.form, parts), name=hypothesis.name) if parts != list(hypothesis.parts) else hypothesis
    )


def check_names(bank: Mapping[str, Hypothesis], worlds: Callable[[], Sequence[World]]) -> None:
    """Refuse hypotheses with a name that none of some worlds gives a goal.

    Args:
        bank: the hypotheses.
        worlds: returns the worlds; called only where a hypothesis depends on them.

    Raises:
        ValueError: see `bind`.
    """
    named = {number: hypothesis for number, hypothesis in enumerate(bank.values(), 1) if depends_on_worlds(hypothesis)}
    made_worlds = worlds() if named else ()
    for number, hypothesis in named.items():
        try:
            bind(hypothesis, made_worlds)
        except ValueError as error:
            raise ValueError(f"entry {number} ({shorten(hypothesis.text)}) of the hypotheses: {error}") from error


def depends_on_worlds(hypothesis: Hypothesis) -> bool:
    """Return whether `bind` has to look at worlds: for a place of a phase, and for a name that worlds give a goal."""
    return any(inner.form in (*_NAMES, "where the goal stood in phase {name}") for inner in _within(hypothesis))


def _within(part: Any) -> Iterator[Hypothesis]:
    """Yield a hypothesis and those within its parts."""
    if isinstance(part, Hypothesis):
        yield part
    for inner in part.parts if isinstance(part, Hypothesis) else part if isinstance(part, tuple) else ():
        yield from _within(inner)


def _check_named(name: str, worlds: Sequence[World]) -> None:
    """Refuse a name that none of some worlds gives a goal."""
    processes = [process for world in worlds if (process := process_of(world)) is not None]
    known_goals = tuple(dict.fromkeys(goal for process in processes for goal in process.goals))
    if processes and name not in known_goals:
        forms = [form for form in registry.names("hypothesis") if form.strip("{}") not in (*_INNER, "terms", "name")]
        near = (get_close_matches(name, (*known_goals, *banks()), n=1, cutoff=0.6) or [_closest(name, forms)])[0]
        near = near or next((f"corner {corner}" for corner in get_close_matches(name, CORNERS, n=1, cutoff=0.85)), "")
        close = f"; did you mean {near!r}?" if near else ""
        raise ValueError(
            f"a hypothesis must have one of the registered forms (docs/hypotheses.md), be a goal that a world names "
            f"({', '.join(known_goals) or 'these worlds name none'}) or a bank ({', '.join(banks())}), got "
            f"{shorten(name)}{close}"
        )


def _bound(part: Any, worlds: Sequence[World]) -> Any:
    if isinstance(part, Hypothesis):
        return bind(part, worlds)
    return tuple(_bound(item, worlds) for item in part) if isinstance(part, tuple) else part
