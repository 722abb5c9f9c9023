"""Machines from arrays and from files: every check on what comes from outside stands here."""

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from irbm.models.depth import Depth, Fixed, Infinite, Ordered
from irbm.models.machine import Machine

DEPTHS: dict[str, type[Depth]] = {"fixed": Fixed, "ordered": Ordered, "infinite": Infinite}


def from_arrays(
    weights: ArrayLike,
    hidden_bias: ArrayLike,
    visible_bias: ArrayLike,
    *,
    depth: Depth,
    order: ArrayLike | None = None,
    label_weights: ArrayLike | None = None,
    label_bias: ArrayLike | None = None,
    device: torch.device | str = "cpu",
) -> Machine:
    """A machine whose capacity is its size. float64 anywhere makes it a float64 machine, else it is float32."""
    named = {"weights": weights, "hidden_bias": hidden_bias, "visible_bias": visible_bias}
    if (label_weights is None) != (label_bias is None):
        raise ValueError("label_weights and label_bias go together: give both or neither")
    if label_weights is not None and label_bias is not None:
        named |= {"label_weights": label_weights, "label_bias": label_bias}
    arrays = {name: _real_array(name, value) for name, value in named.items()}
    _check_shapes(arrays)
    size = len(arrays["hidden_bias"])
    positions = np.arange(size) if order is None else _permutation(order, size)
    wide = any(a.dtype == np.float64 for a in arrays.values())
    dtype = torch.float64 if wide else torch.float32
    parameters: dict[str, Any] = {n: torch.tensor(a, dtype=dtype, device=device) for n, a in arrays.items()}
    return Machine(
        **parameters,
        order=torch.tensor(positions, dtype=torch.int64, device=device),
        size=torch.tensor(size, dtype=torch.int64, device=device),
        depth=depth,
    )


def _real_array(name: str, value: ArrayLike) -> NDArray[Any]:
    array = np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} must hold real numbers, got dtype {array.dtype}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got NaN or infinity")
    return array


def _check_shapes(arrays: dict[str, NDArray[Any]]) -> None:
    weights = arrays["weights"]
    if weights.ndim != 2 or 0 in weights.shape:
        raise ValueError(f"weights must be (hidden, visible) with at least one of each, got shape {weights.shape}")
    n_hidden, n_visible = weights.shape
    expected: dict[str, tuple[int, ...]] = {"hidden_bias": (n_hidden,), "visible_bias": (n_visible,)}
    if "label_weights" in arrays:
        n_classes = arrays["label_bias"].size
        expected |= {"label_bias": (n_classes,), "label_weights": (n_hidden, n_classes)}
        if n_classes == 0:
            raise ValueError("label_bias must name at least one class, got an empty array")
    for name, shape in expected.items():
        if arrays[name].shape != shape:
            raise ValueError(
                f"{name} must have shape {shape} to fit the weights {weights.shape}, got {arrays[name].shape}"
            )


def _permutation(order: ArrayLike, size: int) -> NDArray[Any]:
    array = np.asarray(order)
    if array.shape != (size,) or array.dtype.kind not in "iu" or not np.array_equal(np.sort(array), np.arange(size)):
        raise ValueError(f"order must be a permutation of 0..{size - 1}, got {array.tolist()!r:.80}")
    return array


def describe(machine: Machine) -> dict[str, Any]:
    """What, beside its tensors, makes the machine: plain JSON."""
    name = next(name for name, kind in DEPTHS.items() if type(machine.depth) is kind)
    return {"depth": name, **vars(machine.depth)}


def restore(tensors: dict[str, Tensor], description: dict[str, Any], device: torch.device | str = "cpu") -> Machine:
    """The machine that ``describe`` and ``Machine.tensors`` took apart; ValueError where they do not fit."""
    required = {"weights", "hidden_bias", "visible_bias", "order", "size"}
    labels = {"label_weights", "label_bias"}
    if set(tensors) not in (required, required | labels):
        raise ValueError(f"a machine needs tensors {sorted(required)} (and {sorted(labels)}), got {sorted(tensors)}")
    parameters = {n: t for n, t in tensors.items() if n not in ("order", "size")}
    dtypes = {t.dtype for t in parameters.values()}
    if len(dtypes) != 1 or not dtypes <= {torch.float32, torch.float64}:
        raise ValueError(f"parameters must be all float32 or all float64, got {sorted(map(str, dtypes))}")
    if tensors["order"].dtype != torch.int64:
        raise ValueError(f"order must be a permutation in int64, got {tensors['order'].dtype}")
    size = tensors["size"]
    if size.dtype != torch.int64 or size.dim() != 0:
        raise ValueError(f"size must be one int64, got {size.dtype} of shape {tuple(size.shape)}")
    machine = from_arrays(
        **{n: t.numpy() for n, t in parameters.items()},
        order=tensors["order"].numpy(),
        depth=_depth(description),
        device=device,
    )
    if not 1 <= int(size) <= machine.capacity:
        raise ValueError(f"size must be in 1..{machine.capacity}, got {int(size)}")
    machine.size.copy_(size)
    _check_padding(machine)
    return machine


def _check_padding(machine: Machine) -> None:
    """Units from ``size`` on are padding: zero, and last in the order."""
    padding = ~machine.trained
    values = [machine.weights[padding], machine.hidden_bias[padding]]
    if machine.label_weights is not None:
        values.append(machine.label_weights[padding])
    behind = torch.equal(machine.order[padding], torch.arange(machine.capacity, device=padding.device)[padding])
    if not behind or any(bool(v.any()) for v in values):
        raise ValueError(f"units beyond the size {int(machine.size)} must be zero and last in the order")


def _depth(description: dict[str, Any]) -> Depth:
    if not isinstance(description, dict):
        raise ValueError(f"unknown kind of machine: {description!r:.200}")
    settings = dict(description)
    name = settings.pop("depth", None)
    if not isinstance(name, str) or name not in DEPTHS or set(settings) - {"beta", "penalty"}:
        raise ValueError(f"unknown kind of machine: {description!r:.200}")
    if not isinstance(settings.get("beta", 1.01), int | float):
        raise ValueError(f"beta must be a number, got {settings['beta']!r:.80}")
    try:
        return DEPTHS[name](**settings)
    except TypeError as error:
        raise ValueError(f"unknown kind of machine: {description!r:.200} ({error})") from None
