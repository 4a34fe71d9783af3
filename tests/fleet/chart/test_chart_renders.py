"""Whatever the values, what is rendered fits Kubernetes' own schemas and those of the custom kinds."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from functools import cache
from typing import Any

import pytest
import yaml
from chart_render import CHART, EXAMPLES, REASON, RELEASES, ROOT, Manifest, chart, helm, manifests, texts
from jsonschema import Draft202012Validator

kubernetes_validate = pytest.importorskip("kubernetes_validate", reason=REASON.format("kubernetes-validate"))
yamllint_config = pytest.importorskip("yamllint.config", reason=REASON.format("yamllint"))
linter = pytest.importorskip("yamllint.linter")

OLDEST, NEWEST = "1.30", "1.37"
CLOSED = ROOT.parent / "shared" / "crds"
"""Closed schemas of custom kinds, beside a checkout."""
MODELS = ROOT / "requirements" / "node" / "node_modules" / "@kubernetes-models"
CUSTOM = {
    "gateway.networking.k8s.io/v1": "gateway-api",
    "keda.sh/v1alpha1": "keda",
    "monitoring.coreos.com/v1": "prometheus-operator",
}
"""Packages of npm that know the kinds, by their apiVersion."""
CHECK = """
const { readFileSync } = await import("node:fs");
for (const { module, manifest } of JSON.parse(readFileSync(0, "utf-8"))) {
  const kinds = await import(module);
  new kinds[manifest.kind](manifest).validate();
}
"""
LINT = yamllint_config.YamlLintConfig("""
extends: default
rules:
  line-length: {max: 120}
  document-start: disable
  comments: {min-spaces-from-content: 1}
""")
RENDERED = yamllint_config.YamlLintConfig("""
extends: default
rules:
  line-length: disable
  document-start: disable
  indentation: disable
  comments-indentation: disable
""")
"""Helm's own lists and the texts of the alerts have an indentation of theirs."""


def is_custom(manifest: Manifest) -> bool:
    return manifest["apiVersion"] in CUSTOM


@cache
def _fits(text: str, version: str) -> None:
    kubernetes_validate.validate(json.loads(text), version, strict=True)


def require_kubernetes_own(manifest: Manifest, *versions: str) -> None:
    """Raise what kubernetes-validate raises, also for a kind that it does not know."""
    for version in versions:
        _fits(json.dumps(manifest), version)


def closed_schema(manifest: Manifest) -> Draft202012Validator:
    name = f"{manifest['apiVersion'].replace('/', '_')}_{manifest['kind']}.json"
    return Draft202012Validator(json.loads((CLOSED / name).read_text("utf-8")))


needs_closed = pytest.mark.skipif(
    not CLOSED.is_dir(), reason="needs the closed schemas of custom kinds in ../shared/crds"
)
needs_models = pytest.mark.skipif(
    not MODELS.is_dir() or shutil.which("node") is None,
    reason="needs @kubernetes-models of npm: python3 scripts/environment.py --test --clients",
)


@pytest.mark.parametrize("name", RELEASES)
def test_objects_of_kubernetes_fit_its_schemas(name: str) -> None:
    found = [each for each in manifests(RELEASES[name]) if not is_custom(each)]
    assert {"Deployment", "Service", "PodDisruptionBudget"} <= {each["kind"] for each in found}
    for manifest in found:
        require_kubernetes_own(manifest, NEWEST)


def test_oldest_version_is_the_one_that_the_chart_asks_for() -> None:
    """The version before it has no preStop.sleep by default."""
    assert chart().metadata["kubeVersion"] == f">={OLDEST}.0-0"
    for manifest in manifests(RELEASES["everything"]):
        if not is_custom(manifest):
            require_kubernetes_own(manifest, OLDEST)


def test_an_unknown_kind_a_misspelt_field_and_a_wrong_type_are_found() -> None:
    [service] = [
        each
        for each in manifests()
        if each["metadata"]["name"].endswith("-front") and each["kind"] == "Service"
    ]
    for broken, error in (
        (service | {"kind": "Sevice"}, kubernetes_validate.SchemaNotFoundError),
        (service | {"sepc": {}}, kubernetes_validate.ValidationError),
        (service | {"spec": {"ports": "80"}}, kubernetes_validate.ValidationError),
    ):
        with pytest.raises(error):
            require_kubernetes_own(broken, NEWEST)


