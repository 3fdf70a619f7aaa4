"""Training data of Ariadne: walks of noised teachers through generated task maps, and the sequences made of them."""

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Final

import numpy as np

from goalscope._ground.rng import stream
from goalscope.agents.prompts import STRATEGIES, system_prompt
from goalscope.worlds.grid import ACTIONS
from goalscope.worlds.tasks.generate import PRESETS, generate_task_map
from goalscope.worlds.tasks.knowledge import AgentKnowledge, memory_text, report_text
from goalscope.worlds.tasks.taskmap import MOVES, Cell, TaskMap
from goalscope.worlds.tasks.world import TaskState
from training.task_teach import Decision, Teacher, aims, decide, fields, good_moves, teacher_of
from training.task_tree import Floats, TaskBatch, Tree, pack
from training.task_vocabulary import ANSWER, CLOSE, GOING, THEN, cell_piece, vocabulary
from training.tokens import CHANNEL, END, MESSAGE, RETURN, START

NOISES: Final = (0.0, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6)
"""Probabilities of a move that is not the teacher's; each walk has one of them."""
HELD_OUT: Final = 10**12
"""First seed of the held-out maps; those of the training are far below, those of studies are hashes of 63 bits."""
_TOLD: Final = f"{START}user{MESSAGE}OBSERVATION: "
_ANSWERED: Final = f"{END}{START}assistant{CHANNEL}final{MESSAGE}"
_ASKS: Final = f"{RETURN}{_TOLD}"
_GOES_ON: Final = 0.4  # probability that a stray move is followed by another one
_BLOCKED: Final = 0.15  # share of stray moves that may run into nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMixture:
    """What a stage of training is made of.

    Attributes:
        seed: root seed.
        tokens: tokens of a step, about.
        presets: presets of the maps, each as often as the others.
        memory_share: share of the episodes whose prompts hold the summary.
        easy: share of the turns that are asked about where the nearest target is one move away.
        hard: share of the other turns.
        room: cells of a map from which on these shares shrink in proportion, since its walks are longer.
        summarised: what these shares are multiplied by where the prompt holds the summary, which takes many tokens.
        others: further cells that the plan is asked from, without and with the summary.
        steps: steps whose episodes are drawn together.

    Raises:
        ValueError: an unknown preset.
    """

    seed: int = 0
    tokens: int = 4000
    presets: tuple[str, ...] = tuple(name for name, spec in PRESETS.items() if spec.corridors == "nearest")
    memory_share: float = 0.5
    easy: float = 0.2
    hard: float = 0.7
    room: int = 24
    summarised: float = 0.6
    others: tuple[int, int] = (3, 8)
    steps: int = 16

    def __post_init__(self) -> None:
        unknown = [name for name in self.presets if name not in PRESETS]
        if unknown or not self.presets:
            raise ValueError(f"presets must be some of {', '.join(PRESETS)}, got {', '.join(unknown) or 'none'}")


def task_block(mixture: TaskMixture, number: int) -> list[TaskBatch]:
    """Return the batches of the steps ``number * steps .. (number + 1) * steps - 1``; they depend on nothing else."""
    rng = stream(mixture.seed, "ariadne-block", number)
    # Walks differ in length: they are dealt out so that no step consists of one kind alone.
    made: list[TaskBatch] = []
    total, first = 0, number * mixture.steps * mixture.tokens
    while total < mixture.steps * mixture.tokens or len(made) < mixture.steps:
        preset = mixture.presets[int(rng.integers(len(mixture.presets)))]
        task_map = generate_task_map(preset, seed=first + len(made))
        batch = episode(task_map, mixture, rng)
        if batch is not None:
            made.append(batch)
            total += batch.tokens.shape[1]
    order = rng.permutation(len(made))
    shares = np.array_split(order, mixture.steps)
    return [pack([made[index] for index in share]) for share in shares]


def episode(task_map: TaskMap, mixture: TaskMixture, rng: np.random.Generator) -> TaskBatch | None:
    """Return the sequence of one walk, None where the walk has nothing to ask about."""
    strategy = STRATEGIES[int(rng.integers(len(STRATEGIES)))]
    memory, reasoned = bool(rng.random() < mixture.memory_share), bool(rng.random() < 0.5)
    return Walk(task_map, mixture, rng, strategy=strategy, reasoned=reasoned, memory=memory).batch()


