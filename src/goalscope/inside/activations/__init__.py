"""Activations of a model at named sites, captured by replaying the exact token ids of a run."""

from goalscope.inside.activations.capture import CaptureSettings, capture
from goalscope.inside.activations.exchange import export_activations, hook_name
from goalscope.inside.activations.shards import (
    Activations,
    Artifact,
    Capture,
    Shard,
    artifacts,
    captures,
    load_activations,
    stream_activations,
    write_shard,
)
from goalscope.inside.activations.sites import SITES, Site, SiteFinder

__all__ = [
    "SITES",
    "Activations",
    "Artifact",
    "Capture",
    "CaptureSettings",
    "Shard",
    "Site",
    "SiteFinder",
    "artifacts",
    "capture",
    "captures",
    "export_activations",
    "hook_name",
    "load_activations",
    "stream_activations",
    "write_shard",
]
