"""Tests of the image and its use by KubeRay and Compose: fields, settings, versions, extras."""

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
from packaging.requirements import Requirement

import sunshower
from sunshower.actors.starting import SYSTEM_CONFIG
from sunshower.dev import jars
from tests.packaging.raycluster_schema import FILE
from tests.structure.reading import ROOT

FOLDER = ROOT / "deploy/kuberay"
IMAGE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
COMPOSE = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text(encoding="utf-8"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
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
    assert any(repr(wrong) in error for error in errors(manifest))


def test_a_wrong_type_and_a_missing_field_are_found() -> None:
    manifest = copy.deepcopy(MANIFEST)
    manifest["spec"]["workerGroupSpecs"][0]["replicas"] = "two"
    del manifest["spec"]["workerGroupSpecs"][0]["template"]
    assert sorted(errors(manifest)) == [
        "'template' is a required property",
        "'two' is not of type 'integer'",
    ]


def test_the_head_starts_with_the_settings_of_a_local_ray() -> None:
    settings = SPEC["headGroupSpec"]["rayStartParams"]["system-config"]
    # KubeRay writes `ray start --head --system-config=…` and has a shell run it.
    shell = ["bash", "-c", f"printf %s --system-config={settings}"]
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
    assert f"-t sunshower:{sunshower.__version__} ." in IMAGE


def test_the_image_names_existing_extras_and_files() -> None:
    extras = re.findall(r"^ARG EXTRAS=(.*)$", IMAGE, re.MULTILINE)[0].split(",")
    assert set(extras) <= set(PROJECT["optional-dependencies"])
    copied = " ".join(re.findall(r"^COPY (.*) \S+$", IMAGE, re.MULTILINE)).split()
    mounted = re.findall(r"--mount=source=(\S+?),target=", IMAGE)
    assert copied
    assert mounted == ["constraints.txt"]
    assert all((ROOT / name).exists() for name in copied + mounted)


def test_both_stages_of_the_image_have_a_python_that_has_every_extra() -> None:
    stages = re.findall(r"^FROM python:(3\.\d+)(?:-slim)?(?: AS (\w+))?$", IMAGE, re.MULTILINE)
    assert [name for _, name in stages] == ["build", ""]
    assert set(re.findall(r"--mount=from=(\w+),", IMAGE)) == {"build"}
    (python,) = {python for python, _ in stages}
    assert f"Programming Language :: Python :: {python}" in PROJECT["classifiers"]
    for requirement in map(Requirement, PROJECT["optional-dependencies"]["spark"]):
        environment = {"python_version": python}
        if requirement.name != "setuptools":  # only Python 3.12 needs it
            assert requirement.marker is not None
            assert requirement.marker.evaluate(environment)


def test_compose_starts_kafka_and_a_head_with_the_versions_and_settings_of_this_release() -> None:
    kafka, head = COMPOSE["services"]["kafka"], COMPOSE["services"]["ray-head"]
    assert kafka["image"] == f"apache/kafka:{jars.KAFKA.name.partition('-')[2]}"
    assert head["image"] == f"sunshower:{sunshower.__version__}"
    assert (ROOT / "deploy" / head["build"] / "Dockerfile").is_file()
    (option,) = (option for option in head["command"] if option.startswith("--system-config="))
    assert json.loads(option.removeprefix("--system-config=")) == SYSTEM_CONFIG
    listeners, advertised = (
        {name: int(port) for name, _, port in (entry.split(":") for entry in text.split(","))}
        for text in map(kafka["environment"].get, ("KAFKA_LISTENERS", "KAFKA_ADVERTISED_LISTENERS"))
    )
    assert listeners == {**advertised, "CONTROLLER": 9093}
    published = [port for service in (kafka, head) for port in service["ports"]]
    assert all(port.startswith("127.0.0.1:") for port in published)  # neither has a password


def test_all_nodes_have_the_token_and_probes() -> None:
    for group in GROUPS:
        (container,) = group["template"]["spec"]["containers"]
        assert [variable["name"] for variable in container["env"]] == [
            "RAY_AUTH_MODE",
            "RAY_AUTH_TOKEN",
        ]
        for probe in ("readinessProbe", "livenessProbe"):
            assert "local_raylet_healthz" in container[probe]["exec"]["command"][-1]
        assert (
            container["resources"]["requests"]["memory"]
            == container["resources"]["limits"]["memory"]
        )
