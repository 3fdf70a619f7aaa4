"""A key that a server echoes, in whatever form, stands neither in an error nor in a run directory."""

import base64
import html
import json
import re
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from http_studies import study, template
from server import Loopback, speaker

from families import long_after
from goalscope.agents.models.http_errors import hide, hide_in, hide_in_message, is_secret, scrub
from goalscope.runs import provenance, run

KEY = 'sk-proj-a8Zq/+"Tß0vK2mNfYp7Ld4wX9hRc'
PLAIN = "hf_Jx3bVtQmRkYzWn8pLs5dGc2u"
OTHERS = ("0123456789abcdef0123456789abcdef", "AKIAIOSFODNN7EXAMPLE", "local-server-1", "Kq7!x%2F#9")
ORDINARY = (
    "The test model has no key: status 404, 2048 tokens (see /v1/models), local server, EMPTY, none of them ends in a "
    "dash. Keys end in what they end in... or so; base64 is dGVzdA== and 74657374 in digits; **bold** text xxx."
)


def plain_forms(key: str) -> list[str]:
    octets, percent = key.encode(), quote(key, safe="")
    found = [key, key[::-1], json.dumps(key)[1:-1], json.dumps(json.dumps(key))[3:-3], html.escape(key)]
    lower = re.sub("%..", lambda escaped: escaped[0].lower(), percent)
    return [*found, quote(key), percent, lower, octets.hex(), octets.hex().upper()]


def encoded(key: str, before: str, after: str) -> list[str]:
    octets = f"{before}{key}{after}".encode()
    return [base64.b64encode(octets).decode(), base64.urlsafe_b64encode(octets).decode()]


BEFORE = ("", "u", "me", "abc", "user:", "Bearer ", "name@mail.example:")


def forms(key: str) -> list[str]:
    return plain_forms(key) + [
        form for before in BEFORE for after in ("", ":", "12") for form in encoded(key, before, after)
    ]


@pytest.mark.parametrize("key", [KEY, PLAIN, *OTHERS])
def test_no_form_of_a_key_is_left(key: str) -> None:
    for form in forms(key):
        for text in (form, f"the key {form} is wrong", f"x{form}y", f"{form}{form}"):
            left = hide(text, key)
            assert "***" in left and form not in left
    for form in plain_forms(key):
        assert hide(f"<{form}>", key) == "<***>"
    for before in BEFORE:
        for form, other in zip(encoded(key, before, "a"), encoded(key, before, "zz"), strict=True):
            left, known = hide(form, key), len(before) * 8 // 6
            assert len(left) <= known + 6, "characters of what stands beside the key alone"
            assert other[: max(known - 2, 0)] == left.partition("***")[0][: max(known - 2, 0)]


@pytest.mark.parametrize("key", [KEY, PLAIN, "Jx3bVtQm-Rk8pLs5dGc2u"])
@pytest.mark.parametrize("size", [4, 5, 6, 8, 12])
def test_what_is_left_of_a_masked_key_is_hidden_in_messages(key: str, size: int) -> None:
    head, tail = key[:size], key[-size:]
    masked = [f"{head}...{tail}", f"{head}{'*' * 20}{tail}", f"****{tail}", f"…{tail}", f"xxxx {tail}", f"{head}****"]
    masked += [f"[redacted]{tail}", f"{head}…", f"ending in {tail}", f"ends with '{tail}'", f"({tail})", f"key {tail}"]
    for form in masked:
        left = hide_in_message(f"Incorrect API key provided: {form}. See the docs.", key)
        assert tail not in left and head not in left, left
        assert left.startswith("Incorrect API key provided: ") and left.endswith("See the docs.")


@pytest.mark.parametrize("key", ["", "abc", "test", "EMPTY", "none", "token", "password", "Development", "speaker"])
def test_a_key_that_is_a_word_destroys_no_text(key: str) -> None:
    text = f"{ORDINARY} {key} {key[::-1]} {key.upper()}"
    assert not is_secret(key) and hide(text, key) == hide_in_message(text, key) == text


@pytest.mark.parametrize("key", [KEY, PLAIN, *OTHERS])
def test_ordinary_text_stays(key: str) -> None:
    assert hide_in_message(ORDINARY, key) == hide(ORDINARY, key) == ORDINARY


def test_a_document_is_cleared_at_any_depth() -> None:
    document: dict[str, Any] = {"a": [{"b": [KEY, 1, None, f"x {KEY}"]}], "c": KEY[::-1]}
    hide_in(document, KEY)
    assert document == {"a": [{"b": ["***", 1, None, "x ***"]}], "c": "***"}
    deep: Any = KEY
    for _ in range(100_000):
        deep = [deep]
    hide_in(deep, KEY)


def test_hostile_texts_take_no_time() -> None:
    began = time.process_time()
    for text in ("a" * 2**22, "." * 2**22, "sk-" * 2**20, base64.b64encode(PLAIN.encode()).decode() + "A" * 2**22):
        hide(text, PLAIN)
        scrub(text, PLAIN)
    assert time.process_time() - began < 60


@pytest.mark.parametrize("number", long_after(2, range(8)))
def test_nothing_that_a_run_stores_or_says_holds_the_key(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server echoes the key in each place that is kept: answers, names, fingerprints, pages, headers, errors."""
    echoed = forms(PLAIN)[number]
    monkeypatch.setenv("MY_KEY", PLAIN)
    choice = {"finish_reason": "stop", "message": {"content": f"go {echoed}", "reasoning_content": echoed}}
    body = {"model": f"m {echoed}", "system_fingerprint": echoed, "choices": [choice]}
    pages = {"/v1/models": {"data": [{"id": echoed, "owned_by": echoed}]}, "/version": {"version": echoed}}
    with Loopback(speaker(), override=body, pages=pages) as server:
        where = {"key_env": "MY_KEY", "preflight": True, "retries": 0, "timeout": 30}
        asked = study(server.url, template(tmp_path), count=1, trajectories=1, steps=2, server=where)
        arguments = {"passed": {"settings": [f"agents.0.name={echoed}"]}}
        run(asked, tmp_path / "run", arguments=arguments)
        server.behaviour.refusal = (400, {"error": {"message": f"no {echoed} ...{PLAIN[-4:]}", "code": 400}})
        more = study(server.url, template(tmp_path), count=2, trajectories=2, steps=2, server=where)
        with pytest.raises(ValueError, match="rejects") as refused:
            run(more, tmp_path / "more")
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    for text in (echoed, PLAIN, PLAIN[-4:]):
        assert text not in str(refused.value)
    assert echoed.encode() not in kept and PLAIN.encode() not in kept


def test_arguments_hold_no_key_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", PLAIN)
    monkeypatch.setenv("SOME_KEY", "test")
    held = provenance.scrub({"passed": [f"a={form}" for form in forms(PLAIN)] + ["a test"]})
    assert held["passed"][-1] == "a test" and not any(form in str(held) for form in forms(PLAIN))
