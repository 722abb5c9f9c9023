"""Other RBMs, each as its own documentation has it trained: fixed size, no order, no permutation.

A peer is a function of a case that returns a call which takes one training step.
"""

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import distributions

import numpy as np
import torch

from irbm.bench.steps import Case, examples
from irbm.bench.timing import Call

RATE = 0.01
Peer = Callable[[Case, int, torch.device | str], Call]
Draw = Callable[[torch.Tensor], torch.Tensor]


def plain_torch(case: Case, seed: int, device: torch.device | str, draw: Draw = torch.bernoulli) -> Call:
    """A plain RBM by PCD-k and gradient ascent, in as many lines of eager torch as it takes."""
    v_BD = examples(case.B, case.D, seed, device).float()
    v_ND = examples(case.n_chains, case.D, seed + 1, device).float()
    W_KD = 0.01 * torch.randn(case.l, case.D, device=device)
    c_K, b_D = torch.zeros(case.l, device=device), torch.zeros(case.D, device=device)

    def step() -> None:
        positive_BK = torch.sigmoid(v_BD @ W_KD.T + c_K)
        for _ in range(case.k):
            h_NK = draw(torch.sigmoid(v_ND @ W_KD.T + c_K))
            v_ND.copy_(draw(torch.sigmoid(h_NK @ W_KD + b_D)))
        negative_NK = torch.sigmoid(v_ND @ W_KD.T + c_K)
        W_KD.add_(RATE * (positive_BK.T @ v_BD / case.B - negative_NK.T @ v_ND / case.n_chains))
        c_K.add_(RATE * (positive_BK.mean(0) - negative_NK.mean(0)))
        b_D.add_(RATE * (v_BD.mean(0) - v_ND.mean(0)))

    return step


def compared_torch(case: Case, seed: int, device: torch.device | str) -> Call:
    """The same, drawn by comparison with uniforms: on CPUs ``torch.bernoulli`` is slow."""
    return plain_torch(case, seed, device, lambda p: (torch.rand_like(p) < p).float())


def scikit_learn(case: Case, seed: int, device: torch.device | str) -> Call:
    """BernoulliRBM in float32: the step inside its ``fit``, after one ``fit`` has set it up."""
    from sklearn.neural_network import BernoulliRBM  # slow to import

    X = examples(case.B, case.D, seed, "cpu").numpy().astype(np.float32)
    model = BernoulliRBM(case.l, learning_rate=RATE, batch_size=case.B, n_iter=1, random_state=seed).fit(X)
    rng = np.random.RandomState(seed)  # what its fit passes on
    return lambda: model._fit(X, rng)


def rbms(case: Case, seed: int, device: torch.device | str) -> Call:
    """The package ``rbms``: PCD-k and SGD, as its training loop has them."""
    model = import_module("rbms.bernoulli_bernoulli.classes").BBRBM(
        0.01 * torch.randn(case.D, case.l, device=device),
        torch.zeros(case.D, device=device),
        torch.zeros(case.l, device=device),
    )
    fit_batch = import_module("rbms.training.pcd").fit_batch_pcd
    batch = examples(case.B, case.D, seed, device).float(), torch.ones(case.B, 1, device=device)
    chains = model.init_chains(case.n_chains)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)

    def step() -> None:
        nonlocal chains
        with torch.no_grad():
            optimizer.zero_grad(set_to_none=False)
            chains, _ = fit_batch(batch, chains, model, case.k, 1.0)
            optimizer.step()

    return step


def able(case: Case, device: torch.device | str) -> dict[str, Peer]:
    """Who can take part: scikit-learn knows one Gibbs step on the CPU; ``rbms`` must be installed."""
    peers: dict[str, Peer] = {"plain RBM, torch eager": plain_torch, "the same, drawn by comparison": compared_torch}
    if torch.device(device).type == "cpu" and case.k == 1 and case.n_chains == case.B:
        peers["scikit-learn BernoulliRBM"] = scikit_learn
    if any(distributions(name="rbms")):
        peers["rbms"] = rbms
    return peers
