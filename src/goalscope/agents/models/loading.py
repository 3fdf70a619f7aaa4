"""Load tokenizers and chat templates of unknown origin from checked files within limits, and explain errors."""

import re
import socket
import sys
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies

from goalscope._ground.bounded import BoundedError, BoundedWorker, Bounds
from goalscope._ground.extras import lacking
from goalscope._ground.folder import Folder, NamedFile
from goalscope._ground.progress import TALLY
from goalscope._ground.untrusted import shorten
from goalscope.agents.models.folders import (
    ADVICE,
    TOKEN_FILES,
    brief,
    check_token_files,
    check_tokenizer,
    has_bundled_tokenizer,
    weight_octets,
)
from goalscope.agents.models.reading import common_length
from goalscope.agents.models.weight_files import converted, keep
from goalscope.worlds.grid import SYMBOLS, Action

# Render chat templates of unknown origin in a separate process with limits.
#
# A chat template is a program (Jinja). Its sandbox keeps it away from files and from Python, but does not prevent
# endless loops or texts of any length. The process compiles and renders with the same function of transformers that
# `apply_chat_template` calls. It starts with the first template that does not come with the package, and renders all
# later ones.

MOST_SOURCE: Final = 2**20
"""Maximum number of characters of a template."""

MOST_TEXT: Final = 4 * 2**20
"""Maximum number of characters of a rendered chat."""

TEMPLATE_SECONDS: Final = 5
"""Maximum processor time per rendering, including compilation, in seconds; the system counts whole seconds."""

TEMPLATE_WAIT: Final = 60
"""Maximum wall-clock time per rendering, in seconds."""

TEMPLATE_MEMORY: Final = 512 * 2**20
"""Maximum memory in bytes that templates may add to what the process uses before the first template (Linux)."""


class ChatTemplateError(ValueError):
    """Error for a chat template that fails, or exceeds a limit on time, memory or length."""


def check_source(template: object) -> str:
    """Check that the source of a chat template is a text of acceptable length, and return it.

    Raises:
        ChatTemplateError: it is no text, or longer than `MOST_SOURCE` characters.
    """
    if not isinstance(template, str):
        raise ChatTemplateError(f"it must be a text, got {type(template).__name__}")
    if len(template) > MOST_SOURCE:
        raise ChatTemplateError(f"it must have at most {MOST_SOURCE} characters, got {len(template)}")
    return template


def render_bounded(
    template: str, messages: Sequence[Mapping[str, str]], variables: Mapping[str, Any], *, prompt: bool = True
) -> str:
    """Render a chat with a template of unknown origin, in a separate process with limits on time, memory and length.

    Args:
        template: source of the template.
        messages: role and content of each message.
        variables: further variables of the template, including special tokens, with values that JSON can represent.
        prompt: whether the text continues to where the next answer begins.

    Raises:
        ChatTemplateError: the template fails or exceeds a limit.
        ImportError: the process lacks transformers or jinja2.
        OSError: the process cannot be started.
    """
    request = {
        "template": template,
        "messages": list(messages),
        "variables": dict(variables),
        "prompt": prompt,
        "length": MOST_TEXT,
    }
    try:
        return str(RENDERER.ask(request))
    except BoundedError as error:
        raise ChatTemplateError(str(error)) from None


RENDERER: Final = BoundedWorker(
    Path(__file__).with_name("template_process.py"),
    Bounds(
        seconds=TEMPLATE_SECONDS,
        wait=TEMPLATE_WAIT,
        memory=TEMPLATE_MEMORY,
        answer=12 * MOST_TEXT + 4096,  # JSON needs at most 12 bytes per character
    ),
    "rendering it",
)
"""The process that renders chats for this process."""


# The contract between a model's tokenizer and goalscope, checked for every prompt before the model reads it.
#
# 1. The ids of a prompt are those that the library tokenizers gives when it reads `tokenizer.json` and nothing else.
# 2. Decoding the ids returns the prompt. Two known differences are allowed and reported in a warning: a space that
# the tokenizer adds at the beginning of a text or after a special token, and white space that a special token
# absorbs because `tokenizer.json` says so (``lstrip``, ``rstrip``). 3. Each id has a row in the model's embedding.
# 4. The tokens that end an output, and those that the chat template writes, exist and are single tokens.
#
# A library that reads a folder of unknown origin can break these rules without an error. If the folder names the
# class of another model, the library builds a different tokenizer from the same vocabulary; special tokens that are
# not listed are split into characters.
#
# Point 1 is checked in a bounded process (`goalscope._ground.bounded`), which splits each prompt first. If a
# tokenizer's expressions take too much time or memory for a prompt, the process is ended and an error names the
# tokenizer.

