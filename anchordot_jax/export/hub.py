"""Model folders on the Hugging Face hub: `hf:USER/NAME`, or `hf:USER/NAME@REVISION`.

Only the files of a model folder go up and come down: JSON, safetensors and the card. A
model that was fetched once loads offline from the hub library's own cache.
"""

from pathlib import Path

from anchordot_jax.errors import InputError, reason
from anchordot_jax.extras import needs
from anchordot_jax.runs import model_folder

PREFIX = "hf:"


def is_address(place: str | Path) -> bool:
    """Return whether a place is a repository of the hub, not a folder here."""
    return str(place).startswith(PREFIX)


def fetch(address: str) -> Path:
    """Return the folder that a repository of the hub was downloaded to.

    Raises:
        InputError: huggingface_hub is not installed, or the hub does not give the
            repository.
    """
    hub = needs("huggingface_hub", extra="export", what="A model on the hub")
    repository, _, revision = address.removeprefix(PREFIX).partition("@")
    try:
        found = hub.snapshot_download(
            repository,
            revision=revision or None,
            allow_patterns=sorted(model_folder.ALL_FILES),
        )
    except Exception as error:
        raise InputError(
            f"{address} could not be fetched from the Hugging Face hub "
            f"({type(error).__name__}: {reason(error)}); check the name, the network "
            f"and, for a private model, `hf auth login`."
        ) from error
    return Path(found)


def push(folder: Path, repository: str, *, card: str, private: bool = False) -> str:
    """Upload a model folder in one commit and return the commit's address.

    Args:
        folder: the model folder.
        repository: USER/NAME; made if need be.
        card: text of README.md there.
        private: whether a new repository is private.

    Raises:
        InputError: huggingface_hub is not installed, or the hub refuses.
    """
    hub = needs("huggingface_hub", extra="export", what="Pushing a model to the hub")
    add = hub.CommitOperationAdd
    operations = [
        add(path_in_repo=path.name, path_or_fileobj=str(path))
        for path in sorted(folder.iterdir())
        if path.name in model_folder.ALL_FILES - {"README.md"}
    ]
    operations.append(add(path_in_repo="README.md", path_or_fileobj=card.encode()))
    try:
        api = hub.HfApi()
        api.create_repo(repository, private=private, exist_ok=True)
        commit = api.create_commit(
            repository, operations, commit_message="Upload an aligned model"
        )
    except Exception as error:
        raise InputError(
            f"{folder} could not be pushed to {repository} ({type(error).__name__}: "
            f"{reason(error)}); check the name USER/NAME, the network and "
            f"`hf auth login`."
        ) from error
    return str(commit.commit_url)
