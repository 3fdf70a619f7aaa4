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
    """Return, for use in ``Annotated``, the constraint that a text is an id from `content_id` of a kind."""
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
    """Base class of immutable records that are read from files.

    They have strict types, no unknown keys, finite numbers, and texts of limited length.
    """

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, str_max_length=_LONGEST_TEXT
    )

    def plain(self) -> dict[str, Any]:
        """Return the record as plain values for JSON."""
        return self.model_dump(mode="json")


class SealedRecord(StrictRecord):
    """A `StrictRecord` that is stored as a file with a digest (hash) of its values, so that later changes are noticed.

    Each such class has a ``version`` of its format.

    Attributes:
        what: what the file is, in a word or two.
        advice: how to repair a file that was changed.
        most: maximum bytes of the file.
        longest: maximum number of entries of each list and object in the file. While the values are checked, each wrong
            entry takes some kilobytes.
    """

    what: ClassVar[str]
    advice: ClassVar[str]
    most: ClassVar[int] = MOST_FILE_BYTES
    longest: ClassVar[int] = 100_000


Sealed = TypeVar("Sealed", bound=SealedRecord)


def seal(record: SealedRecord) -> str:
    """Return a record as JSON with a digest (hash) of its values, by which changes are noticed.

    Equal values give equal text.
    """
    values = record.plain()
    sealed_values = {**values, "digest": content_id("sealed", values)}
    return json.dumps(sealed_values, ensure_ascii=True, indent=1, sort_keys=True, allow_nan=False)


def write_sealed(path: Path, record: SealedRecord) -> Path:
    """Write a sealed record, completely or not at all.

    Raises:
        ValueError: if it is larger than the limit for reading.
        OSError: if it cannot be written.
    """
    text = seal(record) + "\n"
    if len(text) > record.most:
        raise ValueError(f"a {record.what} must have at most {record.most} bytes, got {len(text)} for {path}")
    return Folder(path.parent).save_text(text, path.name)


class OtherVersionError(ValueError):
    """Error for a file of a format version that this release of goalscope does not read."""


def read_sealed(kind: type[Sealed], path: Path, *, edited: bool = False) -> Sealed:
    """Read a record that `write_sealed` wrote.

    Args:
        kind: its class.
        path: its file.
        edited: whether to accept a file without a digest, which somebody wrote or changed.

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
    """Return the record from a text that `seal` made; the arguments are those of `read_sealed`.

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