MOST_SECONDS: Final = 10
"""Maximum processor time for splitting one text, in seconds; the first text includes reading the tokenizer's file."""

MOST_WAIT: Final = 120
"""Maximum wall-clock time for splitting one text, in seconds."""

MOST_MEMORY: Final = 3 * 2**30
"""Maximum memory in bytes that tokenizers may add to what the process uses before the first one (Linux)."""

_MOST_ANSWER: Final = 64 * 2**20  # maximum bytes of the ids of one text
_LEAST_SHARE: Final = 0.5  # minimum share of the rows of a model's embedding that its tokenizer uses
_SHOWN: Final = 24  # characters of a text that a message shows
_MARK: Final = re.compile(r"<\|[^|<>\s]{1,60}\|>")

WORKER: Final = BoundedWorker(
    Path(__file__).with_name("tokenizer_process.py"),
    Bounds(seconds=MOST_SECONDS, wait=MOST_WAIT, memory=MOST_MEMORY, answer=_MOST_ANSWER),
    "splitting a text by it",
)
"""The process that splits texts for this process."""


def _sample_texts() -> tuple[str, ...]:
    """Return texts with everything that prompts contain: grids with all symbols, actions, answers, lists and words.

    Long runs of one kind of character are included because they make expressions of a tokenizer slow.
    """
    symbols = [*SYMBOLS]
    rows = [" ".join(symbols[(row + column) % len(symbols)] for column in range(15)) for row in range(15)]
    grid = "\n".join(["   " + " ".join(map(str, range(15))), *(f"{row:2} {cells}" for row, cells in enumerate(rows))])
    actions = "\n".join(
        f'({row},{12 - row}) {action.name} {{"action": "{action.name}"}}' for row, action in enumerate(Action)
    )
    words = (
        "You are an agent in a grid world. It's 7x7; row 0 is at the top, and don't walk into walls!\n\n"
        "  - Tasks done: collect_wood, make plank (3 of 12, 45%), cook(soup) -> serve\n\n\n"
        "Numbers: 1 22 333 4444 55555 -6.75 1e-05 2025-08-05\n"
        'Signs: [a] {b} <c> ~/d\\e @f #g $h ^i &j *k +l =m |n `o` "p" ;q?\n'
    )
    runs = "".join(character * 400 for character in ("a", " ", "#", "0", "\n", "_"))
    return grid, actions, words, runs


SAMPLE: Final = _sample_texts()
"""Texts with which a tokenizer is tested before it is used."""


def split_bounded(file: Path, texts: Sequence[str], source: Path | str) -> list[list[int]]:
    """Return the token ids of each text by a file tokenizer.json, computed in a separate process with limits.

    Args:
        file: the tokenizer.json.
        texts: the texts.
        source: the model's folder or name, for errors.

    Raises:
        ValueError: the file cannot be read, or a limit on time or memory is exceeded.
    """
    status = NamedFile(file).status()
    request = {"file": str(file.absolute()), "state": f"{status.st_ino} {status.st_size} {status.st_mtime_ns}"}
    try:
        return list(WORKER.answers({**request, "texts": list(texts)}))
    except BoundedError as error:
        # A limit was reached. The library ends the search for an expression by a panic after too many steps.
        if error.kind in ("", "MemoryError", "PanicException"):
            raise _slow(source, error) from None
        raise ValueError(
            f"{source} must hold a model that transformers can load, but its tokenizer.json cannot be read: "
            f"{brief(error)}: {ADVICE}"
        ) from None


def _slow(source: Path | str, error: BaseException) -> ValueError:
    return ValueError(
        f"{source} must hold a tokenizer that can split this prompt, but {brief(error)}: check the regular "
        "expressions in its tokenizer.json"
    )


