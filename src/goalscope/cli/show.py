"""The command `show`: options and help; what it does stands in `goalscope.cli.transcripts`."""

from typing import Annotated

import typer

from goalscope.cli.help import RunDirectory, flag, option

Episode = Annotated[
    str | None, typer.Argument(metavar="EPISODE", help="How its id begins; a list of episodes if left out.")
]


def show(
    run: RunDirectory,
    episode: Episode = None,
    agent: Annotated[str | None, option("NAME", "Only episodes of this agent.")] = None,
    world: Annotated[str | None, option("ID", "Only episodes in worlds whose id begins so.")] = None,
    outcome: Annotated[
        str | None, option("WHICH", "Only episodes that ended so: goal, horizon, failure, stopped or ended.")
    ] = None,
    failures: Annotated[bool, flag("--failures", "Only episodes with turns that held no action.")] = False,
    full: Annotated[bool, flag("--full", "Every line of every prompt, also those that did not change.")] = False,
    limit: Annotated[int, option("N", "Most episodes of the list.", min=1)] = 20,
) -> None:
    """Show an episode step by step: prompt, reasoning, answer, whether it was valid and optimal; or list episodes."""
    from goalscope.cli.transcripts import Filter, list_episodes, show_episode

    chosen = Filter(agent=agent, world=world, outcome=outcome, failures=failures)
    if episode is None:
        list_episodes(run, chosen, limit)
    else:
        show_episode(run, episode, chosen, full=full)
