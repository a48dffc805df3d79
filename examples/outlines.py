"""The eight shapes as plain polygons, for the example pictures."""

from __future__ import annotations

import numpy as np


def _regular(corners: int, turn: float = -90.0) -> np.ndarray:
    angles = np.radians(turn) + np.linspace(0, 2 * np.pi, corners, endpoint=False)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def outline(shape: str, degrees: float = 0.0) -> np.ndarray:
    """Vertices [n, 2] (x right, y down) of a shape of about unit radius round the origin.

    A ring is its outer disc; RING_HOLE tells the hole's radius.
    """
    if shape == "star":
        points = _regular(10) * np.tile([1.0, 0.42], 5)[:, None]
    elif shape == "cross":
        quarter = np.array([[-0.33, -1.0], [0.33, -1.0], [0.33, -0.33]])
        turns = [np.array([[c, s], [-s, c]]) for c, s in ((1, 0), (0, 1), (-1, 0), (0, -1))]
        points = np.concatenate([quarter @ turn for turn in turns])
    else:
        corners, turn = {
            "circle": (96, 0.0),
            "ring": (96, 0.0),
            "square": (4, 45.0),
            "diamond": (4, 0.0),
            "triangle": (3, -90.0),
            "hexagon": (6, 0.0),
        }[shape]
        points = _regular(corners, turn)
    cos, sin = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    return points @ np.array([[cos, sin], [-sin, cos]])


RING_HOLE = 0.58
