"""The reference operations as they are, under torch.compile, and the compiled twins: which to use on CPUs.

``python -m benchmarks.cpu_kernels`` writes results/cpu_kernels.json. One thread: a busy machine disturbs it less.
"""

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from irbm.bench.cases import hardware
from irbm.bench.timing import interleaved
from irbm.experiments.results import stamp, write_json
from irbm.ops import compiled, reference
from irbm.ops.reference import log_tail

B, D, L, K = 100, 784, 500, 544
WARM_UP, EPSILON, L1, MAX_NORM = 30, 1e-8, 1e-4, 10.0


def update_(weights: torch.Tensor, gradient: torch.Tensor, squares: torch.Tensor, age: torch.Tensor, lr: torch.Tensor):
    """The update in plain torch, as the trainer has it for optimisers without a kernel."""
    move = lr * gradient
    squares.addcmul_(gradient, gradient)
    weights.sub_(torch.where((age < WARM_UP)[:, None], move, move / (squares.sqrt() + EPSILON)))
    weights.copy_(torch.sign(weights) * (weights.abs() - lr * L1).clamp(min=0))
    weights.mul_(MAX_NORM / weights.norm(dim=1, keepdim=True).clamp(min=MAX_NORM))


def passes() -> dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]]:
    """Plain function, compiled twin, arguments."""
    torch.manual_seed(0)
    a_BK = 3 * torch.randn(B, K)
    a_BK[:, L:] = 0
    order_K = torch.cat([torch.randperm(L), torch.arange(L, K)])
    hidden = (a_BK, order_K, torch.full((K,), 0.7), torch.tensor(L), "infinite", log_tail(1.01), torch.rand(B))
    weights = (torch.randn(K, D), torch.randn(K, D), torch.rand(K, D), torch.full((K,), 100), torch.tensor(0.05))
    return {
        "hidden_sample": (reference.hidden_sample, compiled.hidden_sample, (*hidden, torch.rand(B, K))),
        "hidden_reach": (reference.hidden_reach, compiled.hidden_reach, hidden),
        "visible_sample": (
            reference.sample_bernoulli,
            compiled.sample_bernoulli,
            (torch.randn(B, D), torch.rand(B, D)),
        ),
        "update": (
            update_,
            lambda *a: compiled.update_weights_(*a, L1, 0.0, MAX_NORM, warm_up=WARM_UP, epsilon=EPSILON),
            weights,
        ),
    }


def works(function: Callable[..., Any], arguments: tuple[Any, ...]) -> str:
    """Nothing, or what went wrong."""
    try:
        function(*arguments)
    except Exception as error:  # whatever a compiler may raise
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""


def first_call(code: str) -> float:
    """Seconds of a statement in a fresh process, after its imports: compiling, or reading what was kept on disk."""
    script = f"import time, torch; from benchmarks import cpu_kernels as c; torch.set_num_threads(1); {code}"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return float(done.stdout)


FIRST = {
    "torch.compile": "p = c.passes(); t = time.perf_counter(); "
    "[c.works(torch.compile(f), a) for f, _, a in p.values()]; print(time.perf_counter() - t)",
    "numba": "p = c.passes(); t = time.perf_counter(); [f(*a) for _, f, a in p.values()]; "
    "print(time.perf_counter() - t)",
}


def main() -> None:
    torch.set_num_threads(1)
    timed = {}
    for name, (plain, twin, arguments) in passes().items():
        candidates = {"torch, eager": plain, "torch.compile": torch.compile(plain), "numba": twin}
        wrong = {who: works(f, arguments) for who, f in candidates.items()}
        calls = {who: (partial(f, *arguments), 1) for who, f in candidates.items() if not wrong[who]}
        timed[name] = {who: t._asdict() for who, t in interleaved(calls, 200, "cpu").items()}
        timed[name] |= {who: {"error": text} for who, text in wrong.items() if text}
        print(name, {who: t.get("error") or f"{t['median'] * 1e6:.0f} us" for who, t in timed[name].items()})
    first = {who: [first_call(code) for _ in range(2)] for who, code in FIRST.items()}
    print("first calls of a process, twice:", first)
    sizes = {"B": B, "D": D, "l": L, "capacity": K}
    result = {"sizes": sizes, "seconds": timed, "first_call_seconds": first, "hardware": hardware(torch.device("cpu"))}
    write_json("results/cpu_kernels.json", {**result, **stamp("cpu")})


if __name__ == "__main__":
    main()
