"""Read and write hypotheses as text and in files: written forms such as ``corner top-right``, banks, YAML and JSON.

Registered forms are tried in the order of registration (`goals.hypotheses.rules`, `places`, packages). Placeholders are
written as follows:

- `hypothesis`, `place`, `event`, `condition`: a written form, in parentheses if it has placeholders itself;
- `places`: several places, separated by a comma and a space;
- `terms`: NUMBER * EVENT + NUMBER * EVENT;
- `whole`: a whole number; `offset`: signed rows and columns, such as +0,+2;
- `corner`: such as top-right; `sides`: such as up or right; `cells`: such as 9x9 1 7, 7x7 1 5;
- `thing`: a registered kind of thing, such as red key; `happening`: one of its events, such as red key held;
- `source`: module:function; `object`: key or door; `name`: any words.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from goalscope._ground import registry
from goalscope._ground.checks import check_number, near_miss
from goalscope._ground.folder import package_text
from goalscope._ground.own import consent
from goalscope._ground.rng import stream
from goalscope._ground.untrusted import shorten
from goalscope._ground.yaml_text import read_yaml, read_yaml_text
from goalscope.goals.hypotheses.definition import FIELD, Hypothesis
from goalscope.goals.hypotheses.rules import SIDES
from goalscope.worlds.grid import CORNERS
from goalscope.worlds.planning.process import process_of
from goalscope.worlds.things import kinds, kinds_in
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
"""The form of a goal that a world names, such as ``crate held``; a text is read this way if no other form fits."""
_NAMES: Final = (NAMED, f"event {NAMED}")
_OF_THINGS: Final = ("at {thing}", "{happening}", "every {happening}")
_NAME = re.compile(r"(?!.*\S [*+] )[^\[\];]+")
"""Valid names of a world's goals: no square brackets, semicolons, or "+" and "*" between words."""
_SIMPLE_NAME = re.compile(r"(?!.*\b(?:if|else|within)\b)[\w./'-]+(?: [\w./'-]+)*")
"""Names that need no parentheses within another form."""
_INNER = {"place": ("place",), "event": ("event", "place"), "condition": ("condition", "event", "place")}
_OWN: Final = ("place", "event", "utility", "policy", "table")


def parse(text: str) -> Hypothesis:
    """Parse the written form of a hypothesis, such as "corner top-right"; `Hypothesis.text` is the inverse.

    Raises:
        ValueError: the text matches no form; the message suggests similar ones.
    """
    if not isinstance(text, str) or not text.strip() or len(text) > _MOST or not text.isprintable():
        raise ValueError(f"a hypothesis must be a text of 1 to {_MOST} printable characters, got {shorten(text)}")
    hypothesis = _read(" ".join(text.split()), 0)
    if hypothesis.kind == "condition":
        raise ValueError(f"{shorten(text)} is a condition, not a hypothesis: write HYPOTHESIS if {shorten(text)}")
    return hypothesis


