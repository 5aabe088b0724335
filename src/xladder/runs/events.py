"""TensorBoard's event files, as far as scalars go.

An event file is a sequence of records: length, its checksum, a protocol buffer, its checksum. The packages that write
them import PyTorch or TensorFlow if they find them, which takes longer than many a run.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

CASTAGNOLI = 0x82F63B78  # the polynomial of CRC-32C, bits reversed
MASK = 0xA282EAD8  # added to a rotated checksum, because records may hold checksums themselves
VERSION = b"brain.Event:2"
DOUBLE, VARINT, BYTES, FLOAT = 1, 0, 2, 5  # the wire types of protocol buffers


class EventsFile:
    """One event file that scalars are appended to. They are encoded together, when they are flushed.

    Args:
        folder: Where it is made; TensorBoard calls a run after its folder.
    """

    def __init__(self, folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}"
        self._file = (folder / name).open("ab")
        self._waiting: dict[int, list[np.ndarray]] = {}
        """Events that are not in the file yet, by their length: uint8 [N, length]."""
        self._keep(np.frombuffer(_time() + _bytes(3, VERSION), np.uint8)[None])

    def add(self, tag: str, values: Sequence[float], steps: Sequence[int]) -> None:
        """Add some values of a curve."""
        numbers, places = np.asarray(values, "<f4"), np.asarray(steps, np.uint64)
        name = _bytes(1, tag.encode()) + _field(2, FLOAT)
        # A message has the length of what it holds in front of it, so the four bytes of the value are only left out.
        scalar = _bytes(5, _bytes(1, name + bytes(4)))[:-4]
        sizes = (places >= np.array([[1 << 7 * k] for k in range(9)], np.uint64)).sum(0)  # bytes of the steps
        for size in np.unique(sizes):
            chosen = sizes == size
            count = int(chosen.sum())
            number = _field(2, VARINT) if size else b""  # a step of 0 is the default, and not written
            value = numbers[chosen].view(np.uint8).reshape(-1, 4)
            step = _varints(places[chosen], size)
            self._keep(np.hstack([_constant(_time() + number, count), step, _constant(scalar, count), value]))

    def flush(self) -> None:
        """Hand what was added to the operating system."""
        waiting, self._waiting = self._waiting, {}
        for size, parts in waiting.items():  # in one curve, later steps are longer
            content = np.concatenate(parts)
            length = np.frombuffer(struct.pack("<Q", size), np.uint8)[None]
            columns = length, _checksums(length), content, _checksums(content)
            rows = [np.broadcast_to(part, (len(content), part.shape[1])) for part in columns]
            self._file.write(np.hstack(rows).tobytes())
        self._file.flush()

    def close(self) -> None:
        """Flush and close the file."""
        try:
            self.flush()
        finally:
            self._file.close()

    def _keep(self, events: np.ndarray) -> None:
        self._waiting.setdefault(events.shape[1], []).append(events)


def _checksums(records: np.ndarray) -> np.ndarray:
    """uint8 [N, 4]: the checksums of records, uint8 [N, bytes]: CRC-32C, rotated and shifted."""
    crc, table = np.full(len(records), 0xFFFFFFFF, np.uint32), _table()
    for byte in records.T:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc = ~crc
    masked = ((crc >> 15) | (crc << 17)) + np.uint32(MASK)
    return masked.astype("<u4")[:, None].view(np.uint8)


@cache
def _table() -> np.ndarray:
    """uint32 [256]: what each byte does to a checksum."""
    crc: np.ndarray = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        crc = (crc >> 1) ^ (crc & 1) * np.uint32(CASTAGNOLI)
    return crc


def _time() -> bytes:
    """How an event of now begins."""
    return _field(1, DOUBLE) + struct.pack("<d", time.time())


def _field(number: int, wire_type: int) -> bytes:
    return bytes([number << 3 | wire_type])


def _bytes(number: int, content: bytes) -> bytes:
    """A field that holds text or another message."""
    size = len(content)
    return _field(number, BYTES) + _varints(np.array([size], np.uint64), 1 + (size >= 128)).tobytes() + content


def _varints(numbers: np.ndarray, size: int) -> np.ndarray:
    """uint8 [N, size]: uint64 [N] in groups of seven bits, the lowest first."""
    shifts = np.arange(0, 7 * size, 7, dtype=np.uint64)
    groups = (numbers[:, None] >> shifts & np.uint64(0x7F)).astype(np.uint8)
    groups[:, :-1] |= 0x80
    return groups


def _constant(content: bytes, count: int) -> np.ndarray:
    """uint8 [count, bytes]: the same bytes in every row."""
    return np.broadcast_to(np.frombuffer(content, np.uint8), (count, len(content)))
