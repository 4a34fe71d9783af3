from __future__ import annotations

from contextlib import ExitStack

import pytest

from cosyvoice_runtime.errors import OverloadedError
from cosyvoice_runtime.serving.speech.service import Admission


def test_the_place_over_the_limit_is_refused_until_one_is_left():
    admission = Admission(2)
    with ExitStack() as places:
        places.enter_context(admission.place())
        with admission.place():
            with pytest.raises(OverloadedError, match="2 utterances are in progress"):
                places.enter_context(admission.place())
            assert admission.count == 2
        places.enter_context(admission.place())
    assert admission.count == 0
