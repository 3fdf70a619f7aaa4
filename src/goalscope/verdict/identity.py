"""Describe the agent of a verdict from what its run stores: weights, way of answering, template, sampling."""

import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final

from goalscope._ground.ids import content_id
from goalscope._ground.words import listed
from goalscope.agents.agent import CHAT, TASK_CHAT
from goalscope.agents.prompts import (
    ANY,
    NAMED,
    PRINTED,
    SUFFIXES,
    TASKS,
    TEMPLATES,
    THINGS,
    WORDINGS,
    encoded_template,
    read_template,
    template,
)
from goalscope.runs.store import Store
from goalscope.verdict.claims import ClaimLedger
from goalscope.verdict.sentences import verdict
from goalscope.worlds.grid import LISTS

_WEIGHTS: Final = (".safetensors", "gguf")
_SHOWN: Final = 12  # signs of a hash


def stored_description(store: Store, names: Iterable[str]) -> dict[str, Any]:
    """Return the stored description (`Agent.describe`) of the first agent with one of some names; {} if there is
    none.
    """
    descriptions = dict(store.agents().values())
    return next((descriptions[name] for name in names if name in descriptions), {})


def paragraphs(ledger: ClaimLedger, *, beside: bool = False) -> list[str]:
    """Return the verdict on a model in paragraphs, with a description of the model; if it stands ``beside`` others,
    leave out what was asked.
    """
    texts = verdict(ledger)
    return [text for text in (*(texts[:1] if beside else texts), told(ledger.agent)) if text]


def told(description: Mapping[str, Any]) -> str:
    """Describe an agent in one sentence; "" if nothing is known about it."""
    kind = description.get("kind")
    if kind not in (CHAT, TASK_CHAT):
        left_out = ("kind", "version")
        plain = [
            f"{key} {value}"
            for key, value in description.items()
            if key not in left_out and not isinstance(value, Mapping | list)
        ]
        return f"An agent of the kind {kind}{f' ({listed(plain)})' if plain else ''}." if kind else ""
    try:
        parts = [_model(description["model"]), _answer(description.get("answer")), _template(description)]
        sampling = description["sampling"]
        parts.append(f"temperature {sampling['temperature']:g}, top_p {sampling['top_p']:g}")
    except (KeyError, TypeError, ValueError, AttributeError):  # the run may be a stranger's
        return "A language model, which its run describes in an unknown form."
    return f"A language model: {'; '.join(parts)}."


def _model(model: Mapping[str, Any]) -> str:
    """Describe the weights of a model, or its server if the weights are not accessible."""
    files = model.get("files")
    if not isinstance(files, Mapping):
        name = model.get("model", model.get("kind"))
        if "mode" not in model:
            return str(name)
        return f"{name} behind a server (mode {model['mode']}), whose weights goalscope cannot read"
    if "hub" in files:
        return f"{files['hub']} on the hub, revision {files['revision']}, dtype {model['dtype']}"
    weights = {name: digest for name, digest in files.items() if name.endswith(_WEIGHTS)}
    if model.get("untrained") is not None:
        words = f"random weights ({model.get('random_weights', 'default-init')}, seed {model['untrained']})"
    elif len(weights) == 1:
        words = f"weights sha256 {next(iter(weights.values()))[:_SHOWN]}"
    else:
        words = f"weights {content_id('weights', weights)[:_SHOWN]} ({len(weights)} files)"
    return f"{words}, dtype {model['dtype']}"


def weights(description: Mapping[str, Any]) -> dict[str, str]:
    """Return the sha256 of each weights file in an agent's description; {} if there is none."""
    model = description.get("model")
    files = model.get("files") if isinstance(model, Mapping) else None
    if not isinstance(files, Mapping):
        return {}
    return {str(name): str(digest) for name, digest in files.items() if str(name).endswith(_WEIGHTS)}


def _answer(answer: Mapping[str, Any] | None) -> str:
    if answer is None:
        return "actions read from its answers"
    after = "the prompt" if answer["after"] == "prompt" else "its reasoning"
    prior = ", divided by those after a prompt without the grid" if answer["prior_symbol"] else ""
    return f"actions drawn in proportion to the likelihoods of all complete answers after {after}{prior}"


def _template(description: Mapping[str, Any]) -> str:
    if description.get("printed") in [printed.name for printed in PRINTED.values()]:
        return f"a copy of the prompt that a paper prints ({description['printed']})"
    if description["kind"] == TASK_CHAT:
        return f"template {'example' if 'example' in description else 'schema'}"
    form = _bundled_templates().get(description["template"])
    if form:
        return f"template {form}"
    encoding = f", grids as {description['encoding']}" if "encoding" in description else ""
    return f"a custom template, sha256 {description['template'][:_SHOWN]}{encoding}"


@cache
def _bundled_templates() -> Mapping[str, str]:
    """Map the sha256 of each template that comes with the package, in each wording, to the template's form."""
    texts: dict[str, str] = {}
    for form in SUFFIXES:
        usual = [*(template(name, form) for name in (*TEMPLATES, THINGS, ANY)), read_template(NAMED, form)]
        texts |= dict.fromkeys(usual, form)
        for encoding in LISTS:
            of_grids = (read_template(task, form) for task in TASKS if TASKS[task] != ANY)
            texts |= {encoded_template(text, encoding): f"{form}, encoding {encoding}" for text in of_grids}
        for name in WORDINGS:
            texts.setdefault(read_template("grid", form, name), f"{form}, wording {name}")
    return {hashlib.sha256(text.encode()).hexdigest(): form for text, form in texts.items()}
