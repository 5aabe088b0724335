"""Checkpoints: the whole state of a run on disk, protected against crashes and silent corruption.

    checkpoints/tick-000000120/manifest.json     contents: leaves, files, facts, versions
    checkpoints/tick-000000120/manifest.sha256   of the manifest
    checkpoints/tick-000000120/state/            the arrays, as safetensors
    checkpoints/segments-0/SHA256/               segments of large arrays, each written once

There is a digest of every array and file, `fsync` before the rename that makes a checkpoint valid, full verification on
reading, and a fallback to the previous checkpoint if one is damaged. The newest is found by its name, never by a
pointer or a time stamp. Up to version 0.1, Orbax wrote the arrays; those are still read.

A large array (the replay memory of a long Atari run) is split along its longest axis, and segments that have not
changed are not written again. Segments are in two folders that checkpoints use alternately, so that two consecutive
checkpoints share nothing.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xladder.devices import memory_of_machine
from xladder.errors import DamagedRun, UsageError
from xladder.runs import orbax_arrays, state_files
from xladder.runs.disk import sync
from xladder.runs.reading import is_regular, parse_json, read_bytes, why

FORMAT, READ = 2, (1, 2)
PREFIX = "tick-"
LIST = "files.json"  # the files of a segment
SEGMENT_BYTES = 32 * 2**20
MOST_MANIFEST_BYTES = 64 * 2**20
MOST_BESIDES = 64 * 2**20  # bytes in the files of a checkpoint or segment besides its arrays
KINDS = {"format": int, "plan": dict, "step": int, "turn": int, "facts": dict, "leaves": dict, "files": dict}
"""What a manifest has to have."""
ARRAYS = "arrays.safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """The contents of one checkpoint."""

    step: int
    """Ticks done so far; summed over seeds if they are trained one after another."""
    arrays: dict[str, np.ndarray]
    facts: dict[str, Any]
    """Other metadata of the run, as JSON-ready values."""


class Damaged(Exception):
    """A checkpoint cannot be used; the message says why."""


class Checkpoints:
    """The checkpoints of a run directory; `plan` is JSON that identifies the run they belong to.

    A run that was lengthened has `earlier` plans, whose checkpoints are its own as well.
    """

    def __init__(self, folder: Path, plan: Mapping[str, Any], keep: int = 2, earlier: Sequence[Mapping[str, Any]] = ()):
        self.folder, self.plan, self.keep = folder, json.loads(json.dumps(plan)), max(2, keep)
        self.earlier = json.loads(json.dumps(list(earlier)))

    def steps(self) -> list[int]:
        """The steps of all complete checkpoints, oldest first."""
        numbers = [path.name.removeprefix(PREFIX) for path in self.folder.glob(f"{PREFIX}*") if path.is_dir()]
        return sorted(int(number) for number in numbers if re.fullmatch(r"[0-9]{9,12}", number))

    def newest(self) -> str | None:
        """The name of the newest checkpoint, if there is any."""
        steps = self.steps()
        return self.path(steps[-1]).name if steps else None

    def path(self, step: int) -> Path:
        """The folder of a step's checkpoint."""
        return self.folder / f"{PREFIX}{step:09d}"

    def save(self, checkpoint: Checkpoint, score: float = math.nan) -> Path:
        """Write a checkpoint, then remove old ones; the last `keep` and the one with the best score are kept."""
        before = self.steps()
        turn = 1 - self._read_manifest(before[-1])["turn"] if before and self._is_readable(before[-1]) else 0
        self.folder.mkdir(exist_ok=True)
        for left in self.folder.glob("draft-*"):  # left by a session that ended while saving
            _remove(left)
        draft = self.folder / f"draft-{checkpoint.step:09d}"
        reached("draft")
        draft.mkdir()
        leaves: dict[str, dict[str, Any]] = {}
        small = {}
        for name, array in checkpoint.arrays.items():
            leaves[name] = {"dtype": array.dtype.str, "shape": list(array.shape)}
            if array.nbytes > SEGMENT_BYTES:
                axis, pieces = segments(array)
                found = [self._save_segment(np.ascontiguousarray(piece), turn) for piece in pieces]
                leaves[name] |= {"axis": axis, "segments": found, "sha256": _joined(found)}
                continue
            leaves[name]["sha256"] = digest(array)
            if array.size:
                small[name] = array
        _write_arrays(draft / "state", small)
        manifest = {
            "format": FORMAT,
            "plan": self.plan,
            "step": checkpoint.step,
            "turn": turn,
            "score": None if math.isnan(score) else score,
            "digest": _state_digest(leaves),
            "facts": checkpoint.facts,
            "leaves": leaves,
            "files": _file_digests(draft),
        }
        text = json.dumps(manifest, indent=1, allow_nan=False).encode()
        reached("manifest")
        (draft / "manifest.json").write_bytes(text)
        (draft / "manifest.sha256").write_text(hashlib.sha256(text).hexdigest())
        _sync_tree(draft)
        final = self.path(checkpoint.step)
        replaced = self.folder / f"draft-{final.name}"
        if os.path.lexists(final):  # an earlier session already saved this tick
            os.replace(final, replaced)
        reached("rename")
        os.replace(draft, final)
        reached("renamed")
        sync(self.folder)
        with suppress(OSError):  # the checkpoint is saved; the next one cleans up
            _remove(replaced)
            self._prune()
        return final

    def load(self, step: int) -> Checkpoint:
        """Read a checkpoint and verify it completely; raise `Damaged` if anything is wrong."""
        folder = self.path(step)
        try:
            manifest = self._read_manifest(step)
            if manifest["step"] != step:
                raise Damaged("its manifest belongs to another checkpoint")
            if manifest["format"] not in READ:
                raise UsageError(
                    f"`{folder}` was written by another version of xladder: use that version to resume (the run's "
                    "environment.json names it), or start a new run from its agents with `xladder train … --from "
                    f"{self.folder.parent}`."
                )
            if not any(_agree(manifest["plan"], plan) for plan in (self.plan, *self.earlier)):
                raise UsageError(
                    f"`{folder}` was saved with a different config.json: restore that file, or start a new run with "
                    "`xladder train --config`."
                )
            size = _bytes_of(manifest["leaves"].values())
            if size > memory_of_machine():
                raise Damaged(f"its arrays would take {size / 2**30:,.1f} GiB, which is more than this machine has")
            _verify_files(folder, manifest["files"], size, "manifest.json", "manifest.sha256")
            arrays = self._read_leaves(folder, manifest["leaves"])
            return Checkpoint(step, arrays, manifest["facts"])
        except (Damaged, UsageError, MemoryError, ImportError):
            raise
        except OSError as error:
            if not isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError):
                raise  # a failing disk or missing permission does not mean that the data are damaged
            raise Damaged(f"`{error.filename}` is missing") from None
        except Exception as error:
            # A damaged file can make Orbax and safetensors raise anything.
            first = (str(error).splitlines() or [""])[0][:200]
            raise Damaged(f"{type(error).__name__}: {first}") from None

    def latest(self, notify: Callable[[str], None]) -> Checkpoint | None:
        """Load the newest intact checkpoint; None if none was ever saved.

        Damaged ones are renamed to `*.corrupt`, and `notify` is called with a line about each. If all are damaged,
        `DamagedRun` is raised.
        """
        found, damaged = self._search()
        if found is None:
            for step, reason in damaged.items():
                notify(f"The checkpoint {self.path(step).name} is damaged: {reason}.")
            if damaged:
                raise DamagedRun(f"All checkpoints in `{self.folder}` are damaged: there is nothing to resume from.")
            return None
        for bad, reason in damaged.items():
            aside = set_aside(self.path(bad))
            notify(f"The checkpoint {self.path(bad).name} is damaged: {reason}. It is set aside as {aside.name}.")
        if damaged:
            self._drop_segments(set(self.steps()))  # otherwise a damaged segment could be reused
        return found

    def read_latest(self) -> Checkpoint | None:
        """Load the newest intact checkpoint, if there is any, of a run that is only read: nothing is renamed."""
        return self._search()[0]

    def _search(self) -> tuple[Checkpoint | None, dict[int, str]]:
        """The newest intact checkpoint, and what is wrong with newer ones, by step."""
        damaged: dict[int, str] = {}
        for step in reversed(self.steps()):
            try:
                return self.load(step), damaged
            except Damaged as error:
                damaged[step] = str(error)
        return None, damaged

    def read_digest(self, step: int) -> str:
        """Read the digest of the whole state; identical runs have equal digests."""
        return str(self._read_manifest(step)["digest"])

    def _read_manifest(self, step: int) -> dict[str, Any]:
        folder = self.path(step)
        _refuse_link(self.folder)
        _refuse_link(folder)
        text = _read_small(folder / "manifest.json")
        if _read_small(folder / "manifest.sha256") != hashlib.sha256(text).hexdigest().encode():
            raise Damaged("its manifest has changed since it was written")
        manifest = parse_json(text)
        if not isinstance(manifest, dict) or any(type(manifest.get(name)) is not kind for name, kind in KINDS.items()):
            raise Damaged(f"its manifest is not one that xladder wrote: it needs {', '.join(KINDS)}")
        return manifest

    def _is_readable(self, step: int) -> bool:
        try:
            self._read_manifest(step)
        except (Damaged, OSError, ValueError):
            return False
        return True

    def _read_leaves(self, folder: Path, leaves: Mapping[str, Any]) -> dict[str, np.ndarray]:
        whole = {name: leaf for name, leaf in leaves.items() if "segments" not in leaf and 0 not in leaf["shape"]}
        arrays = _read_arrays(folder / "state", whole)
        for name, leaf in leaves.items():
            dtype, shape = np.dtype(leaf["dtype"]), tuple(leaf["shape"])
            if 0 in shape:
                arrays[name] = np.zeros(shape, dtype)
            elif "segments" in leaf:
                if sum(math.prod(piece["shape"]) for piece in leaf["segments"]) != math.prod(shape):
                    raise Damaged(f"the segments of the array `{name}` have another size than it has")
                pieces = [self._read_segment(piece, dtype) for piece in leaf["segments"]]
                arrays[name] = np.concatenate(pieces, axis=leaf["axis"])
            found = arrays[name]
            read = _joined(leaf["segments"]) if "segments" in leaf else digest(found)
            if found.dtype != dtype or found.shape != shape or read != leaf["sha256"]:
                raise Damaged(f"the array `{name}` is not what was saved")
        return {name: arrays[name] for name in leaves}

    def _save_segment(self, piece: np.ndarray, turn: int) -> dict[str, Any]:
        name = digest(piece)
        place = self.folder / f"segments-{turn}" / name
        for link in (place.parent, place):
            if link.is_symlink():  # it leads elsewhere, so a checkpoint with data there would not be valid
                link.unlink()
        if not place.exists():
            draft = place.with_name(f"draft-{name}")
            shutil.rmtree(draft, ignore_errors=True)
            place.parent.mkdir(exist_ok=True)
            _write_arrays(draft, {"piece": piece})
            (draft / LIST).write_text(json.dumps(_file_digests(draft)))
            _sync_tree(draft)
            os.replace(draft, place)
            sync(place.parent)
        return {"turn": turn, "sha256": name, "shape": list(piece.shape), "list": _file_digest(place / LIST)}

    def _read_segment(self, piece: Mapping[str, Any], dtype: np.dtype) -> np.ndarray:
        folder = self.folder / f"segments-{int(piece['turn'])}" / str(piece["sha256"])
        if folder.parent.parent != self.folder:
            raise Damaged("a segment has an invalid name")
        _refuse_link(folder.parent)
        _refuse_link(folder)
        listed = _read_small(folder / LIST)
        if hashlib.sha256(listed).hexdigest() != piece["list"]:
            raise Damaged(f"the list of files of the segment `{folder.name[:12]}…` has changed")
        spec = {"dtype": dtype.str, "shape": piece["shape"]}
        _verify_files(folder, parse_json(listed), _bytes_of([spec]), LIST)
        found = _read_arrays(folder, {"piece": spec})["piece"]
        if digest(found) != piece["sha256"]:
            raise Damaged(f"the segment `{folder.name[:12]}…` has changed since it was written")
        return found

    def _prune(self) -> None:
        """Remove checkpoints that are no longer needed. Safe to interrupt."""
        steps = self.steps()
        readable = {step: self._read_manifest(step) for step in steps if self._is_readable(step)}
        scores = {step: m["score"] for step, m in readable.items() if m["score"] is not None}
        wanted = {*steps[-self.keep :]} | ({max(scores, key=scores.__getitem__)} if scores else set())
        for step in steps:
            if step not in wanted:
                # Rename it first, so that a kill in between does not leave half a checkpoint under a valid name.
                gone = self.folder / f"draft-{step:09d}"
                os.replace(self.path(step), gone)
                _remove(gone)
        self._drop_segments(wanted)

    def _drop_segments(self, steps: set[int]) -> None:
        """Remove segments that none of these checkpoints uses."""
        used = {
            (piece["turn"], piece["sha256"])
            for step in steps
            if self._is_readable(step)
            for leaf in self._read_manifest(step)["leaves"].values()
            for piece in leaf.get("segments", ())
        }
        for turn in (0, 1):
            place = self.folder / f"segments-{turn}"
            for folder in () if place.is_symlink() else place.glob("*"):
                if (turn, folder.name) not in used:
                    _remove(folder)


