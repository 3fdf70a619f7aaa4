"""What a probe finds without the knowledge in question: its controls, on the same split as the probe itself.

* ``shuffled``: the labels of another grid of the same shape, so that activations and labels have nothing to do with
  each other; what is left of the score is the probe's own (selectivity).
* ``untrained``: the same architecture with random weights reads the same tokens.
* ``input``: no model at all: how often each symbol stands in the prompt's grid.
* ``text``: no activations, but what the agent wrote before its answer.

Source: Hewitt and Liang 2019, Designing and interpreting probes with control tasks.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope.activations.record import Activations
from goalscope.probing.cells import Cells, Split
from goalscope.probing.fitted import Source
from goalscope.probing.probe import CLASSES, Features
from goalscope.rng import stream

CONTROLS: Final = ("none", "shuffled", "untrained", "input", "text")
"""Names of controls; "none" is the probe itself."""
PLAN_CONTROLS: Final = ("none", "shuffled", "untrained")
"""Those of plans and distances."""

_PAIRS: Final = 4  # coordinates in a text that are read, the first ones
_WORDS: Final = 128  # words that are counted, the commonest of the training split
_PAIR: Final = re.compile(r"\(\s*(\d{1,4})\s*,\s*(\d{1,4})\s*\)")
_WORD: Final = re.compile(r"[^\W\d_]+")


def shuffled_rows(cells: Cells, split: Split, *, seed: int = 0) -> npt.NDArray[np.int64]:
    """Return for each step the step whose labels it gets: those of another grid, of the same shape and part.

    The steps of one grid get those of one other grid in order (from the start again where that has fewer), so that
    everything of a grid stays together.

    Args:
        cells: N steps.
        split: their parts; labels are never exchanged between them.
        seed: root seed.

    Returns:
        ``[N]`` indices; steps in no part keep their own.

    Raises:
        ValueError: a part has one grid only of some shape.
    """
    rows = np.arange(len(cells))
    for name, mask in (("train", split.train), ("test", split.test)):
        shapes: dict[tuple[int, int], dict[str, list[int]]] = {}
        for at in np.flatnonzero(mask):
            shape = (int(cells.shape[at, 0]), int(cells.shape[at, 1]))
            shapes.setdefault(shape, {}).setdefault(str(cells.grid_id[at]), []).append(int(at))
        for (height, width), grids in shapes.items():
            listed = sorted(grids)
            if len(listed) < 2:
                raise ValueError(
                    f"labels can be shuffled between two grids or more of a shape, the {name} part has one of "
                    f"{height} x {width}: record more grids, test another share of them, or leave the control out"
                )
            mixed = stream(seed, "shuffled labels", name, height, width).permutation(len(listed))
            for here, there in zip(mixed.tolist(), np.roll(mixed, 1).tolist(), strict=True):
                own, other = grids[listed[here]], grids[listed[there]]
                rows[own] = [other[index % len(other)] for index in range(len(own))]
    return rows


def input_features(cells: Cells) -> Features:
    """Return what the prompt's grid holds, order aside: height, width and the cells of each class, ``[N, 7]``.

    Under fog these are the cells of the whole grid: the control then knows more than the prompt showed.
    """
    counts = np.stack([(cells.labels == label).sum(axis=1) for label in range(len(CLASSES))], axis=1)
    vectors = np.concatenate([cells.shape, counts], axis=1).astype(np.float32)
    return _features("bag", vectors, cells)


def text_features(cells: Cells, train: npt.NDArray[np.bool_]) -> Features:
    """Return what the written reasoning says, as numbers.

    The first four coordinates by row and column (one of `frame` each, and whether there is one), and how often each of
    the commonest words of the training split occurs, names of moves among them.

    Args:
        cells: N steps with their reasoning.
        train: ``[N]`` bool, the training split: the only part that words are chosen from.

    Raises:
        ValueError: no step of the training split has reasoning.
    """
    words = [Counter(_WORD.findall(text.lower())) for text in cells.reasoning.tolist()]
    common: Counter[str] = Counter()
    for index in np.flatnonzero(train).tolist():
        common.update(words[index].keys())
    if not common:
        raise ValueError("the text-only control needs written reasoning, the run has none: leave it out")
    # Sorted by count and then by the word: a Counter's own order depends on the order of the steps.
    chosen = sorted(common, key=lambda word: (-common[word], word))[:_WORDS]
    block = 2 * cells.frame + 1
    vectors = np.zeros((len(cells), _PAIRS * block + len(chosen)), dtype=np.float32)
    for at, text in enumerate(cells.reasoning.tolist()):
        for number, pair in enumerate(_PAIR.findall(text)[:_PAIRS]):
            begin = number * block
            vectors[at, begin] = 1
            for axis, said in enumerate(pair):
                if int(said) < cells.frame:
                    vectors[at, begin + 1 + axis * cells.frame + int(said)] = 1
        vectors[at, _PAIRS * block :] = [words[at][word] for word in chosen]
    return _features("text", vectors, cells)


def check_controls(controls: Sequence[str]) -> None:
    """Raise a ValueError unless these are some of `PLAN_CONTROLS`, with the probe itself."""
    if "none" not in controls or not set(controls) <= set(PLAN_CONTROLS):
        raise ValueError(f"controls must be some of {', '.join(PLAN_CONTROLS)} with none, got {list(controls)}")


def check_untrained(activations: Sequence[Activations], untrained: Sequence[Activations]) -> None:
    """Raise a ValueError unless there is a control of another model for each site and layer; says how to get it."""
    random = {(one.site, one.layer): one for one in untrained}
    for one in activations:
        control = random.get((one.site, one.layer))
        if control is None:
            raise ValueError(
                f"the untrained control needs activations of site {one.site} and layer {one.layer} from a capture with "
                "random weights: capture with --untrained SEED and give them, or leave the control out"
            )
        if control.model == one.model:
            raise ValueError(f"the untrained control must be another model, got {one.model} twice")


def _features(site: str, vectors: npt.NDArray[Any], cells: Cells) -> Features:
    source = Source(site=site, layer=-1, model="", width=vectors.shape[1])
    return Features(source=source, vectors=vectors, episode_id=cells.episode_id, step=cells.step, grid_id=cells.grid_id)
