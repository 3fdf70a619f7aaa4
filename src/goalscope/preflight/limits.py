"""What a local model has no room for, or never saw in its training: said before anything is run."""

from collections.abc import Iterator, Mapping
from typing import Any

from goalscope.agents.model_agent import ModelAgent
from goalscope.models.devices import model_folder
from goalscope.models.loading import read_json
from goalscope.preflight.token_counts import counter, prompts_of
from goalscope.runs import Study
from goalscope.untrusted import decode_object
from goalscope.worlds.world import World


def beyond_reach(study: Study) -> list[str]:
    """Return one line for each agent and each way in which the largest world of a study is too much for its model.

    Read are the positions and, for models trained by this package, the sizes of the grids in their training; models
    whose configuration is not on this machine are passed over.
    """
    found = []
    for agent, entry in zip(study.agents(), study.agents_, strict=True):
        if isinstance(agent, ModelAgent):
            found += [f"{agent.name}: {line}" for line in _lines(study, agent, entry.parameters)]
    return found


def _lines(study: Study, agent: ModelAgent, given: Mapping[str, Any]) -> Iterator[str]:
    configuration = _configuration(given)
    if configuration is None:
        return
    world = max(study.worlds(), key=_cells)
    positions = configuration.get("max_position_embeddings")
    count, how = counter(agent, given)
    if isinstance(positions, int) and how.startswith("by"):
        last = prompts_of(study, agent, world, study.horizon.of(world), count).last
        if last >= positions:
            yield (
                f"a prompt of the largest world may take {last:,} tokens and the model has {positions:,} positions; "
                "an episode that comes so far stops the run: use smaller worlds, a shorter history or another model"
            )
    trained = _trained(configuration)
    if trained and hasattr(world, "grid"):
        side = max(world.grid.height, world.grid.width)
        if side > max(trained):
            yield (
                f"it was trained on grids of up to {max(trained)}x{max(trained)} and this study has "
                f"{world.grid.height}x{world.grid.width}: what it does there says how it copes with what it never saw"
            )


def _cells(world: World) -> int:
    return world.grid.height * world.grid.width if hasattr(world, "grid") else 0


def _configuration(given: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if "server" in given:
        return None
    folder = model_folder(given["model"])
    if folder is None:
        return None
    try:
        return read_json(folder / "config.json")
    except (OSError, ValueError):
        return None  # reading the model says what is wrong with it


def _trained(configuration: Mapping[str, Any]) -> list[int]:
    """Return the sizes of the grids in the training of a model of this package; empty where they are not told."""
    try:
        told = decode_object(configuration["goalscope"]["training_data"])["sizes"]
    except (KeyError, TypeError, ValueError):
        return []
    return [size for size in told if isinstance(size, int)] if isinstance(told, list) else []
