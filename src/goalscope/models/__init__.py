"""Language models behind chat agents: the protocol, backends, local models, servers."""

from goalscope.models.backends import model_backend
from goalscope.models.base import TEMPLATE_FORMS, Completion, Message, Model, NotSentError, Request, Sampling
from goalscope.models.determinism import measure_determinism
from goalscope.models.http import HttpModel
from goalscope.models.http_settings import Caps, Prices, Server
from goalscope.models.identity import folder_identity, parts_identity, read_training
from goalscope.models.local import LocalModel

__all__ = [
    "TEMPLATE_FORMS",
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
    "folder_identity",
    "measure_determinism",
    "model_backend",
    "parts_identity",
    "read_training",
]
