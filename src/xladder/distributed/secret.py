"""The secret that the hosts of a run share, and proofs of knowing it.

Host 0 sends every connection a random challenge. A host answers with a random number of its own and an HMAC over both
and over what it asks for. From then on every message carries its number and an HMAC under a key of this connection
alone, in both directions: a stranger on the network can neither take a host's place nor speak for one, and what was
said once cannot be said again. Messages are not encrypted; they hold no secrets.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xladder.errors import UsageError

VARIABLE, FILE_VARIABLE = "XLADDER_SECRET", "XLADDER_SECRET_FILE"
FEWEST_CHARACTERS = 16
MOST_BYTES = 4096
HOW = (
    f"set {VARIABLE} to the same text on all hosts, or {FILE_VARIABLE} to a file that only you can read; "
    "`python -c 'import secrets; print(secrets.token_hex(32))'` makes one up"
)


def new_secret() -> str:
    """A new random secret, or number that is used once."""
    return secrets.token_hex(32)


def read_secret() -> bytes:
    """The secret of this run; empty if none is given."""
    text, file = os.environ.get(VARIABLE, ""), os.environ.get(FILE_VARIABLE, "")
    where = f"`{VARIABLE}`"
    if file:
        if text:
            raise UsageError(f"{where} and `{FILE_VARIABLE}` are both set: unset one of them.")
        text, where = _read(Path(file)), f"`{FILE_VARIABLE}` names {file}, whose text"
    if (text or file) and len(text.strip()) < FEWEST_CHARACTERS:
        raise UsageError(f"{where} has fewer than {FEWEST_CHARACTERS} characters: {HOW}.")
    return text.strip().encode(errors="surrogateescape")


def _read(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            status = os.fstat(stream.fileno())
            content = stream.read(MOST_BYTES)
    except OSError as error:
        raise UsageError(f"`{FILE_VARIABLE}` names {file}, which cannot be read: {error.strerror or error}.") from None
    if stat.S_ISREG(status.st_mode) and status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise UsageError(f"`{FILE_VARIABLE}` names {file}, which others can read: chmod 600 {file}")
    return content.decode(errors="surrogateescape")


def prove(key: bytes, *parts: object) -> str:
    """An HMAC over some parts, which are told apart."""
    text = json.dumps(parts, sort_keys=True)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def proves(proof: Any, key: bytes, *parts: object) -> bool:
    """Whether somebody's proof is the one that the key gives."""
    try:
        return isinstance(proof, str) and hmac.compare_digest(
            prove(key, *parts).encode(), proof.encode(errors="replace")
        )
    except RecursionError:  # what can be read may be nested too deeply to be written, and so nobody has signed it
        return False


def key_of(secret: bytes, challenge: str, nonce: str) -> bytes:
    """The key of one connection."""
    return bytes.fromhex(prove(secret, "connection", challenge, nonce))


class Seal:
    """Numbers and signs the messages of one connection, and checks those of the other side.

    Args:
        key: The key of the connection.
        leads: Whether this side is host 0; what one side has signed does not count as the other's.
    """

    def __init__(self, key: bytes, leads: bool):
        self._key = key
        self._mine, self._theirs = ("0", "1") if leads else ("1", "0")
        self._sent = self._heard = 0

    def wrap(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Sign a message."""
        self._sent += 1
        plain = json.loads(json.dumps(dict(message)))  # as the other side reads it
        return {"says": plain, "proof": prove(self._key, self._mine, self._sent, plain)}

    def unwrap(self, message: Mapping[str, Any]) -> dict[str, Any] | None:
        """The message inside; None if it is not the next one of the other side."""
        inside = message.get("says")
        self._heard += 1
        genuine = isinstance(inside, dict) and proves(
            message.get("proof"), self._key, self._theirs, self._heard, inside
        )
        return inside if genuine else None
