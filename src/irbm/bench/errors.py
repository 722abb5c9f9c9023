"""How far the products of binary rows in two bfloat16 parts are from exact ones, beside the usual precisions.

Shapes: B examples, K hidden units, D visible units.
"""

import torch
from torch import Tensor

from irbm.bench.steps import Case, examples
from irbm.ops import products
from irbm.ops.noise import uniform_noise


def of_products(case: Case, seed: int, device: torch.device | str) -> dict[str, dict[str, dict[str, float]]]:
    """Errors of the activations v W^T, and of the gradient p^T v for p in 0..1, by how W and p are rounded."""
    noise = uniform_noise(seed, 3, device=device)
    v_BD = examples(case.B, case.D, seed, device).float()
    W_KD = noise(case.l, case.D) - 0.5
    p_BK = noise(case.B, case.l)
    return {
        "activations": {
            "split bfloat16": error(_split_activations(v_BD, W_KD), v_BD, W_KD.T),
            "bfloat16": error(v_BD @ W_KD.T.bfloat16().float(), v_BD, W_KD.T),
            "float32": error(v_BD @ W_KD.T, v_BD, W_KD.T),
        },
        "gradient": {
            "split bfloat16": error(_split_gradient(p_BK, v_BD), p_BK.T, v_BD),
            "bfloat16": error(p_BK.T.bfloat16().float() @ v_BD, p_BK.T, v_BD),
            "float32": error(p_BK.T @ v_BD, p_BK.T, v_BD),
        },
    }


def error(found: Tensor, x: Tensor, y: Tensor) -> dict[str, float]:
    """Largest and root mean square distance from x y in float64, as shares of its root mean square."""
    exact = x.double() @ y.double()
    far = (found.double() - exact) / exact.square().mean().sqrt()
    return {"largest": float(far.abs().max()), "rms": float(far.square().mean().sqrt())}


def _split_activations(v_BD: Tensor, W_KD: Tensor) -> Tensor:
    none_K, (order_K, size) = torch.zeros_like(W_KD[:, 0]), _in_order(W_KD)
    return products.activations(v_BD, products.arrange(W_KD, none_K, none_K, order_K, size))


def _split_gradient(p_BK: Tensor, v_BD: Tensor) -> Tensor:
    hi_BK = p_BK.bfloat16()
    lo_BK = (p_BK - hi_BK.float()).bfloat16()
    order_K, size = _in_order(p_BK.T)
    return products.gradients(hi_BK, lo_BK, None, v_BD.bfloat16(), order_K, size, None, len(v_BD))[0]


def _in_order(by_unit: Tensor) -> tuple[Tensor, Tensor]:
    """The order and the size of units without padding, as their rows stand."""
    n = len(by_unit)
    return torch.arange(n, device=by_unit.device), torch.tensor(n, device=by_unit.device)
