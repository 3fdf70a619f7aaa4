"""Wrap a Gymnasium environment, or each environment of a vectorised environment, with the oracle."""

from collections.abc import Sequence
from typing import Any

from goalscope.integrations.gymnasium.live import StateOf
from goalscope.worlds.environments.environment import Environment
from goalscope.worlds.environments.table import LIMIT


def oracle(
    env: Any,
    *,
    environment: Environment[Any] | None = None,
    state: StateOf | None = None,
    goals: Sequence[str] | None = ("goal",),
    horizon: int | None = None,
    limit: int = LIMIT,
    search: bool = False,
) -> Any:
    """Wrap a Gymnasium environment so that ``info`` contains exact optimal actions; nothing else changes.

    After `reset` and after each step, ``info["goalscope"]`` contains "optimal" (``[A]`` bool) and "distance" (steps,
    or -1 if undefined). After a step it also contains "was_optimal" and "regret" for the action just taken. Regret is
    the number of steps that the action lost, and infinite if the action put the goal out of reach. In a stochastic
    environment it is the expected number of decisions at the goal that were lost. After the last step, "episode"
    summarises the episode, see `goalscope.integrations.gymnasium.wrapper.OracleEnv`.

    Args:
        env: an environment with a table ``P``, or a MiniGrid or BabyAI level. It may have wrappers that do not change
            actions or episode ends. A vectorised environment with an attribute ``envs`` in this process works too. For
            other vectorised environments, use ``gymnasium.make_vec(..., wrappers=[oracle])``.
        environment, state: for any other environment, its rules and a function that maps ``env.unwrapped`` to its
            state.
        goals: names of the goals whose MEG is in "episode"; None for all goals of the environment, () for none.
        horizon: number of decisions for MEG; by default ``int(1.5 shortest) + 1``, or the time limit if the
            environment is stochastic.
        limit: maximum number of states of a layout, see `enumerate_states`, or of states that a search expands.
        search: whether to find optimal actions by A* search from each visited state instead of enumerating all states.
            Use it for deterministic levels that are too large to enumerate; MEG is then not available.

    Raises:
        ValueError: an environment whose state cannot be read, or that is too large.
        Mismatch: during `reset` or `step`, an environment that behaves differently from its table.
        ImportError: Gymnasium is missing.
    """
    from goalscope.integrations.gymnasium.wrapper import OracleEnv

    options: dict[str, Any] = {"goals": goals, "horizon": horizon, "limit": limit, "search": search}
    holder = getattr(env, "unwrapped", env)
    if isinstance(inner := getattr(holder, "envs", None), list | tuple):
        holder.envs = type(inner)(
            oracle(environment_inside, environment=environment, state=state, **options) for environment_inside in inner
        )
        return env
    if hasattr(env, "num_envs"):
        raise ValueError(
            f"a vectorised environment must run in this process, got {type(env).__name__}: wrap each "
            "environment when you make it, gymnasium.make_vec(name, n, wrappers=[oracle])"
        )
    return OracleEnv(env, environment=environment, state=state, **options)
