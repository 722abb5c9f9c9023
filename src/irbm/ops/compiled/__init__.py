"""The hot loop on the CPU, compiled by numba: one pass over a row for each half-step, one for each matrix's update.

Whatever a function does the reference operations do as well, slower. Without numba nothing here can run, as
``available`` says, and the reference takes over.

Shapes: B examples, R rows of both phases, K hidden units (padding included), D visible units. A loop over rows is
shared among as many threads as torch has, where there is enough to do; no result depends on it.

Precision: gains are added up in float64, because t reaches thousands while z is decided by its differences; what is
left after subtracting the largest t is float32. What scores are made of is float64 from end to end (``scoring``).
"""

from irbm.ops.compiled.annealing import annealed_sample
from irbm.ops.compiled.counting import grow_, shuffle_, tally_
from irbm.ops.compiled.hidden import hidden_reach, hidden_sample, hidden_sample_keyed, phases
from irbm.ops.compiled.labels import label_contrast, label_scores
from irbm.ops.compiled.loops import available, counts_on, runs_on
from irbm.ops.compiled.philox import row_uniforms, uniforms
from irbm.ops.compiled.scoring import log_sum_z
from irbm.ops.compiled.sweeps import gibbs
from irbm.ops.compiled.tables import Tables, outer
from irbm.ops.compiled.update import update_biases_, update_weights_
from irbm.ops.compiled.visible import sample_bernoulli

__all__ = [
    "Tables",
    "annealed_sample",
    "available",
    "counts_on",
    "gibbs",
    "grow_",
    "hidden_reach",
    "hidden_sample",
    "hidden_sample_keyed",
    "label_contrast",
    "label_scores",
    "log_sum_z",
    "outer",
    "phases",
    "row_uniforms",
    "runs_on",
    "sample_bernoulli",
    "shuffle_",
    "tally_",
    "uniforms",
    "update_biases_",
    "update_weights_",
]