def _read(text: str, depth: int) -> Hypothesis:
    text = _bare(text)
    if depth > _DEEPEST:
        raise ValueError(f"a hypothesis may be nested at most {_DEEPEST} levels deep, got {shorten(text)}")
    masked, forms = _masked(text), [form for form in registry.names("hypothesis") if form != NAMED]
    for form in forms:
        pattern, fields = _compiled(form, registry.names("thing") if form in _OF_THINGS else ())
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
    """Read ``event NAME``, the long form of a goal that a world names; return the name alone if it is unambiguous."""
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
    """Return the written form closest to a text, "" if none is close.

    A placeholder of a form is filled with the word at the same position of the text. The goals of worlds are not known
    here, see `bind`.
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
    """Return the valid word closest to a given one for a placeholder, "" if none is close."""
    valid: Sequence[str] | None
    if field.strip("{}") in ("hypothesis", *_INNER):
        valid = [form for form in registry.names("hypothesis") if "{" not in form]
    else:
        valid = {
            "{corner}": tuple(CORNERS),
            "{sides}": tuple(SIDES),
            "{object}": ("key", "door"),
            "{thing}": registry.names("thing"),
        }.get(field)
    if valid is not None:
        return next(iter(get_close_matches(word, valid, n=1)), "")
    pattern = _PATTERNS.get(field.strip("{}"), ".+")
    return word if re.fullmatch(pattern, word) else ""


@lru_cache(maxsize=1024)
def _compiled(form: str, things: tuple[str, ...]) -> tuple[re.Pattern[str], tuple[str, ...]]:
    """Return the regular expression of a form and the names of its placeholders, given the names of all things."""
    events = [kind.event(word) for name in things for kind in [registry.resolve("thing", name)] for word in kind.events]
    patterns = {**_PATTERNS, "thing": "|".join(map(re.escape, things)), "happening": "|".join(map(re.escape, events))}
    pieces = FIELD.split(form)
    pattern = [re.escape(piece) if index % 2 == 0 else f"({patterns[piece]})" for index, piece in enumerate(pieces)]
    return re.compile("".join(pattern)), tuple(pieces[1::2])


def made(form: str, parts: Sequence[Any]) -> Hypothesis:
    """Build a hypothesis from a registered form, such as ``mirror of {place}``, and the values of its placeholders."""
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
    """Parse the value of a placeholder."""
    if field in ("hypothesis", *_INNER):
        return _of_kind(_read(text, depth), field)
    if field == "places":
        return tuple(_of_kind(_read(part, depth), "place") for part in _split(text, ", "))
    if field == "terms":
        terms = [re.fullmatch(rf"({_NUMBER}) \* (.+)", part) for part in _split(text, " + ")]
        if None in terms:
            raise ValueError(f"a utility must be written as NUMBER * EVENT + NUMBER * EVENT, got {shorten(text)}")
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
            raise ValueError(f"{field} must be one of {', '.join(valid)}, got {shorten(word)}{near_miss(word, valid)}")
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
        raise ValueError(f"expected a {field}, got {shorten(hypothesis.text)}{advice}")
    if kinds and hypothesis.kind not in kinds:
        raise ValueError(f"{' or '.join(kinds)} must stand here, got {shorten(hypothesis.text)}, a {hypothesis.kind}")
    if field == "hypothesis" and hypothesis.kind == "condition":
        raise ValueError(f"expected a hypothesis, got the condition {shorten(hypothesis.text)}")
    return hypothesis


def _masked(text: str) -> str:
    """Mask everything within parentheses, so that forms match only the outer text."""
    level, signs = 0, []
    for sign in text:
        level -= sign == ")"
        signs.append("\0" if level > 0 else sign)
        level += sign == "("
    return "".join(signs)


def _bare(text: str) -> str:
    """Strip parentheses that enclose the whole text."""
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


def banks(worlds: Sequence[World] | None = None) -> dict[str, tuple[str, ...]]:
    """Return the named sets of hypotheses (banks) that come with goalscope: name -> written forms of the hypotheses.

    The bank "things" consists of the goal and of hypotheses about kinds of objects, such as "red key held".

    Args:
        worlds: the worlds whose objects the bank "things" is about; None for all registered kinds of objects.
    """
    present = kinds() if worlds is None else kinds_in(world.grid for world in worlds if "grid" in world.offers)
    text = package_text("goalscope.goals.hypotheses", "banks.yaml")
    shipped = {name: tuple(forms) for name, forms in read_yaml_text(text, "banks.yaml").items()}
    return shipped | {"things": ("goal", *(form for kind in present for form in kind.hypotheses))}


def noun_of(text: str) -> str:
    """Return the noun phrase for a written hypothesis, as "the top-left corner" for "corner top-left".

    A text that is not a written form is returned in quotation marks.
    """
    try:
        return parse(text).says
    except ValueError:
        return f"“{text}”"


def with_sentinels(bank: Mapping[str, Hypothesis], worlds: Sequence[World] = ()) -> dict[str, Hypothesis]:
    """Return the user's hypotheses, followed by the control hypotheses (sentinels) that are not among them.

    Control hypotheses, such as "follow the wall", are rivals that must be ruled out before a goal is named.

    Args:
        bank: name -> hypothesis, as the user asked for them.
        worlds: the worlds; environments add rivals of their own to those that are built in, see `rivals_in`.
    """
    rest = [parse(text) for text in (*banks()["sentinels"], *rivals_in(worlds))]
    return {
        **bank,
        **{sentinel.text: sentinel for sentinel in rest if sentinel not in bank.values() and sentinel.text not in bank},
    }


MOST_ACTIONS: Final = 8
"""Number of actions above which the habit of always taking one of them is no rival of its own."""

RIVAL_STATES: Final = 3
"""Number of states of an environment that an agent might seek in place of the hypotheses of the user."""


def rivals_in(worlds: Sequence[World]) -> list[str]:
    """Return rivals of the user's hypotheses that goalscope adds in environments, in written form.

    They are the habits of always taking the same action, and a few states that no goal of the environment names. These
    states are drawn at random, and only if all worlds are the same environment. Empty if some world is not an
    environment.
    """
    if not worlds or any("environment" not in world.offers for world in worlds):
        return []
    tables = {id(world.believed.process.transitions): world.believed.table for world in worlds}
    table = next(iter(tables.values()))
    actions = [f"keep {name}" for name in table.actions] if len(table.actions) <= MOST_ACTIONS else []
    written = [text for text in actions if re.fullmatch(_PATTERNS["name"], text.removeprefix("keep "))]
    if len(tables) > 1:
        return written
    named = np.any([*table.goals.values(), table.done, table.start > 0], axis=0)
    drawn = stream(0, "rival states").permutation(np.flatnonzero(~named))[:RIVAL_STATES]
    return written + [f"state {state}" for state in sorted(drawn.tolist())]


def read_hypotheses(plain: Any) -> dict[str, Hypothesis]:
    """Read hypotheses that the user wrote, as parsed YAML or JSON, and allow the functions that they name to be
    imported.

    Args:
        plain: a list of entries, or a mapping whose key ``hypotheses`` has the list. An entry is a written form,
            ``{name: ..., is: FORM}``, ``{name: ..., utility: {EVENT: NUMBER}}``, or a function of the working
            directory, ``{name: ..., KIND: module:function}`` with kind place, event, utility, policy or table.

    Returns:
        Name -> hypothesis; an entry without a name has its written form as name.

    Raises:
        ValueError: an entry has another form, or a name or hypothesis occurs twice.
    """
    consent(plain)
    return restore_hypotheses(plain)


def restore_hypotheses(plain: Any) -> dict[str, Hypothesis]:
    """Read hypotheses from a stored file, in the format of `read_hypotheses`: name -> hypothesis.

    Unlike there, functions that the hypotheses name are not thereby allowed to be imported, since the user may not have
    written the file.

    Raises:
        ValueError: an entry has another form, or a name or hypothesis occurs twice.
    """
    entries = plain.get("hypotheses") if isinstance(plain, Mapping) else plain
    if not isinstance(entries, list | tuple) or not entries:
        raise ValueError(f"hypotheses must be a list of written forms or mappings, got {shorten(plain)}")
    return _distinct(_numbered(number, entry) for number, entry in enumerate(entries, 1))


def _numbered(number: int, entry: Any) -> tuple[str, Hypothesis]:
    """Read one entry of a list; errors state the number of the entry."""
    try:
        return _entry(entry)
    except ValueError as error:
        written = entry if isinstance(entry, str) else entry.get("is") if isinstance(entry, Mapping) else None
        quoted = f" ({shorten(written)})" if isinstance(written, str) else ""
        raise ValueError(f"hypotheses, entry {number}{quoted}: {error}") from error


def _entry(entry: Any) -> tuple[str, Hypothesis]:
    if isinstance(entry, str):
        return (hypothesis := parse(entry)).text, hypothesis
    keys = [key for key in ("is", *_OWN) if isinstance(entry, Mapping) and key in entry]
    if len(keys) != 1 or set(entry) - {"name", *keys}:
        raise ValueError(
            f"an entry must be a written form, or a mapping with an optional name and exactly one of the keys is, "
            f"{', '.join(_OWN)}, got {shorten(entry)}"
        )
    value = entry[keys[0]]
    if keys[0] == "utility" and isinstance(value, Mapping):
        if not value:
            raise ValueError(f"a utility must map at least one place or event to its weight, got {shorten(entry)}")
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
            raise ValueError(f"hypotheses and their names must be different, got {shorten(name)} twice")
        result[name] = hypothesis
    return result


def write_hypotheses(bank: Mapping[str, Hypothesis]) -> list[Any]:
    """Convert hypotheses into a list of strings and mappings for YAML or JSON, which `read_hypotheses` reads.

    Args:
        bank: name -> hypothesis.

    Raises:
        ValueError: a hypothesis was created from a Python function (`Hypothesis.of`), so it has no written form.
    """
    if made_here := [name for name, hypothesis in bank.items() if any(inner.own for inner in _within(hypothesis))]:
        raise ValueError(
            f"{made_here[0]!r} was created from a Python function, so it has no written form and cannot be stored: put "
            "the function into a file and write it as module:function"
        )
    return [
        hypothesis.text if name == hypothesis.text else {"name": name, "is": hypothesis.text}
        for name, hypothesis in bank.items()
    ]


def load_hypotheses(text: str, worlds: Sequence[World] | None = None) -> dict[str, Hypothesis]:
    """Read hypotheses from an argument of the command line, such as ``"goal; corner top-right; mine.yaml"``.

    Args:
        text: files (.yaml, .json), names of banks (sets that come with goalscope, see `banks`) and written forms,
            separated by ``;``.
        worlds: the worlds that they are for, if known; the bank "things" then has the objects of these worlds only.

    Returns:
        Name -> hypothesis.

    Raises:
        ValueError: a part is none of these, a hypothesis occurs twice, or the bank "things" is used without things.
        OSError: a file cannot be read.
    """
    shipped, entries = banks(worlds), list[tuple[str, Hypothesis]]()
    for part in (part.strip() for part in text.split(";") if part.strip()):
        if part.endswith((".yaml", ".yml", ".json")):
            plain = read_yaml(Path(part).expanduser())
            try:
                entries.extend(read_hypotheses(plain).items())
            except ValueError as error:
                raise ValueError(f"{part}: {error}") from error
        elif part == "things" and len(shipped[part]) == 1:
            raise ValueError("the bank things needs worlds with things in their grids, got none: use the bank grids")
        elif part in shipped:
            entries.extend(map(_entry, shipped[part]))
        else:
            consent(part)
            try:
                entries.append(_entry(part))
            except ValueError as error:
                raise ValueError(
                    f"{error}; a bank ({', '.join(shipped)}) or a file (.yaml, .json) is also possible"
                ) from error
    if not entries:
        raise ValueError(f"hypotheses must not be empty, got {text!r}: give a file, a bank or written forms")
    return _distinct(entries)


def bind(hypothesis: Hypothesis, worlds: Sequence[World]) -> Hypothesis:
    """Return a hypothesis with everything filled in that depends on the worlds, such as "where the goal stood in phase
    P".

    This phrase (a phase is a group of worlds of a study) becomes the cell at which the goal stood in all worlds of the
    phase, one cell for each grid size; sizes without a single such cell are left out. A goal that the hypothesis names
    must be a goal of some world. Other hypotheses are returned unchanged.

    Raises:
        ValueError: a name is neither a registered form nor a goal of any of the worlds.
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
    """Check that every goal that hypotheses mention by name exists in at least one of the worlds.

    Args:
        bank: name -> hypothesis.
        worlds: returns the worlds; called only if a hypothesis depends on them.

    Raises:
        ValueError: no world has a named goal, see `bind`.
    """
    named = {number: hypothesis for number, hypothesis in enumerate(bank.values(), 1) if depends_on_worlds(hypothesis)}
    made_worlds = worlds() if named else ()
    for number, hypothesis in named.items():
        try:
            bind(hypothesis, made_worlds)
        except ValueError as error:
            raise ValueError(f"hypotheses, entry {number} ({shorten(hypothesis.text)}): {error}") from error


