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
from itertools import groupby
from pathlib import Path

import numpy as np

CASTAGNOLI = 0x82F63B78  # the polynomial of CRC-32C, bits reversed
MASK = 0xA282EAD8  # added to a rotated checksum, because records may hold checksums themselves
VERSION = b"brain.Event:2"
DOUBLE, VARINT, BYTES, FLOAT = 1, 0, 2, 5  # the wire types of protocol buffers


class EventsFile:
    """One event file that scalars are appended to.

    Args:
        folder: Where it is made; TensorBoard calls a run after its folder.
    """

    def __init__(self, folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}"
        self._file = (folder / name).open("ab")
        self._write([_event(0, _bytes(3, VERSION))])

    def add(self, tag: str, values: Sequence[float], steps: Sequence[int]) -> None:
        """Add some values of a curve."""
        name = _bytes(1, tag.encode()) + _field(2, FLOAT)
        pairs = zip(values, steps, strict=True)
        self._write([_event(step, _bytes(5, _bytes(1, name + struct.pack("<f", value)))) for value, step in pairs])

    def flush(self) -> None:
        """Hand what was added to the operating system."""
        self._file.flush()

    def close(self) -> None:
        """Flush and close the file."""
        self._file.close()

    def _write(self, events: Sequence[bytes]) -> None:
        # Later steps are longer numbers; between such changes all events of a curve have one length.
        for size, some in groupby(events, len):
            content = np.frombuffer(b"".join(some), np.uint8).reshape(-1, size)
            head = struct.pack("<Q", size)
            length = np.frombuffer(head, np.uint8)[None]
            parts = length, _checksums(length), content, _checksums(content)
            rows = [np.broadcast_to(part, (len(content), part.shape[1])) for part in parts]
            self._file.write(np.concatenate(rows, axis=1).tobytes())


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


def _event(step: int, content: bytes) -> bytes:
    """An event now; a step of 0 is the default, and not written."""
    number = _field(2, VARINT) + _varint(step) if step else b""
    return _field(1, DOUBLE) + struct.pack("<d", time.time()) + number + content


def _field(number: int, wire_type: int) -> bytes:
    return bytes([number << 3 | wire_type])


def _bytes(number: int, content: bytes) -> bytes:
    """A field that holds text or another message."""
    return _field(number, BYTES) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    """A number in groups of seven bits, the lowest first."""
    groups = []
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])
