"""What cameras and file formats do to a whole picture."""

from __future__ import annotations

from io import BytesIO

import numpy as np
from PIL import Image, ImageFilter

from training.textures import noise, slope


def finish(rng: np.random.Generator, canvas: np.ndarray, clean: bool) -> np.ndarray:
    """From a canvas, float32 [height, width, 3] about 0..255, to uint8; a clean one keeps its colours."""
    if not clean:
        canvas = lit(rng, canvas)
        canvas = tinted(rng, canvas)
        if rng.random() < 0.35:
            shape = canvas.shape if rng.random() < 0.5 else (*canvas.shape[:2], 1)
            canvas = canvas + rng.standard_normal(shape, dtype=np.float32) * np.float32(rng.uniform(2, 14))
    picture = Image.fromarray(np.clip(canvas + 0.5, 0, 255).astype(np.uint8))
    if not clean:
        picture = softened(rng, picture)
    if rng.random() < (0.3 if clean else 0.6):
        picture = compressed(rng, picture)
    return np.asarray(picture)


def lit(rng: np.random.Generator, canvas: np.ndarray) -> np.ndarray:
    """Light that falls off to one side, or dapples."""
    height, width = canvas.shape[:2]
    luck = rng.random()
    if luck < 0.2:
        light = 1 - rng.uniform(0.1, 0.4) * slope(height, width, rng.uniform(0, 360))
    elif luck < 0.3:
        light = 1 + rng.uniform(0.1, 0.35) * (noise(rng, height, width, height / 2, 2) - 0.5)
    else:
        return canvas
    return canvas * light[..., None].astype(np.float32)


def tinted(rng: np.random.Generator, canvas: np.ndarray) -> np.ndarray:
    """A mild colour cast, contrast and brightness."""
    gain = np.ones(3, np.float32)
    if rng.random() < 0.4:
        gain = gain * rng.uniform(0.92, 1.06, 3).astype(np.float32)
    if rng.random() < 0.5:
        gain = gain * np.float32(rng.uniform(0.8, 1.08))
    return canvas * gain + np.float32(rng.uniform(-10, 14) if rng.random() < 0.4 else 0)


def softened(rng: np.random.Generator, picture: Image.Image) -> Image.Image:
    """Out of focus, or through a smaller picture."""
    luck = rng.random()
    if luck < 0.15:
        return picture.filter(ImageFilter.GaussianBlur(rng.uniform(0.4, 1.3)))
    if luck < 0.27:
        size, share = picture.size, rng.uniform(0.5, 0.85)
        small = picture.resize((int(size[0] * share), int(size[1] * share)), Image.Resampling.BILINEAR)
        return small.resize(size, (Image.Resampling.BILINEAR, Image.Resampling.BICUBIC)[rng.integers(2)])
    if luck < 0.32:
        return picture.filter(ImageFilter.UnsharpMask(1.5, int(rng.integers(40, 140)), 2))
    return picture


def compressed(rng: np.random.Generator, picture: Image.Image) -> Image.Image:
    """JPEG at a quality of 35 to 95."""
    file = BytesIO()
    picture.save(file, "JPEG", quality=int(rng.integers(35, 96)))
    return Image.open(file).convert("RGB")
