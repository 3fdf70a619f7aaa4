"""Runs that ask the same weights at once: who shares a batch depends on what is asked, not on when."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from goalscope._ground.rng import stream
from goalscope.agents.models.decode import Decoded, Decoding
from goalscope.agents.models.gathering import Gathering

ROUNDS = {0: [[10], [11, 12], [13]], 1: [[20, 21]], 2: [[30], [31]]}
"""Run -> what it asks in each call."""
SETTINGS = Decoding()


def played(delays: dict[int, float], asks: Callable[[int], Decoding] = lambda number: SETTINGS) -> tuple[Any, Any, Any]:
    """Return the batches, the answers of each run, and what each raised, with runs that dally."""
    gathering, batches = Gathering(len(ROUNDS)), list[list[int]]()
    answers: dict[int, list[int]] = {number: [] for number in ROUNDS}
    raised = dict[int, BaseException]()

    def decode(settings: Decoding, prompts: Sequence[Sequence[int]], rngs: Any, arrived: Any) -> None:
        batches.append([prompt[0] for prompt in prompts])
        arrived([])
        for index in reversed(range(len(prompts))):
            arrived([(index, Decoded(tokens=[prompts[index][0] + 100]))])

    def run(number: int) -> None:
        try:
            for asked in ROUNDS[number]:
                time.sleep(delays[number])
                found = dict[int, int]()

                def take(new: Sequence[tuple[int, Decoded]], found: dict[int, int] = found) -> None:
                    if new and delays[number] < 0.0001 and number == 1:
                        raise ValueError("of one run")
                    found.update((index, output.tokens[0]) for index, output in new)

                rngs = [stream(0, "gathering", each) for each in asked]
                gathering.ask(number, decode, asks(number), [[each] for each in asked], rngs, take)
                answers[number] += [found[index] for index in range(len(asked))]
        except ValueError as error:
            raised[number] = error
        finally:
            gathering.leave(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in ROUNDS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return batches, answers, raised


@pytest.mark.parametrize("seed", range(3))
def test_batches_hold_what_all_runs_ask_whoever_is_late(seed: int) -> None:
    rng = np.random.default_rng(seed)
    batches, answers, raised = played({number: float(rng.uniform(0.001, 0.05)) for number in ROUNDS})
    assert batches == [[10, 20, 21, 30], [11, 12, 31], [13]] and not raised
    assert answers == {number: [each + 100 for asked in calls for each in asked] for number, calls in ROUNDS.items()}


def test_an_error_of_one_run_is_its_own() -> None:
    batches, answers, raised = played({0: 0.001, 1: 0.0, 2: 0.001})
    assert batches == [[10, 20, 21, 30], [11, 12, 31], [13]] and list(raised) == [1]
    assert answers[0] == [110, 111, 112, 113] and answers[2] == [130, 131]


def test_other_settings_are_a_batch_of_their_own() -> None:
    batches, answers, _ = played(dict.fromkeys(ROUNDS, 0.001), lambda number: Decoding(temperature=0.1 * (number == 1)))
    assert batches == [[10, 30], [20, 21], [11, 12, 31], [13]]
    assert answers[1] == [120, 121]
