"""Export captures: as Parquet for the library `datasets`, or as safetensors with the names of TransformerLens.

A vector after block L is named ``blocks.L.hook_resid_post``, as in TransformerLens; in nnsight it is the output of the
block's module. Files are written one after the other, and shards are read one at a time, so memory does not grow with
the run.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from goalscope._ground.extras import lacking
from goalscope._ground.folder import Folder
from goalscope.inside.activations.shards import (
    SHARD,
    Artifact,
    Capture,
    Shard,
    artifacts,
    captures,
    of_shape,
    opened_shard,
    write_shard,
)
from goalscope.inside.activations.sites import Site
from goalscope.runs import Store
from goalscope.runs.export import write_parquet

if TYPE_CHECKING:
    import pyarrow

FORMATS: Final = ("parquet", "safetensors")
README: Final = "README.json"
_TEXTS: Final = ("episode_id", "world_id", "cluster")
"""Text columns of captures."""
_SITE_TEXTS: Final = {
    "pre": "the last three tokens of the prompt, before the reasoning",
    "post": "the three tokens that open the final answer, after the reasoning",
    "grid": "the token of each cell, by row",
    "action": "the last token before the word of the action",
}
_ARRAY: Final = "datasets.features.features.Array2DExtensionType"
_Shape = tuple[int, int] | None
"""Height and width of the grids in a file; None if files do not depend on them."""


def hook_name(layer: int) -> str:
    """Return the TransformerLens name of the residual stream after a decoder block, counted from 0."""
    return f"blocks.{layer}.hook_resid_post"


def export_activations(
    store: Store,
    directory: str | Path,
    *,
    formats: Sequence[str] = FORMATS,
    chosen: Sequence[str] = (),
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Path]:
    """Write captures (stored activations) of a run for other libraries, each into a folder named by its id.

    A folder contains ``SITE.parquet`` for each site (a set of token positions, such as "pre"; for the site "grid" one
    file per grid shape), with one row per step and layer; ``SITE-00000.safetensors`` and so on, with the vectors ``[m,
    P, D]`` of each layer (m steps, P positions, width D) under the names of TransformerLens; and a README.json that
    describes them.

    Args:
        store: the run.
        directory: parent directory of the folders. Existing files with the same names are replaced.
        formats: some of `FORMATS`.
        chosen: ids of captures; all complete ones by default.
        progress: called with (files done, all files) for each capture.

    Returns:
        The folders.

    Raises:
        ValueError: if a format is unknown, there is no such capture, or a file is damaged.
        ImportError: if pyarrow is not installed (it comes with the extra ``export``).
    """
    if not formats or set(formats) - set(FORMATS):
        got = ", ".join(formats) or "none"
        raise ValueError(f"formats must be {' or '.join(FORMATS)} or both, got {got}")
    by_id = {capture.id: capture for capture in captures(store)}
    ids = list(chosen) or [identity for identity, capture in by_id.items() if capture.complete]
    missing_ids = [identity for identity in ids if identity not in by_id or not by_id[identity].complete]
    if missing_ids or not ids:
        available = "; ".join(capture.label for capture in by_id.values()) or "nothing"
        raise ValueError(
            f"there is no complete capture {', '.join(missing_ids) or 'to export'} in {store.path}; "
            f"available: {available}. Run goalscope capture {store.path} first"
        )
    return [_export(store, by_id[name], Folder(directory).make(name).path, formats, progress) for name in ids]


def _export(
    store: Store, capture: Capture, folder: Path, formats: Sequence[str], progress: Callable[[int, int], None]
) -> Path:
    rows = list(artifacts(store, SHARD, capture=capture.id))
    files: dict[str, dict[str, Any]] = {}
    total = len(capture.sites) * (len(formats) + len(rows) * ("safetensors" in formats))
    done = 0
    for site in capture.sites:
        if "safetensors" in formats:
            for number, row in enumerate(rows):
                files |= _tensors(store, capture, site, row, folder / f"{site}-{number:05d}.safetensors")
                progress(done := done + 1, total)
        if "parquet" in formats:
            for (shape, positions), parts in _parts(store, capture, site, rows).items():
                name = f"{site}.parquet" if shape is None else f"{site}-{shape[0]}x{shape[1]}.parquet"
                schema = _schema(capture, positions)
                write_parquet(folder / name, schema, _tables(store, capture, site, shape, parts, schema))
                count = sum(steps for _, steps in parts)
                files[name] = {"site": site, "steps": count, "rows": count * len(capture.layers)}
            progress(done := done + 1, total)
    metadata = {
        "capture": capture.id,
        "model": {"name": capture.model_name, "id": capture.model, "untrained": capture.untrained},
        "agent": {"name": capture.agent, "id": capture.agent_id},
        "device": capture.device,
        "computed as": capture.dtype,
        "stored as": "float32",
        "width": capture.width,
        "value": "residual stream after decoder block L, 0-based, before any final norm",
        "names": {
            hook_name(layer): {
                "layer": layer,
                "TransformerLens": f"cache[{hook_name(layer)!r}]",
                "nnsight": f"output of decoder block {layer}, e.g. model.model.layers[{layer}].output",
            }
            for layer in capture.layers
        },
        "sites": {site: _SITE_TEXTS[site] for site in capture.sites},
        "files": files,
        "read": {
            "parquet": "datasets.load_dataset('parquet', data_files='SITE.parquet')",
            "safetensors": "safetensors.numpy.load_file('SITE-00000.safetensors')",
        },
    }
    Folder(folder).save_text(json.dumps(metadata, indent=2, ensure_ascii=False) + "\n", README)
    return folder


def _parts(
    store: Store, capture: Capture, site: Site, rows: Sequence[Artifact]
) -> dict[tuple[_Shape, int], list[tuple[Artifact, int]]]:
    """Map each file of a site to its shards with their numbers of steps; site ``grid`` has one file per grid shape."""
    parts: dict[tuple[_Shape, int], list[tuple[Artifact, int]]] = {}
    for row in rows:
        with opened_shard(store, row, capture) as shard:
            columns = shard.columns(site, capture.layers[0], capture.width)
        shapes: list[_Shape] = [None]
        if site == "grid":
            shapes = [(height, width) for height, width in np.unique(columns["shape"], axis=0).tolist()]
        for shape in shapes:
            if count := len(of_shape(columns, shape)):
                parts.setdefault((shape, columns["positions"].shape[1]), []).append((row, count))
    return parts


def _schema(capture: Capture, positions: int) -> "pyarrow.Schema":
    """Build the Parquet schema, with the metadata that the library `datasets` reads."""
    try:
        import pyarrow
    except ImportError as error:
        raise lacking("exporting activations as Parquet needs pyarrow", "export", error) from error
    index_list = pyarrow.list_(pyarrow.int64(), positions)
    vectors = pyarrow.list_(pyarrow.list_(pyarrow.float32()))
    kinds = {
        **dict.fromkeys(_TEXTS, pyarrow.string()),
        "step": pyarrow.int64(),
        "height": pyarrow.int64(),
        "width": pyarrow.int64(),
        "reconstructed": pyarrow.bool_(),
        "site": pyarrow.string(),
        "layer": pyarrow.int64(),
        "hook": pyarrow.string(),
        "positions": index_list,
        "tokens": index_list,
        "vectors": vectors,
    }

    def feature(name: str, kind: "pyarrow.DataType") -> dict[str, Any]:
        if name == "vectors":
            return {"shape": [positions, capture.width], "dtype": "float32", "_type": "Array2D"}
        if kind == index_list:
            return {"feature": {"dtype": "int64", "_type": "Value"}, "length": positions, "_type": "List"}
        return {"dtype": str(kind), "_type": "Value"}

    features = {name: feature(name, kind) for name, kind in kinds.items()}
    # `datasets` stores an Array2D as nested lists of variable size, labelled with its own type name.
    array_metadata = {
        "ARROW:extension:name": _ARRAY,
        "ARROW:extension:metadata": json.dumps([[positions, capture.width], "float32"]),
    }
    fields = [
        pyarrow.field(name, kind, metadata=array_metadata if name == "vectors" else None)
        for name, kind in kinds.items()
    ]
    return pyarrow.schema(fields, {"huggingface": json.dumps({"info": {"features": features}})})


def _tables(
    store: Store,
    capture: Capture,
    site: Site,
    shape: _Shape,
    parts: Sequence[tuple[Artifact, int]],
    schema: "pyarrow.Schema",
) -> Iterator["pyarrow.Table"]:
    """Yield the rows of a file, shard by shard and layer by layer."""
    import pyarrow

    kinds = {name: schema.field(name).type for name in schema.names}

    def nested(name: str, values: npt.NDArray[Any]) -> "pyarrow.Array":
        flat = pyarrow.array(values.reshape(-1))
        for size in reversed(values.shape[1:]):
            if pyarrow.types.is_fixed_size_list(kinds[name]):
                flat = pyarrow.FixedSizeListArray.from_arrays(flat, size)
            else:
                flat = pyarrow.ListArray.from_arrays(np.arange(0, len(flat) + 1, size, dtype=np.int32), flat)
        return flat.cast(kinds[name])

    for row, count in parts:
        for layer in capture.layers:
            with opened_shard(store, row, capture) as shard:
                columns = shard.columns(site, layer, capture.width)
                selected = of_shape(columns, shape)
                vectors = shard.vectors(site, layer)[selected]
            columns = {name: column[selected] for name, column in columns.items()}
            scalars = {
                **{name: columns[name] for name in _TEXTS},
                **{name: columns[name] for name in ("step", "reconstructed")},
                "height": columns["shape"][:, 0],
                "width": columns["shape"][:, 1],
                "site": [site] * count,
                "layer": [layer] * count,
                "hook": [hook_name(layer)] * count,
            }
            arrays = {name: pyarrow.array(values, kinds[name]) for name, values in scalars.items()}
            arrays |= {name: nested(name, columns[name]) for name in ("positions", "tokens")}
            arrays["vectors"] = nested("vectors", vectors)
            yield pyarrow.table([arrays[name] for name in schema.names], schema=schema)


def _tensors(store: Store, capture: Capture, site: Site, row: Artifact, path: Path) -> dict[str, dict[str, Any]]:
    """Write the vectors of one shard and site with their steps, and return their description.

    The description is empty if no step has the site.
    """
    with opened_shard(store, row, capture) as shard:
        columns = shard.columns(site, capture.layers[0], capture.width)
        if not len(columns["step"]):
            return {}
        arrays: dict[str, npt.NDArray[Any]] = {hook_name(layer): shard.vectors(site, layer) for layer in capture.layers}
    episode_numbers = {name: number for number, name in enumerate(dict.fromkeys(columns["episode_id"]))}
    arrays["episode"] = np.array([episode_numbers[name] for name in columns["episode_id"]], dtype=np.int64)
    arrays |= {name: columns[name] for name in ("step", "shape", "positions", "tokens")}
    metadata = {"capture": capture.id, "site": site, "model": capture.model, "episodes": list(episode_numbers)}
    write_shard(path, Shard(header=metadata, arrays=arrays))
    return {path.name: {"site": site, "steps": len(columns["step"])}}
