"""Compute the vectors of a shard: batches through hooked blocks, wanted positions only, one copy to the host."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from goalscope.activations.capture_schedule import Batch, Item, ShardPlan
from goalscope.activations.hooks import Blocks, Prefix, Recording
from goalscope.activations.record import Site
from goalscope.activations.shards import Shard, episode_table


def compute_shard(
    blocks: Blocks, planned: ShardPlan, prefix: Prefix | None, sites: Sequence[Site], *, capture: str, model: str
) -> Shard:
    """Return a shard with its vectors.

    Args:
        blocks: the decoder blocks.
        planned: its batches.
        prefix: keys and values of the tokens ``planned.prefix``, None where there are none.
        sites: the sites, in their order.
        capture, model: ids, for the header.

    Raises:
        ValueError: an activation is not finite; names episode, step, site and layer.
    """
    import torch

    kept: list[Any] = []
    owners: list[tuple[Item, Site]] = []
    with blocks.recording() as recording:
        for batch in planned.batches:
            order = [(row, item, site) for site in sites for row, item in _having(batch, site)]
            kept.append(_forward(recording, batch, order, prefix, len(planned.prefix)))
            owners += [(item, site) for _, item, site in order]
    # Until here nothing waited for the device.
    vectors: npt.NDArray[np.float32] = torch.cat(kept, dim=1).cpu().numpy()
    kept.clear()
    ends = np.cumsum([len(item.positions[site]) for item, site in owners])
    _check_finite(vectors, owners, ends, blocks.layers)
    items = [item for batch in planned.batches for item in batch.items]
    rows = {id(item): row for row, item in enumerate(items)}
    table = episode_table([item.episode for item in items])
    arrays: dict[str, npt.NDArray[Any]] = {
        "episode": np.array([table[item.episode] for item in items], dtype=np.int64),
        "step": np.array([item.step for item in items], dtype=np.int64),
        "shape": np.array([item.shape for item in items], dtype=np.int64).reshape(-1, 2),
        "reconstructed": np.array([item.reconstructed for item in items], dtype=np.uint8),
    }
    for site in sites:
        mine = [number for number, (_, named) in enumerate(owners) if named == site]
        held = [owners[number][0] for number in mine]
        count = len(held[0].positions[site]) if held else 0
        places = np.array([ends[number] - count for number in mine], dtype=np.int64)[:, None] + np.arange(count)
        positions = np.array([item.positions[site] for item in held], dtype=np.int64).reshape(len(held), count)
        arrays[f"{site}.rows"] = np.array([rows[id(item)] for item in held], dtype=np.int64)
        arrays[f"{site}.positions"] = positions
        arrays[f"{site}.tokens"] = np.array([item.ids[item.positions[site]] for item in held], dtype=np.int64).reshape(
            len(held), count
        )
        for number, layer in enumerate(blocks.layers):
            arrays[f"{site}.{layer}"] = vectors[number][places].reshape(len(held), count, blocks.width)
    header = {"capture": capture, "model": model, "number": planned.number, "episodes": [list(one) for one in table]}
    return Shard(header=header, arrays=_sorted_rows(arrays, sites))


def _having(batch: Batch, site: Site) -> list[tuple[int, Item]]:
    return [(row, item) for row, item in zip(batch.places, batch.items, strict=True) if site in item.positions]


def _forward(
    recording: Recording, batch: Batch, order: Sequence[tuple[int, Item, Site]], prefix: Prefix | None, skipped: int
) -> Any:
    """Return the vectors ``[L, K, D]`` float32 of a batch, still on the device."""
    import torch

    ids = np.stack(batch.sequences)[:, skipped:]
    columns = np.concatenate([item.positions[site] for _, item, site in order]) - skipped
    rows = np.repeat(
        np.array([row for row, _, _ in order], dtype=np.int64),
        [len(item.positions[site]) for _, item, site in order],
    )
    cache = None if prefix is None else prefix.cache(len(ids))
    layers = recording.run(np.ascontiguousarray(ids), rows, columns.astype(np.int64), cache)
    return torch.stack([layer.to(layers[0].device).float() for layer in layers])


def _check_finite(
    vectors: npt.NDArray[np.float32],
    owners: Sequence[tuple[Item, Site]],
    ends: npt.NDArray[np.int64],
    layers: Sequence[int],
) -> None:
    for number, layer in enumerate(layers):
        with np.errstate(over="ignore", invalid="ignore"):
            fine = np.isfinite(vectors[number].sum(axis=1, dtype=np.float64))
        if fine.all():
            continue
        item, site = owners[int(np.searchsorted(ends, np.argmin(fine), side="right"))]
        raise ValueError(
            f"activations must be finite, got some that are not in {item.episode[0]} step {item.step}, site {site}, "
            f"layer {layer}: check the model's weights, and its dtype (float16 overflows in some models; bfloat16 and "
            "float32 do not)"
        )


def _sorted_rows(arrays: dict[str, npt.NDArray[Any]], sites: Sequence[Site]) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays with the rows of each site rising."""
    for site in sites:
        order = np.argsort(arrays[f"{site}.rows"], kind="stable")
        if np.array_equal(order, np.arange(len(order))):
            continue
        for name in [name for name in arrays if name.startswith(f"{site}.")]:
            arrays[name] = arrays[name][order]
    return arrays