def depends_on_worlds(hypothesis: Hypothesis) -> bool:
    """Return whether `bind` must see the worlds to know what a hypothesis means.

    This is so if it says "where the goal stood in phase P" (a group of worlds), or if it names a goal by the name that
    a world gives it.
    """
    return any(inner.form in (*_NAMES, "where the goal stood in phase {name}") for inner in _within(hypothesis))


def _within(part: Any) -> Iterator[Hypothesis]:
    """Yield a hypothesis and all hypotheses nested in it."""
    if isinstance(part, Hypothesis):
        yield part
    for inner in part.parts if isinstance(part, Hypothesis) else part if isinstance(part, tuple) else ():
        yield from _within(inner)


def _check_named(name: str, worlds: Sequence[World]) -> None:
    """Raise ValueError if no world has a goal of this name."""
    processes = [process for world in worlds if (process := process_of(world)) is not None]
    known_goals = tuple(dict.fromkeys(goal for process in processes for goal in process.goals))
    if processes and name not in known_goals:
        without_words = (*_INNER, "terms", "happening", "name")
        forms = [form for form in registry.names("hypothesis") if form.strip("{}") not in without_words]
        likely = (*known_goals, *banks()["things"], *banks())
        near = (get_close_matches(name, likely, n=1, cutoff=0.6) or [_closest(name, forms)])[0]
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
