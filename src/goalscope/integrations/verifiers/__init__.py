"""Worlds as a `verifiers` environment with exact rewards and the optimal actions at each turn."""

from goalscope.integrations.verifiers.worlds import WorldsConfig, WorldsEnv, WorldsEnvConfig, WorldsTaskset, WorldTask

__all__ = ["WorldTask", "WorldsConfig", "WorldsEnv", "WorldsEnvConfig", "WorldsTaskset"]
