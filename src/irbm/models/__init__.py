"""Energies and conditionals of the machines. Knows no learning."""

from irbm.models.depth import Depth, Fixed, Infinite, Ordered
from irbm.models.frozen import Frozen
from irbm.models.machine import Gradients, Machine, Posterior
from irbm.models.visible import Bernoulli
from irbm.ops.noise import Noise

__all__ = ["Bernoulli", "Depth", "Fixed", "Frozen", "Gradients", "Infinite", "Machine", "Noise", "Ordered", "Posterior"]
