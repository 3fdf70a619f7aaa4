"""Chat templates of strangers: the bounded process writes what transformers writes, and nothing is unbounded."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny_models import HARMONY_TEMPLATE, PLAIN_TEMPLATE, llama, tokenizer

from families import long_after
from goalscope.agents.models import LocalModel, Message, Sampling, loading
from goalscope.agents.models.dialect import Dialect
from goalscope.agents.models.loading import (
    MOST_SOURCE,
    MOST_TEXT,
    TEMPLATE_MEMORY,
    ChatTemplateError,
    render_bounded,
)

CHATML = (
    "{%- if messages[0].role != 'system' %}\n<|im_start|>system\nYou help.<|im_end|>\n{%- endif %}\n"
    "{% for message in messages %}\n    {% if loop.first %}{{ bos_token | default('') }}{% endif %}\n"
    "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] | trim + '<|im_end|>' + '\\n' }}\n"
    "{% endfor %}\n{% if add_generation_prompt %}\n{{- '<|im_start|>assistant\\n' }}\n{% endif %}"
)
LLAMA = (
    "{% set ns = namespace(n=0) %}{% if not date_string is defined %}{% set date_string = '26 Jul 2024' %}{% endif %}"
    "<|begin|>{% for m in messages %}{% set ns.n = ns.n + 1 %}<|h|>{{ m.role }}<|/h|>\n\nToday: {{ date_string }}\n"
    "{{ m['content'] | trim }}<|eot|>{% endfor %}{{ ns.n }}{{ tools is none }}{{ documents is none }}"
    "{% if add_generation_prompt %}<|h|>assistant<|/h|>\n\n{% endif %}"
)
MISTRAL = (
    "{{ eos_token }}{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Roles must alternate!') }}{% endif %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
    "{% elif m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{{ eos_token }}{% endif %}"
    "{% endfor %}"
)
FILTERS = (
    "{{ messages | tojson(indent=2) }}{{ {'b': '<é>', 'a': [1.5, none, true]} | tojson }}{{ options | tojson }}"
    "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ m.content | upper }}{% endfor %}"
    "{% macro shown(x, deep=false) %}{% if x is mapping %}{{ x.items() | list | length }}{% else %}{{ x }}{% endif %}"
    "{% endmacro %}{{ shown(messages[0]) }}{{ '%03d' % 7 }}{{ dict(a=1).a }}{{ ['a', 'b'] | join('-') }}\n"
    "    {%- if enable_thinking is defined and not enable_thinking %} <think></think>{% endif %}"
)
TEMPLATES = {
    "ChatML": CHATML,
    "Llama": LLAMA,
    "Mistral": MISTRAL,
    "filters": FILTERS,
    "harmony": HARMONY_TEMPLATE,
    "plain": PLAIN_TEMPLATE,
    "Theseus": Dialect("theseus").chat_template,
    "Ariadne": Dialect("ariadne").chat_template,
}
CHATS = {
    "one": [{"role": "user", "content": "hello"}],
    "talk": [
        {"role": "user", "content": "  #_ AG\n\n{{ 1 + 1 }} {% x %} \t"},
        {"role": "assistant", "content": '{"action": "UP"}\x00\u2028é\U0001f600'},
        {"role": "user", "content": ""},
    ],
    "system": [{"role": "system", "content": "Be brief.\n"}, {"role": "user", "content": "<b>&amp;</b>"}],
}
OPTIONS: dict[str, Any] = {"enable_thinking": False, "options": {"z": 1, "a": [True, None, 0.1, "x"]}}
USER = [{"role": "user", "content": "x"}]


@pytest.mark.parametrize("chat", CHATS)
@pytest.mark.parametrize("name", TEMPLATES)
def test_the_process_writes_what_transformers_writes(name: str, chat: str) -> None:
    fast, template = tokenizer(None), TEMPLATES[name].replace("strftime_now('%Y-%m-%d')", "'2025-08-05'")

    def direct() -> str:
        return str(
            fast.apply_chat_template(
                CHATS[chat], chat_template=template, tokenize=False, add_generation_prompt=True, **OPTIONS
            )
        )

    variables = {**fast.special_tokens_map, **OPTIONS}
    try:
        expected = direct()
    except Exception as error:  # noqa: BLE001 - of any kind: the same is told
        assert (name, chat) == ("Mistral", "system")
        with pytest.raises(ChatTemplateError, match=f"{type(error).__name__}: {error}"):
            render_bounded(template, CHATS[chat], variables)
        return
    assert render_bounded(template, CHATS[chat], variables) == expected


@pytest.mark.parametrize("name", ["theseus", "ariadne"])
def test_bundled_templates_are_rendered_without_the_process(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("goalscope.agents.models.dialect.render_bounded", None)
    text = Dialect(name).render([Message(role="user", content="here")], Sampling())
    assert text.endswith("<|start|>user<|message|>here<|end|><|start|>assistant")


LOOPS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
DOUBLED = "{% set n = namespace(t='x') %}{% for i in range(40) %}{% set n.t = n.t ~ n.t %}{% endfor %}{{ n.t|length }}"
BEYOND_MEMORY = {
    "a width": "{{ '%9999999999d' % 1 }}",
    "a width of format": "{{ '{:9999999999}'.format(1) }}",
    "a text doubled": DOUBLED,
    "a text repeated": "{{ 'a' * 10**10 }}",
    "a list repeated": "{{ ([0] * 10**10) | length }}",
    "a text in the middle": "{{ 'a'.center(10**10) }}",
    "replaced": "{{ ('a' * 10**6).replace('a', 'b' * 10**6) | length }}",
    "joined": "{{ range(99999) | join('a' * 10**6) | length }}",
    "a batch": "{{ [1] | batch(10**9, 1) | list | length }}",
    "indented": "{{ [[1]] | tojson(indent=10**9) }}",
    "a message that is raised": "{{ raise_exception('x' * 10**10) }}",
}
BEYOND_TIME = {
    "loops": LOOPS,
    "a power": "{{ 7 ** (7 ** 9) % 10 }}",
    "while compiled": "{{ a }}" * 149_000,
}
FAILING = {
    "parentheses": ("{{ " + "(" * 100_000 + "1" + ")" * 100_000 + " }}", "Recursion|MemoryError|Syntax"),
    "minus": ("{{ " + "-" * 200_000 + "1 }}", "Recursion|MemoryError|Syntax"),
    "blocks": ("{% if 1 %}" * 3000 + "{% endif %}" * 3000, "Recursion|Syntax"),
    "a macro of itself": ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "Recursion"),
    "a long text": (f"{{{{ 'a' * {MOST_TEXT + 1} }}}}", f"more than {MOST_TEXT} characters"),
    "half a character": ("{{ '\\ud800' }}", "surrogates"),
    "raised": ("{{ raise_exception('no system role') }}", "TemplateError: no system role"),
    "a long error": ("{{ raise_exception('x' * 10**7) }}", "TemplateError: x"),
    "unfinished": ("{% for", "TemplateSyntaxError"),
    "objects": ("{{ ''.__class__.__mro__ }}", "SecurityError"),
    "the environment": ("{{ self.__init__.__globals__ }}", "SecurityError|UndefinedError"),
}


# Each starts another process, which takes seconds.
SLOW = [pytest.param(name, marks=pytest.mark.full) for name in list(BEYOND_MEMORY)[3:]]


ALONE = """
import json, resource, sys
from goalscope.agents.models import loading
try:
    said = loading.render_bounded(*json.load(sys.stdin), {})
