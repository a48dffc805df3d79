"""Moondream's tokenizers and what goes around a phrase, by revision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.errors import ModelNotFound
from engine.models import hub
from engine.models.checkpoint import Checkpoint
from engine.models.moondream_config import Section
from engine.models.text import TextEncoder
from grammars.types import TASKS, Task

HUB_TOKENIZER = "moondream/starmie-v1"
Around = tuple[tuple[int, ...], tuple[int, ...]]
"""Token ids before and after a phrase."""


@dataclass(frozen=True, slots=True)
class Prompting:
    """Token ids that a tokenizer has for Moondream.

    coordinate: what announces an object, None where any token but the end does.
    templates: of the tasks that the model was trained for.
    """

    bos: int
    eos: int
    coordinate: int | None
    templates: dict[Task, Around]


STARMIE = Prompting(
    bos=0,
    eos=0,
    coordinate=5,
    templates={"detect": ((1, 7235, 476, 2), (3,)), "point": ((1, 2581, 2), (3,))},
)
"""Of revisions from 2025-06-21 on."""
CODEGEN = Prompting(
    bos=50256,
    eos=50256,
    coordinate=None,
    templates={"detect": ((198, 198, 47504, 25), (628,)), "point": ((198, 198, 12727, 25), (628,))},
)
"""Of revisions before, with the tokenizer of CodeGen."""


def read_tokenizer(checkpoint: Checkpoint) -> TextEncoder:
    """The one beside the weights, or the hub's.  Raises ModelNotFound."""
    if (checkpoint.folder / "tokenizer.json").exists():
        return TextEncoder(checkpoint.folder)
    try:
        return TextEncoder(hub.fetch(HUB_TOKENIZER, None))
    except ModelNotFound as error:
        raise ModelNotFound(f"{checkpoint.folder} has no tokenizer.json, and {error}") from None


def read_prompting(checkpoint: Checkpoint, text: TextEncoder, vocab: int) -> Prompting:
    """What config.json says, or else what goes with the tokenizer.

    vocab: tokens that the weights know.  Raises ModelNotFound for ids that are none of them.
    """
    if text.size > vocab:
        raise ModelNotFound(
            f"{checkpoint.folder}: its tokenizer has {text.size} tokens, its weights know {vocab}"
        )
    usual = CODEGEN if text.id_of("<|endoftext|>") == CODEGEN.eos else STARMIE
    said, written = Section(checkpoint, "tokenizer"), Section(checkpoint, "tokenizer", "templates")
    around = {task: written.get(task) if written.has(task) else usual.templates[task] for task in TASKS}
    prompting = Prompting(
        bos=said.get("bos_id") if said.has("bos_id") else usual.bos,
        eos=said.get("eos_id") if said.has("eos_id") else usual.eos,
        coordinate=said.get("coord_id") if said.has("coord_id") else usual.coordinate,
        templates={
            task: _template(written, task, template)
            for task, template in around.items()
            if template is not None
        },
    )
    ids: list[tuple[str, Any]] = [("bos_id", prompting.bos), ("eos_id", prompting.eos)]
    if prompting.coordinate is not None:
        ids.append(("coord_id", prompting.coordinate))
    for task, (before, after) in prompting.templates.items():
        ids += [(f"the template of {task}", token) for token in (*before, *after)]
    for name, token in ids:
        if type(token) is not int or not 0 <= token < vocab:
            raise ModelNotFound(f"{said.where}: {name} has {token!r}, which is none of {vocab} token ids")
    return prompting


def _template(section: Section, task: Task, template: Any) -> Around:
    if isinstance(template, tuple):
        return template
    try:
        return tuple(template["prefix"]), tuple(template["suffix"])
    except (TypeError, KeyError):
        raise ModelNotFound(
            f"{section.where}: the template of {task} must have a prefix and a suffix"
        ) from None
