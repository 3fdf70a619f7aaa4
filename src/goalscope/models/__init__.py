"""Language models behind chat agents: the protocol, backends, local models, servers."""

from goalscope.models.backends import model_backend
from goalscope.models.base import Completion, Message, Model, NotSentError, Request, Sampling
from goalscope.models.http import HttpModel
from goalscope.models.http_settings import Caps, Prices, Server
from goalscope.models.local import LocalModel

__all__ = [
    "Caps",
    "Completion",
    "HttpModel",
    "LocalModel",
    "Message",
    "Model",
    "NotSentError",
    "Prices",
    "Request",
    "Sampling",
    "Server",
    "model_backend",
]
