"""What is left of the order, against enumeration."""

import numpy as np
import pytest
import torch

from brute import enumerate_all, visible_states
from irbm.evaluation.diagnostics import order_invariance
from machines import as_machine, random_small


@pytest.mark.parametrize("depth", ["ordered", "infinite"])
@pytest.mark.parametrize("m", [1, 2, 4])
def test_the_mean_of_ln_p_of_a_small_z(depth, m):
    small = random_small(np.random.default_rng(3), depth=depth, n_visible=3, n_hidden=4, scale=2.0)
    rows = [0, 3, 3, 6]
    p_z = enumerate_all(small).p_z()[rows]
    found = order_invariance(as_machine(small), torch.from_numpy(visible_states(3)[rows]), m)
    assert found == pytest.approx(np.log(p_z[:, :m].sum(1)).mean(), abs=1e-12)


@pytest.mark.parametrize("m", [0, 5])
def test_units_that_are_not_there_have_no_order(m):
    small = random_small(np.random.default_rng(3), depth="infinite", n_visible=3, n_hidden=4)
    with pytest.raises(ValueError, match=rf"must be in 1\.\.4, got {m}"):
        order_invariance(as_machine(small), torch.zeros(2, 3), m)
