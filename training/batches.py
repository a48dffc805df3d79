"""Scenes -> training samples -> batches.

One sample is one image with several packed queries.  The image prefix never sees the prompt, so every
query of a sample attends to the same image tokens and, causally, to itself; packing them shares the cost
of the vision tower and of the prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from PIL import Image
from torch.utils.data import IterableDataset

from training.checkpoint import GRID, IMAGE_SIDE, IMAGE_TOKENS
from training.scenes import COLOURS, SHAPES, Query, Scene, SceneObject, make_query, make_scene
from training.vocabulary import BOS, EOS, LOCATIONS, OBJECT, build_tokenizer

TEXT = 96  # text positions in a sample, shared by its queries
QUERIES = 12  # at most
BINS = 1024
ABSENT_SHARE = 0.3  # more than in measuring: saying "nothing" is what is learnt last
POINT_SHARE = 0.6  # more than in measuring: a point says less about its object, so is learnt more slowly
OTHER_WORDS = ("cat", "dog", "person", "car", "tree", "logo", "button", "text", "house", "sky", "猫", "ball")


@dataclass(slots=True)
class Batch:
    """Tensors of B samples, T = TEXT text positions, P = IMAGE_TOKENS patches."""

    pixels: torch.Tensor  # uint8 [B, 3, S, S]
    tokens: torch.Tensor  # int64 [B, T]
    positions: torch.Tensor  # int64 [B, T], 1-based after the image
    segments: torch.Tensor  # int64 [B, T], query number, -1 for padding
    targets: torch.Tensor  # int64 [B, T], next token where it is part of an answer, else -100
    prompt_end: (
        torch.Tensor
    )  # int64 [B, QUERIES], text position of each query's last prompt token, -1 if none
    relevant: torch.Tensor  # bool [B, QUERIES, P], whether a patch holds an object that the query asks for
    patch_shape: torch.Tensor  # int64 [B, P], shape index, -1 where the patch holds no object
    patch_colour: torch.Tensor  # int64 [B, P], likewise
    patch_box: torch.Tensor  # int64 [B, P, 4], bins y0 x0 y1 x1

    @classmethod
    def stack(cls, samples: list[Batch]) -> Batch:
        return cls(*(torch.stack([getattr(s, f.name) for s in samples]) for f in fields(cls)))


def bins(values: tuple[float, ...]) -> list[int]:
    """Coordinates in [0, 1] -> location bins."""
    return [min(BINS - 1, max(0, round(v * BINS))) for v in values]


class Encoder:
    """Turns one scene and a share of "all" queries into a sample."""

    def __init__(self) -> None:
        tokenizer = build_tokenizer()
        self._encode = tokenizer.backend_tokenizer.encode
        ids = tokenizer.convert_tokens_to_ids
        self._bos, self._eos, self._object = ids(BOS), ids(EOS), ids(OBJECT)
        self._location = ids(LOCATIONS[0])

    def sample(self, scene: Scene, rng: np.random.Generator, all_share: float) -> Batch:
        tokens = np.zeros(TEXT, np.int64)
        positions = np.full(TEXT, IMAGE_TOKENS + 1, np.int64)
        segments = np.full(TEXT, -1, np.int64)
        targets = np.full(TEXT, -100, np.int64)
        prompt_end = np.full(QUERIES, -1, np.int64)
        relevant = np.zeros((QUERIES, IMAGE_TOKENS), bool)
        owner = patch_owners(scene.objects)
        start, number = 0, 0
        for _ in range(QUERIES):
            query = make_query(scene, rng, all_share, ABSENT_SHARE, POINT_SHARE)
            prompt, answer, wanted = self._query(query, rng)
            length = len(prompt) + len(answer) - 1  # the last answer token is only a target
            if start + length > TEXT:
                break
            end = start + length
            tokens[start:end] = (prompt + answer)[:-1]
            positions[start:end] = IMAGE_TOKENS + 1 + np.arange(length)
            segments[start:end] = number
            targets[start + len(prompt) - 1 : end] = answer
            prompt_end[number] = start + len(prompt) - 1
            relevant[number] = np.isin(owner, [scene.objects.index(o) for o in wanted])
            start, number = end, number + 1
        image = Image.fromarray(scene.image).resize((IMAGE_SIDE, IMAGE_SIDE), Image.Resampling.BICUBIC)
        pixels = np.asarray(image).transpose(2, 0, 1).copy()
        labels = patch_labels(scene.objects, owner)
        arrays = (pixels, tokens, positions, segments, targets, prompt_end, relevant, *labels)
        return Batch(*(torch.from_numpy(a) for a in arrays))

    def _query(
        self, query: Query, rng: np.random.Generator
    ) -> tuple[list[int], list[int], tuple[SceneObject, ...]]:
        objects, phrase = query.objects, query.phrase
        if rng.random() < 0.04:  # things the model does not know are absent
            objects, phrase = (), str(rng.choice(OTHER_WORDS))
        prompt = [self._bos, *self._encode(f"{query.task} {phrase}\n").ids]
        places = sorted(bins(location(query.task, o.box)) for o in objects)
        answer = [t for place in places for t in (self._object, *(self._location + b for b in place))]
        return prompt, [*answer, self._eos], objects


def location(task: str, box: tuple[float, float, float, float]) -> tuple[float, ...]:
    """What the model writes for a box, in its order: y0 x0 y1 x1, or y x of the centre."""
    x0, y0, x1, y1 = box
    return (y0, x0, y1, x1) if task == "detect" else ((y0 + y1) / 2, (x0 + x1) / 2)


def patch_owners(objects: tuple[SceneObject, ...]) -> np.ndarray:
    """[P] per patch the smallest object whose box covers its centre, or whose centre lies in it; else -1."""
    owner = np.full(IMAGE_TOKENS, -1, np.int64)
    centre = (np.arange(GRID) + 0.5) / GRID
    areas = [(o.box[2] - o.box[0]) * (o.box[3] - o.box[1]) for o in objects]
    for number in sorted(range(len(objects)), key=lambda n: -areas[n]):
        x0, y0, x1, y1 = objects[number].box
        inside = np.outer((centre > y0) & (centre < y1), (centre > x0) & (centre < x1))
        row, column = int((y0 + y1) / 2 * GRID), int((x0 + x1) / 2 * GRID)
        inside[min(row, GRID - 1), min(column, GRID - 1)] = True
        owner[inside.reshape(-1)] = number
    return owner


def patch_labels(
    objects: tuple[SceneObject, ...], owner: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Shape, colour [P] and box [P, 4] of each patch's owner."""
    table = np.array(
        [(SHAPES.index(o.shape), COLOURS.index(o.colour), *bins(location("detect", o.box))) for o in objects]
        + [(-1, -1, 0, 0, 0, 0)],
        np.int64,
    )
    labels = table[owner]
    return labels[:, 0].copy(), labels[:, 1].copy(), labels[:, 2:].copy()


