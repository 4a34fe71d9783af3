from __future__ import annotations

import pytest

from cosyvoice_runtime.errors import OverloadedError
from cosyvoice_runtime.serving.speech.admission import Admission


def test_the_place_over_the_limit_is_refused_until_one_is_left():
    admission = Admission(2)
    admission.enter()
    admission.enter()
    with pytest.raises(OverloadedError, match="2 utterances are in progress"):
        admission.enter()
    admission.leave()
    admission.enter()
    assert admission.count == 2
