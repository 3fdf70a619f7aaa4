"""Language models behind chat agents: the protocol, local models, servers."""

from goalscope.models.base import Completion, Message, Model, Request, Sampling

__all__ = ["Completion", "Message", "Model", "Request", "Sampling"]
