"""Ariadne's training data and tokenizer: prompts are the real ones, labels what the teachers do, no text is lost."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
import torch
from ariadne_prompts import Silent, encoded, prompts, tokenizer
from hypothesis import given
from hypothesis import strategies as st

from families import long_after
from goalscope._ground.rng import stream
from goalscope.agents import STRATEGIES, ExploreFirst, Greedy, NoisyGreedy, Observation, TaskChatAgent, parse_action
from goalscope.measures.exploration import score_episode
from goalscope.worlds import Action
from goalscope.worlds.tasks import MOVES, PRESETS, AgentKnowledge, Cell, TaskState, TaskView, generate_task_map
from task_observations import task_observation
from training.network import Places, Shape, forward, initialise
from training.task_data import TaskMixture, Walk, task_block
from training.task_teach import TEACHERS, aims, decide, fields, good_moves, teacher_of
from training.task_tree import FIRST_CELL, Tree, cell_id, pack
from training.task_vocabulary import ASKED, STEPS, VOCABULARY_SIZE, cell_piece, pieces, vocabulary
from training.tokens import SPECIAL, Vocabulary

SMALL = TaskMixture(presets=("medium-medium", "high-small"), tokens=700, steps=3)


def memories(preset: str = "medium-large", *, episodes: int = 4) -> Iterator[tuple[AgentKnowledge, Observation]]:
    """Yield what a noisy walker knows before each of its steps."""
    for seed in range(episodes):
        world, seen, step = TaskState(generate_task_map(preset, seed=seed)), AgentKnowledge(), 0
        seen.add(world.report())
        while world.ending is None:
            observation = Observation(view=TaskView(memory=seen), step=step, seed=seed)
            yield seen, observation
            action = NoisyGreedy(epsilon=0.4).act([observation])[0].action
            world.move(action)
            seen.add(world.report(), action)
            step += 1


def test_the_scripted_agents_make_a_move_of_their_teacher() -> None:
    count = 0
    for memory, observation in memories():
        assert memory.position is not None
        for teacher, agent in (("greedy", Greedy()), ("explore-first", ExploreFirst())):
            move = agent.act([observation])[0].action
            away = fields(memory, aims(memory, teacher))  # type: ignore[arg-type]
            assert move in good_moves(away, memory.position)
            count += 1
    assert count > 200


def test_decisions_are_the_nearest_targets_and_all_shortest_ways_found_without_a_search() -> None:
    rng = stream(1, "test")
    for memory, _ in memories("8x8", episodes=2):
        cells = [*memory.visited, *memory.frontier]
        steps = all_distances(cells)
        wanted = {teacher: aims(memory, teacher) for teacher in TEACHERS}
        for teacher in TEACHERS:
            origin = list(memory.visited)[int(rng.integers(len(memory.visited)))]
            found = decide(memory, teacher, origin, rng)
            if origin in wanted[teacher]:
                assert found is None
                continue
            assert found is not None
            here = cells.index(origin)
            far = {cell: steps[here, cells.index(cell)] for cell in wanted[teacher]}
            nearest = {cell for cell in far if far[cell] == min(far.values())}
            left = {cell: steps[:, cells.index(cell)] for cell in nearest}
            after = {action: cells.index(step(origin, action)) for action in MOVES if step(origin, action) in cells}
            leading = {
                action: {cell for cell in nearest if left[cell][place] < left[cell][here]}
                for action, place in after.items()
            }
            assert set(found.options) == {action for action, led in leading.items() if led}
            assert set(found.targets) == leading[found.move] and found.target in found.targets


def all_distances(cells: list[Cell]) -> np.ndarray:
    """Return all distances by Floyd's and Warshall's algorithm."""
    places = np.array(cells)
    apart = np.abs(places[:, None] - places[None]).sum(axis=-1)
    steps = np.where(apart <= 1, apart, 10_000)
    for middle in range(len(cells)):
        steps = np.minimum(steps, steps[:, [middle]] + steps[[middle]])
    return steps


def step(cell: Cell, action: Action) -> Cell:
    right, up = MOVES[action]
    return cell[0] + right, cell[1] + up


@pytest.mark.parametrize("teacher", TEACHERS)
def test_an_episode_of_a_teacher_has_no_error(teacher: str) -> None:
    for seed in range(8):
        task_map = generate_task_map("low-small" if seed % 2 else "high-large", seed=seed)
        world, memory, actions = TaskState(task_map), AgentKnowledge(), list[Action]()
        memory.add(world.report())
        while world.ending is None:
            assert memory.position is not None
            found = decide(memory, teacher, memory.position, stream(2, "test", seed))  # type: ignore[arg-type]
            assert found is not None
            world.move(found.move)
            memory.add(world.report(), found.move)
            actions.append(found.move)
        summary = score_episode(task_map, actions).summary
        assert not summary.exploration_errors and not summary.exploitation_errors


def test_strategies_name_their_teachers() -> None:
    rng = stream(3, "test")
    assert teacher_of("exploration", rng) == "explore-first"
    assert teacher_of("exploitation", rng) == "greedy"
    assert teacher_of("balance", rng) == "nearer"
    assert {teacher_of("base", rng) for _ in range(50)} == {"greedy", "explore-first"}
    with pytest.raises(ValueError, match="strategy"):
        teacher_of("bold", rng)


@pytest.mark.parametrize("memory", long_after(2, [False, True]))
@pytest.mark.parametrize("reasoned", [False, True])
def test_every_question_follows_the_tokens_of_the_real_prompt(
    memory: bool, reasoned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[int]] = []
    answers: list[str] = []
    for preset, strategy in zip(("low-large", "high-large", "medium-medium", "8x8"), STRATEGIES, strict=True):
        agent = TaskChatAgent(model=Silent(), template="schema", strategy=strategy, reasoned=reasoned, memory=memory)  # type: ignore[arg-type]
        walk = Walk(
            generate_task_map(preset, seed=5),
            TaskMixture(easy=0.2, hard=0.6),
            stream(5, "test", preset),
            strategy=strategy,
            reasoned=reasoned,
            memory=memory,
        )
        asked.clear()
        answers.clear()
        grow, ask = walk.tree.told, walk.tree.ask

        def told(tokens: tuple[int, ...], grow=grow) -> None:  # type: ignore[no-untyped-def]
            text = "".join(pieces()[token] for token in tokens)
            answers.append(text.split("final<|message|>")[1].split("<|return|>")[0])
            grow(tokens)

        def asks(*given, walk=walk, agent=agent, ask=ask, **more) -> None:  # type: ignore[no-untyped-def]
            now = task_observation(walk.memory, answers, history_as="conversation")
            chat = [{"role": one.role, "content": one.content} for one in agent.messages(now)]
            text = tokenizer().apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
            asked.append(tokenizer().encode(text, add_special_tokens=False))
            ask(*given, **more)

        monkeypatch.setattr(walk.tree, "told", told)
        monkeypatch.setattr(walk.tree, "ask", asks)
        batch = walk.batch()
        assert batch is not None and len(asked) > 2
        heads = np.flatnonzero(batch.tokens[0] == vocabulary().ids[ASKED])
        for head, prompt in zip(heads, asked, strict=True):
            seen = batch.allowed[0][head]
            assert batch.tokens[0][seen].tolist() == prompt
            assert batch.positions[seen].tolist() == list(range(len(prompt)))


def test_a_whole_answer_states_the_move_of_its_trace() -> None:
    memory = next(memory for memory, _ in memories() if len(memory.turns) == 12)
    assert memory.position is not None
    found = decide(memory, "greedy", memory.position, stream(1, "test"))
    assert found is not None
    for reasoned in (False, True):
        text = "".join(pieces()[token] for token in Tree(reasoned=reasoned).answer(found))
        said = text.removeprefix("<|end|><|start|>assistant<|channel|>final<|message|>").removesuffix("<|return|>")
        assert parse_action(said).action == found.move
        assert (cell_piece(found.target) in said) == reasoned


def test_labels_are_right_answers() -> None:
    for batch in task_block(SMALL, 0):
        aiming, moving = batch.targets.any(axis=1), batch.moves.sum(axis=1) > 0
        assert batch.targets[np.flatnonzero(aiming), batch.labels[aiming] - FIRST_CELL].all()
        steps = vocabulary().encode(STEPS)
        assert (batch.moves[np.flatnonzero(moving), [steps.index(label) for label in batch.labels[moving]]] > 0).all()
        assert batch.own.sum() == 2 * (batch.tokens == vocabulary().ids[ASKED]).sum()
        np.testing.assert_allclose(batch.ways.sum(axis=-1), 1.0, rtol=1e-6)
        assert (batch.ways[:, 0][batch.beside == 0] == 0).all()


def test_a_block_depends_on_its_number_and_seed_alone() -> None:
    def told(number: int, seed: int = 0) -> list[bytes]:
        mixture = TaskMixture(presets=SMALL.presets, tokens=SMALL.tokens, steps=SMALL.steps, seed=seed)
        return [batch.tokens.tobytes() for batch in task_block(mixture, number)]

    assert told(1) == told(1)
    assert told(1) != told(2) and told(1) != told(1, seed=9)
    assert len(told(1)) == SMALL.steps


def test_a_branch_reads_as_the_prompt_alone_and_packed_sequences_as_each_by_itself() -> None:
    shape = Shape(width=32, layers=3, heads=2, key_heads=1, head_width=16, expert_width=16, vocabulary=1824)
    weights = initialise(shape, torch.Generator().manual_seed(1))
    first, second = task_block(TaskMixture(presets=("high-small",), tokens=900, steps=2), 0)
    both = pack([first, second])
    places = Places.packed(both.allowed, both.positions, both.wanted)
    with torch.no_grad():
        whole = forward(weights, shape, torch.from_numpy(both.tokens), places)[0][0]
    begins = np.cumsum([0, *(len(mask) for mask in both.allowed)])
    assert len(begins) > 3
    checked = 0
    for row in range(0, len(both.wanted), 7):
        place = int(both.wanted[row])
        number = int(np.searchsorted(begins, place, side="right")) - 1
        seen = np.flatnonzero(both.allowed[number][place - begins[number]]) + begins[number]
        alone = torch.from_numpy(both.tokens[:, seen])
        assert both.positions[seen].tolist() == list(range(len(seen)))
        plain = Places.of(np.tri(len(seen), dtype=bool), np.arange(len(seen)), np.array([len(seen) - 1]))
        with torch.no_grad():
            expected = forward(weights, shape, alone, plain)[0][0, 0]
        torch.testing.assert_close(whole[row], expected, rtol=1e-4, atol=1e-4)
        checked += 1
    assert checked > 20


def test_cells_have_consecutive_tokens() -> None:
    assert [cell_id((x, -1)) for x in range(-1, 11)] == list(range(FIRST_CELL, FIRST_CELL + 12))
    assert all(later - one == 1 for one, later in pairwise(cell_id((x, 4)) for x in range(11)))
    assert pieces()[cell_id((3, 7))] == " [3, 7]"
    with pytest.raises(ValueError, match=r"-1.*10"):
        cell_id((11, 0))
    with pytest.raises(ValueError, match="presets must be some of"):
        TaskMixture(presets=("huge",))


# Ariadne's tokenizer keeps every text, and knows every word of the prompts of task worlds.


@pytest.mark.parametrize("preset", long_after(2, PRESETS))
def test_prompts_of_real_episodes_hold_known_tokens_only_survive_and_fit(preset: str) -> None:
    for number, strategy in enumerate(STRATEGIES):
        for reasoned in (False, True):
            found, seen = prompts(preset, strategy=strategy, reasoned=reasoned, memory=(number + reasoned) % 2 > 0)
            assert len(found) > 0
            for text in found:
                tokens = encoded(text)
                assert tokenizer().decode(tokens) == text
                assert max(tokens) < len(pieces())
            # What an episode takes at its end, with room for an output.
            assert len(encoded(found[-1])) < vocabulary().positions - 100
            assert len(seen.turns) > 3


def test_a_step_without_a_state_takes_three_tokens() -> None:
    step = (
        '<|end|><|start|>assistant<|channel|>final<|message|>{"action": "up"}<|return|>'
        "<|start|>user<|message|>OBSERVATION: You are at [3, 10]. There is nothing here. You can go up, left."
    )
    assert [pieces()[token] for token in encoded(step)][1:] == [
        " [3, 10]",
        ". There is nothing here. You can go up, left.",
    ]


@given(st.lists(st.one_of(st.sampled_from(pieces()), st.text(max_size=8)), max_size=10).map("".join))
def test_any_mixture_of_pieces_and_text_survives(text: str) -> None:
    assert tokenizer().decode(encoded(text)) == text


def test_every_piece_is_one_token_with_its_own_number() -> None:
    assert len(tokenizer()) == VOCABULARY_SIZE
    for piece in pieces():
        assert encoded(piece) == vocabulary().encode([piece])


@pytest.mark.parametrize(
    ("pieces_", "size", "words"),
    [
        ((*SPECIAL, "a", "a"), 400, "differ"),
        ((*SPECIAL, "a"), 260, "room for 256 bytes"),
        (("a", *SPECIAL), 400, "begin with"),
    ],
)
def test_a_vocabulary_that_cannot_be_is_refused(pieces_: tuple[str, ...], size: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Vocabulary(size=size, positions=10, pieces=pieces_, opening="")
