"""Messages of Kafka as data: a class for each, whose annotations say how every field is spelled in each version.

    class MetadataRequest(KafkaMessage, kw_only=True):
        topics: Annotated[Sequence[MetadataRequestTopic] | None, nullable(1)]
        allow_auto_topic_creation: Annotated[bool, since(4)] = True

A field that a version lacks has its default. Types are `bool`, `str`, `bytes`, `Int8` to `Int64`, `Uuid`, other
messages, and sequences of these, which are decoded as tuples. `since` and `until` bound the versions; `nullable` gives
the first one that may spell null (without it, a field that may be None is nullable in all); `tagged` makes a field a
tagged one of flexible versions, which is left out if it has its default (KIP-482). Requests and responses, of client
and server, are encoded and decoded from these annotations alone: at once, or in steps of one array element each,
between which a caller may let others run.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, NamedTuple, Self, Union, get_args, get_origin, get_type_hints

import msgspec

from penstock.model.limits import KIB
from penstock_kafka.codec.wire import KafkaFault, KafkaReader, uvarint

__all__ = [
    "NO_UUID",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "KafkaMessage",
    "Uuid",
    "nullable",
    "since",
    "tagged",
    "until",
]

NO_UUID: Final = bytes(16)
"""The identifier that stands for none."""
_JOIN_FROM: Final = 256
_JOIN_BYTES: Final = 64 * KIB
"""Pieces that are joined at a time, and their most bytes: large ones are not copied."""
Read = Callable[[KafkaReader], Any]
Write = Callable[[Any, list[bytes]], None]
ReadSteps = Callable[[KafkaReader], Generator[None, None, Any]]
WriteSteps = Callable[[Any, list[bytes]], Generator[None, None, None]]


class _Scalar(msgspec.Struct, frozen=True):
    """A type of fixed size: its layout, and a reader of it."""

    layout: struct.Struct
    read: Callable[[KafkaReader], Any]


_INT8: Final = _Scalar(struct.Struct(">b"), KafkaReader.int8)
_INT16: Final = _Scalar(struct.Struct(">h"), KafkaReader.int16)
_INT32: Final = _Scalar(struct.Struct(">i"), KafkaReader.int32)
_INT64: Final = _Scalar(struct.Struct(">q"), KafkaReader.int64)
_BOOL: Final = _Scalar(struct.Struct(">?"), KafkaReader.boolean)
_UUID: Final = _Scalar(struct.Struct(">16s"), lambda reader: reader.take(16, "uuid"))

Int8 = Annotated[int, _INT8]
Int16 = Annotated[int, _INT16]
Int32 = Annotated[int, _INT32]
Int64 = Annotated[int, _INT64]
Uuid = Annotated[bytes, _UUID]
"""16 bytes."""


class _Rule(NamedTuple):
    """A rule about the versions of a field, see the module. `tag`: for "tagged" alone."""

    kind: str
    version: int
    tag: int = -1


def since(version: int) -> _Rule:
    """Return the rule that older versions lack the field."""
    return _Rule("since", version)


def until(version: int) -> _Rule:
    """Return the rule that newer versions lack the field."""
    return _Rule("until", version)


def nullable(version: int) -> _Rule:
    """Return the rule that older versions cannot spell None."""
    return _Rule("nullable", version)


def tagged(tag: int, version: int) -> _Rule:
    """Return the rule that the field has a tag, and is in no version before `version`."""
    return _Rule("tagged", version, tag)


class _Codec(NamedTuple):
    """Decoder and encoder of one type in one version. `read_steps`, `write_steps`: the same in steps; None for a type
    without arrays."""

    read: Read
    write: Write
    read_steps: ReadSteps | None = None
    write_steps: WriteSteps | None = None


class _Field(NamedTuple):
    """A field in one version. `tag`: -1 for an ordinary one. `default`: a tagged one is left out if it has it."""

    name: str
    codec: _Codec
    tag: int
    default: Any


class KafkaMessage(msgspec.Struct, kw_only=True, gc=False):
    """Base of all messages and of their parts. They have no cycles, so that the collector need not visit those of a
    request of thousands of parts (`gc`). Decoded arrays are tuples for the same reason: it leaves them once it has seen
    that they hold nothing that it follows, and an empty one is no object of its own."""

    @classmethod
    def read(cls, reader: KafkaReader, version: int, *, flexible: bool) -> Self:
        """Decode a message. Raises KafkaFault."""
        message: Self = _layout(cls, version, flexible).read(reader)
        return message

    @classmethod
    def read_in_steps(cls, reader: KafkaReader, version: int, *, flexible: bool) -> Generator[None, None, Self]:
        """Decode a message as `read` does, with a step for each element of its arrays."""
        codec = _layout(cls, version, flexible)
        message: Self = codec.read(reader) if codec.read_steps is None else (yield from codec.read_steps(reader))
        return message

    def encode(self, version: int, *, flexible: bool) -> list[bytes]:
        """Return the message as pieces of bytes.

        Raises ValueError if this version cannot spell a field, as null or a number that is too large.
        """
        pieces: list[bytes] = []
        _layout(type(self), version, flexible).write(self, pieces)
        return pieces

    def encode_in_steps(self, version: int, *, flexible: bool) -> Generator[None, None, list[bytes]]:
        """Return the message as `encode` does, with a step for each element of its arrays. Small pieces are joined."""
        codec = _layout(type(self), version, flexible)
        pieces: list[bytes] = []
        if codec.write_steps is None:
            codec.write(self, pieces)
            return pieces
        joined: list[bytes] = []
        for _ in codec.write_steps(self, pieces):
            if len(pieces) >= _JOIN_FROM:
                joined += pieces if sum(map(len, pieces)) > _JOIN_BYTES else (b"".join(pieces),)
                pieces.clear()
            yield
        return joined + pieces


@cache
def _layout(cls: type[KafkaMessage], version: int, flexible: bool) -> _Codec:
    """Return the codec of a message in one version."""
    hints = get_type_hints(cls, include_extras=True)
    defaults = {field.name: _default(field) for field in msgspec.structs.fields(cls)}
    fields = [
        field
        for name, default in defaults.items()
        if (field := _field(f"{cls.__name__}.{name}", name, hints[name], version, flexible, default)) is not None
    ]
    plain = tuple((field.name, field.codec.read) for field in fields if field.tag < 0)
    writers = tuple((field.name, field.codec.write) for field in fields if field.tag < 0)
    codecs = tuple((field.name, field.codec) for field in fields if field.tag < 0)
    tags = {field.tag: field for field in sorted(fields, key=lambda field: field.tag) if field.tag >= 0}

    def read(reader: KafkaReader) -> KafkaMessage:
        values = {name: read_field(reader) for name, read_field in plain}
        if flexible:
            _read_tags(reader, tags, values)
        return cls(**values)

    def write(message: Any, pieces: list[bytes]) -> None:
        for name, write_field in writers:
            write_field(getattr(message, name), pieces)
        if flexible:
            _write_tags(message, tags, pieces)

    def read_steps(reader: KafkaReader) -> Generator[None, None, KafkaMessage]:
        values = {}
        for name, codec in codecs:
            values[name] = codec.read(reader) if codec.read_steps is None else (yield from codec.read_steps(reader))
        if flexible:
            _read_tags(reader, tags, values)
        return cls(**values)

    def write_steps(message: Any, pieces: list[bytes]) -> Generator[None, None, None]:
        for name, codec in codecs:
            if codec.write_steps is None:
                codec.write(getattr(message, name), pieces)
            else:
                yield from codec.write_steps(getattr(message, name), pieces)
        if flexible:
            _write_tags(message, tags, pieces)

    if all(codec.read_steps is None for _, codec in codecs):
        return _Codec(read, write)
    return _Codec(read, write, read_steps, write_steps)


def _read_tags(reader: KafkaReader, tags: dict[int, _Field], values: dict[str, Any]) -> None:
    last = -1
    for _ in range(reader.tag_count()):
        start = reader.at
        tag, size = reader.uvarint(), reader.uvarint()
        if tag <= last:
            raise KafkaFault(f"tag {tag} follows tag {last}", start)
        last, field = tag, tags.get(tag)
        inner = KafkaReader(reader.take(size, "tagged field"), items=reader.items)
        if field is None:
            continue
        try:
            values[field.name] = field.codec.read(inner)
        except KafkaFault as fault:
            raise KafkaFault(f"tag {tag}: {fault}", start) from None
        if inner.at != inner.end:
            raise KafkaFault(f"tag {tag} has {inner.end - inner.at} bytes too many", start)
        reader.items = inner.items


def _write_tags(message: KafkaMessage, tags: dict[int, _Field], pieces: list[bytes]) -> None:
    changed = [(tag, field) for tag, field in tags.items() if _differs(getattr(message, field.name), field.default)]
    pieces.append(uvarint(len(changed)))
    for tag, field in changed:
        inner: list[bytes] = []
        field.codec.write(getattr(message, field.name), inner)
        pieces += (uvarint(tag), uvarint(sum(map(len, inner))), *inner)


def _differs(value: Any, default: Any) -> bool:
    return bool(value != default) and (value != [] or default != ())  # an array to be sent may be a list


def _default(field: msgspec.structs.FieldInfo) -> Any:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def _field(where: str, name: str, hint: Any, version: int, flexible: bool, default: Any) -> _Field | None:
    """Return a field in one version, or None if the version lacks it."""
    rules = {rule.kind: rule for rule in getattr(hint, "__metadata__", ()) if isinstance(rule, _Rule)}
    tag = -1
    if (rule := rules.get("tagged")) is not None:
        if version < rule.version or not flexible:
            return None
        tag = rule.tag
    first = rules["since"].version if "since" in rules else 0
    last = rules["until"].version if "until" in rules else version
    if not first <= version <= last:
        return None
    null_from = rules["nullable"].version if "nullable" in rules else 0
    return _Field(name, _codec(where, hint, version, flexible, version >= null_from), tag, default)


def _codec(where: str, hint: Any, version: int, flexible: bool, nulls: bool) -> _Codec:
    """Return the codec of a type. `nulls`: this version can spell None, where the type has it."""
    if (
        scalar := next(
            (annotation for annotation in getattr(hint, "__metadata__", ()) if isinstance(annotation, _Scalar)), None
        )
    ) is not None:
        return _fixed(where, scalar)
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    optional = False
    if get_origin(hint) in (Union, UnionType):
        [hint] = [annotation for annotation in get_args(hint) if annotation is not NoneType]
        optional = True
    if get_origin(hint) is Sequence:
        return _array(where, _codec(where, get_args(hint)[0], version, flexible, nulls), flexible, optional and nulls)
    if hint is bool:
        return _fixed(where, _BOOL)
    if hint is str:
        return _string(where, flexible, optional and nulls)
    if hint is bytes:
        return _bytes(where, flexible, optional and nulls)
    assert isinstance(hint, type) and issubclass(hint, KafkaMessage), f"{where}: {hint}"
    return _optional(where, _layout(hint, version, flexible)) if optional else _layout(hint, version, flexible)


def _optional(where: str, inner: _Codec) -> _Codec:
    """Return the codec of a message that may be null: a byte before it, -1 or 1, tells."""

    def read(reader: KafkaReader) -> Any:
        start, mark = reader.at, reader.int8()
        if mark not in (-1, 1):
            raise KafkaFault(f"{where} begins with {mark}, where 1 and -1 (null) are known", start)
        return inner.read(reader) if mark == 1 else None

    def write(value: Any, pieces: list[bytes]) -> None:
        pieces.append(b"\xff" if value is None else b"\x01")
        if value is not None:
            inner.write(value, pieces)

    return _Codec(read, write)


def _fixed(where: str, scalar: _Scalar) -> _Codec:
    pack = scalar.layout.pack

    def write(value: Any, pieces: list[bytes]) -> None:
        try:
            pieces.append(pack(value))
        except struct.error as error:
            raise ValueError(f"{where}: {value!r} is not of its type: {error}") from None

    return _Codec(scalar.read, write)


def _string(where: str, flexible: bool, nulls: bool) -> _Codec:
    inner = _bytes(where, flexible, nulls, small=True)

    def read(reader: KafkaReader) -> str | None:
        start, data = reader.at, inner.read(reader)
        try:
            return None if data is None else str(data, "utf-8")
        except UnicodeDecodeError:
            raise KafkaFault(f"{where} is not UTF-8", start) from None

    return _Codec(read, lambda value, pieces: inner.write(None if value is None else value.encode(), pieces))


def _bytes(where: str, flexible: bool, nulls: bool, *, small: bool = False) -> _Codec:
    layout = _INT16.layout if small else _INT32.layout

    def read(reader: KafkaReader) -> bytes | None:
        start, data = reader.at, reader.block(compact=flexible, small=small, what=where)
        if data is None and not nulls:
            raise KafkaFault(f"{where} is null", start)
        return data

    def write(value: bytes | None, pieces: list[bytes]) -> None:
        if value is None and not nulls:
            raise ValueError(f"{where}: this version cannot spell null")
        size = -1 if value is None else len(value)
        pieces.append(uvarint(size + 1) if flexible else layout.pack(size))
        if value:
            pieces.append(value)

    return _Codec(read, write)


def _array(where: str, element: _Codec, flexible: bool, nulls: bool) -> _Codec:
    def read_count(reader: KafkaReader) -> int | None:
        start, count = reader.at, reader.count(compact=flexible)
        if count is None and not nulls:
            raise KafkaFault(f"{where} is null", start)
        return count

    def write_count(values: Sequence[Any] | None, pieces: list[bytes]) -> None:
        if values is None and not nulls:
            raise ValueError(f"{where}: this version cannot spell null")
        size = -1 if values is None else len(values)
        pieces.append(uvarint(size + 1) if flexible else _INT32.layout.pack(size))

    def read(reader: KafkaReader) -> tuple[Any, ...] | None:
        count, read_one = read_count(reader), element.read
        return None if count is None else tuple([read_one(reader) for _ in range(count)])

    def write(values: Sequence[Any] | None, pieces: list[bytes]) -> None:
        write_count(values, pieces)
        for value in values or ():
            element.write(value, pieces)

    def read_steps(reader: KafkaReader) -> Generator[None, None, tuple[Any, ...] | None]:
        if (count := read_count(reader)) is None:
            return None
        values = []
        for _ in range(count):
            step = element.read_steps
            values.append(element.read(reader) if step is None else (yield from step(reader)))
            yield
        return tuple(values)

    def write_steps(values: Sequence[Any] | None, pieces: list[bytes]) -> Generator[None, None, None]:
        write_count(values, pieces)
        for value in values or ():
            if element.write_steps is None:
                element.write(value, pieces)
            else:
                yield from element.write_steps(value, pieces)
            yield

    return _Codec(read, write, read_steps, write_steps)
