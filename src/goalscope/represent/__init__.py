"""What an agent believes and plans inside: activations captured at named sites, and what can be read from them."""

from goalscope.represent.capture import capture
from goalscope.represent.reading import Capture, captures, load_activations, stream_activations
from goalscope.represent.record import SITES, Activations, Site
from goalscope.represent.settings import CaptureSettings

__all__ = [
    "SITES",
    "Activations",
    "Capture",
    "CaptureSettings",
    "Site",
    "capture",
    "captures",
    "load_activations",
    "stream_activations",
]
