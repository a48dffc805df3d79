"""The adapters of a model: their matrices on the host, and places for some of them on the device."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import torch
from torch import nn

from engine.adapters.linear import AdaptedLinear, Chosen
from engine.adapters.peft import PREFIX, WEIGHTS, Pair, read_adapter
from engine.errors import EngineError
from engine.models.base import Adaptable, AdaptedPart, Model

SLOTS = 8
Place = tuple[int, str]
"""A part of the model, and a layer's path in it."""


class AdapterBank:
    """Made once for a model, whose linear layers it replaces where an adapter changes them.

    `fill`, and forwards under `using`, belong to the compute stream.
    """

    def __init__(self, model: Model, folders: Mapping[str, Path], slots: int = SLOTS) -> None:
        """folders: one or more, by the name that requests give.

        slots: adapters that the rows of one batch use at most.

        Raises EngineError, naming the key, for an adapter that is damaged or does not fit the model.
        """
        self.names = tuple(sorted(folders))
        self.slots = min(slots, len(folders))
        self._chosen = Chosen()
        self._layers: dict[Place, AdaptedLinear] = {}
        self._pairs: dict[str, dict[Place, Pair]] = {name: {} for name in folders}
        self._of_images: set[str] = set()
        if not isinstance(model, Adaptable):
            raise EngineError("invalid-request", f"models of {model.info.family} take no adapters", "adapter")
        parts = model.adapted_parts
        for name, folder in folders.items():
            for path, pair in read_adapter(folder).items():
                place = _place(parts, path, pair, folder / WEIGHTS)
                self._pairs[name][place] = pair
                if parts[place[0]].of == "image":
                    self._of_images.add(name)
        rank = max(len(pair.a) for pairs in self._pairs.values() for pair in pairs.values())
        for place in sorted({place for pairs in self._pairs.values() for place in pairs}):
            self._layers[place] = _replace(parts[place[0]].module, place[1], self._chosen, self.slots, rank)
        for pairs in self._pairs.values():
            for place, pair in pairs.items():
                pairs[place] = self._layers[place].settled(pair)

    def changes_images(self, name: str | None) -> bool:
        """Whether an adapter changes what the vision tower computes."""
        return name in self._of_images

    def fill(self, slot: int, name: str) -> None:
        """Put an adapter into a slot."""
        pairs = self._pairs[name]
        for place, layer in self._layers.items():
            layer.fill(slot, pairs.get(place))

    def using(self, slots: torch.Tensor | int) -> AbstractContextManager[None]:
        """Around forwards of this thread; see `Chosen.using`."""
        return self._chosen.using(slots)


def _place(parts: tuple[AdaptedPart, ...], path: str, pair: Pair, file: Path) -> Place:
    """Where a path of PEFT lies in the model.  Raises EngineError, naming the key, if nowhere, or unfit."""
    for index, part in enumerate(parts):
        for called in sorted(part.paths, key=len, reverse=True):
            if path == called or path.startswith(f"{called}."):
                inner = path[len(called) + 1 :]
                _check_fit(part.module, inner, path, pair, file)
                return index, inner
    able = ", ".join(part.paths[0] for part in parts)
    raise _unfit(file, path, f"is outside of what adapters may change in this model: {able}")


def _check_fit(module: nn.Module, inner: str, path: str, pair: Pair, file: Path) -> None:
    try:
        layer = module.get_submodule(inner)
    except AttributeError:
        raise _unfit(file, path, "is no layer of this model") from None
    if not isinstance(layer, nn.Linear):
        raise _unfit(file, path, f"is a {type(layer).__name__} here, not a linear layer")
    for side, given, wanted in (
        ("A", pair.a.shape[1], layer.in_features),
        ("B", pair.b.shape[0], layer.out_features),
    ):
        if given != wanted:
            raise _unfit(file, f"{path}.lora_{side}.weight", f"has width {given}, and its layer {wanted}")


def _unfit(file: Path, key: str, fault: str) -> EngineError:
    return EngineError("invalid-request", f"adapter {file} does not fit: {PREFIX}{key} {fault}", "adapter")


def _replace(module: nn.Module, inner: str, chosen: Chosen, slots: int, rank: int) -> AdaptedLinear:
    layer = module.get_submodule(inner)
    assert isinstance(layer, nn.Linear)
    adapted = AdaptedLinear(layer, chosen, slots + 1, rank)
    parent, _, name = inner.rpartition(".")
    setattr(module.get_submodule(parent), name, adapted)
    return adapted
