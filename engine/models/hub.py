"""The Hugging Face hub: fetching a model, and what lies in the hub's cache."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.errors import ModelNotFound

FILES = ["*.json", "*.safetensors", "*.model"]
"""What a model needs; never code."""


@dataclass(frozen=True, slots=True)
class Cached:
    """A model in the cache.  size: bytes on disk, of all its revisions."""

    name: str
    folder: Path
    size: int


def cache_folder() -> Path:
    """Where the hub's client keeps what it fetched: HF_HUB_CACHE, or `hub` below HF_HOME."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def fetch(name: str, revision: str | None) -> Path:
    """The folder of a hub model, from the cache where nothing is newer or the hub cannot be reached.

    revision: a branch, a tag or a commit; None for the main branch.
    Raises ModelNotFound with what to do.
    """
    from huggingface_hub import errors, snapshot_download

    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=FILES))
    except errors.GatedRepoError:
        reason = f"accept its licence at https://huggingface.co/{name} and set HF_TOKEN"
    except errors.RevisionNotFoundError:
        reason = f"it has no revision {revision!r}"
    except errors.RepositoryNotFoundError:
        reason = "the hub has no such model, or it is private: check the name, or set HF_TOKEN"
    except errors.LocalEntryNotFoundError:
        reason = (
            f"it is not, or not wholly, in the cache {cache_folder()} and the hub cannot be reached: connect "
            f"this machine, copy the cache from one that ran `hf download {name}`, or give a local folder"
        )
    except Exception as error:  # of the client, of many kinds: a name it does not like, a full disk
        reason = next(iter(str(error).splitlines()), type(error).__name__)
    raise ModelNotFound(f"model {name!r} cannot be had: {reason}")


def cached() -> list[Cached]:
    """Models in the cache that have a config.json in their newest revision."""
    from huggingface_hub import scan_cache_dir

    if not cache_folder().is_dir():
        return []
    found = []
    for repo in scan_cache_dir(cache_folder()).repos:
        newest = max(repo.revisions, key=lambda revision: revision.last_modified, default=None)
        if repo.repo_type == "model" and newest and (newest.snapshot_path / "config.json").exists():
            found.append(Cached(repo.repo_id, newest.snapshot_path, repo.size_on_disk))
    return sorted(found, key=lambda entry: entry.name)
