"""Tests of the manifest and the image for KubeRay: fields, settings, versions, extras."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import tomllib
from typing import Any

import jsonschema
import pytest
import yaml

import sunshower
from sunshower.actors.starting import SYSTEM_CONFIG
from tests.packaging.raycluster_schema import FILE
from tests.structure.reading import ROOT

FOLDER = ROOT / "deploy/kuberay"
SCHEMA = json.loads(FILE.read_text(encoding="utf-8"))
MANIFEST = yaml.safe_load((FOLDER / "raycluster.yaml").read_text(encoding="utf-8"))
SPEC = MANIFEST["spec"]
GROUPS = [SPEC["headGroupSpec"], *SPEC["workerGroupSpecs"]]


def errors(manifest: object) -> list[str]:
    validator = jsonschema.Draft202012Validator(SCHEMA)
    return [error.message for error in validator.iter_errors(manifest)]


def test_the_manifest_has_only_fields_of_a_ray_cluster() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert not errors(MANIFEST)


@pytest.mark.parametrize(
    ("where", "right", "wrong"),
    [
        (["spec"], "workerGroupSpecs", "workerGroups"),
        (["spec", "headGroupSpec"], "rayStartParams", "rayStartParameters"),
        (["spec", "workerGroupSpecs", 0], "minReplicas", "minreplicas"),
        (
            ["spec", "headGroupSpec", "template", "spec", "containers", 0],
            "readinessProbe",
            "readynessProbe",
        ),
    ],
)
def test_a_misspelt_field_is_found(where: list[Any], right: str, wrong: str) -> None:
    manifest = copy.deepcopy(MANIFEST)
    part = manifest
    for key in where:
        part = part[key]
    part[wrong] = part.pop(right)
    assert any(repr(wrong) in one for one in errors(manifest))


def test_a_wrong_type_and_a_missing_field_are_found() -> None:
    manifest = copy.deepcopy(MANIFEST)
    manifest["spec"]["workerGroupSpecs"][0]["replicas"] = "two"
    del manifest["spec"]["workerGroupSpecs"][0]["template"]
    assert sorted(errors(manifest)) == [
        "'template' is a required property",
        "'two' is not of type 'integer'",
    ]


def test_the_head_starts_with_the_settings_of_a_local_ray() -> None:
    given = SPEC["headGroupSpec"]["rayStartParams"]["system-config"]
    # KubeRay writes `ray start --head --system-config=…` and has a shell run it.
    shell = ["bash", "-c", f"printf %s --system-config={given}"]
    received = subprocess.run(shell, check=True, capture_output=True, text=True).stdout
    assert json.loads(received.removeprefix("--system-config=")) == SYSTEM_CONFIG


def test_manifest_and_image_have_the_versions_of_this_release() -> None:
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert f"\nray=={SPEC['rayVersion']}\n" in pins
    images = {
        container["image"]
        for group in GROUPS
        for container in group["template"]["spec"]["containers"]
    }
    assert images == {f"sunshower:{sunshower.__version__}"}
    assert f"-t sunshower:{sunshower.__version__} ." in (FOLDER / "Dockerfile").read_text()


def test_the_image_names_existing_extras_and_files() -> None:
    text = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
    extras = re.findall(r"^ARG EXTRAS=(.*)$", text, re.MULTILINE)[0].split(",")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(extras) <= set(project["optional-dependencies"])
    copied = [
        name for line in re.findall(r"^COPY (.*) \S+$", text, re.MULTILINE) for name in line.split()
    ]
    assert copied
    assert all((ROOT / name).exists() for name in copied)
    python = re.findall(r"^FROM python:(3\.\d+)", text, re.MULTILINE)
    assert project["requires-python"].startswith(f">={python[0]},")


def test_all_nodes_have_the_token_and_probes() -> None:
    for group in GROUPS:
        (container,) = group["template"]["spec"]["containers"]
        assert [one["name"] for one in container["env"]] == ["RAY_AUTH_MODE", "RAY_AUTH_TOKEN"]
        for probe in ("readinessProbe", "livenessProbe"):
            assert "local_raylet_healthz" in container[probe]["exec"]["command"][-1]
        assert (
            container["resources"]["requests"]["memory"]
            == container["resources"]["limits"]["memory"]
        )
