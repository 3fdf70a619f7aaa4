"""Finite environments: given by pure functions of states, enumerated, solved exactly and played back."""
