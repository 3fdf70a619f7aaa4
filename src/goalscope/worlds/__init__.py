"""Worlds whose optimal policies are known exactly."""

from goalscope.worlds import things
from goalscope.worlds.dynamics import (
    State,
    initial_state,
    phases,
    settle,
    shown,
    state_number,
    step,
    step_batch,
    transitions,
    transitions_batch,
)
from goalscope.worlds.fog import Fog, visible, visible_batch
from goalscope.worlds.generate import (
    LAYOUTS,
    GridBatch,
    control,
    generate,
    generate_batch,
    interior_walls,
    key_door,
    key_no_door,
    layout,
    layout_series,
    two_path,
)
from goalscope.worlds.grid import ACTIONS, Action, Grid, Position
from goalscope.worlds.gridworld import GridView, GridWorld, NamedView, NamedWorld
from goalscope.worlds.thing_check import check_thing
from goalscope.worlds.transform import IDENTITY, TRANSFORMS, Transform, transform
from goalscope.worlds.world import Drawing, Offer, Oracle, Session, View, World, WorldSettings

__all__ = [
    "ACTIONS",
    "IDENTITY",
    "LAYOUTS",
    "TRANSFORMS",
    "Action",
    "Drawing",
    "Fog",
    "Grid",
    "GridBatch",
    "GridView",
    "GridWorld",
    "NamedView",
    "NamedWorld",
    "Offer",
    "Oracle",
    "Position",
    "Session",
    "State",
    "Transform",
    "View",
    "World",
    "WorldSettings",
    "check_thing",
    "control",
    "generate",
    "generate_batch",
    "initial_state",
    "interior_walls",
    "key_door",
    "key_no_door",
    "layout",
    "layout_series",
    "phases",
    "settle",
    "shown",
    "state_number",
    "step",
    "step_batch",
    "things",
    "transform",
    "transitions",
    "transitions_batch",
    "two_path",
    "visible",
    "visible_batch",
]
