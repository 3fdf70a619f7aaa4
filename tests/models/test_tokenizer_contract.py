"""Tokenizers of folders: each prompt has the ids of tokenizer.json and is given back, or the folder is refused."""

import json
import resource
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import AddedToken, PreTrainedTokenizerFast

from goalscope._ground.bounded import BoundedWorker, Bounds
from goalscope.agents.models import (
    HttpModel,
    LocalModel,
    Message,
    Request,
    Sampling,
    folder_identity,
    loading,
)
from goalscope.agents.models.dialect import Dialect
from goalscope.agents.models.folders import model_folder, tokenizer_identity
from goalscope.worlds.grid import SYMBOLS

Change = Callable[[Path], object]

PROMPT = f"0 1 2\n0 # # #\n1 # A G\n2 {' '.join(SYMBOLS)}\nIt's your turn: " + '{"action": "UP"} 12345'
NO_WEIGHTS = b"\x02" + bytes(7) + b"{}"  # a safetensors file without tensors
CONTENT = "{% for m in messages %}{{ m.content }}{% endfor %}"
NEEDS_TOOLS = "{% for tool in tools %}{{ tool.function.name }} {% endfor %}" + CONTENT


def entries(name: str, **changes: Any) -> Change:
    """Change entries of a JSON file, None removes one."""

    def change(folder: Path) -> None:
        path = folder / name
        old = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({key: value for key, value in {**old, **changes}.items() if value is not None}))

    return change


def config(**changes: Any) -> Change:
    return entries("tokenizer_config.json", **changes)


def added(content: str, *, special: bool = True) -> dict[str, Any]:
    flags = dict.fromkeys(("lstrip", "rstrip", "normalized", "single_word"), False)
    return {"content": content, "special": special, **flags}


