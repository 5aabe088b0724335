"""The built-in torsos and the frames that each can take. Imports nothing heavy."""

from typing import Literal, get_args

TorsoName = Literal["mlp", "nature", "minatar", "nature_same"]
TORSOS: tuple[TorsoName, ...] = get_args(TorsoName)
BY_KEY = "by_key"  # for observations of several parts; made like a user's own torso, which is told what they are
LEAST_NATURE = 36  # pixels per side; the three convolutions reduce them to one
PICTURE_AXES = 3  # height, width, channels
BYTE = 255  # the brightest value of a grey image
LEAST_MINATAR = 3  # cells per side; the convolution reduces them to one


def is_own(torso: str) -> bool:
    """Whether a torso is a Flax module with a twin of its own: a user's, by name or entry point, or `by_key`."""
    return torso not in TORSOS


def takes(torso: str, shape: tuple[int, ...]) -> bool:
    """Whether a torso can take single frames of this shape.

    `mlp` takes numbers and vectors, `nature` and `nature_same` images [height, width] or [height, width, channels] from
    36 × 36, `minatar` [height, width, channels].
    """
    match torso:
        case "mlp":
            return len(shape) <= 1
        case "nature" | "nature_same":
            return len(shape) in (2, PICTURE_AXES) and min(shape[:2]) >= LEAST_NATURE
        case "minatar":
            return len(shape) == PICTURE_AXES and min(shape[:2]) >= LEAST_MINATAR
    raise ValueError(f"There is no torso `{torso}`, only {', '.join(TORSOS)}.")


def suited(shape: tuple[int, ...]) -> TorsoName | None:
    """The torso that can take single frames of this shape, if there is one."""
    return next((torso for torso in TORSOS if takes(torso, shape)), None)


def is_picture(shape: tuple[int, ...]) -> bool:
    """Whether there are convolutions for arrays of this shape."""
    return suited(shape) in ("nature", "minatar")
