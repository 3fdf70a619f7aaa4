"""Whether, how strongly and towards what a language-model agent is goal-directed."""

__version__ = "0.1.0"
