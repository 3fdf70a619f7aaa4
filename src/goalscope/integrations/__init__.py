"""Frameworks of others: Gymnasium, Inspect, verifiers, OpenEnv. Each registers like a stranger's package."""