def flipped(scene: Scene, which: int) -> Scene:
    """One of the eight flips and quarter turns of a scene; every shape keeps its name under them."""
    image, objects = scene.image, scene.objects
    if which & 1:
        image = image[:, ::-1]
        objects = tuple(_moved(o, lambda x, y: (1 - x, y)) for o in objects)
    if which & 2:
        image = image[::-1]
        objects = tuple(_moved(o, lambda x, y: (x, 1 - y)) for o in objects)
    if which & 4:
        image = image.transpose(1, 0, 2)
        objects = tuple(_moved(o, lambda x, y: (y, x)) for o in objects)
    return Scene(np.ascontiguousarray(image), objects)


def _moved(thing: SceneObject, move: Callable[[float, float], tuple[float, float]]) -> SceneObject:
    (ax, ay), (bx, by) = move(*thing.box[:2]), move(*thing.box[2:])
    box = (min(ax, bx), min(ay, by), max(ax, bx), max(ay, by))
    return replace(thing, box=box, outline=tuple(move(x, y) for x, y in thing.outline))


class SampleStream(IterableDataset):
    """An endless stream of samples; `all_share` is shared memory that the trainer lowers as it goes."""

    def __init__(self, first_seed: int, all_share: torch.Tensor, reuse: int = 2) -> None:
        self.first_seed, self.all_share, self.reuse = first_seed, all_share, reuse

    def __iter__(self) -> Iterator[Batch]:
        torch.set_num_threads(1)
        worker = torch.utils.data.get_worker_info()
        step, seed = (worker.num_workers, self.first_seed + worker.id) if worker else (1, self.first_seed)
        encoder = Encoder()
        pool: list[Scene] = []
        while True:
            rng = np.random.default_rng((seed, 7))
            scene = make_scene(seed)
            seed += step
            yield encoder.sample(flipped(scene, int(rng.integers(8))), rng, float(self.all_share))
            pool.append(scene)  # seen again later, flipped another way and asked other things
            if len(pool) > 2000:
                old = pool.pop(int(rng.integers(len(pool))))
                for _ in range(self.reuse - 1):
                    yield encoder.sample(flipped(old, int(rng.integers(8))), rng, float(self.all_share))
