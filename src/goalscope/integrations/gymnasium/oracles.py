"""The oracle around an environment of Gymnasium, or around each of a vectorised one."""

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
    """Return an environment of Gymnasium with an exact oracle in its ``info``; all else stays as it is.

    ``info["goalscope"]`` holds, after `reset` and each step, "optimal" (``[A]`` bool), "distance" (steps, -1 where
    there is none) and, of the action just taken, "was_optimal" and "regret": steps that it lost, infinite where the
    goal is out of reach since; with chance, expected decisions at the goal that it lost. After the last step "episode"
    holds what the whole episode shows, see `goalscope.integrations.gymnasium.wrapper.OracleEnv`.

    Args:
        env: one with a table ``P`` or a level of MiniGrid or BabyAI, in any wrappers that leave actions and ends as
            they are; a vectorised environment that has its environments here (its ``envs`` are wrapped). Others:
            ``gymnasium.make_vec(..., wrappers=[oracle])``.
        environment, state: for any other environment its rules, and a function of ``env.unwrapped`` to its state.
        goals: the goals whose MEG "episode" holds, None for all that the environment names, () for none.
        horizon: decisions that MEG takes; by default ``int(1.5 shortest) + 1``, with chance the time limit.
        limit: most states that a layout may have, see `enumerate_states`; of a search, that it may expand.
        search: whether optimal sets are searched for in the states that are met, by A*, in place of a table of all: for
            levels that are too large for one, without chance, and without MEG.

    Raises:
        ValueError: an environment whose state cannot be read, or that is too large.
        Mismatch: at `reset` or `step`: one that does not do what its table says.
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
            f"a vectorised environment must have its environments in this process, got {type(env).__name__}: make it "
            "with the wrapper inside, e.g. gymnasium.make_vec(name, n, wrappers=[oracle])"
        )
    return OracleEnv(env, environment=environment, state=state, **options)
