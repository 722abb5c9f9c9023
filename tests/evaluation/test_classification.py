"""Error rates and confusion against scikit-learn, SciPy and the interval's own definition."""

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn import metrics

from irbm.evaluation.classification import confusion_matrix, error_rate, wilson_interval

rng = np.random.default_rng(0)
LABELS = {
    "numbers": np.array([3, 5, 11]),
    "words": np.array(["ash", "birch", "cedar"]),
    "fractions": np.array([0.5, 1.0, 2.0]),
}


@pytest.mark.parametrize(("errors", "n"), [(0, 296), (1, 296), (10, 296), (141, 10_000), (296, 296), (1, 1), (0, 1)])
def test_the_interval_is_wilsons(errors, n):
    expected = binomtest(errors, n).proportion_ci(0.95, method="wilson")
    np.testing.assert_allclose(wilson_interval(errors, n), (expected.low, expected.high), rtol=0, atol=1e-9)


def test_the_interval_holds_in_19_of_20_cases():
    """The share of samples whose interval holds the truth, by the exact binomial probabilities."""
    from scipy.stats import binom

    n, p = 300, 0.04
    holds = [low <= p <= high for low, high in (wilson_interval(k, n) for k in range(n + 1))]
    assert binom.pmf(np.arange(n + 1), n, p)[holds].sum() == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize("kind", LABELS)
def test_errors_and_confusion_agree_with_scikit_learn(kind):
    y, predicted = rng.choice(LABELS[kind], (2, 200))
    # scikit-learn refuses labels that look continuous.
    codes = np.searchsorted(LABELS[kind], y), np.searchsorted(LABELS[kind], predicted)
    rate = error_rate(y, predicted)
    assert rate.rate == pytest.approx(1 - metrics.accuracy_score(*codes))
    assert (rate.errors, rate.n) == ((y != predicted).sum(), 200)
    assert rate.lower < rate.rate < rate.upper
    counts, names = confusion_matrix(y, predicted)
    np.testing.assert_array_equal(names, LABELS[kind])
    np.testing.assert_array_equal(counts, metrics.confusion_matrix(*codes))


def test_a_label_that_is_only_true_or_only_predicted_has_its_row_and_column():
    counts, names = confusion_matrix(["a", "a", "b"], ["c", "a", "b"])
    assert names.tolist() == ["a", "b", "c"]
    assert counts.tolist() == [[1, 0, 1], [0, 1, 0], [0, 0, 0]]


def test_it_reads_well():
    assert str(error_rate([1] * 296, [0] * 10 + [1] * 286)) == "3.38% [1.85%, 6.11%]"


def test_lists_of_other_lengths_are_refused():
    with pytest.raises(ValueError, match="equal length"):
        error_rate([1, 2], [1])
    with pytest.raises(ValueError, match="equal length"):
        error_rate([], [])