def token_ids(tokenizer: Any, text: str, source: Path | str) -> list[int]:
    """Return the token ids of a text, without adding special tokens.

    Raises:
        ValueError: a regular expression of the tokenizer fails on this text; the message names ``source``, the model.
    """
    try:
        return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # raised by compiled code, and not an Exception
            raise
        raise _slow(source, error) from None


@dataclass(frozen=True, kw_only=True)
class TokenizerContract:
    """Checks that a model's tokenizer splits texts exactly as its file says and that decoding returns each text.

    A wrongly loaded tokenizer would otherwise change prompts without an error.

    Attributes:
        source: the model's folder, or its name.
        tokenizer: the tokenizer as transformers loaded it.
        file: its tokenizer.json; None if it has no such file (e.g. a GGUF file, or a vocabulary in older files).
        rows: number of rows of the model's embedding, None if unknown.
    """

    source: Path | str
    tokenizer: Any
    file: Path | None = None
    rows: int | None = None

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each prompt, after checking that decoding returns the prompt and that the model has
        all ids.

        Raises:
            ValueError: a prompt fails a check; the message names the first difference.
        """
        result = self.split(texts)
        for text, ids in zip(texts, result, strict=True):
            self._check_text(text, self._text(ids))
            if self.rows is not None and ids and max(ids) >= self.rows:
                raise ValueError(
                    f"the tokenizer of {self.source} must have ids below {self.rows}, the number of rows of the "
                    f"model's embedding (vocab_size), but it uses {max(ids)} for {self._text([max(ids)])!r}. It "
                    f"belongs to another model: {ADVICE}"
                )
        return result

    def split(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text, which may be a fragment, after comparing them with those of the
        tokenizer's file.

        Each text is split in a separate process with limits first.

        Raises:
            ValueError: the ids differ, or a limit on time or memory is exceeded.
        """
        if self.file is None:
            return [token_ids(self.tokenizer, text, self.source) for text in texts]
        result = []
        for text, reference in zip(texts, split_bounded(self.file, texts, self.source), strict=True):
            ids = token_ids(self.tokenizer, text, self.source)
            if ids != reference:
                raise self._unlike_file(ids, reference)
            result.append(ids)
        return result

    def check(self, chat_template: str, markers: Collection[str]) -> None:
        """Check a tokenizer once on the texts of `SAMPLE` and on each token that the chat template writes.

        Spaces that the tokenizer adds or absorbs next to special tokens are allowed, with a warning.

        Args:
            chat_template: the source of the chat template.
            markers: further tokens, each of which must be a single token if the vocabulary contains it.

        Raises:
            ValueError: the tokenizer fails a check, for example because it belongs to another model.
        """
        vocabulary = self.tokenizer.get_vocab()
        if self.rows is not None and len(vocabulary) < _LEAST_SHARE * self.rows:
            raise ValueError(
                f"the tokenizer of {self.source} must belong to its model, but it has {len(vocabulary)} tokens "
                f"and the model's embedding has {self.rows} rows (vocab_size): {ADVICE}"
            )
        special = [str(token) for token in self.tokenizer.all_special_tokens]
        names = dict.fromkeys([*special, *markers, *_MARK.findall(chat_template)])
        whole = [name for name in names if name in vocabulary]
        for name, ids in zip(whole, self.split(whole), strict=True):
            if ids != [vocabulary[name]]:
                raise ValueError(
                    f"the token {shorten(name)} of {self.source} must be one token, but its tokenizer splits it into "
                    f"{len(ids)}: list it in added_tokens of tokenizer.json, as save_pretrained does, or {ADVICE}"
                )
        opening = "".join(special[:2])
        text = opening.join(["", *SAMPLE])
        *_, ids = self.ids([*SAMPLE, text])
        if self._text(ids) != text:
            warnings.warn(
                f"the tokenizer of {self.source} adds a space at the beginning of a text or after special tokens, or "
                "absorbs white space next to them; decoding returns everything else in a prompt unchanged",
                stacklevel=2,
            )

    def check_stop(self, named: Collection[int], own: int | None) -> None:
        """Check that the tokens that end an output are tokens of this model.

        Args:
            named: ids that the generation configuration, or the model's configuration, names.
            own: id of the tokenizer's own end-of-text token, or None.

        Raises:
            ValueError: an id does not exist or belongs to another tokenizer.
        """
        tokens = {number: token for token, number in self.tokenizer.get_vocab().items()}
        for number in sorted({*named, *([] if own is None else [own])}):
            source = "eos_token_id" if number in named else f"eos_token ({shorten(str(self.tokenizer.eos_token))})"
            if number not in tokens or (self.rows is not None and number >= self.rows):
                most = max(tokens, default=-1) if self.rows is None else min(max(tokens, default=-1), self.rows - 1)
                raise ValueError(
                    f"the token that ends an output must be one of the model's tokens, 0 to {most}, but {source} of "
                    f"{self.source} is {number}, which belongs to another tokenizer: set eos_token_id in its "
                    "generation_config.json and eos_token in its tokenizer_config.json"
                )
        added: Mapping[int, Any] = getattr(self.tokenizer, "added_tokens_decoder", {})
        special = {*self.tokenizer.all_special_ids, *(number for number, token in added.items() if token.special)}
        if own is not None and own in special and named and own not in named and not special.intersection(named):
            number = min(named)
            raise ValueError(
                f"eos_token_id must name the token that ends a text, but in {self.source} it is {number}, the text "
                f"{tokens[number]!r}, while its tokenizer ends texts with {self.tokenizer.eos_token!r} ({own}). It "
                f"belongs to another tokenizer: set eos_token_id to {own} in generation_config.json or config.json"
            )

    def _text(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def _unlike_file(self, ids: Sequence[int], reference: Sequence[int]) -> ValueError:
        """Return the error for ids that differ from those of the file."""
        first = common_length([ids, reference])
        to_tokens = self.tokenizer.convert_ids_to_tokens

        def token(numbers: Sequence[int]) -> str:
            return f"{numbers[first]} ({shorten(to_tokens(numbers[first]))})" if first < len(numbers) else "nothing"

        return ValueError(
            f"the tokenizer of {self.source} must give the ids of its tokenizer.json, but transformers loads it as "
            f"{type(self.tokenizer).__name__} and gives {len(ids)} ids instead of {len(reference)}; the first that "
            f"differs is number {first}, {token(ids)} instead of {token(reference)}: list the same tokens in "
            f"added_tokens of tokenizer.json and in tokenizer_config.json, or {ADVICE}"
        )

    def _check_text(self, text: str, decoded: str) -> None:
        """Refuse ids whose decoded text differs from the original text."""
        if decoded == text or self._differs_in_known_ways(text, decoded):
            return
        first = common_length([text, decoded])
        begin = max(0, first - _SHOWN // 2)
        raise ValueError(
            f"the tokenizer of {self.source} must decode to the original prompt, but it turns "
            f"{text[begin : first + _SHOWN]!r} into {decoded[begin : first + _SHOWN]!r} (character {first} of "
            f"{len(text)}), so the model would read another text. If this tokenizer changes texts by design (lower "
            f"case, white space, unknown characters), use another model; otherwise, {ADVICE}"
        )

    def _differs_in_known_ways(self, text: str, decoded: str) -> bool:
        """Return whether two texts differ only by white space that tokenizers add or remove at special tokens."""
        pieces, decoded_pieces = self._special.split(text), self._special.split(decoded)
        if len(pieces) != len(decoded_pieces) or pieces[1::2] != decoded_pieces[1::2]:
            return False
        for index in range(0, len(pieces), 2):
            piece, other = pieces[index], decoded_pieces[index]
            before = self._takes_space[pieces[index - 1]] if index else (False, False)
            after = self._takes_space[pieces[index + 1]] if index + 1 < len(pieces) else (False, False)
            if before[1]:
                piece, other = piece.lstrip(), other.lstrip()
            if after[0]:
                piece, other = piece.rstrip(), other.rstrip()
            if other not in (piece, f" {piece}") and not (index == 0 and piece == f" {other}"):
                return False
        return True

    @cached_property
    def _takes_space(self) -> Mapping[str, tuple[bool, bool]]:
        """For each special token, whether it absorbs white space on its left and on its right."""
        added: Mapping[int, Any] = getattr(self.tokenizer, "added_tokens_decoder", {})
        return {token.content: (token.lstrip, token.rstrip) for token in added.values()}

    @cached_property
    def _special(self) -> re.Pattern[str]:
        names = sorted(self._takes_space, key=len, reverse=True)
        return re.compile(f"({'|'.join(map(re.escape, names))})" if names else "((?!))")


# Load tokenizers with transformers from checked folders, and explain errors.

_TOKENIZER: Final = "tokenizer.json"
_SMALL: Final = 1 << 30  # bytes
_TEXTS: Final = (
    'A grid:\n# # # #\n# A . #\n# . G #\n\n{"action": "right"}  3.14 <|im_start|>',
    " ÄÖ é 中文 😀\t\r\n  x" + "".join(map(chr, range(32, 127))),
)
"""Texts in which a converted tokenizer is compared with its original."""


def load_tokenizer(source: str, where: Mapping[str, Any], *, folder: Path | None) -> tuple[Any, Path | None]:
    """Load a model's tokenizer from its checked files.

    A tokenizer.json is loaded exactly as it is, whatever class the files next to it name. For the class of another
    model, transformers would build a different tokenizer from the same vocabulary. A file that does not come with the
    package is first tried in a bounded process.

    Args:
        source: the folder, or the model's name on the hub.
        where: further arguments for ``from_pretrained``.
        folder: the folder, None for the hub.

    Returns:
        The transformers tokenizer, and the tokenizer.json that it must agree with. The file is None if there is none,
        or if it comes with the package, in which case no comparison is needed.

    Raises:
        ValueError: the tokenizer cannot be read; the message says why.
    """
    configuration = check_tokenizer(folder) if folder is not None else {}
    file = _tokenizer_file(source, where, folder)
    trusted = folder is not None and has_bundled_tokenizer(folder)
    if file is not None and not trusted:
        split_bounded(file, SAMPLE, source)
    with explained(folder):
        # The library refuses a tokenizer with code of its own.
        if file is not None and "auto_map" not in configuration:
            # Loading the file directly avoids importing torch, which takes seconds.
            from transformers import PreTrainedTokenizerFast

            return PreTrainedTokenizerFast.from_pretrained(source, **where), None if trusted else file
        if "gguf_file" in where and folder is not None:
            return _gguf_tokenizer(source, where, folder), None
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(source, **where), file


def _gguf_tokenizer(source: str, where: Mapping[str, Any], file: Path) -> Any:
    """Return the tokenizer of a GGUF file: from its converted copy in the cache, which is made if there is none."""
    from transformers import PreTrainedTokenizerFast

    def copied(place: Path) -> Any:
        return PreTrainedTokenizerFast.from_pretrained(str(place), local_files_only=True)

    if (place := converted(file, "tokenizer")) is not None:
        return copied(place)
    TALLY.tell(f"{file.name}: reading its tokenizer, which takes up to half a minute the first time")
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(source, **where)
    keep(file, "tokenizer", tokenizer.save_pretrained, lambda place: _alike(tokenizer, copied(place)), _SMALL // 16)
    return tokenizer


def _alike(first: Any, second: Any) -> bool:
    """Return whether two tokenizers have equal vocabularies, special tokens and templates, and encode texts alike."""

    def facts(tokenizer: Any) -> list[Any]:
        texts = (*_TEXTS, str(first.chat_template or ""))
        encoded = [
            tokenizer(text, add_special_tokens=special)["input_ids"] for text in texts for special in (True, False)
        ]
        names = ("bos_token_id", "eos_token_id", "unk_token_id", "chat_template")
        special_ids = [*(getattr(tokenizer, name) for name in names), sorted(tokenizer.all_special_ids)]
        decoded = [tokenizer.decode(ids) for ids in encoded]
        return [tokenizer.get_vocab(), tokenizer.get_added_vocab(), special_ids, encoded, decoded]

    return facts(first) == facts(second)


_LONGEST_CONNECT: Final = 5.0  # seconds


@cache
def hub_problem() -> str:
    """Return why no connection to the Hugging Face hub can be opened; "" if one can be opened.

    This is tried once per process. Behind a proxy, which only the library knows how to use, the answer is "".
    """
    from huggingface_hub import constants

    if getproxies():
        return ""
    address = urlsplit(constants.ENDPOINT)
    port = address.port or (80 if address.scheme == "http" else 443)
    try:
        socket.create_connection((address.hostname or "", port), timeout=_LONGEST_CONNECT).close()
    except OSError as error:
        return str(error.strerror or error)
    return ""


def check_hub(source: str, revision: str | None = None) -> None:
    """Check that a model on the Hugging Face hub is in the local cache or can be downloaded.

    Without this check, the libraries would try each file again for half a minute, and then not name the model. Nothing
    is checked in their offline mode.

    Args:
        source: the model's name on the hub.
        revision: commit, tag or branch; None for the default branch.

    Raises:
        OSError: the model must be downloaded, but the hub cannot be reached.
    """
    from huggingface_hub import constants, try_to_load_from_cache

    if constants.HF_HUB_OFFLINE or isinstance(try_to_load_from_cache(source, "config.json", revision=revision), str):
        return
    if problem := hub_problem():
        raise OSError(
            f"the model {source} must be downloaded from {constants.ENDPOINT}, which cannot be reached ({problem}): "
            "check the network, or give a folder or GGUF file on this machine"
        )


def _tokenizer_file(source: str, where: Mapping[str, Any], folder: Path | None) -> Path | None:
    """Return the path of the tokenizer.json in a folder or of a model on the hub, or None if there is no such file.

    The file of a model on the hub is downloaded now.
    """
    if folder is None:
        check_hub(source, where.get("revision"))
        path = _hub_file(source, where, _TOKENIZER)
        # They lie in one folder, whose files the library reads next.
        snapshots = {file.parent for name in TOKEN_FILES if (file := _hub_file(source, where, name)) is not None}
        for snapshot in snapshots:
            check_token_files(snapshot)
        return path
    if NamedFile(folder).is_there():
        return None  # a GGUF file
    place = Folder(folder, links=True)
    return place.file(_TOKENIZER) if place.has_file(_TOKENIZER) else None


def _hub_file(source: str, where: Mapping[str, Any], name: str) -> Path | None:
    """Return the path of a file of a model on the hub, downloaded now; None if there is none."""
    from transformers.utils.hub import cached_file

    try:
        options = {key: where[key] for key in ("revision", "local_files_only") if key in where}
        path = cached_file(source, name, **options)
    except OSError:
        return None  # there is no such file, or the hub cannot be reached, which loading will report
    return None if path is None else Path(path)


@contextmanager
def explained(folder: Path | str | None, what: str = "a model that transformers can load") -> Iterator[None]:
    """Context that turns any error of a library about a model's files into a ValueError that names the model.

    Args:
        folder: the model's folder or name; None to leave errors unchanged.
        what: what the folder must hold, for the message.
    """
    if folder is None:
        yield
        return
    try:
        yield
    except (ImportError, MemoryError):
        raise
    except Exception as error:  # a damaged file can make a library raise any kind of error
        torch = sys.modules.get("torch")  # torch is not imported if only a tokenizer is read
        if torch is not None and isinstance(error, torch.OutOfMemoryError):
            raise
        if "ignore_mismatched_sizes" in str(error):  # the library names no weight, but prints a report
            raise ValueError(
                f"{folder} must hold weights of the shapes that config.json describes, but some have others: {ADVICE}"
            ) from error
        if "trust_remote_code" in str(error):
            raise ValueError(
                f"{folder} must hold a model whose code is part of transformers, but it has code of its own, which "
                "is never run (trust_remote_code stays off): save it as a known architecture, or serve it with another "
                "program and use that server"
            ) from error
        kind = "" if isinstance(error, ChatTemplateError) else f"{type(error).__name__}: "
        raise ValueError(f"{folder} must hold {what}, but {kind}{brief(error)}: {ADVICE}") from error


@contextmanager
def quiet(folder: Path | None) -> Iterator[None]:
    """Context in which transformers shows no progress bars while it reads a model of less than 1 GiB."""
    bars: Any = import_module("transformers.utils.logging")
    small = folder is not None and Folder(folder).is_there() and weight_octets(folder) < _SMALL  # GGUF files are slow
    disabled = small and bars.is_progress_bar_enabled()
    if disabled:
        bars.disable_progress_bar()
    try:
        yield
    finally:
        if disabled:
            bars.enable_progress_bar()


def needed(name: str) -> Any:
    """Import and return a library that local models need, such as "torch".

    Raises:
        ImportError: it is missing; the message names the extra of goalscope that installs it.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise lacking("local models need torch and transformers", "lm", error) from error
