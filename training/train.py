"""Train the default checkpoint: `python -m training.train --minutes 120`.

The schedule runs on the time spent training (kept across restarts), so a slower machine sees fewer
samples but every phase.  State goes to `--run`; a loadable checkpoint is exported to `--run/export`.
"""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import cyclopts
import torch
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from torch.utils.data import DataLoader
from transformers import PaliGemmaForConditionalGeneration, PreTrainedTokenizerFast

from training.batches import Batch, SampleStream
from training.checkpoint import build_processor, export, new_model
from training.losses import MatchHead, PatchHead, Words, training_loss
from training.muon import Muon
from training.scenes import COLOURS, SHAPES
from training.vocabulary import LOCATIONS

PEAK_LR, MUON_FACTOR, WARMUP_STEPS = 1.5e-3, 1.5, 300
FIRST_SEED = 1_000_000  # held-out scenes lie below


@dataclass(frozen=True, slots=True)
class Phase:
    """What changes in the course of training, by progress in [0, 1]."""

    lr: float
    sigma: float
    all_share: float
    helper_weight: float

    @classmethod
    def at(cls, progress: float, step: int) -> Phase:
        warm = min(1.0, (step + 1) / WARMUP_STEPS)
        cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
        early, middle = min(1.0, progress / 0.6), min(1.0, progress / 0.3)
        return cls(
            lr=warm * max(0.01, cosine),
            sigma=14.0 * (1.5 / 14.0) ** early,
            all_share=0.7 + (0.15 - 0.7) * middle,
            helper_weight=1.0 + (0.2 - 1.0) * progress,
        )


class Trainer:
    """Model, optimisers, averaged weights and the clock of one run."""

    def __init__(self, run: Path, minutes: float, batch: int, start: Path | None = None) -> None:
        self.run, self.minutes, self.batch = run, minutes, batch
        self.processor = build_processor()
        tokenizer = self.processor.tokenizer
        self.model: PaliGemmaForConditionalGeneration = (
            new_model(tokenizer)
            if start is None
            else PaliGemmaForConditionalGeneration.from_pretrained(start, dtype=torch.float32)
        )
        self.patch_head = PatchHead(_words(tokenizer))
        self.match_head = MatchHead()
        self.optimisers = self._optimisers()
        self.average = {k: v.detach().clone() for k, v in self.model.state_dict().items()}
        self.step, self.seconds = 0, 0.0
        run.mkdir(parents=True, exist_ok=True)
        if (run / "state.pt").exists():
            self._restore()

    @property
    def progress(self) -> float:
        return self.seconds / 60 / self.minutes

    def _optimisers(self) -> list[torch.optim.Optimizer]:
        modules = (self.model.model, self.patch_head, self.match_head)
        named = [pair for module in modules for pair in module.named_parameters()]
        hidden = [p for name, p in named if p.ndim == 2 and "embed" not in name and min(p.shape) >= 64]
        others = [p for name, p in named if not any(p is h for h in hidden)]
        return [
            Muon(hidden, lr=PEAK_LR * MUON_FACTOR),
            torch.optim.AdamW(others, lr=PEAK_LR, betas=(0.9, 0.98), weight_decay=0.0, fused=True),
        ]

    def train_step(self, batch: Batch, phase: Phase) -> dict[str, float]:
        for optimiser, factor in zip(self.optimisers, (MUON_FACTOR, 1.0), strict=True):
            optimiser.param_groups[0]["lr"] = PEAK_LR * factor * phase.lr
            optimiser.zero_grad(set_to_none=True)
        loss, parts = training_loss(
            self.model, self.patch_head, self.match_head, batch, phase.sigma, phase.helper_weight
        )
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_([p for o in self.optimisers for p in o.param_groups[0]["params"]], 1.0)
        for optimiser in self.optimisers:
            optimiser.step()
        self.step += 1
        decay = min(0.998, self.step / (self.step + 10))
        for name, value in self.model.state_dict().items():
            self.average[name].lerp_(value, 1 - decay)
        return parts

    def save(self) -> None:
        state = {
            "model": self.model.state_dict(),
            "patch_head": self.patch_head.state_dict(),
            "match_head": self.match_head.state_dict(),
            "optimisers": [o.state_dict() for o in self.optimisers],
            "average": self.average,
            "step": self.step,
            "seconds": self.seconds,
        }
        torch.save(state, self.run / "state.new")
        (self.run / "state.new").rename(self.run / "state.pt")
        export(self.model, self.processor, self.run / "export", self.average)

    def _restore(self) -> None:
        state = torch.load(self.run / "state.pt", weights_only=True)
        self.model.load_state_dict(state["model"])
        self.patch_head.load_state_dict(state["patch_head"])
        self.match_head.load_state_dict(state["match_head"])
        for optimiser, saved in zip(self.optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(saved)
        self.average, self.step, self.seconds = state["average"], state["step"], state["seconds"]


def _words(tokenizer: PreTrainedTokenizerFast) -> Words:
    def ids(words: tuple[str, ...]) -> list[int]:
        return [tokenizer.convert_tokens_to_ids(f"▁{word}") for word in words]

    return Words(ids(SHAPES), ids(COLOURS), tokenizer.convert_tokens_to_ids(LOCATIONS[0]))


def _collate(samples: list[Batch]) -> Batch:
    return Batch.stack(samples)


def train(
    *,
    run: Path = Path("runs/tiny"),
    minutes: float = 120.0,
    batch: int = 64,
    save_every: float = 5.0,
    threads: int = 2,
    start: Path | None = None,
    seed: int = FIRST_SEED,
) -> None:
    """Train or resume a run.

    Parameters
    ----------
    run: folder of the training state and of the exported checkpoint.
    minutes: training time of the whole schedule, restarts not counted.
    batch: images per step, each with several queries.
    save_every: minutes between checkpoints.
    threads: torch threads of the training process; scenes come from one more process.
    start: a checkpoint folder whose weights a new run begins with.
    seed: the first scene; go on beyond the scenes that an earlier run has seen.
    """
    torch.set_num_threads(threads)
    trainer = Trainer(run, minutes, batch, start)
    all_share = torch.tensor(0.7).share_memory_()
    stream = SampleStream(seed + trainer.step * batch, all_share)
    loader = iter(DataLoader(stream, batch_size=batch, num_workers=1, prefetch_factor=4, collate_fn=_collate))
    recent: deque[dict[str, float]] = deque(maxlen=50)
    saved = trainer.seconds
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns) as bar:
        task = bar.add_task("training", total=minutes * 60, completed=trainer.seconds)
        while trainer.progress < 1:
            began = time.monotonic()
            phase = Phase.at(trainer.progress, trainer.step)
            all_share.fill_(phase.all_share)
            recent.append(trainer.train_step(next(loader), phase))
            trainer.seconds += time.monotonic() - began
            bar.update(task, completed=trainer.seconds)
            if trainer.step % 50 == 0:
                means = {k: sum(r[k] for r in recent) / len(recent) for k in recent[0]}
                parts = " ".join(f"{k} {v:.3f}" for k, v in means.items())
                rate = trainer.step * batch / trainer.seconds
                bar.print(f"step {trainer.step} progress {trainer.progress:.3f} {parts} images/s {rate:.0f}")
            if trainer.seconds - saved > save_every * 60:
                trainer.save()
                saved = trainer.seconds
    trainer.save()


if __name__ == "__main__":
    cyclopts.run(train)
