"""Integrations with Gymnasium, Inspect, verifiers and OpenEnv, each registered in the way that an external
package is.
"""
