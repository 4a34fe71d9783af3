"""Calls that a page may have made through a browser are told from those of programs."""

from __future__ import annotations

import pytest

from cosyvoice_runtime.process.browsers import PageError, refuse_pages

HERE = [
    "localhost",
    "localhost:8000",
    "LOCALHOST:8000",
    "127.0.0.1:8000",
    "[::1]:8000",
    "10.1.2.3",
    "our.name:8000",
    "in.capitals",
]
ELSEWHERE = [
    "evil.example",
    "evil.example:8000",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "name",
    "[",
    "",
]
NAMES = ("our.name", "In.Capitals")


@pytest.mark.parametrize("host", [*HERE, None])
def test_a_program_calls_this_machine_by_what_leads_nowhere_else(host):
    refuse_pages(host, None, NAMES)


@pytest.mark.parametrize("host", ELSEWHERE)
def test_a_name_that_somebody_else_may_have_led_here_is_refused(host):
    with pytest.raises(PageError, match=r"^Host: .* or by a name in server\.allowed_hosts$"):
        refuse_pages(host, None, NAMES)


@pytest.mark.parametrize("host", ["server", "cosyvoice.speech.svc:8003", *HERE])
def test_a_server_for_other_machines_is_called_by_any_name(host):
    refuse_pages(host, None, None)


@pytest.mark.parametrize("names", [None, NAMES])
@pytest.mark.parametrize("origin", ["http://evil.example", "null", "", "http://127.0.0.1:8000"])
def test_no_page_is_served(origin, names):
    with pytest.raises(PageError, match=r"^Origin: pages of browsers are not served here$"):
        refuse_pages("127.0.0.1:8000", origin, names)
