"""Generated games of TextWorld: breadth-first search over sets of facts, without the interpreter.

A state is the set of facts that hold. The actions are all commands of the game that can change a fact, in its own
words; those whose preconditions hold are offered, any other changes nothing, as in the game. What only tells (look,
inventory, examine) is no action: what it would tell stands in what is shown.
"""

import shutil
import warnings
import weakref
from collections.abc import Mapping
from functools import cached_property, partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from goalscope.environments.environment import Observed, environment_kind
from goalscope.extras import lacking
from goalscope.ids import content_id

Facts = frozenset[Any]
_TELLS = ("look", "inventory", "examine")


def _generated(seed: int, rooms: int, objects: int, quest_length: int) -> Any:
    """Return a game as TextWorld generates it from a seed."""
    try:
        from textworld import GameOptions
        from textworld.generator import make_game
    except ImportError as error:
        raise lacking("games of TextWorld need textworld", "textworld", error) from error
    options = GameOptions()
    options.seeds, options.nb_rooms, options.nb_objects, options.quest_length = seed, rooms, objects, quest_length
    return make_game(options)


@environment_kind("textworld")
class TextWorldGame:
    """A game that TextWorld generates; it is won when its quest is done.

    Args:
        rooms, objects, quest_length: as `textworld.GameOptions` has them.
        seed: of the generation.

    Raises:
        ValueError: a game of several quests, whose progress is no matter of facts alone.
        ImportError: TextWorld is missing.
    """

    def __init__(self, rooms: int, objects: int, quest_length: int, seed: int = 1) -> None:
        self._parameters = {"rooms": rooms, "objects": objects, "quest_length": quest_length, "seed": seed}
        self.game = _generated(seed, rooms, objects, quest_length)
        if len(self.game.quests) != 1 or any(quest.repeatable for quest in self.game.quests):
            raise ValueError(f"a game must have one quest to be solved over its facts, got {len(self.game.quests)}")
        self._first: Facts = frozenset(self.game.world.state.facts)
        self._instances: dict[Facts, dict[int, Facts]] = {}
        self._number: dict[str, int] = {}
        self._close()

    def _close(self) -> None:
        """Search all sets of facts once: only then all commands are known."""
        ahead = [self._first]
        commands: dict[Facts, dict[str, Facts]] = {}
        while ahead:
            facts = ahead.pop()
            if facts in commands:
                continue
            commands[facts] = {} if self.done(facts) else self._commands(facts)
            ahead += commands[facts].values()
        names = sorted({name for found in commands.values() for name in found})
        self.actions = tuple(names)
        number = {name: at for at, name in enumerate(names)}
        self._instances = {facts: {number[name]: to for name, to in found.items()} for facts, found in commands.items()}

    def _commands(self, facts: Facts) -> dict[str, Facts]:
        """Return the commands that change something in a state, and what they lead to."""
        from textworld.logic import State

        game = self.game
        state = State(game.kb.logic, facts)
        found: dict[str, Facts] = {}
        for action in state.all_applicable_actions(game.kb.rules.values(), game.kb.types.constants_mapping):
            if action.name.split("/")[0] in _TELLS:
                continue
            after = state.copy()
            after.apply(action)
            name = action.format_command({one.name: game.infos[one.name].name for one in action.variables})
            to = frozenset(after.facts)
            if found.setdefault(name, to) != to:
                raise ValueError(f"a command must have one effect, got two of {name!r}: take another seed")
        return found

    def initial(self) -> dict[Facts, float]:
        """Return the facts at the beginning."""
        return {self._first: 1.0}

    def step(self, state: Facts, action: int) -> dict[Facts, float]:
        """Return the facts after a command."""
        return {self._instances[state].get(action, state): 1.0}

    def admissible(self, state: Facts) -> list[int]:
        """Return the commands whose preconditions hold."""
        return sorted(self._instances[state])

    def done(self, state: Facts) -> bool:
        """Return whether the quest is done, or failed."""
        (quest,) = self.game.quests
        return self.goal(state) or any(_holds(event, state) for event in quest.fail_events)

    def goal(self, state: Facts) -> bool:
        """Return whether the quest is done."""
        (quest,) = self.game.quests
        return any(_holds(event, state) for event in quest.win_events)

    def goals(self) -> dict[str, Any]:
        """Return what else can be pursued: to carry each thing that can be carried."""
        found: dict[str, Any] = {}
        for facts in self._instances:
            for fact in facts:
                if fact.name == "in" and fact.arguments[1].type == "I":
                    thing = fact.arguments[0].name
                    found[f"{self._name(thing)} held"] = partial(_carried, thing)
        return dict(sorted(found.items()))

    def observe(self, state: Facts) -> Observed:
        """Return the objective, the room, its exits and things, and what is carried."""
        return Observed(text=self._text(state))

    def describe(self) -> dict[str, Any]:
        """Return the parameters and the id of the whole game: another version of TextWorld may generate another."""
        return {**self._parameters, "game": content_id("game", {"game": self._serialised})}

    @cached_property
    def _serialised(self) -> list[Any]:
        facts = sorted(map(str, self._first))
        names = {key: self._name(key) for key in sorted(self.game.infos)}
        return [facts, self.game.objective, list(self.actions), names]

    def play(self, seed: int) -> "_Player":
        """Return the compiled game in the interpreter, at its beginning."""
        return _Player(self, str(self._compiled))

    @cached_property
    def _compiled(self) -> Path:
        """The game as a file, compiled once; its folder goes with this object."""
        import textworld
        from textworld.generator import compile_game

        folder = mkdtemp()
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        options = textworld.GameOptions()
        options.path = str(Path(folder) / "game.z8")
        return Path(compile_game(self.game, options))

    @cached_property
    def _by_words(self) -> dict[Facts, Facts]:
        """The states by their facts in words, as the interpreter tells them."""
        return {
            frozenset((fact.name, *(self._name(one.name) for one in fact.arguments)) for fact in facts): facts
            for facts in self._instances
        }

    def told(self, facts: Any) -> Facts:
        """Return the state that facts in words stand for; they themselves where there is none."""
        words = frozenset((fact.name, *(str(one.name) for one in fact.arguments)) for fact in facts)
        return self._by_words.get(words, words)

    def _name(self, thing: str) -> str:
        return str(self.game.infos[thing].name or thing)

    def _text(self, state: Facts) -> str:
        by_name: dict[str, list[tuple[str, ...]]] = {}
        for fact in state:
            by_name.setdefault(fact.name, []).append(tuple(one.name for one in fact.arguments))
        room = next(where for thing, where in by_name["at"] if thing == "P")
        lines = [self.game.objective, f"You are in the {self._name(room)}."]
        for direction in ("north", "south", "east", "west"):
            lines += [
                f"To the {direction} is the {self._name(there)}{self._door(by_name, there, room)}."
                for there, here in sorted(by_name.get(f"{direction}_of", []))
                if here == room
            ]
        for thing, where in sorted(by_name.get("at", [])):
            if where == room and thing != "P":
                lines.append(f"There is a {self._name(thing)}{self._state(by_name, thing)}.")
                lines += self._within(by_name, thing)
        carried = [self._name(thing) for thing, where in sorted(by_name.get("in", [])) if where == "I"]
        return "\n".join([*lines, f"You carry {', '.join(carried) if carried else 'nothing'}."])

    def _door(self, facts: Mapping[str, list[tuple[str, ...]]], there: str, room: str) -> str:
        doors = [door for one, door, other in facts.get("link", []) if (one, other) == (room, there)]
        return "".join(f", through the {self._name(door)}{self._state(facts, door)}" for door in doors)

    def _within(self, facts: Mapping[str, list[tuple[str, ...]]], holder: str) -> list[str]:
        shut = any((holder,) in facts.get(name, []) for name in ("closed", "locked"))
        inside = [] if shut else [self._name(thing) for thing, where in sorted(facts.get("in", [])) if where == holder]
        upon = [self._name(thing) for thing, where in sorted(facts.get("on", [])) if where == holder]
        found = [f"In it: {', '.join(inside)}."] if inside else []
        return [*found, f"On it: {', '.join(upon)}."] if upon else found

    def _state(self, facts: Mapping[str, list[tuple[str, ...]]], thing: str) -> str:
        told = [name for name in ("open", "closed", "locked", "edible") if (thing,) in facts.get(name, [])]
        return f" ({', '.join(told)})" if told else ""


