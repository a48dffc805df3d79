"""Pictures of a measurement: curves and a sheet of failures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from PIL import Image, ImageDraw, ImageFont

from training.measures import SIDES, curve, rates
from training.outcomes import Outcome
from training.queries import Scene

TILE = 220
LIMIT = 300_000  # bytes
GREEN, RED = (0, 190, 60), (235, 20, 60)


def plot(outcomes_by_task: dict[str, list[Outcome]], path: Path) -> None:
    """Precision and recall by the lowest score kept, precision by recall, and F1 by size."""
    classes = list(pairwise(SIDES))
    figure = Figure(figsize=(13, 3.8), layout="constrained")
    by_score, trade, by_size = figure.subplots(1, 3)
    for name, colour, shift in (("detect", "#2563eb", -0.2), ("point", "#ea580c", 0.2)):
        outcomes = outcomes_by_task[name]
        scores, precision, recall = curve(outcomes)
        by_score.plot(scores, precision, color=colour, label=f"{name}: precision")
        by_score.plot(scores, recall, color=colour, linestyle="--", label=f"{name}: recall")
        trade.plot(recall, precision, color=colour, label=name)
        heights = [rates(outcomes, low, high)["f1"] or 0.0 for low, high in classes]
        by_size.bar(np.arange(len(classes)) + shift, heights, 0.4, color=colour, label=name)
    by_size.set_xticks(range(len(classes)), [_span(*pair) for pair in classes], fontsize=8)
    for axes, x, y in (
        (by_score, "lowest score kept", "share"),
        (trade, "recall", "precision"),
        (by_size, "object's longer side / image's shorter side", "F1"),
    ):
        axes.set(xlabel=x, ylabel=y, ylim=(0, 1.03))
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8, loc="lower left", framealpha=0.9)
    figure.savefig(path, dpi=80)


def _span(low: float, high: float) -> str:
    if not low:
        return f"< {high:.0%}"
    return f"≥ {low:.0%}" if np.isinf(high) else f"{100 * low:.0f}-{high:.0%}"


def failure_sheet(
    outcomes: Sequence[Outcome], scene_of: Callable[[int | str], Scene], path: Path, count: int = 15
) -> None:
    """A random selection of wrong answers as one PNG of at most 300 kB: truth green, answers red."""
    wrong = [outcome for outcome in outcomes if not outcome.right]
    chosen = np.random.default_rng(0).permutation(len(wrong))[:count]
    columns = 5
    rows = max(1, -(-len(chosen) // columns))
    sheet = Image.new("RGB", (columns * TILE, rows * (TILE + 22)), (250, 250, 250))
    for place, index in enumerate(chosen):
        tile = _tile(wrong[index], scene_of(wrong[index].source))
        sheet.paste(tile, (place % columns * TILE, place // columns * (TILE + 22)))
    for colours in (256, 128, 64, 32, 16):
        sheet.quantize(colours, dither=Image.Dither.NONE).save(path, optimize=True)
        if path.stat().st_size <= LIMIT:
            return


def _tile(outcome: Outcome, scene: Scene) -> Image.Image:
    picture = Image.fromarray(scene.image)
    scale = (TILE - 8) / max(picture.size)
    picture = picture.resize((round(picture.width * scale), round(picture.height * scale)))
    draw = ImageDraw.Draw(picture)
    size = np.array(picture.size)
    for item in outcome.query.objects:
        draw.rectangle((np.array(item.box) * np.tile(size, 2)).tolist(), outline=GREEN, width=2)
    for guess in outcome.guesses:
        if len(guess.place) == 4:
            draw.rectangle((np.array(guess.place) * np.tile(size, 2)).tolist(), outline=RED, width=1)
        else:
            x, y = (np.array(guess.place) * size).tolist()
            draw.ellipse((x - 4, y - 4, x + 4, y + 4), fill=RED, outline=(255, 255, 255))
    tile = Image.new("RGB", (TILE, TILE + 22), (250, 250, 250))
    tile.paste(picture, (4, 20))
    words = f"{outcome.task} {outcome.query.phrase}"
    ImageDraw.Draw(tile).text((4, 3), words, fill=(20, 20, 30), font=ImageFont.load_default(13))
    return tile
