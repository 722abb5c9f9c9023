"""Files that are safe to open: safetensors with JSON metadata, written whole or not at all."""

import json
import os
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

FORMAT = "irbm"
VERSION = 1


def write_tensors(path: str | Path, tensors: dict[str, Tensor], kind: str, about: dict[str, Any]) -> None:
    """Write tensors and what they are about. ``kind`` says what the file holds; a reader must ask for the same."""
    header = {"format": FORMAT, "version": str(VERSION), "kind": kind, "about": json.dumps(about)}
    payload = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_bytes(path, save(payload, metadata=header))


def write_bytes(path: str | Path, content: bytes) -> None:
    """Replace the file in one move, so that a reader sees the old content or the new, never a part."""
    path = Path(path)
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(draft, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError as error:
        raise type(error)(f"cannot write {path} ({error.strerror or error})") from error  # nobody knows of a draft
    finally:
        draft.unlink(missing_ok=True)


def read_tensors(path: str | Path, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a file and what they are about; ValueError where it is damaged or holds something else."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}: check the path")
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            _check_header(path, header, kind)
            about = json.loads(header["about"])
            if not isinstance(about, dict):
                raise ValueError(f"{path}: its metadata is not a JSON object: the file is damaged")
            return {name: file.get_tensor(name).clone() for name in file.keys()}, about  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged, truncated or not a safetensors file ({error})") from None
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path}: its metadata is not JSON ({error}): the file is damaged") from None


def _check_header(path: Path, header: dict[str, str], kind: str) -> None:
    if header.get("format") != FORMAT or "about" not in header:
        raise ValueError(f"{path} was not written by irbm: a safetensors file of another program")
    if header.get("version") != str(VERSION):
        raise ValueError(f"{path} has format version {header.get('version')}, this irbm reads version {VERSION}")
    if header.get("kind") != kind:
        raise ValueError(f"{path} holds a {header.get('kind')}, not a {kind}")
