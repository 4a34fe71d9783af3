"""The page's files as they are served: types, policy, caching, and that the parts fit together."""

from __future__ import annotations

import re
import runpy
from html.parser import HTMLParser

import pytest

from cosyvoice_front.page_files import FOLDER
from cosyvoice_runtime.settings import Settings
from raw_http import send

FILES = sorted(path.name for path in FOLDER.iterdir())
SCRIPTS = {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.js")}
TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
CONTROLS = {"button", "input", "select", "textarea", "meter", "audio"}


class Tags(HTMLParser):
    """What a page is made of.

    Attributes:
        tags: name, attributes, and whether it lies within a label.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None], bool]] = []
        self._in_label = False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self._in_label |= tag == "label"
        self.tags.append((tag, dict(attributes), self._in_label))

    def handle_endtag(self, tag):
        self._in_label &= tag != "label"

    def values(self, attribute: str) -> list[str]:
        return [attributes[attribute] for _, attributes, _ in self.tags if attribute in attributes]


@pytest.fixture(scope="module")
def html():
    return Tags((FOLDER / "index.html").read_text("utf-8"))


def policy(answer):
    """Sources by directive."""
    directives = [part.split() for part in answer.headers["content-security-policy"].split(";")]
    return {name: sources for name, *sources in directives}


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_served_with_its_type(front, name):
    answer = send(front, "GET", f"/page/{name}")
    assert (answer.status, answer.body) == (200, (FOLDER / name).read_bytes())
    assert answer.headers["content-type"] == TYPES[name.rpartition(".")[2]]
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_page_is_at_the_root(front):
    answer = send(front, "GET", "/")
    assert answer.body == (FOLDER / "index.html").read_bytes()
    assert answer.headers["content-type"] == TYPES["html"]
    head = send(front, "HEAD", "/")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == str(len(answer.body))


def test_nothing_from_elsewhere_may_run_in_the_page(front):
    answer = send(front, "GET", "/")
    sources = policy(answer)
    assert sources["default-src"] == ["'none'"]
    assert sources["script-src"] == sources["style-src"] == sources["connect-src"] == ["'self'"]
    for directive in ("base-uri", "form-action", "frame-ancestors"):
        assert sources[directive] == ["'none'"]
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert "microphone=(self)" in answer.headers["permissions-policy"]


def test_page_asks_for_nothing_from_elsewhere():
    for path in FOLDER.iterdir():
        text = path.read_text("utf-8").replace('xmlns="http://www.w3.org/2000/svg"', "")
        assert not re.search(r"https?://|\"//", text), path.name


def test_page_needs_nothing_that_its_policy_refuses(html):
    for tag, attributes, _ in html.tags:
        assert tag != "style"
        assert tag != "script" or "src" in attributes
        assert not [name for name in attributes if name == "style" or name.startswith("on")]
    for name, script in SCRIPTS.items():
        assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", script), (
            name
        )


def test_known_file_is_not_sent_again(front):
    first = send(front, "GET", "/page/main.js")
    assert first.headers["cache-control"] == "no-cache"
    tag = first.headers["etag"]
    for known in (tag, f'"other", W/{tag}'):
        again = send(front, "GET", "/page/main.js", **{"If-None-Match": known})
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
    assert send(front, "GET", "/page/main.js", **{"If-None-Match": '"other"'}).status == 200
    assert send(front, "GET", "/page/api.js").headers["etag"] != tag


@pytest.mark.parametrize(
    "path",
    [
        "/page/",
        "/page/../app.py",
        "/page/..%2fapp.py",
        "/page/%2e%2e/app.py",
        "/page/%2e%2e%2fapp.py",
        "/page//etc/passwd",
        "/page/%2fetc%2fpasswd",
        "/page/main.js%00",
        "/page/..\\app.py",
        "/page/nothing.js",
    ],
)
def test_no_other_file_is_reached(front, path):
    answer = send(front, "GET", path)
    assert (answer.status, answer.error["code"]) == (404, "not_found")


def test_page_needs_no_key_and_gives_none_away(start_front, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text(f"anna sha256:{'0' * 64}\n")
    front = start_front(api_keys_file=keys)
    assert send(front, "GET", "/").status == 200
    assert send(front, "GET", "/v1/audio/voices").status == 401


def test_page_can_be_turned_off(start_front):
    front = start_front(page="false")
    assert send(front, "GET", "/").status == send(front, "GET", "/page/main.js").status == 404
    assert send(front, "GET", "/v1/").status == 200


def test_page_is_not_part_of_the_described_api(front):
    assert b'"/page' not in send(front, "GET", "/openapi.json").body


def test_scripts_find_what_they_look_for(html):
    ids = html.values("id")
    assert len(ids) == len(set(ids))
    used = {name for script in SCRIPTS.values() for name in re.findall(r"byId\(\"([\w-]+)\"\)", script)}
    assert used
    assert used <= set(ids)
    parts = set(re.findall(r"#(?:part|show)\(\"([\w-]+)\"", SCRIPTS["take.js"]))
    assert parts == set(html.values("data-part"))
    assert set(html.values("data-copies")) <= set(ids)


def test_imports_name_files_and_what_they_export():
    for name, script in SCRIPTS.items():
        for names, source in re.findall(r'import \{([^}]+)\} from "\./([\w.-]+)";', script):
            for wanted in names.replace(" ", "").strip().split(","):
                pattern = rf"^export (?:async )?(?:const|function\*?|class) {wanted}\b"
                assert re.search(pattern, SCRIPTS[source], re.M), f"{name}: {wanted} of {source}"


def test_every_control_has_a_name(html):
    labelled = set(html.values("for"))
    for tag, attributes, in_label in html.tags:
        if tag in CONTROLS - {"button"}:
            assert in_label or attributes["id"] in labelled or attributes.get("aria-label"), attributes
    described = {name for value in html.values("aria-describedby") for name in value.split()}
    assert described | set(html.values("aria-labelledby")) <= set(html.values("id"))
    assert {"alert", "status"} <= set(html.values("role"))


def test_addresses_are_relative_so_that_a_proxy_may_put_the_page_anywhere(html):
    assert not [value for name in ("href", "src") for value in html.values(name) if value.startswith("/")]
    for script in SCRIPTS.values():
        assert not re.search(r"[\"`]/v1", script)


@pytest.mark.parametrize("page", ["true", "false"])
def test_demo_says_where_the_page_is(capsys, page):
    demo = runpy.run_path(str(FOLDER.parents[1] / "scripts" / "demo.py"))
    demo["tell_address"](Settings.read([f"front.page={page}"]).front)
    shown = capsys.readouterr().out
    assert ("http://127.0.0.1:8080/\n" in shown) == (page == "true")
    assert "http://127.0.0.1:8080/v1 " in shown