def reached(point: str) -> None:
    """A hook before each step of a save; tests simulate crashes with it."""


def digest(array: np.ndarray) -> str:
    """SHA-256 of an array's dtype, shape and bytes."""
    found = hashlib.sha256(f"{array.dtype.str}{list(array.shape)}".encode())
    found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.size else b"")
    return found.hexdigest()


def _joined(pieces: Iterable[Mapping[str, Any]]) -> str:
    """SHA-256 of an array that was split into segments."""
    return hashlib.sha256("".join(piece["sha256"] for piece in pieces).encode()).hexdigest()


def _state_digest(leaves: Mapping[str, Mapping[str, Any]]) -> str:
    """SHA-256 of a whole state; identical runs have equal digests."""
    return hashlib.sha256("".join(f"{name}:{leaves[name]['sha256']};" for name in sorted(leaves)).encode()).hexdigest()


def segments(array: np.ndarray) -> tuple[int, list[np.ndarray]]:
    """Split an array into segments of about `SEGMENT_BYTES` along its longest axis, in a replay memory that of time.

    Returns the axis and the segments.
    """
    axis = int(np.argmax(array.shape))
    return axis, np.array_split(array, math.ceil(array.nbytes / SEGMENT_BYTES), axis=axis)


def set_aside(path: Path) -> Path:
    """Rename a damaged checkpoint, so that it is kept but no longer used."""
    aside, number = path.with_name(f"{path.name}.corrupt"), 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}.corrupt{number}")
    os.replace(path, aside)
    return aside