except loading.ChatTemplateError as error:
    said = f"refused: {error}"
loading.RENDERER.end()
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([said[:2000], used.ru_maxrss, used.ru_utime]))
"""


@pytest.mark.parametrize("name", long_after(1, [*list(BEYOND_MEMORY)[:3], *SLOW]))
def test_memory_is_bounded(name: str) -> None:
    # In a process that has no other children: what is told of them is the most that any has had.
    given = json.dumps([BEYOND_MEMORY[name], USER])
    found = subprocess.run([sys.executable, "-c", ALONE], input=given, capture_output=True, text=True, check=True)
    said, most, seconds = json.loads(found.stdout)
    assert re.match(f"refused: .*({TEMPLATE_MEMORY >> 20} MiB|seconds|5 s of processor time)", said, re.DOTALL), said
    assert most < (1 << 20 if sys.platform == "linux" else 1 << 30)  # KiB here, bytes elsewhere
    assert seconds < 60, "of the processor, with the import of transformers"


@pytest.mark.parametrize("name", long_after(1, BEYOND_TIME))
def test_time_is_bounded_while_compiling_and_inside_of_one_operation(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loading.RENDERER.end()
    monkeypatch.setattr(loading.RENDERER, "bounds", replace(loading.RENDERER.bounds, seconds=1))
    with pytest.raises(ChatTemplateError, match=r"1 s .*processor"):
        render_bounded(BEYOND_TIME[name], USER, {})
    loading.RENDERER.end()


@pytest.mark.parametrize("name", FAILING)
def test_a_template_that_fails_is_one_error_and_the_next_is_rendered(name: str) -> None:
    template, says = FAILING[name]
    with pytest.raises(ChatTemplateError, match=says) as caught:
        render_bounded(template, USER, {})
    assert len(str(caught.value)) < 1200
    assert render_bounded(PLAIN_TEMPLATE, USER, {}) == "[user] x\n[a]"


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    render_bounded(PLAIN_TEMPLATE, USER, {})
    process = loading.RENDERER._child
    assert process is not None
    yield process
    assert render_bounded(PLAIN_TEMPLATE, USER, {}) == "[user] x\n[a]"


def test_one_process_serves_many_threads(child: subprocess.Popen[bytes]) -> None:
    def rendered(number: int) -> str:
        return render_bounded(PLAIN_TEMPLATE, [{"role": "user", "content": str(number)}], {})

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(rendered, range(300))) == [f"[user] {number}\n[a]" for number in range(300)]
    assert loading.RENDERER._child is child


def test_a_process_that_was_ended_is_started_again(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()


def test_an_interruption_leaves_no_answer_for_the_next(child: subprocess.Popen[bytes]) -> None:
    def interrupt() -> None:
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)

    # A shell starts what it runs in the background with interrupts ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            render_bounded(LOOPS, USER, {})
    finally:
        signal.signal(signal.SIGINT, before)
    assert child.returncode == -signal.SIGKILL


def test_a_fork_has_a_process_of_its_own(child: subprocess.Popen[bytes]) -> None:
    reading, writing = os.pipe()
    number = os.fork()
    if number == 0:  # pragma: no cover - in the fork
        with os.fdopen(writing, "w") as stream:
            json.dump([render_bounded(PLAIN_TEMPLATE, USER, {}), loading.RENDERER._child.pid], stream)  # type: ignore[union-attr]
        loading.RENDERER.end()
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        text, process = json.load(stream)
    os.waitpid(number, 0)
    assert text == "[user] x\n[a]" and process != child.pid
    assert loading.RENDERER._child is child and child.poll() is None


def test_the_process_ends_with_its_parent_and_imports_nothing_from_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "transformers.py").write_text("raise SystemExit('mine')")
    (tmp_path / "jinja2.py").write_text("raise SystemExit('mine')")
    (tmp_path / "json.py").write_text("raise SystemExit('mine')")
    program = (
        "from goalscope.agents.models import loading as c\n"
        "print(c.render_bounded('{{ messages[0].role }}', [{'role': 'user', 'content': ''}], {}))\n"
        "print(c.RENDERER._child.pid, flush=True)\nimport os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-P", "-c", program], cwd=tmp_path, capture_output=True, text=True)
    role, number = done.stdout.split()
    assert (role, done.returncode) == ("user", -signal.SIGKILL)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and Path(f"/proc/{number}").exists():
        if ") Z" in Path(f"/proc/{number}/stat").read_text():  # nobody waits for it here
            break
        time.sleep(0.1)
    else:
        assert not Path(f"/proc/{number}").exists()


def test_a_model_whose_template_has_no_bounds_is_refused_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "stranger"
    llama().save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    (folder / "chat_template.jinja").write_text(BEYOND_MEMORY["a width"])
    model = LocalModel(folder, device="cpu", reasoning="none")
    with pytest.raises(ValueError, match=f"stranger .*{TEMPLATE_MEMORY >> 20} MiB"):
        model.render([Message(role="user", content="x")], Sampling())
    (folder / "chat_template.jinja").write_text(" " * (MOST_SOURCE + 1))
    with pytest.raises(ValueError, match=f"{MOST_SOURCE} characters"):
        Dialect(folder).render([Message(role="user", content="x")], Sampling())
    os.truncate(folder / "chat_template.jinja", 1 << 40)
    with pytest.raises(ValueError, match=f"chat templates .*{1 << 40} bytes"):
        Dialect(folder).render([Message(role="user", content="x")], Sampling())
    (folder / "chat_template.jinja").unlink()
    os.mkfifo(folder / "chat_template.jinja")
    with pytest.raises(ValueError, match=r"chat_template\.jinja"):
        Dialect(folder).render([Message(role="user", content="x")], Sampling())
