"""Models of the Hugging Face hub: fetched into its cache by id, and a folder of ours put there.

In: `owner/name`, or a folder.  Out: a folder on this machine, or the address of the model.  Nothing is asked of any
network unless an id is given.  Next: foreign_folder.py
"""

import re
from pathlib import Path

from bertkit.errors import InputError

_ID = re.compile(r"([A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95})(?:@([\w./-]{1,128}))?", re.ASCII)
# What is fetched; whatever else the model has there stays there.
_SAFE = ["config.json", "model.safetensors", "model-?????-of-?????.safetensors", "model.safetensors.index.json"]
_TEXT = ["vocab.txt", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"]
_TASK = ["task.json"]  # of a model that bertkit fine-tuned
_PICKLED = ["pytorch_model.bin", "pytorch_model-?????-of-?????.bin", "pytorch_model.bin.index.json"]
_PUSHED = [*_SAFE, *_TEXT, *_TASK, "README.md"]


def model_directory(name: str | Path, *, allow_pickle_weights: bool = False) -> Path:
    """Return the folder of a model: `name` itself, or where the hub's cache has it, fetched now if need be.

    A text is an id of the hub if it reads `owner/name` or `owner/name@revision` and nothing on this machine is called
    so, nor a folder `owner`: a slip in a path asks nothing of a network. The variables of huggingface_hub hold:
    HF_HUB_OFFLINE=1 fetches nothing, HF_ENDPOINT names another hub, HF_HUB_CACHE the cache.

    Raises:
        InputError: the hub has no such model, or cannot be reached and the cache has not got it.
    """
    path = Path(name)
    found = _ID.fullmatch(name) if isinstance(name, str) else None
    if found is None or path.exists() or path.parent.exists():
        return path
    folder = _snapshot(found[1], found[2], patterns=[*_SAFE, *_TEXT, *_TASK])
    if allow_pickle_weights and not any(folder.glob("model*.safetensors")):
        folder = _snapshot(found[1], found[2], patterns=[*_SAFE, *_TEXT, *_TASK, *_PICKLED])
    return folder


def _snapshot(repository: str, revision: str | None, *, patterns: list[str]) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(repository, revision=revision, allow_patterns=patterns))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as problem:
        reason = str(problem).strip().split("\n")[0]
        raise InputError(
            f"is no folder here, and the hub did not give it ({type(problem).__name__}: {reason})",
            file=repository if revision is None else f"{repository}@{revision}",
            expected="a model folder, or the id of a model on the Hugging Face hub",
            remedy="check the name; without a network use a folder, or a model that is in the cache "
            "(HF_HUB_OFFLINE=1 then spares the attempt)",
        ) from None


def push_to_hub(directory: str | Path, repo_id: str, *, private: bool) -> str:
    """Put the model in a folder on the hub, under your account there, and return its address.

    Sent are config.json, the weights as safetensors, the tokenizer and README.md; nothing else of the folder is.
    The account is the one that huggingface_hub knows.

    Raises:
        InputError: the folder holds no model; the hub refuses it or cannot be reached.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    folder = Path(directory)
    missing = [name for name in ("config.json", "model.safetensors") if not (folder / name).is_file()]
    if missing:
        raise InputError(f"has no {missing[0]}", file=folder, expected="a model folder", remedy="save the model first")
    api = HfApi()
    try:
        address = api.create_repo(repo_id, private=private, exist_ok=True)
        api.upload_folder(repo_id=repo_id, folder_path=folder, allow_patterns=_PUSHED)
    except (HfHubHTTPError, HFValidationError, OSError) as problem:
        reason = str(problem).strip().split("\n")[0]
        raise InputError(
            f"was not taken by the hub ({type(problem).__name__}: {reason})",
            file=folder,
            value=repo_id,
            remedy="check the name (owner/name) and that you are logged in: `hf auth login`",
        ) from None
    return str(address)
