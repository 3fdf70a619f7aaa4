"""Integrations with Gymnasium, Inspect, verifiers and OpenEnv, which register like external packages."""
