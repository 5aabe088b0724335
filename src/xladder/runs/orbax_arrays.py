"""Read arrays that Orbax wrote: checkpoints of version 0.1.

Nothing is written with it any more: its storage layer (tensorstore 0.1.86) keeps some memory of every save, which adds
up in a run of days.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

OPEN_FILES = Path("/proc/self/fd")


def shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """What a folder declares to hold: name → shape."""
    with _orbax() as orbax, _plainly_named(folder) as place:
        metadata: Any = orbax.metadata(place).item_metadata
        return {name: tuple(metadata[name].shape) for name in metadata}


def read(folder: Path, names: Iterable[str]) -> dict[str, np.ndarray]:
    """Read the arrays of a folder. Call `shapes` first to see names and sizes."""
    import orbax.checkpoint as ocp

    with _orbax() as orbax, _plainly_named(folder) as place:
        arguments = {name: ocp.RestoreArgs(restore_type=np.ndarray) for name in names}
        found: dict[str, np.ndarray] = orbax.restore(place, restore_args=arguments)
        return found


@contextmanager
def _plainly_named(folder: Path) -> Iterator[Path]:
    """A path to the folder that Orbax takes literally; in others it may see patterns (`[1]`) and protocols (`gs:`)."""
    if not OPEN_FILES.is_dir():  # exists only on Linux
        yield folder.absolute()
        return
    handle = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield OPEN_FILES / str(handle) / folder.name
    finally:
        os.close(handle)


def _orbax() -> Any:
    import logging

    import jax
    import orbax.checkpoint as ocp

    logging.getLogger("absl").setLevel(logging.ERROR)  # it logs every step
    process = jax.process_index()
    # Each process reads alone; otherwise Orbax would wait for the run's other processes.
    alone = (
        ocp.options.MultiprocessingOptions(process, {process}, f"host{process}") if jax.process_count() > 1 else None
    )
    if alone is None:
        return ocp.PyTreeCheckpointer()
    handler = ocp.PyTreeCheckpointHandler(multiprocessing_options=alone)
    return ocp.Checkpointer(handler, multiprocessing_options=alone)