def _write_arrays(folder: Path, arrays: Mapping[str, np.ndarray]) -> None:
    reached("arrays")
    folder.mkdir()
    if arrays:
        state_files.write(folder / ARRAYS, "safetensors", arrays)


def _read_arrays(folder: Path, leaves: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Read arrays of known dtypes and shapes; others are rejected before anything is allocated."""
    if not leaves:
        return {}
    file = folder / ARRAYS
    if not file.exists():
        _check_shapes(orbax_arrays.shapes(folder), leaves)
        return orbax_arrays.read(folder, leaves)
    try:
        _check_shapes({name: shape for name, (_, shape) in state_files.declared(file).items()}, leaves)
        return state_files.read(file, leaves)
    except UsageError as error:
        raise Damaged(str(error)) from None


def _check_shapes(stored: Mapping[str, tuple[int, ...]], leaves: Mapping[str, Any]) -> None:
    if set(stored) != set(leaves):
        raise Damaged(f"it holds the arrays {sorted(stored)[:3]} …, not those of its manifest")
    for name, leaf in leaves.items():
        if stored[name] != tuple(leaf["shape"]):
            raise Damaged(f"the array `{name}` has a different shape than its manifest says")


def _files(folder: Path) -> Iterable[Path]:
    """All files below a folder. Links are rejected, because they could lead anywhere."""
    for place, folders, files in os.walk(folder, onerror=_fail):
        for name in sorted([*folders, *files]):
            path = Path(place) / name
            if path.is_symlink():
                raise Damaged(f"`{path.relative_to(folder)}` is a link")
            if name in files and not is_regular(path):
                raise Damaged(f"`{path.relative_to(folder)}` is not a file")
            if name in files:
                yield path


def _refuse_link(path: Path) -> None:
    if path.is_symlink():
        raise Damaged(f"`{path.name}` is a link")


def _remove(path: Path) -> None:
    """Remove a folder as far as possible; of a link, only the link."""
    if path.is_symlink():
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)


def _fail(error: OSError) -> None:
    raise error


def _agree(saved: Any, now: Any) -> bool:
    """Whether all saved settings still have the same values; settings added since are ignored."""
    if isinstance(saved, Mapping):
        return isinstance(now, Mapping) and all(name in now and _agree(saved[name], now[name]) for name in saved)
    return bool(saved == now)


def _file_digests(folder: Path) -> dict[str, str]:
    return {str(file.relative_to(folder)): _file_digest(file) for file in _files(folder)}


def _verify_files(folder: Path, listed: Mapping[str, str], size: int, *besides: str) -> None:
    """Raise `Damaged` unless a folder has exactly the listed files, unchanged, and those in `besides`.

    Files that are much larger than `size`, the bytes of their arrays, are not read to find out.
    """
    present = {str(file.relative_to(folder)): file for file in _files(folder)}
    odd = set(present) ^ {*listed, *besides}
    if odd:
        raise Damaged(f"`{min(odd)}` is missing or unexpected")
    found = sum(present[name].stat().st_size for name in listed)
    if found > size + MOST_BESIDES:
        raise Damaged(f"its files have {found / 2**30:,.1f} GiB, and its arrays {size / 2**30:,.1f} GiB")
    for name, expected in listed.items():
        if _file_digest(present[name]) != expected:
            raise Damaged(f"`{name}` has changed since it was written")


def _bytes_of(leaves: Iterable[Mapping[str, Any]]) -> int:
    """The bytes of arrays of declared dtypes and shapes."""
    return sum(math.prod(leaf["shape"]) * np.dtype(leaf["dtype"]).itemsize for leaf in leaves)


def _read_small(path: Path) -> bytes:
    """A manifest or a list of files, which is not behind a link; `Damaged` if it is too large to be one."""
    try:
        text = read_bytes(path, 0, MOST_MANIFEST_BYTES + 1)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EINVAL):
            raise Damaged(f"`{path.name}` {why(error)}") from None
        raise
    if len(text) > MOST_MANIFEST_BYTES:
        raise Damaged(f"`{path.name}` is too large")
    return text


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync_tree(folder: Path) -> None:
    """Sync everything below a folder to disk."""
    for path in [*folder.rglob("*"), folder]:
        reached("fsync")
        sync(path)
