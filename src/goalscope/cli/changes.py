"""Changes to a study that are given on the command line: other sizes, counts, agents, or any key."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from goalscope.checks import near_miss
from goalscope.runs import Study
from goalscope.untrusted import read_yaml_text, shorten

_MOST_NAME = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What is changed, as texts of the command line; None or empty for what stays as it is.

    Attributes:
        sizes: grid sizes, separated by commas, of all generated grids.
        densities: wall densities, separated by commas, of all generated grids.
        count: number of worlds of each kind, size and density.
        trajectories: episodes of each agent on each world.
        agents: names of the agents to run, the study's further agents among them; separated by commas or semicolons.
        settings: KEY=VALUE each, e.g. ``worlds.0.count=3``; the value is YAML.
    """

    sizes: str | None = None
    densities: str | None = None
    count: str | None = None
    trajectories: str | None = None
    agents: str | None = None
    settings: tuple[str, ...] = ()

    def given(self) -> dict[str, Any]:
        """Return what is changed, by the names of the options."""
        found = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        found["set"] = list(found.pop("settings"))
        return {name: value for name, value in found.items() if value not in (None, [])}

    def apply(self, study: Study) -> Study:
        """Return the changed study; its name says what is changed, its id follows from what it holds.

        Raises:
            ValueError: a key that the study does not have, or a value that is not valid there; names the key.
        """
        given = self.given()
        if not given:
            return study
        for option, text in given.items():
            if text == "":  # of a shell variable that is not set, perhaps: everything is not what was asked for
                raise ValueError(f"--{option} must be given a value, got an empty one: leave it out to change nothing")
        plain = study.dump()
        for option in ("sizes", "densities", "count"):
            if option in given:
                _set_worlds(plain["worlds"], option, _value(f"--{option}", given[option], listed=option != "count"))
        if self.trajectories is not None:
            plain["trajectories"] = _value("--trajectories", self.trajectories)
        if self.agents is not None:
            plain["agents"] = _chosen(study, split_names(self.agents))
            plain.pop("further_agents", None)
        for setting in self.settings:
            set_key(plain, setting)
        parts = [text if name == "set" else f"{name} {text}" for name, value in given.items() for text in _texts(value)]
        name = f"{study.name} ({'; '.join(parts)})"
        if "name" not in [_path(setting.partition("=")[0])[0] for setting in self.settings]:
            plain["name"] = name if len(name) <= _MOST_NAME else f"{name[: _MOST_NAME - 1]}…"
        return Study.parse(plain)


def split_names(text: str) -> list[str]:
    """Return names that are separated by semicolons, or by commas outside of brackets where there is no semicolon."""
    parts = text.split(";") if ";" in text else re.split(r",(?![^(]*\))", text)
    return [part.strip() for part in parts if part.strip()]


def _set_worlds(worlds: Sequence[dict[str, Any]], key: str, value: Any) -> None:
    having = [entry for entry in worlds if key in entry]
    if not having:
        kinds = ", ".join(dict.fromkeys(str(entry["kind"]) for entry in worlds))
        raise ValueError(f"--{key} must fit the worlds of the study, but worlds of kind {kinds} have no {key}")
    for entry in having:
        entry[key] = value


def _chosen(study: Study, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the entries of the named agents, in the order of the names."""
    entries = {entry.build().name: entry for entry in (*study.agents_, *study.further_agents_)}
    for name in names:
        if name not in entries:
            raise ValueError(f"--agents must name agents of the study, got {name!r}{near_miss(name, list(entries))}")
    if not names:
        raise ValueError("--agents must name at least one agent, got none")
    return [entries[name].dump() for name in names]


def set_key(plain: dict[str, Any], setting: str) -> None:
    """Change one key of plain values by KEY=VALUE; the key itself may be new, what holds it must be there.

    Raises:
        ValueError: no KEY=VALUE, or nothing holds the key; names it.
    """
    key, equals, text = setting.partition("=")
    path = _path(key)
    if not equals or not path:
        raise ValueError(f"--set must be given as KEY=VALUE, e.g. worlds.0.count=3, got {setting!r}")
    holder: Any = plain
    for depth, part in enumerate(path):
        where = ".".join(path[:depth]) or "the study"
        if isinstance(holder, list):
            if not part.isascii() or not part.isdigit() or int(part) >= len(holder):
                raise ValueError(
                    f"--set {key}: {where} is a list of {len(holder)}, numbered from 0, got {part!r} in its place"
                )
            place: Any = int(part)
        elif isinstance(holder, Mapping):
            place = part
        else:
            raise ValueError(f"--set {key}: {where} holds no further keys, it is {shorten(holder)}")
        if depth + 1 == len(path):
            holder[place] = _value(f"--set {key}", text)
        elif isinstance(holder, Mapping) and place not in holder:
            raise ValueError(f"--set {key}: {where} has no key {part}{near_miss(part, list(map(str, holder)))}")
        else:
            holder = holder[place]


def _path(key: str) -> list[str]:
    return [part for part in re.split(r"[.\[\]]+", key.strip()) if part]


def _value(name: str, text: str, *, listed: bool = False) -> Any:
    return read_yaml_text(f"[{text}]" if listed else text, name)


def _texts(value: Any) -> list[str]:
    return value if isinstance(value, list) else [str(value)]
