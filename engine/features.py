"""Vision features of recent images, for models whose image KV depends on the prompt."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from engine.models.base import Encoded


class FeatureCache:
    """Least recently used first out.  Only work on the compute stream touches it.

    capacity: images.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._features: OrderedDict[Hashable, Encoded] = OrderedDict()

    def get(self, key: Hashable) -> Encoded | None:
        """Features of an image, if they are there."""
        if key in self._features:
            self._features.move_to_end(key)
        return self._features.get(key)

    def put(self, key: Hashable, features: Encoded) -> None:
        self._features[key] = features
        if len(self._features) > self._capacity:
            self._features.popitem(last=False)

    def clear(self) -> None:
        self._features.clear()
