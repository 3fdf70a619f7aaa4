"""JSON files that goalscope writes and reads back: each has a schema, and a seal over every byte.

The schema is a `StrictRecord` with a ``version``: strict types, no unknown keys, finite numbers, bounded texts. The
seal is the entry ``digest``, the content id of all other values. A file must be exactly the text that goalscope writes
for its values (apart from line ends), so that any changed byte is noticed, even one that leaves every value the same,
such as a capital letter in an escape.

A seal detects damage and manual edits. It is not a signature: it does not detect a change by somebody who also
recomputes the digest. Files that must resist that are compared with their sources, as `goalscope verify` does.
"""

import json
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from goalscope._ground.folder import Folder
from goalscope._ground.ids import content_id
from goalscope._ground.untrusted import MOST_FILE_BYTES, decode_object, explain, shorten

_LONGEST_TEXT: Final = 1_000_000  # characters of one text
_MOST_VALUES: Final = 4_000_000  # values in one file; a value takes some hundred bytes of memory

Sha256 = Annotated[str, Field(pattern=r"\A[0-9a-f]{64}\z")]
"""A SHA-256 in hexadecimal digits."""

Share = Annotated[float, Field(ge=0, le=1)]
"""A share or a probability."""

_ROUNDING: Final = 1e-6  # tolerance for the ends of an interval, relative to the larger end


def content_id_of(kind: str) -> Any:
    """Return a pydantic constraint, for use in ``Annotated``: the text must be a content id of this kind.

    A content id is a kind such as "world", a hyphen and 24 hexadecimal digits of a hash; see `content_id`.
    """
    return Field(pattern=rf"\A{kind}-[0-9a-f]{{24}}\z")


def _check_ends(ends: tuple[float, float, float]) -> tuple[float, float, float]:
    value, low, high = ends
    slack = _ROUNDING * max(1.0, abs(low), abs(high))
    if not low - slack <= value <= high + slack:
        raise ValueError(f"must be a value, the lower and the upper end of its interval, got {shorten(list(ends))}")
    return ends


def _check_shares(ends: tuple[float, float, float]) -> tuple[float, float, float]:
    if not all(-_ROUNDING <= end <= 1 + _ROUNDING for end in ends):
        raise ValueError(f"must be a share from 0 to 1 with its interval, got {shorten(list(ends))}")
    return ends


Ends = Annotated[tuple[float, float, float], AfterValidator(_check_ends)]
"""A mean over worlds, the lower and the upper end of its 95 % interval."""

ShareEnds = Annotated[Ends, AfterValidator(_check_shares)]
"""The same for a share."""


class StrictRecord(BaseModel):
    """Base class of immutable pydantic models that are read from files.

    Their types are strict, unknown keys are refused, numbers are finite, and texts have a limited length.
    """

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, str_max_length=_LONGEST_TEXT
    )

    def plain(self) -> dict[str, Any]:
        """Return the fields of this record as values that JSON can hold: mappings, lists, texts, numbers, booleans
        and None.
        """
        return self.model_dump(mode="json")


class SealedRecord(StrictRecord):
    """Base class of records that are stored as JSON files with a digest (hash) of their values, so that changes are
    noticed.

    Each such class has a field ``version``, the version of its format.

    Attributes:
        what: what the file is, in a word or two, for messages.
        advice: how to repair a file that was changed, for messages.
        most: maximum size of the file in bytes.
        longest: maximum number of entries of each list and object in the file. While the values are checked, each wrong
            entry takes some kilobytes.
    """

    what: ClassVar[str]
    advice: ClassVar[str]
    most: ClassVar[int] = MOST_FILE_BYTES
    longest: ClassVar[int] = 100_000


Sealed = TypeVar("Sealed", bound=SealedRecord)


def seal(record: SealedRecord) -> str:
    """Return a record as JSON text with a digest (hash) of its values, by which later changes are noticed.

    Equal values give equal text.
    """
    values = record.plain()
    sealed_values = {**values, "digest": content_id("sealed", values)}
    return json.dumps(sealed_values, ensure_ascii=True, indent=1, sort_keys=True, allow_nan=False)


def write_sealed(path: Path, record: SealedRecord) -> Path:
    """Write a record to a JSON file with a digest of its values, completely or not at all, and return the path.

    Raises:
        ValueError: if the text is larger than `read_sealed` accepts.
        OSError: if the file cannot be written.
    """
    text = seal(record) + "\n"
    if len(text) > record.most:
        raise ValueError(f"a {record.what} must have at most {record.most} bytes, got {len(text)} for {path}")
    return Folder(path.parent).save_text(text, path.name)


class OtherVersionError(ValueError):
    """Error for a file of a format version that this release of goalscope does not read."""


def read_sealed(kind: type[Sealed], path: Path, *, edited: bool = False) -> Sealed:
    """Read a record from a file that `write_sealed` wrote, and check its digest.

    Args:
        kind: class of the record.
        path: path of the file.
        edited: whether to accept a file without a digest, which somebody wrote or changed by hand.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file has other content, was changed since it was written, or is of another version.
    """
    file_kind, advice = kind.what, kind.advice
    try:
        text = Folder(path.parent).load_text(path.name, most=kind.most)
        return unseal(kind, text, edited=edited)
    except ValidationError as error:
        faults = explain(error, {"": list(kind.model_fields)}, str(path), file_kind)
        changed = "it was changed since it was written, or goalscope did not write it"
        raise ValueError(f"{faults}\n{changed}: {advice}") from None
    except OtherVersionError as error:
        raise ValueError(f"{path} is a {file_kind} of another version of goalscope: {error}; {advice}") from None
    except ValueError as error:
        raise ValueError(f"{path} is damaged, or is no {file_kind} that goalscope wrote: {error}; {advice}") from None


def unseal(kind: type[Sealed], text: str, *, edited: bool = False) -> Sealed:
    """Return the record from a JSON text that `seal` made, after checking its digest.

    Args:
        kind: class of the record.
        text: the JSON text.
        edited: whether to accept a text without a digest, which somebody wrote or changed by hand.

    Raises:
        ValidationError: if the values do not fit the class.
        ValueError: if the text is not JSON, of another version, or was changed.
    """
    if (values := sum(text.count(mark) for mark in ",[{")) > _MOST_VALUES:
        raise ValueError(f"it must hold at most {_MOST_VALUES:,} values, got up to {values:,}")
    fields = decode_object(text)
    if (version_found := fields.get("version")) != (
        version := kind.model_fields["version"].default
    ) or version_found is True:
        if version_found is None:
            raise ValueError("it states no version")
        raise OtherVersionError(f"version {version} is needed, got {shorten(version_found)}")
    unsealed = edited and "digest" not in fields
    fields.pop("digest", None)
    _check_lengths(fields, kind.longest)
    # As JSON, not as Python values: there, lists represent tuples, and texts represent integer keys.
    record = kind.model_validate_json(json.dumps(fields))
    if not unsealed and text.replace("\r\n", "\n").strip("\n") != seal(record):
        raise ValueError("it was changed since it was written")
    return record


def _check_lengths(fields: dict[str, Any], longest: int) -> None:
    """Raise ValueError if a list or object in decoded JSON has too many entries, naming its key."""
    waiting: list[tuple[str, Any]] = [("", fields)]
    while waiting:
        key, value = waiting.pop()
        if len(value) > longest:
            raise ValueError(f"{shorten(key)} must have at most {longest} entries, got {len(value)}")
        inner = value.items() if isinstance(value, dict) else ((key, item) for item in value)
        waiting += [(name, item) for name, item in inner if isinstance(item, dict | list)]