def removed(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


def no_change(folder: Path) -> None:
    pass


def in_turn(*changes: Change) -> Change:
    def change(folder: Path) -> None:
        for one in changes:
            one(folder)

    return change


def byte_level(folder: Path) -> None:
    """A tokenizer as GPT-2's: bytes, split by an expression, with special tokens."""
    table = {
        piece: number for number, piece in enumerate(["<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())])
    }
    core = Tokenizer(
        models.BPE(vocab={**table, "ĠU": len(table), "UP": len(table) + 1}, merges=[("Ġ", "U"), ("U", "P")])
    )
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    _save(core, folder)


def metaspace(folder: Path) -> None:
    """A tokenizer as Llama 2's: spaces are U+2581, and a text begins with one that decoding takes away."""
    characters = list(map(chr, range(33, 127)))
    pieces = ["<unk>", "<s>", "</s>", "\u2581", *(f"<0x{number:02X}>" for number in range(256)), *characters, "UP"]
    table = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    core = Tokenizer(models.BPE(vocab=table, merges=[("U", "P")], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    core.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    core.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    _save(core, folder)


def _save(core: Tokenizer, folder: Path) -> None:
    core.add_special_tokens([AddedToken(piece, special=True, normalized=False) for piece in ("<s>", "</s>")])
    make: Any = PreTrainedTokenizerFast
    fast = make(tokenizer_object=core, bos_token="<s>", eos_token="</s>")
    fast.chat_template = "<s>" + CONTENT
    fast.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2", "vocab_size": len(core.get_vocab())}))


def bundled(folder: Path) -> None:
    source = model_folder("organism-goal")
    assert source is not None
    shutil.copytree(source, folder, dirs_exist_ok=True)


KINDS: Mapping[str, Change] = {"bundled": bundled, "byte level": byte_level, "metaspace": metaspace}


def made(path: Path, kind: str, change: Change = no_change) -> Path:
    folder = path / "model"
    folder.mkdir()
    KINDS[kind](folder)
    change(folder)
    return folder


def ids(folder: Path, **settings: Any) -> tuple[list[int], str]:
    """Return the ids of a prompt, and its rendered text."""
    dialect = Dialect(folder, reasoning="none", **settings)
    text = dialect.render([Message(role="user", content=PROMPT)], Sampling())
    [result] = dialect.prompt_ids([text])
    assert dialect.text(result).replace("<s> ", "<s>") == text
    return result, text


OTHER_CLASSES = ("LlamaTokenizerFast", "GPT2Tokenizer", "LlamaTokenizer", "BertTokenizerFast", "Qwen2Tokenizer")
AS_FILE_SAYS: dict[str, tuple[str, Change]] = {
    **{f"bundled as {name}": ("bundled", config(tokenizer_class=name)) for name in OTHER_CLASSES},
    "bytes as Llama": ("byte level", config(tokenizer_class="LlamaTokenizerFast")),
    "Metaspace as GPT-2": ("metaspace", config(tokenizer_class="GPT2Tokenizer")),
    "no configuration": (
        "bundled",
        in_turn(removed("tokenizer_config.json"), entries("generation_config.json", eos_token_id=5)),
    ),
    "a prefix space": ("byte level", config(add_prefix_space=True)),
    "bos and eos": ("byte level", config(add_bos_token=True, add_eos_token=True)),
    "no special tokens map": ("metaspace", no_change),
    "NFC": ("bundled", entries("tokenizer.json", normalizer={"type": "NFC"})),
    "cut and filled up": (
        "byte level",
        entries(
            "tokenizer.json",
            truncation={"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0},
        ),
    ),
}


@pytest.mark.filterwarnings("ignore:the tokenizer of .* adds a space")
@pytest.mark.parametrize("name", AS_FILE_SAYS)
def test_ids_are_those_of_the_file_whatever_class_is_named_beside_it(name: str, tmp_path: Path) -> None:
    kind, change = AS_FILE_SAYS[name]
    folder = made(tmp_path, kind, change)
    result, text = ids(folder)
    alone = Tokenizer.from_file(str(folder / "tokenizer.json"))
    alone.no_truncation()
    assert result == alone.encode(text, add_special_tokens=False).ids
    assert len(result) > 30


@pytest.mark.filterwarnings("error")
def test_a_space_after_special_tokens_is_allowed_and_said(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="space"):
        result, text = ids(made(tmp_path, "metaspace"))
    assert text.startswith("<s>0 1") and len(result) > 30


REFUSED: dict[str, tuple[str, Change, str]] = {
    "lower case": ("bundled", entries("tokenizer.json", normalizer={"type": "Lowercase"}), "'You are .*'you are"),
    "spaces twice": (
        "byte level",
        entries("tokenizer.json", normalizer={"type": "Replace", "pattern": {"String": "  "}, "content": " "}),
        "must decode to the original prompt",
    ),
    "no line feeds": (
        "byte level",
        entries("tokenizer.json", normalizer={"type": "Strip", "strip_left": True, "strip_right": True}),
        "must decode to the original prompt",
    ),
    "a decoder of another kind": (
        "byte level",
        entries("tokenizer.json", decoder={"type": "Fuse"}),
        "must decode to the original prompt",
    ),
    "another token in the configuration": (
        "bundled",
        config(added_tokens_decoder={"600": added("0 1")}),
        r"512 \('0 1'\) instead of",
    ),
    "special tokens that are not listed": ("bundled", entries("tokenizer.json", added_tokens=[]), r"'<\|return\|>'"),
    "an end of another model": ("bundled", config(eos_token="<|im_end|>"), r"eos_token \('<\|im_end\|>'\) .* is 512"),
    "an end out of range": (
        "bundled",
        entries("generation_config.json", eos_token_id=[5, 128009]),
        "eos_token_id of .* is 128009, which belongs to another",
    ),
    "a negative end": (
        "byte level",
        entries("generation_config.json", eos_token_id=-1),
        "is -1, which belongs to another",
    ),
    "an end that is text": ("byte level", entries("generation_config.json", eos_token_id=50), "eos_token_id .* is 50"),
    "an end that is text in config.json": (
        "byte level",
        entries("config.json", eos_token_id=[50]),
        "eos_token_id .* is 50",
    ),
    "too few rows": ("bundled", entries("config.json", vocab_size=100), "must have ids below 100"),
    "many more rows": ("bundled", entries("config.json", vocab_size=128256), "512 tokens and .* 128256 rows"),
    "no tokenizer": ("bundled", entries("tokenizer.json", model=None), "tokenizer.json cannot be read"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_tokenizer_that_breaks_the_contract_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    kind, change, says = REFUSED[name]
    with pytest.raises(ValueError, match=says) as caught:
        ids(made(tmp_path, kind, change))
    assert "\n" not in str(caught.value) and "model" in str(caught.value)


def split_by(expression: str) -> Change:
    pattern = {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}
    return entries("tokenizer.json", pre_tokenizer=pattern)


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Narrow the limits, so that they are reached soon."""
    worker = BoundedWorker(
        Path(loading.__file__).with_name("tokenizer_process.py"),
        Bounds(seconds=1, wait=60, memory=2**28, answer=2**20),
        "splitting a text by it",
    )
    monkeypatch.setattr(loading, "WORKER", worker)
    yield
    worker.end()


@pytest.mark.usefixtures("narrow")
def test_a_tokenizer_that_takes_too_long_is_refused_before_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made(tmp_path, "bundled", split_by("(?:.|.){17}(?<!.)"))  # a second for each character
    with monkeypatch.context() as patched:
        patched.setattr(PreTrainedTokenizerFast, "from_pretrained", lambda *_, **__: pytest.fail("it was loaded"))
        with pytest.raises(ValueError, match=r"1 s .*tokenizer\.json"):
            ids(folder)
    shutil.rmtree(folder)
    ids(made(tmp_path, "bundled", config(model_max_length=512)))  # the next one has a new process


@pytest.mark.skipif(sys.platform != "linux", reason="macOS has no limit on the memory of a process")
@pytest.mark.usefixtures("narrow")
def test_a_tokenizer_that_takes_too_much_memory_is_refused_before_it_is_loaded(tmp_path: Path) -> None:
    tenfold = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10}
    change = entries("tokenizer.json", normalizer={"type": "Sequence", "normalizers": [tenfold] * 12})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=r"256 MiB.*tokenizer\.json"):
        ids(made(tmp_path, "bundled", change))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**17  # KiB


def test_an_expression_that_is_slow_for_one_prompt_alone_is_refused(tmp_path: Path) -> None:
    dialect = Dialect(made(tmp_path, "bundled", split_by("(?:~~|~.|.~){9,}(?<!.)")), reasoning="none")
    assert dialect.prompt_ids(["plain"])
    with pytest.raises(ValueError, match="retry-limit"):
        dialect.prompt_ids(["~" * 200])


def test_files_of_the_package_are_read_without_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "WORKER", None)
    for name in ("theseus", "ariadne", "organism-goal"):
        dialect = Dialect(name)
        [found] = dialect.prompt_ids(["0 # A\n"])
        assert dialect.text(found) == "0 # A\n"


def test_a_prompt_is_checked_and_a_fragment_is_not(tmp_path: Path) -> None:
    table = {character: number for number, character in enumerate([*map(chr, range(32, 127)), "\n"])}
    core = Tokenizer(models.BPE(vocab=table, merges=[], unk_token="?"))
    core.decoder = decoders.Fuse()
    make: Any = PreTrainedTokenizerFast
    make(tokenizer_object=core, eos_token="~").save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": len(table)}))
    (tmp_path / "chat_template.jinja").write_text(CONTENT)
    dialect = Dialect(tmp_path, reasoning="none")
    assert dialect.prompt_ids(["plain"]) and len(dialect.encode("é")) == 1
    with pytest.raises(ValueError, match=r"'a caf\u00e9' .*'a caf\?' \(character 5 of 6\)"):
        dialect.prompt_ids(["plain", "a caf\u00e9"])


# Chat templates


def named(*pairs: tuple[str, str]) -> Change:
    """Templates by name in tokenizer_config.json, as before 2025."""
    listed = [{"name": name, "template": text} for name, text in pairs]
    return in_turn(removed("chat_template.jinja"), config(chat_template=listed))


def beside(**texts: str) -> Change:
    """Templates by name in files of their own."""

    def change(folder: Path) -> None:
        (folder / "additional_chat_templates").mkdir()
        for name, text in texts.items():
            (folder / "additional_chat_templates" / f"{name}.jinja").write_text(text)

    return change


CHOICES: dict[str, tuple[Change, tuple[str, ...]]] = {
    "a list": (named(("rag", CONTENT + "1"), ("tool_use", CONTENT + "2")), ("rag", "tool_use")),
    "one file": (in_turn(removed("chat_template.jinja"), beside(rag=CONTENT + "1")), ("rag",)),
    "a list in a file of its own": (
        in_turn(
            removed("chat_template.jinja"),
            entries("chat_template.json", chat_template=[{"name": "rag", "template": CONTENT + "1"}]),
        ),
        ("rag",),
    ),
    "two files": (in_turn(removed("chat_template.jinja"), beside(rag=CONTENT + "1", b=CONTENT)), ("b", "rag")),
}


@pytest.mark.parametrize("name", CHOICES)
def test_templates_without_a_default_are_chosen_by_name(name: str, tmp_path: Path) -> None:
    change, names = CHOICES[name]
    folder = made(tmp_path, "byte level", change)
    with pytest.raises(ValueError, match=f"{', '.join(names)}, .*chat_template={names[0]}"):
        ids(folder)
    with pytest.raises(ValueError, match=f"{', '.join(names)}; got 'other'"):
        ids(folder, chat_template="other")
    chosen = Dialect(folder, reasoning="none", chat_template="rag")
    assert chosen.render([Message(role="user", content="x")], Sampling()) == "x1" and not chosen.base
    assert chosen.describe()["chat_template"] == "rag"


def test_the_advice_can_be_typed_as_it_stands(tmp_path: Path) -> None:
    folder = made(tmp_path, "byte level", in_turn(removed("chat_template.jinja"), beside(**{"two words": CONTENT})))
    with pytest.raises(ValueError, match="only two words") as caught:
        ids(folder)
    commands = [shlex.split(line) for line in str(caught.value).split("`")[1::2]]
    assert commands[0][2] == f"chat:model={folder},chat_template=two words" and commands[1][-1] == "two words"


def test_the_default_is_taken_and_others_are_chosen(tmp_path: Path) -> None:
    folder = made(tmp_path, "byte level", beside(rag=CONTENT + "1"))
    message = [Message(role="user", content="x")]
    texts = [
        Dialect(folder, reasoning="none", chat_template=name).render(message, Sampling()) for name in (None, "rag")
    ]
    assert texts == ["<s>x", "x1"]
    before = tokenizer_identity(folder), dict(Dialect(folder).describe())
    (folder / "additional_chat_templates" / "rag.jinja").write_text(CONTENT + "2")
    assert Dialect(folder, reasoning="none", chat_template="rag").render(message, Sampling()) == "x2"
    assert tokenizer_identity(folder) != before[0] and "chat_template" not in before[1]
    assert "additional_chat_templates/rag.jinja" in folder_identity_of(folder)


def folder_identity_of(folder: Path) -> Mapping[str, str]:
    (folder / "model.safetensors").write_bytes(NO_WEIGHTS)
    return folder_identity(folder)


def test_a_model_without_templates_has_none_to_choose(tmp_path: Path) -> None:
    folder = made(tmp_path, "byte level", removed("chat_template.jinja"))
    with pytest.raises(ValueError, match=r"'rag'.* chat_template"):
        ids(folder, chat_template="rag")


def test_the_template_of_chat_template_json_is_read(tmp_path: Path) -> None:
    change = in_turn(removed("chat_template.jinja"), entries("chat_template.json", chat_template=CONTENT + "!"))
    dialect = Dialect(made(tmp_path, "byte level", change), reasoning="none")
    assert dialect.render([Message(role="user", content="x")], Sampling()) == "x!" and not dialect.base


def test_a_template_that_asks_for_tools_names_the_others(tmp_path: Path) -> None:
    folder = made(tmp_path, "byte level", named(("default", NEEDS_TOOLS), ("plain", CONTENT), ("rag", CONTENT)))
    with pytest.raises(ValueError, match=r"tools.*chat_template .*plain, rag") as caught:
        ids(folder)
    assert "digests" not in str(caught.value)
    assert ids(folder, chat_template="plain")[1] == PROMPT
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "chat_template": NEEDS_TOOLS}))
    with pytest.raises(ValueError, match="tools"):
        ids(folder)


def test_a_local_model_is_refused_before_its_weights_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("goalscope.agents.models.local.load_weights", None)
    folder = made(tmp_path, "bundled", entries("generation_config.json", eos_token_id=128009))
    with pytest.raises(ValueError, match=r"eos_token_id .*128009"):
        _ = LocalModel(folder, device="cpu").model
    entries("generation_config.json", eos_token_id=5)(folder)
    with pytest.raises(ValueError, match="default; got 'rag'"):
        _ = LocalModel(folder, device="cpu", chat_template="rag").model


def test_a_server_is_sent_no_prompt_that_breaks_the_contract(tmp_path: Path) -> None:
    folder = made(tmp_path, "bundled", entries("tokenizer.json", normalizer={"type": "Lowercase"}))
    server = {"base_url": "http://127.0.0.1:9/v1", "mode": "completions", "tokenizer": str(folder)}
    model = HttpModel("served", server=server, reasoning="none")
    request = Request(messages=(Message(role="user", content=PROMPT),), key=(0, "episode", 0, 0))
    with pytest.raises(ValueError, match="prompt"):
        model.complete([request], Sampling())
    with pytest.raises(ValueError, match="mode chat"):
        HttpModel("served", server={"base_url": server["base_url"]}, chat_template="rag")


def test_files_of_the_hub_that_name_too_many_tokens_are_refused_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(str(model_folder("organism-goal")), tmp_path / "snapshot", copy_function=shutil.copyfile)
    entries("special_tokens_map.json", **{f"k{number}_token": f"<{number}>" for number in range(10_001)})(folder)

    def cached(source: str, name: str, **_: Any) -> str | None:
        return str(folder / name) if (folder / name).exists() else None

    monkeypatch.setattr("transformers.utils.hub.cached_file", cached)
    monkeypatch.setattr(loading, "check_hub", lambda *_: None)
    with pytest.raises(ValueError, match=r"special_tokens_map\.json must name at most 10000 tokens"):
        loading.load_tokenizer("somebody/model", {}, folder=None)


def test_without_a_hub_a_tokenizer_is_looked_for_in_the_cache_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library would retry each of its files five times, with pauses of 23 s in all."""

    def paused(seconds: float) -> None:
        raise AssertionError(f"a file is asked for again after {seconds} s")

    def refused(*_: Any, **__: Any) -> None:
        raise OSError("offline")

    monkeypatch.setattr("goalscope.agents.models.loading.socket.create_connection", refused)
    monkeypatch.setattr(loading, "getproxies", dict)
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", paused)
    loading.hub_problem.cache_clear()
    try:
        with pytest.raises(OSError, match="nobody/has-this-model"):
            Dialect("nobody/has-this-model").marks  # noqa: B018
    finally:
        loading.hub_problem.cache_clear()
