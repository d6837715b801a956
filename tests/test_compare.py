"""The mean that tables print."""

import numpy as np
import pytest

from gdp.compare import geometric_mean_ratio


def test_the_mean_is_over_the_cells_in_which_both_run() -> None:
    assert geometric_mean_ratio([2.0, 8.0], [1.0, 1.0]) == pytest.approx(4.0)
    assert geometric_mean_ratio([2.0, np.inf, 3.0, 0.0], [1.0, 1.0, np.nan, 1.0]) == pytest.approx(2.0)
    assert geometric_mean_ratio([np.inf], [1.0]) is None
