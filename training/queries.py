"""What a scene holds and what may be asked of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np

COLOURS = (
    "red",
    "green",
    "blue",
    "yellow",
    "purple",
    "orange",
    "black",
    "white",
    "pink",
    "brown",
    "gray",
    "cyan",
)
SHAPES = ("circle", "square", "triangle", "star", "cross", "ring", "diamond", "hexagon")

ABSENT_SHARE = 0.2
POINT_SHARE = 0.4
KIND_SHARES = {"colour shape": 0.56, "shape": 0.2, "colour": 0.24}
PLURALS = {"cross": "crosses"}

Kind = Literal["all", "colour shape", "shape", "colour"]


@dataclass(frozen=True, slots=True)
class SceneObject:
    """One object of a scene; all coordinates are fractions of the image's width and height."""

    shape: str
    colour: str
    box: tuple[float, float, float, float]
    """x_min, y_min, x_max, y_max of the part inside the image."""
    side: float
    """The longer side of the box in pixels over the shorter side of the image."""
    outline: tuple[tuple[float, float], ...]
    """The filled outline as x, y vertices, not clipped; a ring is its outer disc."""


@dataclass(frozen=True, slots=True)
class Scene:
    image: np.ndarray
    """uint8 [height, width, 3]."""
    objects: tuple[SceneObject, ...]
    """In drawing order: a later one may cover up to a third of an earlier one."""


@dataclass(frozen=True, slots=True)
class Query:
    task: Literal["detect", "point"]
    phrase: str
    objects: tuple[SceneObject, ...]
    """The scene's matches, in drawing order; empty for a phrase with no match."""
    colour: str | None = None
    shape: str | None = None

    @property
    def kind(self) -> Kind:
        if self.colour and self.shape:
            return "colour shape"
        return "colour" if self.colour else "shape" if self.shape else "all"


def matches(item: SceneObject, colour: str | None, shape: str | None) -> bool:
    """Whether the object has this colour and this shape; None stands for any."""
    return colour in (None, item.colour) and shape in (None, item.shape)


def make_query(
    scene: Scene,
    rng: np.random.Generator,
    all_share: float,
    absent_share: float = ABSENT_SHARE,
    point_share: float = POINT_SHARE,
) -> Query:
    """A random question about the scene.

    `all_share` is the probability of asking for every shape; of the other queries a share of
    `absent_share` names something that the scene lacks, mostly with a colour and a shape that it has.
    `point_share` is the probability of asking for points.
    """
    colour, shape = None, None
    if rng.random() >= all_share:
        kind = str(rng.choice(list(KIND_SHARES), p=list(KIND_SHARES.values())))
        absent = not scene.objects or rng.random() < absent_share
        colour, shape = _absent(scene, rng, kind) if absent else _present(scene, rng, kind)
    task: Literal["detect", "point"] = "detect" if rng.random() < 1 - point_share else "point"
    found = tuple(item for item in scene.objects if matches(item, colour, shape))
    return Query(task, phrase_for(colour, shape, rng), found, colour, shape)


def _present(scene: Scene, rng: np.random.Generator, kind: str) -> tuple[str | None, str | None]:
    item = scene.objects[rng.integers(len(scene.objects))]
    return item.colour if kind != "shape" else None, item.shape if kind != "colour" else None


def _absent(scene: Scene, rng: np.random.Generator, kind: str) -> tuple[str | None, str | None]:
    colours = [c for c in COLOURS if all(c != item.colour for item in scene.objects)]
    shapes = [s for s in SHAPES if all(s != item.shape for item in scene.objects)]
    if kind == "colour":
        return str(rng.choice(colours)), None
    if kind == "shape" and shapes:
        return None, str(rng.choice(shapes))
    held = {(item.colour, item.shape) for item in scene.objects}
    free = [(c, s) for c in COLOURS for s in SHAPES if (c, s) not in held]
    both = [(c, s) for c, s in free if c not in colours and s not in shapes]
    either = [(c, s) for c, s in free if c not in colours or s not in shapes]
    luck = rng.random()
    pool = both if both and luck < 0.55 else either if either and luck < 0.85 else free
    return pool[rng.integers(len(pool))]


def phrase_for(colour: str | None, shape: str | None, rng: np.random.Generator | None = None) -> str:
    """The words for a query: the bare singular without `rng`, else sometimes a variant of it."""
    noun = shape or "shape"
    if rng is None:
        return f"{colour} {noun}" if colour else noun
    if colour == "gray" and rng.random() < 0.4:
        colour = "grey"
    plural = PLURALS.get(noun, noun + "s")
    singular, plural = (f"{colour} {n}" if colour else n for n in (noun, plural))
    article = "an" if singular[0] in "aeiou" else "a"
    variants = (plural, f"the {singular}", f"{article} {singular}", f"the {plural}", f"all {plural}")
    if rng.random() < 0.62:
        return singular
    return variants[rng.choice(5, p=(0.5, 0.18, 0.14, 0.08, 0.1))]
