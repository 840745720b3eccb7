"""Invalid requests: random bytes, damaged requests, arbitrary field values."""

import random
from collections.abc import Mapping, Sequence
from typing import cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from modnorm.services.common.channels import MESSAGE_BYTES

OVERSIZED = 0.002
"""Share of requests above the size limit."""
MAX_DEPTH = 5
HUGE = "x" * 200_000
WORDS = (
    "",
    "gsm8k",
    "randopt",
    "modular_norm",
    "base",
    "nested",
    "sha256-philox",
    "../../../../etc/passwd",
    "/etc/passwd",
    "/etc/hostname.jsonl",
    "~root/.ssh/id_rsa",
    "~nobody-here/x",
    "~nobody-here/x.jsonl",
    "a\0b",
    "/a\0b.jsonl",
    "/proc/self/environ",
    "file:///etc/passwd",
    "split:../../etc/passwd",
    "bundled:../../../pyproject",
    "bundled:word-problems-selection",
    "tiny-thicket",
    "\u202e\U0001f600",
    "'; DROP TABLE experiments; --",
    "{{7*7}}",
    "%s%n",
    "0" * 64,
    "-1",
    "NaN",
    "/" + "x" * 5000 + ".jsonl",
    HUGE,
)
"""Texts for fields, besides random ones."""


class MessageMaker:
    """Generates the bytes of requests from a seed, some from valid requests by path."""

    def __init__(
        self, noise: random.Random, words: Sequence[str], valid: Mapping[str, Sequence[bytes]]
    ) -> None:
        self._noise = noise
        self._words = (*WORDS, *words)
        self._valid = valid

    def make(self, path: str, method: MethodDescriptor) -> bytes:
        """Return a request: damaged or changed from a valid one, or invented."""
        noise, kind = self._noise, method.input_type
        if noise.random() < OVERSIZED:
            return b"\x0a\x80\x80\x80\x40" + bytes(MESSAGE_BYTES)
        valid = self._valid.get(path)
        if valid and noise.random() < 0.5:
            content = noise.choice(valid)
            if noise.random() < 0.5:
                return self._damaged(content)
            message = GetMessageClass(kind).FromString(content)
            self._change(message)
            return message.SerializeToString()
        draw = noise.random()
        if draw < 0.2:
            return noise.randbytes(noise.randrange(200))
        content = self._filled(kind, MAX_DEPTH).SerializeToString()
        return self._damaged(content) if draw < 0.4 else content

    def _damaged(self, content: bytes) -> bytes:
        if not content:
            return content
        damaged = bytearray(content)
        for _ in range(self._noise.randint(1, 4)):
            damaged[self._noise.randrange(len(damaged))] = self._noise.randrange(256)
        return bytes(damaged[: self._noise.choice((len(damaged), self._noise.randint(1, 40)))])

    def _change(self, message: Message) -> None:
        """Change the value of one nested field."""
        kind = cast("Descriptor", message.DESCRIPTOR)
        fields = [one for one in kind.fields if not _is_map(one)]
        if not fields:
            return
        one = self._noise.choice(fields)
        if one.message_type is not None and not one.is_repeated and self._noise.random() < 0.9:
            self._change(getattr(message, one.name))
        else:
            message.ClearField(one.name)
            self._fill(message, one, 2)

    def _filled(self, kind: Descriptor, depth: int) -> Message:
        message = GetMessageClass(kind)()
        for one in kind.fields:
            if self._noise.random() < 0.3 or _is_map(one):
                continue
            for _ in range(self._noise.randrange(4) if one.is_repeated else 1):
                self._fill(message, one, depth)
        return message

    def _fill(self, message: Message, one: FieldDescriptor, depth: int) -> None:
        if one.message_type is not None:
            if depth:
                inner = self._filled(one.message_type, depth - 1)
                target = getattr(message, one.name)
                (target.add() if one.is_repeated else target).CopyFrom(inner)
            return
        value = self._value(one)
        if one.is_repeated:
            getattr(message, one.name).append(value)
        else:
            setattr(message, one.name, value)

    def _value(self, one: FieldDescriptor) -> object:
        draw = self._noise
        if one.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            text = draw.choice(self._words) if draw.random() < 0.8 else _letters(draw)
            return text.encode() if one.type == FieldDescriptor.TYPE_BYTES else text
        if one.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
            return draw.random() < 0.5
        if one.cpp_type in {FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT}:
            return draw.choice(
                (0.0, -0.0, -1.0, 5e-324, 3e38, float("nan"), float("inf"), draw.random())
            )
        if one.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
            return draw.choice((0, 1, 2, 77))
        return draw.choice((0, 1, 2, 5, draw.randrange(1000), *_bounds(one)))


def _bounds(one: FieldDescriptor) -> Sequence[int]:
    """Return the smallest and the largest value of an integer field."""
    wide = {FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64}
    bits = 64 if one.cpp_type in wide else 32
    if one.cpp_type in {FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64}:
        return (2**bits - 1, 2 ** (bits - 1))
    return (-1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)))


def _is_map(one: FieldDescriptor) -> bool:
    return one.message_type is not None and one.message_type.GetOptions().map_entry


def _letters(draw: random.Random) -> str:
    return "".join(chr(draw.randrange(1, 0xD7FF)) for _ in range(draw.randrange(20)))