@needs_closed
@pytest.mark.parametrize("name", RELEASES)
def test_custom_kinds_fit_the_closed_schemas_of_their_projects(name: str) -> None:
    for manifest in filter(is_custom, manifests(RELEASES[name])):
        closed_schema(manifest).validate(manifest)


@needs_closed
def test_closed_schemas_refuse_a_misspelt_field() -> None:
    [route] = [each for each in manifests(RELEASES["everything"]) if each["kind"] == "HTTPRoute"]
    route["spec"]["rules"][0]["timeout"] = route["spec"]["rules"][0].pop("timeouts")
    assert not closed_schema(route).is_valid(route)


def checked_by_models(*found: Manifest) -> subprocess.CompletedProcess[str]:
    asked = [
        {
            "module": str(MODELS / CUSTOM[each["apiVersion"]] / each["apiVersion"] / "index.js"),
            "manifest": each,
        }
        for each in found
    ]
    command = ["node", "--input-type=module", "--eval", CHECK]
    return subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True)


@needs_models
def test_custom_kinds_fit_the_models_of_npm() -> None:
    found = [each for values in RELEASES.values() for each in manifests(values) if is_custom(each)]
    assert {each["apiVersion"] for each in found} == set(CUSTOM)
    distinct = {json.dumps(each): each for each in found}
    answer = checked_by_models(*distinct.values())
    assert answer.returncode == 0, answer.stderr


@needs_models
def test_models_of_npm_name_the_place_of_a_wrong_type() -> None:
    [route] = [each for each in manifests(RELEASES["everything"]) if each["kind"] == "HTTPRoute"]
    route["spec"]["rules"] = "all"
    answer = checked_by_models(route)
    assert answer.returncode != 0
    assert "/spec/rules" in answer.stderr


@pytest.mark.parametrize("name", RELEASES)
def test_helm_finds_nothing_to_complain_of(name: str) -> None:
    report = helm.lint(CHART, RELEASES[name], strict=True, namespace="voices", kube_version=f"v{NEWEST}.0")
    assert report["total_charts_linted"] == 1
    assert report["errors"] == []
    assert [each for each in report["messages"] if each["severity"] > 1] == []


@pytest.mark.parametrize("name", RELEASES)
def test_names_are_used_once_and_can_be_names(name: str) -> None:
    found = manifests(RELEASES[name])
    names = [(each["kind"], each["metadata"]["name"]) for each in found]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", each) for _, each in names)


def complaints(text: str, config: Any = LINT) -> list[str]:
    return [str(problem) for problem in linter.run(text, config)]


@pytest.mark.parametrize(
    "path", [CHART / "Chart.yaml", CHART / "values.yaml", *EXAMPLES.values()], ids=lambda path: path.name
)
def test_files_of_the_chart_are_tidy_yaml(path) -> None:
    assert complaints(path.read_text("utf-8")) == []


@pytest.mark.parametrize("name", ["defaults", "everything", *EXAMPLES])
def test_what_is_rendered_is_tidy_yaml(name: str) -> None:
    for path, text in texts(RELEASES[name]).items():
        if path.endswith(".yaml"):
            assert complaints(text.strip("\n") + "\n", RENDERED) == [], path


def test_untidy_yaml_is_found() -> None:
    assert complaints("a: 1\na: 2\n")


def test_packed_chart_renders_the_same(tmp_path) -> None:
    """The link to the alerts is a file in the package, and its examples stay out."""
    with helm.Chart.load(helm.package(CHART, destination=tmp_path)) as packed:
        assert packed.render(RELEASES["everything"], name="speech", namespace="voices") == chart().render(
            RELEASES["everything"], name="speech", namespace="voices"
        )
        assert not [each for each in packed.files if each["name"].startswith("examples/")]


def test_every_template_renders_something() -> None:
    """With everything on, but for what excludes another."""
    templates = {
        f"cosyvoice/{each['name']}" for each in chart().templates if not each["name"].endswith(".tpl")
    }
    rendered = {path for values in RELEASES.values() for path in texts(values)}
    assert rendered == templates


def test_values_stay_what_yaml_says() -> None:
    assert helm.values_from_yaml((CHART / "values.yaml").read_text("utf-8")) == yaml.safe_load(
        (CHART / "values.yaml").read_text("utf-8")
    )
