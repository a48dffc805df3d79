"""User text -> token ids that are never special tokens."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer

from engine.errors import ModelNotFound


class TextEncoder:
    """A tokenizer without its added tokens: `<loc0001>` in a phrase is ten characters, not a location.

    `encode` of the Rust tokenizer has no state, so threads share it.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / "tokenizer.json"
        if not path.exists():
            raise ModelNotFound(f"{folder} has no tokenizer.json: a model folder needs its tokenizer")
        data = json.loads(path.read_text(encoding="utf-8"))
        self.added: dict[str, int] = {t["content"]: t["id"] for t in data["added_tokens"]}
        self.vocabulary: dict[str, int] = data["model"]["vocab"]
        data["added_tokens"] = []
        data["post_processor"] = None
        data["truncation"] = data["padding"] = None
        self._tokenizer = Tokenizer.from_str(json.dumps(data))

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    @property
    def size(self) -> int:
        """One more than the highest id of ordinary vocabulary."""
        return 1 + max(self.vocabulary.values())

    def id_of(self, token: str) -> int | None:
        """Of a token that a phrase cannot become, or of any other; None if there is no such token."""
        return self.added.get(token, self.vocabulary.get(token))

    def pieces(self) -> dict[str, int]:
        """Ordinary vocabulary as text, for dialects that spell something out."""
        return {
            piece.replace("▁", " "): token
            for piece, token in self.vocabulary.items()
            if piece not in self.added and not (piece.startswith("<") and piece.endswith(">"))
        }
