"""`pointbox models`: which families can be served, and which models lie on this machine."""

from __future__ import annotations

from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

SHARING = {"image": "the whole image, across phrases", "prompt": "its vision features"}
"""What of an image is computed once however often it is asked about, by what its KV depends on."""


class FamilyEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A family. `prefix` is what the KV of an image depends on; `examples` are ids of the hub."""

    name: str
    tasks: list[str]
    prefix: str
    examples: list[str]


class LocalModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model on this machine. `name` is what `--model` takes; no `family`: it cannot be served."""

    name: str
    family: str | None
    source: str
    """bundled, or cache: that of the Hugging Face hub."""
    bytes: int
    folder: str


class Catalogue(msgspec.Struct, frozen=True, kw_only=True):
    """What `pointbox models --json` prints."""

    families: list[FamilyEntry]
    models: list[LocalModel]
    cache: str


def print_catalogue(json: bool) -> int:
    """On stdout; the exit status."""
    catalogue = read_catalogue()
    if json:
        print(msgspec.json.format(msgspec.json.encode(catalogue), indent=2).decode())
        return 0
    console = Console(highlight=False, markup=False)
    families = _table("Families", "for example", "family", "tasks", "shared of an image")
    for family in catalogue.families:
        examples = "\n".join(family.examples)
        families.add_row(examples, family.name, ", ".join(family.tasks), SHARING[family.prefix])
    console.print(families)
    models = _table("Models on this machine", "model", "family", "where", "size")
    for model in catalogue.models:
        size = f"{model.bytes / 1e6:,.0f} MB"
        models.add_row(Text(model.name), model.family or "not supported", model.source, size)
    console.print(models)
    console.print(f"The cache of the Hugging Face hub is {catalogue.cache}.")
    return 0


def read_catalogue() -> Catalogue:
    """Imports torch, as every family does."""
    from engine.models import hub
    from engine.models.registry import CHECKPOINTS, bundled, families

    here = [
        _model(
            name, "bundled", CHECKPOINTS / name, sum(f.stat().st_size for f in CHECKPOINTS.glob(f"{name}/*"))
        )
        for name in bundled()
    ]
    here += [_model(entry.name, "cache", entry.folder, entry.size) for entry in hub.cached()]
    return Catalogue(
        families=[
            FamilyEntry(name=f.name, tasks=list(f.tasks), prefix=f.prefix, examples=list(f.examples))
            for f in families()
        ],
        models=here,
        cache=str(hub.cache_folder()),
    )


def _model(name: str, source: str, folder: Path, size: int) -> LocalModel:
    from engine.errors import ModelNotFound
    from engine.models.checkpoint import read_config
    from engine.models.registry import family_of

    try:
        family = family_of(read_config(folder))
    except ModelNotFound:  # a damaged config.json
        family = None
    return LocalModel(
        name=name,
        family=family.name if family else None,
        source=source,
        bytes=size,
        folder=str(folder),
    )


def _table(title: str, name: str, *columns: str) -> Table:
    """Names are to be copied, so they are never broken."""
    table = Table(title=Text(title), title_justify="left")
    table.add_column(name, no_wrap=True)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
