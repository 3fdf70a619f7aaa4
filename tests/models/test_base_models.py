"""Base models, which have no chat template, and GGUF files: how they are read and asked, and what is refused."""

import struct
import warnings
from pathlib import Path
from typing import Any

import pytest
from tiny_models import PLAIN_TEMPLATE, llama, request, tokenizer

from goalscope.agents import ChatAgent
from goalscope.agents.models import LocalModel, Message, Part, Sampling
from goalscope.agents.models.folders import folder_identity, has_chat_template, model_folder
from goalscope.agents.models.weight_files import PACKAGES, read_header
from goalscope.verdict.subject import subject_of

COLD = Sampling(temperature=0.0, max_tokens=24, reasoning_effort=None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model: Any = llama(positions=4096)
    model.save_pretrained(tmp_path)
    tokenizer(None, added=()).save_pretrained(tmp_path)
    return tmp_path


def test_a_model_without_a_chat_template_goes_on_with_a_text_to_the_end_of_the_line(folder: Path) -> None:
    model = LocalModel(folder)
    assert model.template == "completion" and not has_chat_template(folder)
    assert "{{examples}}" in ChatAgent(model=model).text
    with pytest.warns(UserWarning, match="base model") as caught:
        assert model.base and model.style == "none"
    assert len(caught) == 1
    chat = [Message(role="user", content="one"), Message(role="assistant", content="two"), request("three").messages[0]]
    assert model.render(chat, COLD) == "one\nAnswer:\ntwo\n\nthree\nAnswer:\n"
    lines = {number for piece, number in model.tokenizer.get_vocab().items() if "\n" in piece}
    assert model.stop == lines | {model.tokenizer.eos_token_id} and len(lines) == 1
    (line,) = lines
    ids = model.encode('{"action": "UP"}')
    for end in ([line], [model.tokenizer.eos_token_id], []):
        assert model.parts("", [*ids, *end]) == (Part(kind="answer", text='{"action": "UP"}'),)
    assert model.text_parts("", '{"action": "UP"}\n\nanother') == (Part(kind="answer", text='{"action": "UP"}'),)
    (answer,) = model.complete([request("go")], COLD)
    assert "\n" not in answer.answer and answer.output_tokens


def test_a_text_begins_as_the_tokenizer_begins_texts() -> None:
    pieces: Any = tokenizer(None)
    from tokenizers.processors import TemplateProcessing

    pieces.backend_tokenizer.post_processor = TemplateProcessing(single="<pad> $A", special_tokens=[("<pad>", 0)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LocalModel.from_parts(llama(), pieces)
        assert model.render(request("go").messages, COLD) == "<pad>go\nAnswer:\n"
    assert model.encode("<pad>go").count(0) == 1


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def header(*, template: str = "", kind: int = 3) -> bytes:
    """The header of a GGUF file that holds no tensor."""
    entries = [
        text("general.architecture") + struct.pack("<I", 8) + text("llama"),
        text("general.file_type") + struct.pack("<II", 4, kind),
        text("llama.block_count") + struct.pack("<II", 4, 2),
        text("llama.context_length") + struct.pack("<II", 4, 512),
        text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("bc"),
        text("tokenizer.ggml.scores") + struct.pack("<IIQff", 9, 6, 2, 0.0, 1.0),
        *([text("tokenizer.chat_template") + struct.pack("<I", 8) + text(template)] if template else []),
    ]
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries)) + b"".join(entries)


def test_the_header_of_a_gguf_file_says_what_the_model_is(tmp_path: Path) -> None:
    base, chat = tmp_path / "base" / "one.Q4_1.gguf", tmp_path / "chat.gguf"
    base.parent.mkdir()
    base.write_bytes(header())
    chat.write_bytes(header(template=PLAIN_TEMPLATE, kind=15))
    told = read_header(base)
    assert told.quantisation == "Q4_1" and told.values["llama.context_length"] == 512
    assert model_folder(base.parent) == model_folder(base) == base and not has_chat_template(base)
    assert has_chat_template(chat) and read_header(chat).quantisation == "Q4_K_M"
    model = LocalModel(base.parent)
    assert model.name == "one.Q4_1" and model.template == "completion" and LocalModel(chat).template is None
    one, other = folder_identity(base), folder_identity(chat)
    assert one["quantisation"] == "Q4_1" and one["gguf"] != other["gguf"] and one["tokenizer"] != other["tokenizer"]
    drawn = LocalModel(base, untrained=1).describe()["files"]
    assert set(drawn) == {"configuration", "tokenizer"} and LocalModel(base).describe()["files"] == one


def test_gguf_files_that_are_none_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = header()
    broken = {
        "other": b"GGML" + whole[4:],
        "version": whole[:4] + struct.pack("<I", 99) + whole[8:],
        "cut": whole[:-3],
        "long": whole.replace(struct.pack("<Q", 20) + b"general.a", struct.pack("<Q", 1 << 62) + b"general.a"),
        "many": whole[:16] + struct.pack("<Q", 1 << 40) + whole[24:],
        "empty": b"",
    }
    for name, octets in broken.items():
        file = tmp_path / f"{name}.gguf"
        file.write_bytes(octets)
        with pytest.raises(ValueError, match="GGUF"):
            read_header(file)
    with pytest.raises(ValueError, match="one GGUF file"):
        LocalModel(tmp_path)
    deep = tmp_path / "deep" / "deep.gguf"
    deep.parent.mkdir()
    deep.write_bytes(whole.replace(struct.pack("<II", 4, 2), struct.pack("<II", 4, 10**6)))
    with pytest.raises(ValueError, match="block_count"):
        LocalModel(deep).model  # noqa: B018
    monkeypatch.setattr("goalscope.agents.models.weight_files.find_spec", lambda name: None)
    sound = tmp_path / "sound" / "one.gguf"
    sound.parent.mkdir()
    sound.write_bytes(whole)
    with pytest.raises(ImportError, match=r"gguf_file='one\.gguf'") as caught:
        LocalModel(sound).model  # noqa: B018
    with pytest.raises(ImportError, match=r"gguf_file='one\.gguf'"):
        subject_of(str(sound.parent))  # a folder with such a file alone is a model's, too
    assert all(name in str(caught.value) for name in (*PACKAGES, "save_pretrained", "extra gguf"))
