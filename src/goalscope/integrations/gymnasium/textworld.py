"""Generated TextWorld games, enumerated by breadth-first search over sets of facts without the interpreter.

A state is the set of true facts. The actions are all of the game's commands that can change a fact. A command is
admissible if its preconditions hold; any other command changes nothing, as in the game. Commands that only display
something (look, inventory, examine) are not actions, because the observation already contains their output.
"""

import shutil
import warnings
import weakref
from collections.abc import Mapping
from functools import cached_property, partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from goalscope._ground.extras import lacking
from goalscope._ground.ids import content_id
from goalscope._ground.progress import paced
from goalscope.worlds.environments.environment import Observed, environment_kind

Facts = frozenset[Any]
_DISPLAY_COMMANDS = ("look", "inventory", "examine")


def _generated(seed: int, rooms: int, objects: int, quest_length: int) -> Any:
    """Generate a TextWorld game from a seed."""
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
    """A generated TextWorld game as an environment with known states; it is won when its quest is done.

    A state is the set of facts that hold in the game, and an action is a command.

    Args:
        rooms, objects, quest_length: as in `textworld.GameOptions`.
        seed: seed of the generation.

    Raises:
        ValueError: a game with several quests, whose progress does not follow from the facts alone.
        ImportError: TextWorld is missing.
    """

    def __init__(self, rooms: int, objects: int, quest_length: int, seed: int = 1) -> None:
        self._parameters = {"rooms": rooms, "objects": objects, "quest_length": quest_length, "seed": seed}
        self.game = _generated(seed, rooms, objects, quest_length)
        if len(self.game.quests) != 1 or any(quest.repeatable for quest in self.game.quests):
            raise ValueError(
                "a game must have exactly one quest, so that its progress follows from the facts, got "
                f"{len(self.game.quests)}: choose another seed"
            )
        self._first: Facts = frozenset(self.game.world.state.facts)
        self._instances: dict[Facts, dict[int, Facts]] = {}
        self._number: dict[str, int] = {}
        self._close()

    def _close(self) -> None:
        """Enumerate all reachable sets of facts once, to find all commands."""
        frontier, tell = [self._first], paced("game of TextWorld")
        commands: dict[Facts, dict[str, Facts]] = {}
        while frontier:
            facts = frontier.pop()
            if facts in commands:
                continue
            tell(f"{len(commands):,} states found")
            commands[facts] = {} if self.done(facts) else self._commands(facts)
            frontier += commands[facts].values()
        names = sorted({name for transitions in commands.values() for name in transitions})
        self.actions = tuple(names)
        number = {name: index for index, name in enumerate(names)}
        self._instances = {
            facts: {number[name]: next_facts for name, next_facts in transitions.items()}
            for facts, transitions in commands.items()
        }

    def _commands(self, facts: Facts) -> dict[str, Facts]:
        """Map the commands that change a state to their next states."""
        from textworld.logic import State

        game = self.game
        state = State(game.kb.logic, facts)
        transitions: dict[str, Facts] = {}
        for action in state.all_applicable_actions(game.kb.rules.values(), game.kb.types.constants_mapping):
            if action.name.split("/")[0] in _DISPLAY_COMMANDS:
                continue
            after = state.copy()
            after.apply(action)
            name = action.format_command(
                {variable.name: game.infos[variable.name].name for variable in action.variables}
            )
            next_facts = frozenset(after.facts)
            if transitions.setdefault(name, next_facts) != next_facts:
                raise ValueError(f"the command {name!r} has two different effects: choose another seed")
        return transitions

    def initial(self) -> dict[Facts, float]:
        """Return the state (set of facts) in which the game begins, with probability 1."""
        return {self._first: 1.0}

    def step(self, state: Facts, action: int) -> dict[Facts, float]:
        """Return the state (set of facts) to which a command leads, with probability 1; commands that do not apply
        change nothing.
        """
        return {self._instances[state].get(action, state): 1.0}

    def admissible(self, state: Facts) -> list[int]:
        """Return the indices of the commands whose preconditions hold in a state."""
        return sorted(self._instances[state])

    def done(self, state: Facts) -> bool:
        """Return whether the game is over in a state, because its quest is done or has failed."""
        (quest,) = self.game.quests
        return self.goal(state) or any(_holds(event, state) for event in quest.fail_events)

    def goal(self, state: Facts) -> bool:
        """Return whether the quest of the game is done in a state."""
        (quest,) = self.game.quests
        return any(_holds(event, state) for event in quest.win_events)

    def goals(self) -> dict[str, Any]:
        """Return further goals by name: to carry each portable thing.

        Each is a function that tells whether a state fulfils the goal.
        """
        goals: dict[str, Any] = {}
        for facts in self._instances:
            for fact in facts:
                if fact.name == "in" and fact.arguments[1].type == "I":
                    thing = fact.arguments[0].name
                    name = self._name(thing)
                    # The key of a grid is a hypothesis of this name.
                    goals[f"{'the key' if name == 'key' else name} held"] = partial(_carried, thing)
        return dict(sorted(goals.items()))

    def observe(self, state: Facts) -> Observed:
        """Describe a state in words: the objective, the room with its exits and things, and the inventory."""
        return Observed(text=self._text(state))

    def describe(self) -> dict[str, Any]:
        """Return what identifies the game: its parameters, and the id of the whole game, which TextWorld versions may
        change.
        """
        return {**self._parameters, "game": content_id("game", {"game": self._serialised})}

    @cached_property
    def _serialised(self) -> list[Any]:
        facts = sorted(map(str, self._first))
        names = {key: self._name(key) for key in sorted(self.game.infos)}
        return [facts, self.game.objective, list(self.actions), names]

    def play(self, seed: int) -> "_Player":
        """Begin an episode in TextWorld's own interpreter. ``seed`` is not used, because nothing in the game is
        random.
        """
        return _Player(self, str(self._compiled))

    @cached_property
    def _compiled(self) -> Path:
        """Path of the game's file, which is compiled once and deleted with this object."""
        import textworld
        from textworld.generator import compile_game

        folder = mkdtemp()
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        options = textworld.GameOptions()
        options.path = str(Path(folder) / "game.z8")
        return Path(compile_game(self.game, options))

    @cached_property
    def _by_words(self) -> dict[Facts, Facts]:
        """Map from facts in words, as the interpreter reports them, to states."""
        return {
            frozenset((fact.name, *(self._name(argument.name) for argument in fact.arguments)) for fact in facts): facts
            for facts in self._instances
        }

    def state_of(self, facts: Any) -> Facts:
        """Return the state with the facts that the interpreter reports in words; the words themselves if no state
        matches.
        """
        words = frozenset((fact.name, *(str(argument.name) for argument in fact.arguments)) for fact in facts)
        return self._by_words.get(words, words)

    def _name(self, thing: str) -> str:
        return str(self.game.infos[thing].name or thing)

    def _text(self, state: Facts) -> str:
        by_name: dict[str, list[tuple[str, ...]]] = {}
        for fact in state:
            by_name.setdefault(fact.name, []).append(tuple(argument.name for argument in fact.arguments))
        room = next(holder for thing, holder in by_name["at"] if thing == "P")
        lines = [self.game.objective, f"You are in the {self._name(room)}."]
        for direction in ("north", "south", "east", "west"):
            lines += [
                f"To the {direction} is the {self._name(neighbour)}{self._door(by_name, neighbour, room)}."
                for neighbour, origin in sorted(by_name.get(f"{direction}_of", []))
                if origin == room
            ]
        for thing, holder in sorted(by_name.get("at", [])):
            if holder == room and thing != "P":
                lines.append(f"There is a {self._name(thing)}{self._state(by_name, thing)}.")
                lines += self._within(by_name, thing)
        carried = [self._name(thing) for thing, holder in sorted(by_name.get("in", [])) if holder == "I"]
        return "\n".join([*lines, f"You carry {', '.join(carried) if carried else 'nothing'}."])

    def _door(self, facts: Mapping[str, list[tuple[str, ...]]], neighbour: str, room: str) -> str:
        doors = [door for source, door, target in facts.get("link", []) if (source, target) == (room, neighbour)]
        return "".join(f", through the {self._name(door)}{self._state(facts, door)}" for door in doors)

    def _within(self, facts: Mapping[str, list[tuple[str, ...]]], holder: str) -> list[str]:
        is_closed = any((holder,) in facts.get(name, []) for name in ("closed", "locked"))
        contents = (
            []
            if is_closed
            else [self._name(thing) for thing, container in sorted(facts.get("in", [])) if container == holder]
        )
        on_top = [self._name(thing) for thing, container in sorted(facts.get("on", [])) if container == holder]
        sentences = [f"In it: {', '.join(contents)}."] if contents else []
        return [*sentences, f"On it: {', '.join(on_top)}."] if on_top else sentences

    def _state(self, facts: Mapping[str, list[tuple[str, ...]]], thing: str) -> str:
        properties = [name for name in ("open", "closed", "locked", "edible") if (thing,) in facts.get(name, [])]
        return f" ({', '.join(properties)})" if properties else ""


