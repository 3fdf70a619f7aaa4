"""Four cooking maps of our own, with names that mean something, each with a symbolic twin.

Twins share cells, places and graph and differ in names only, so that what a meaning adds can be measured.

Source: the idea is that of measuring exploration and exploitation errors, Section 6 and Appendix E; maps, dishes and
graphs are our own.
"""

from types import MappingProxyType

from goalscope.worlds.tasks.coordinates import Frame, TaskNode
from goalscope.worlds.tasks.generate import symbolic_twin
from goalscope.worlds.tasks.taskmap import TaskMap

_WALL, _START, _FLOOR = "#", "@", "."

# A picture (its first line is the northernmost row), and for each of its letters a name and its prerequisite sets.
_KITCHENS: dict[str, tuple[str, dict[str, tuple[str, tuple[str, ...]]]]] = {
    "mushroom-risotto": (
        """
        R..#M.
        .#...#
        .##.#B
        @...#.
        ##.#..
        W..S.F
        """,
        {
            "R": ("Short-Grain Rice", ()),
            "M": ("Mushrooms", ()),
            "W": ("Vegetable Stock", ()),
            "B": ("Fried Mushrooms", ("M",)),
            "S": ("Simmered Rice", ("RW",)),
            "F": ("Mushroom Risotto", ("SB",)),
        },
    ),
    "lentil-soup": (
        """
        ..L.#..
        .##..C.
        O.#.##.
        ...@..P
        .#.##.#
        V..S..F
        """,
        {
            "L": ("Red Lentils", ()),
            "C": ("Carrots", ()),
            "O": ("Onion", ()),
            "P": ("Chopped Vegetables", ("C", "O")),
            "V": ("Boiled Lentils", ("L",)),
            "S": ("Seasoned Broth", ("PV",)),
            "F": ("Lentil Soup", ("S",)),
        },
    ),
    "berry-tart": (
        """
        F...T#
        .##..B
        U.#.#.
        .@.D..
        #.##.C
        E.....
        """,
        {
            "U": ("Flour and Butter", ()),
            "E": ("Eggs", ()),
            "B": ("Berries", ()),
            "D": ("Pastry Dough", ("UE",)),
            "C": ("Custard", ("E",)),
            "T": ("Baked Tart Shell", ("D",)),
            "F": ("Berry Tart", ("TBC",)),
        },
    ),
    "vegetable-dumplings": (
        """
        D..#..K
        .#...#.
        ..W#T..
        #.#..#.
        N...@.F
        .##.#..
        ..A...S
        """,
        {
            "D": ("Dough", ()),
            "K": ("Cabbage", ()),
            "T": ("Tofu", ()),
            "W": ("Dumpling Wrappers", ("D",)),
            "A": ("Filling", ("K", "T")),
            "N": ("Folded Dumplings", ("WA",)),
            "S": ("Dipping Sauce", ()),
            "F": ("Dumplings with Sauce", ("NS",)),
        },
    ),
}

COOKING = tuple(_KITCHENS)
"""Names of the cooking maps."""


def cooking_map(name: str, *, symbolic: bool = False) -> TaskMap:
    """Return one of the four cooking maps.

    Args:
        name: one of `COOKING`.
        symbolic: return its twin with names that mean nothing.

    Raises:
        ValueError: an unknown name.
    """
    if name not in _KITCHENS:
        raise ValueError(f"a cooking map must be one of {', '.join(COOKING)}, got {name[:60]!r}")
    picture, legend = _KITCHENS[name]
    rows = picture.split()
    frame = Frame(left=0, top=len(rows) - 1, width=len(rows[0]), height=len(rows))
    sign = {
        frame.cell((row, col)): rows[row][col]
        for row in range(frame.height)
        for col in range(frame.width)
        if rows[row][col] != _WALL
    }
    place = {letter: cell for cell, letter in sign.items() if letter != _FLOOR}
    title = MappingProxyType({letter: words for letter, (words, _) in legend.items()})
    nodes = {
        words: TaskNode(cell=place[letter], options=tuple(tuple(title[n] for n in option) for option in options))
        for letter, (words, options) in legend.items()
    }
    goal = title["F"]
    task_map = TaskMap(cells=list(sign), start=place[_START], goal=goal, nodes=nodes)
    return symbolic_twin(task_map) if symbolic else task_map
