"""goalscope's grids as Gymnasium environments. Importing this module registers "goalscope/Grid-v0".

Observations are planes, symbols or text, and ``info`` contains the optimal actions. An episode ends at the goal or
after a multiple of the length of the shortest path, as in a study.
"""

import math
from typing import Any, ClassVar, Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_number
from goalscope._ground.extras import lacking
from goalscope.agents.policies import PLANES, planes
from goalscope.worlds.dynamics import State, initial_state, shown, step
from goalscope.worlds.generate import generate
from goalscope.worlds.grid import ACTIONS, Grid, symbols
from goalscope.worlds.gridworld import GridView, GridWorld
from goalscope.worlds.planning.shortest import ShortestPaths, solve

try:
    import gymnasium
except ImportError as _error:
    raise lacking("goalscope's worlds as environments need gymnasium", "gymnasium", _error) from _error

Form = Literal["planes", "symbols", "text"]
NAME: Final = "goalscope/Grid-v0"
"""The registered name, for `gymnasium.make`."""
SYMBOLS: Final = "_#AGKD"
"""The symbols of a grid; an observation of symbols holds their indices."""

_PIXELS = 16  # height and width of a cell in pictures
_COLOURS = np.array(
    [(255, 255, 255), (60, 60, 60), (40, 90, 220), (40, 160, 60), (220, 180, 30), (160, 90, 30)], dtype=np.uint8
)  # colours in the order of SYMBOLS


class GridEnv(gymnasium.Env):  # type: ignore[misc]
    """Gymnasium environment of grid worlds; it generates a new grid for each episode or always uses the same grid.

    The actions are those of `goalscope.worlds.Action`, and the reward is 1 on entering the goal. ``info`` contains
    "optimal", ``[4]`` bool, which marks the actions on shortest paths; "distance", the number of steps to the goal; and
    "grid", the whole grid as text.

    Args:
        size, density: size and wall density of generated grids, see `goalscope.worlds.generate`.
        grid: a grid as text, used in every episode.
        form: form of observations: "planes" (``[6, H, W]`` float32, see `PLANES`), "symbols" (``[H, W]`` int64, see
            `SYMBOLS`; rows by columns) or "text".
        factor: maximum number of actions per episode, as a multiple of the shortest path, rounded up.
        render_mode: "ansi", "rgb_array" or None.

    Raises:
        ValueError: an unknown form, a factor out of range, or a grid whose goal cannot be reached.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}
    _grid: Grid
    _paths: ShortestPaths
    _state: State
    _left: int

    def __init__(
        self,
        size: int = 9,
        density: float = 0.4,
        grid: str | None = None,
        form: Form = "planes",
        factor: float = 1.5,
        render_mode: str | None = None,
    ) -> None:
        if form not in get_args(Form):
            raise ValueError(f"form must be one of {', '.join(get_args(Form))}, got {form!r}: set form to one of these")
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode must be ansi, rgb_array or None, got {render_mode!r}")
        self._form, self._factor = form, check_number("factor", factor, 1.0, 1000.0)
        self._generation = size, density
        self._fixed_grid = None if grid is None else GridWorld(grid=Grid.parse(grid)).grid
        self.render_mode = render_mode
        self.action_space = gymnasium.spaces.Discrete(len(ACTIONS))
        first = generate(size, density, rng=np.random.default_rng(0)) if self._fixed_grid is None else self._fixed_grid
        self.observation_space = _space(form, first)
        self._begin(first)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode, and generate its grid from ``seed`` unless the grid is fixed; return the observation and
        ``info``.
        """
        super().reset(seed=seed)
        self._begin(generate(*self._generation, rng=self.np_random) if self._fixed_grid is None else self._fixed_grid)
        return self._observation(), self._info()

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take an action; return observation, reward, terminated, truncated and ``info``, as Gymnasium's `step`
        does.
        """
        self._state = step(self._grid, self._state, ACTIONS[int(action)])
        self._left -= 1
        arrived = self._state.position == self._grid.goal
        return self._observation(), float(arrived), arrived, self._left <= 0 and not arrived, self._info()

    def render(self) -> Any:
        """Return the grid as text ("ansi") or as a picture ``[H, W, 3]`` uint8 ("rgb_array"), depending on
        ``render_mode``.
        """
        grid = shown(self._grid, self._state)
        if self.render_mode == "ansi":
            return grid.render()
        if self.render_mode == "rgb_array":
            picture = _COLOURS[_symbols(grid)]
            return np.kron(picture, np.ones((_PIXELS, _PIXELS, 1), dtype=np.uint8))
        return None

    def _begin(self, grid: Grid) -> None:
        if grid.things:
            raise ValueError("GridEnv has no symbol for things: give it grids without them")
        self._grid, self._paths, self._state = grid, solve(grid), initial_state(grid)
        length = self._paths.steps_from(self._state)
        if length < 0:
            raise ValueError(
                "no path leads from the start to the goal of the grid: give a grid whose goal can be "
                f"reached, got\n{grid}"
            )
        self._left = max(1, math.ceil(self._factor * length))

    def _observation(self) -> Any:
        grid = shown(self._grid, self._state)
        if self._form == "text":
            return grid.render()
        if self._form == "symbols":
            return _symbols(grid)
        return planes(GridView(grid=grid))

    def _info(self) -> dict[str, Any]:
        optimal, grid = self._paths.optimal_in(self._state).copy(), shown(self._grid, self._state).render()
        return {"optimal": optimal, "distance": self._paths.steps_from(self._state), "grid": grid}


def _symbols(grid: Grid) -> npt.NDArray[np.int64]:
    """Return ``[H, W]`` the index into `SYMBOLS` of each cell."""
    is_symbol = symbols(grid)[..., None] == np.array(list(SYMBOLS))
    return np.asarray(is_symbol.argmax(axis=-1), dtype=np.int64)


def _space(form: Form, grid: Grid) -> Any:
    """Return the observation space of grids with the shape of ``grid``."""
    spaces = gymnasium.spaces
    if form == "text":
        text = grid.render()
        characters = "".join(sorted({*text, *SYMBOLS, *"0123456789 \n"}))
        return spaces.Text(max_length=len(text), min_length=1, charset=characters)
    if form == "symbols":
        return spaces.Box(0, len(SYMBOLS) - 1, grid.walls.shape, dtype=np.int64)
    return spaces.Box(0.0, 1.0, (len(PLANES), *grid.walls.shape), dtype=np.float32)


if NAME not in gymnasium.registry:
    gymnasium.register(id=NAME, entry_point=GridEnv)