def _holds(event: Any, facts: Facts) -> bool:
    return all(fact in facts for fact in event.condition.preconditions)


def _carried(thing: str, facts: Facts) -> bool:
    return any([argument.name for argument in fact.arguments] == [thing, "I"] for fact in facts if fact.name == "in")


class _Player:
    """Episode of the compiled game, played in the interpreter."""

    def __init__(self, game: TextWorldGame, file: str) -> None:
        import textworld

        self._game = game
        with warnings.catch_warnings():
            # The interpreter knows only the scores of published games, so TextWorld tracks the state itself.
            warnings.filterwarnings("ignore", message=".*is not fully supported.*")
            self._real = textworld.start(file, textworld.EnvInfos(facts=True, won=True, lost=True))
            self._info = self._real.reset()

    @property
    def state(self) -> Facts:
        """The current facts, as the interpreter reports them."""
        return self._game.state_of(self._info["facts"])

    @property
    def done(self) -> bool:
        """Whether the game is won or lost."""
        return bool(self._info["won"] or self._info["lost"])

    @property
    def goal(self) -> bool:
        """Whether the game is won."""
        return bool(self._info["won"])

    def act(self, action: int) -> None:
        """Send a command to the interpreter."""
        self._info, _, _ = self._real.step(self._game.actions[action])