class Walk:
    """One walk of a noised teacher, told as a conversation.

    Args:
        task_map: where it takes place.
        mixture: how often it is asked about.
        rng: where all that is random comes from.
        strategy: strategy of the prompt, see `teacher_of`.
        reasoned: whether answers state their target.
        memory: whether prompts hold the summary.
    """

    def __init__(
        self,
        task_map: TaskMap,
        mixture: TaskMixture,
        rng: np.random.Generator,
        *,
        strategy: str,
        reasoned: bool,
        memory: bool,
    ) -> None:
        self.mixture, self.rng = mixture, rng
        self.strategy, self.reasoned, self.summarised = strategy, reasoned, memory
        self.teacher: Teacher = teacher_of(strategy, rng)
        self.noise = NOISES[int(rng.integers(len(NOISES)))]
        self.world, self.memory = TaskState(task_map), AgentKnowledge()
        self.memory.add(self.world.report())
        self.tree = Tree(reasoned=reasoned)
        self.tree.told(encode(f"{_opening(strategy, reasoned, memory)}{report_text(self.world.report())}"))
        self._straying = False

    def batch(self) -> TaskBatch | None:
        """Walk to the end and return the sequence."""
        while self.world.ending is None:
            own = decide(self.memory, self.teacher, self.world.board.cell(self.world.position), self.rng)
            if own is None:
                raise AssertionError("an agent of an unfinished task world has a target, and does not stand on it")
            self._observed()
            self._ask(own)
            self._go(own)
        return self.tree.batch() if self.tree.decisions else None

    def _observed(self) -> None:
        here = self.world.board.cell(self.world.position)
        beside = [
            1 if near in self.memory.visited else 2 if near in self.memory.frontier else 0 for near in self._beside()
        ]
        ways: Floats = np.zeros((2, 4), dtype=np.float32)
        names: tuple[Teacher, Teacher] = ("greedy", "explore-first")
        for number, teacher in enumerate(names):
            good = good_moves(fields(self.memory, aims(self.memory, teacher)), here)
            ways[number, [int(action) for action in good]] = 1 / len(good)
        self.tree.observed(beside, ways)

    def _beside(self) -> list[Cell]:
        x, y = self.world.board.cell(self.world.position)
        return [(x + right, y + up) for right, up in MOVES.values()]

    def _ask(self, own: Decision) -> None:
        easy = own.target in self._beside() and not self.memory.pending
        share = self.mixture.easy if easy else self.mixture.hard
        share *= min(1.0, self.mixture.room / len(self.world.map.cells))
        if self.rng.random() >= share * (self.mixture.summarised if self.summarised else 1.0):
            return
        visited = list(self.memory.visited)
        number = self.mixture.others[self.summarised]
        others = []
        for index in self.rng.integers(len(visited), size=number).tolist():
            other = decide(self.memory, self.teacher, visited[index], self.rng)
            if other is not None and other.origin != own.origin:
                others.append(other)
        summary = encode(f"\n\nSUMMARY:\n{memory_text(self.memory)}") if self.summarised else ()
        self.tree.ask(summary, own, others, whole=bool(self.rng.random() < 0.35))

    def _go(self, own: Decision) -> None:
        chance = _GOES_ON if self._straying else self.noise
        self._straying = self.noise > 0 and bool(self.rng.random() < chance)
        action, target = own.move, own.target
        if self._straying:
            known = [*self.memory.visited, *self.memory.frontier]
            target = known[int(self.rng.integers(len(known)))]
            choice = ACTIONS if self.rng.random() < _BLOCKED else self.memory.available
            action = choice[int(self.rng.integers(len(choice)))]
        self.world.move(action)
        self.memory.add(self.world.report(), action)
        if self.world.ending is None:
            answer = f"{ANSWER}{action.name.lower()}{CLOSE}"
            if self.reasoned:
                answer = f"{GOING}{cell_piece(target)}{THEN}{answer}"
            self.tree.told(encode(f"{_ANSWERED}{answer}{_ASKS}{report_text(self.world.report())}"))


@cache
def _tokenizer() -> Any:
    return vocabulary().tokenizer().backend_tokenizer


@lru_cache(maxsize=1 << 15)
def encode(text: str) -> tuple[int, ...]:
    """Return the tokens of a text."""
    return tuple(_tokenizer().encode(text, add_special_tokens=False).ids)


@cache
def _opening(strategy: str, reasoned: bool, memory: bool) -> str:
    """Return a chat up to its first observation, as the chat template writes it."""
    return f"{START}system{MESSAGE}{system_prompt('', strategy, reasoned, memory, form='schema')}{END}{_TOLD}"
