"""What is left of the order, against enumeration."""

import numpy as np
import pytest
import torch

from brute import enumerate_all, visible_states
from irbm import InfiniteRBM
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


def test_a_pruned_machine_has_no_more_units_without_order_than_units():
    X = (np.random.default_rng(0).random((60, 6)) < 0.3).astype(np.uint8)
    model = InfiniteRBM(n_iter=3, random_state=0, device="cpu").fit(X)
    units = model.machine_.order[: model.n_components_]
    model.machine_.weights[units[1:]] = 0.0
    model.prune()
    assert model.n_components_ == 1
    assert model.history_[-1]["regrouped"] > 1
    assert np.isfinite(model.averaged_likelihood(X[:5], 2, random_state=0).value)
