"""Types of the arrays that parts hand to each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
"""float32: samples, features, embeddings."""
Ids = npt.NDArray[np.int32]
"""int32: speech tokens."""