def _holds(event: Any, facts: Facts) -> bool:
    return all(fact in facts for fact in event.condition.preconditions)


def _carried(thing: str, facts: Facts) -> bool:
    return any([one.name for one in fact.arguments] == [thing, "I"] for fact in facts if fact.name == "in")


class _Player:
    """An episode in the game as it is compiled, played by the interpreter in words."""

    def __init__(self, outer: TextWorldGame, file: str) -> None:
        import textworld

        self._outer = outer
        with warnings.catch_warnings():
            # The interpreter knows the scores of published games alone; TextWorld keeps track of its own.
            warnings.filterwarnings("ignore", message=".*is not fully supported.*")
            self._real = textworld.start(file, textworld.EnvInfos(facts=True, won=True, lost=True))
            self._told = self._real.reset()

    @property
    def state(self) -> Facts:
        """The facts as the interpreter tells them."""
        return self._outer.told(self._told["facts"])

    @property
    def done(self) -> bool:
        """Whether the game is won or lost."""
        return bool(self._told["won"] or self._told["lost"])

    @property
    def goal(self) -> bool:
        """Whether the game is won."""
        return bool(self._told["won"])

    def act(self, action: int) -> None:
        """Type a command."""
        self._told, _, _ = self._real.step(self._outer.actions[action])
