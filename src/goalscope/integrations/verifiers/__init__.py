"""Worlds as an environment of `verifiers`: exact rewards, and what was optimal at each turn."""

from goalscope.integrations.verifiers.worlds import WorldsConfig, WorldsEnv, WorldsEnvConfig, WorldsTaskset, WorldTask

__all__ = ["WorldTask", "WorldsConfig", "WorldsEnv", "WorldsEnvConfig", "WorldsTaskset"]
