"""The page as Prometheus's text format wants it."""

from __future__ import annotations

from cosyvoice_runtime.metrics import Series, render_page


def test_series_of_one_name_stand_together_under_one_heading():
    found = {
        Series("done", "counter", "Ended requests.", (("model", "b"),)): [2.0],
        Series("busy", "gauge", "Busy.", (("model", "b"),)): [0.5],
        Series("done", "counter", "Ended requests.", (("model", "a"),)): [1.0],
    }
    assert render_page(found).splitlines() == [
        "# HELP busy Busy.",
        "# TYPE busy gauge",
        'busy{model="b"} 0.5',
        "# HELP done Ended requests.",
        "# TYPE done counter",
        'done{model="a"} 1.0',
        'done{model="b"} 2.0',
    ]


def test_histogram_is_cumulative_and_its_last_bucket_is_its_count():
    wait = Series("wait", "histogram", "Wait.", (("model", "a"),), (0.25, 1.0))
    assert render_page({wait: [7.5, 2.0, 0.0, 3.0]}).splitlines() == [
        "# HELP wait Wait.",
        "# TYPE wait histogram",
        'wait_bucket{model="a",le="0.25"} 2.0',
        'wait_bucket{model="a",le="1.0"} 2.0',
        'wait_bucket{model="a",le="+Inf"} 5.0',
        'wait_sum{model="a"} 7.5',
        'wait_count{model="a"} 5.0',
    ]


def test_labels_and_descriptions_are_escaped():
    text = 'a "b" \\ c\nd'
    assert render_page({Series("busy", "gauge", text, (("model", text),)): [1.0]}).splitlines() == [
        r'# HELP busy a "b" \\ c\nd',
        "# TYPE busy gauge",
        r'busy{model="a \"b\" \\ c\nd"} 1.0',
    ]


def test_page_without_series_is_empty():
    assert render_page({}) == ""
