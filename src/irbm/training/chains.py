"""Where the negative phase starts: at the data (CD), or where it stopped last time (PCD)."""

from dataclasses import dataclass

from torch import Tensor

from irbm.models import Frozen, Machine
from irbm.ops.noise import Noise
from irbm.training.settings import Settings


@dataclass(frozen=True, eq=False)
class Chains:
    """Persistent chains, updated in place; none for contrastive divergence."""

    v_ND: Tensor | None = None
    y_N: Tensor | None = None

    def __len__(self) -> int:
        return 0 if self.v_ND is None else len(self.v_ND)

    def tensors(self) -> dict[str, Tensor]:
        named = {"v": self.v_ND, "y": self.y_N}
        return {n: t for n, t in named.items() if t is not None}


def wanted(settings: Settings) -> int:
    """How many persistent chains the settings ask for."""
    if not settings.persistent or settings.objective == "discriminative":
        return 0
    return settings.n_chains or settings.batch_size


def start(machine: Machine, settings: Settings, noise: Noise) -> Chains:
    """Fair coins: exact samples of a machine whose parameters are still zero."""
    n = wanted(settings)
    if not n:
        return Chains()
    v_ND = (noise(n, machine.n_visible) < 0.5).to(machine.weights.dtype)
    y_N = (noise(n) * machine.n_classes).long() if machine.n_classes else None
    return Chains(v_ND, y_N)


def advance_(
    chains: Chains, machine: Machine | Frozen, v_BD: Tensor, y_B: Tensor | None, noise: Noise, n_steps: int
) -> tuple[Tensor, Tensor | None]:
    """``n_steps`` Gibbs sweeps from the chains, or from the examples where there are none."""
    if chains.v_ND is None:
        return machine.gibbs(v_BD, y_B, noise, n_steps)
    v_ND, y_N = machine.gibbs(chains.v_ND, chains.y_N, noise, n_steps)
    chains.v_ND.copy_(v_ND)
    if chains.y_N is not None and y_N is not None:
        chains.y_N.copy_(y_N)
    return v_ND, y_N
