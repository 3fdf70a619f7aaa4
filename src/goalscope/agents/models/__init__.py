"""Language models for chat agents: their interface, backends, local models, and models behind servers."""

from typing import TYPE_CHECKING

from goalscope._ground.later import names_later
from goalscope.agents.models.base import (
    TEMPLATE_FORMS,
    Likelihoods,
    Message,
    Model,
    NotSentError,
    Part,
    Reply,
    Request,
    Sampling,
    Scoring,
    model_backend,
)
from goalscope.agents.models.folders import folder_identity, parts_identity, read_training
from goalscope.agents.models.http_settings import Caps, Prices, Server

if TYPE_CHECKING:
    from goalscope.agents.models.http import HttpModel
    from goalscope.agents.models.local import LocalModel

__all__ = [
    "TEMPLATE_FORMS",
    "Caps",
    "HttpModel",
    "Likelihoods",
    "LocalModel",
    "Message",
    "Model",
    "NotSentError",
    "Part",
    "Prices",
    "Reply",
    "Request",
    "Sampling",
    "Scoring",
    "Server",
    "folder_identity",
    "model_backend",
    "parts_identity",
    "read_training",
]

# Imported at first use, since importing them takes time and few commands need them.
__getattr__ = names_later(__name__, {"HttpModel": "http", "LocalModel": "local"})
