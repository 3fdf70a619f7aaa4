"""Print how often the alarm "no longer after the goal" is false, and how soon it comes after a switch.

    python benchmarks/alarms.py                    # 250 agents per row
    python benchmarks/alarms.py --agents 20        # a quick look

Each agent walks through one generated grid after the other (sizes 7 and 9), and one detector follows it through all of
them, as `goalscope.goals.monitor` does within a transcript. Agents that do not change pursue the goal with a share of
random moves (*lapse*) until the first alarm, at most 4,000 steps. The mean run to a false alarm is the number of steps
divided by the number of alarms, with the exact interval of a Poisson count. Agents that switch pursue the goal for 40
to 80 steps, then something else for at most 400; the delay is the number of steps from the switch to the alarm, its
median with the interval of its order statistics. The rivals are the default hypotheses of grids: keys and the four
corners.
"""

import argparse
import time
from collections.abc import Callable
from functools import cache

import numpy as np
from scipy import stats

from goalscope.goals.hypotheses import finite_world, parse
from goalscope.goals.hypotheses.definition import Array, FiniteWorld
from goalscope.goals.monitor import LAPSE, RUN, Detector, Monitor
from goalscope.worlds import GridWorld, generate

SEED, WORLDS, HORIZON, MOST, LATEST = 62, 120, 30, 4000, 400
LAPSES = (0.0, 0.1, 0.3, 0.5, 0.7)
SWITCHES = ("corner top-left", "flee goal", "beside goal", "random moves")
"""What agents switch to: a rival of the detector, two aims that it does not know, and nothing."""


@cache
def worlds() -> list[FiniteWorld]:
    """Return the grids of all agents."""
    rng = np.random.default_rng(SEED)
    kinds = [(size, density) for size in (7, 9) for density in (0.2, 0.4, 0.6)]
    grids = [generate(*kinds[number % len(kinds)], rng=rng) for number in range(WORLDS)]
    return [finite_world(GridWorld(grid=grid), HORIZON) for grid in grids]


@cache
def policy(text: str, number: int) -> Array:
    """Return the policy of a hypothesis in one of the worlds, uniform where it is undefined."""
    world = worlds()[number]
    try:
        return world.even if text == SWITCHES[-1] else parse(text).solved(world).policy[0]
    except ValueError:
        return world.even


def walk(
    monitor: Monitor, aim: Callable[[int], str], lapse: float, most: int, rng: np.random.Generator
) -> tuple[int, bool]:
    """Let an agent walk until the alarm; return the number of its steps, and whether there was an alarm.

    Args:
        monitor: the settings of the detector.
        aim: written hypothesis that the agent pursues at each step, by the number of the step.
        lapse: share of random moves.
        most: number of steps after which it stops.
        rng: source of its choices.
    """
    detector, steps = Detector(monitor), 0
    while True:
        number = int(rng.integers(WORLDS))
        world = worlds()[number]
        detector.begin(world)
        state = int(world.process.start.argmax())
        for decision in range(HORIZON):
            if not world.live[state]:
                break
            chances = (1 - lapse) * policy(aim(steps), number)[state] + lapse * world.even[state]
            action = int((rng.random() < np.cumsum(chances)).argmax())
            detector.update(state, decision, action)
            state, steps = int(world.process.transitions[state, action]), steps + 1
            if detector.instead or steps == most:
                return steps, bool(detector.instead)


def median(delays: Array, level: float = 0.95) -> tuple[float, float, float]:
    """Return the median of delays, inf where there was no alarm, and its interval from order statistics."""
    ordered, count = np.sort(delays), len(delays)
    rank = int(stats.binom.ppf((1 - level) / 2, count, 0.5))
    return float(ordered[count // 2]), float(ordered[max(rank - 1, 0)]), float(ordered[min(count - rank, count - 1)])


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=250, help="agents per row")
    parser.add_argument("--lapse", type=float, default=LAPSE, help="the detector's greatest share of random moves")
    arguments = parser.parse_args()
    count, began = arguments.agents, time.process_time()
    monitor = Monitor.of_worlds([world.world for world in worlds()], "goal", lapse=arguments.lapse)
    print(
        f"{count} agents per row, alarm at R = {RUN}, which covers shares of random moves up to {arguments.lapse:g}\n"
    )
    print("| share of random moves | steps | false alarms | mean run to a false alarm | 95 % interval |")
    print("| --- | --- | --- | --- | --- |")
    for lapse in LAPSES:
        runs = [walk(monitor, lambda step: "goal", lapse, MOST, stream(0, lapse, agent)) for agent in range(count)]
        steps, alarms = sum(length for length, _ in runs), sum(alarm for _, alarm in runs)
        least = 2 * steps / stats.chi2.ppf(0.975, 2 * alarms + 2)
        most = f"{2 * steps / stats.chi2.ppf(0.025, 2 * alarms):,.0f}" if alarms else "unlimited"
        mean = f"{steps / alarms:,.0f}" if alarms else "no alarm"
        print(f"| {lapse:g} | {steps:,} | {alarms:,} | {mean} | {least:,.0f} to {most} |", flush=True)
    print("\n| then pursues | share of random moves | median delay in steps | 95 % interval | alarms | before |")
    print("| --- | --- | --- | --- | --- | --- |")
    for number, then in enumerate(SWITCHES):
        for lapse in LAPSES[:4] if then != SWITCHES[-1] else LAPSES[:1]:
            delays, before = list[float](), 0
            for agent in range(count):
                rng = stream(1 + number, lapse, agent)
                switch = int(rng.integers(40, 81))
                aim = aims(switch, then)
                steps, alarm = walk(monitor, aim, lapse, switch + LATEST, rng)
                before += alarm and steps <= switch
                if not alarm or steps > switch:
                    delays.append(steps - switch if alarm else np.inf)
            middle, low, high = median(np.array(delays))
            detected = f"{np.isfinite(delays).sum()} of {len(delays)}"
            print(f"| {then} | {lapse:g} | {middle:g} | {low:g} to {high:g} | {detected} | {before} |", flush=True)
    print(f"\n{time.process_time() - began:.0f} s of processor time")


def aims(switch: int, then: str) -> Callable[[int], str]:
    """Return what an agent pursues at each step: the goal, and something else from a step on."""
    return lambda step: "goal" if step < switch else then


def stream(row: int, lapse: float, agent: int) -> np.random.Generator:
    """Return the random numbers of one agent."""
    return np.random.default_rng([SEED, row, round(100 * lapse), agent])


if __name__ == "__main__":
    main()
