"""Makes `raycluster.schema.json` from KubeRay's definition of the RayCluster resource.

To renew it: `go mod download -json github.com/ray-project/kuberay/ray-operator@v1.5.0` prints the
folder of the module; then `python -m tests.packaging.raycluster_schema FOLDER 1.5.0`.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

FILE = Path(__file__).with_name("raycluster.schema.json")
_COMMENT = (
    "The schema of a RayCluster, version v1, from config/crd/bases/ray.io_rayclusters.yaml of "
    "github.com/ray-project/kuberay/ray-operator v{version}, Apache License 2.0. Changed by "
    "tests/packaging/raycluster_schema.py: without descriptions and status, equal parts once, and "
    "no unknown fields."
)
_KEPT = ("enum", "format", "items", "maxLength", "minItems", "minimum", "pattern")
_LARGE = 200  # characters


def schema_of(folder: Path, version: str) -> dict[str, Any]:
    """The JSON schema of the RayCluster resource of the module in that folder."""
    crd = yaml.load(
        (folder / "config/crd/bases/ray.io_rayclusters.yaml").read_text(encoding="utf-8"),
        Loader=yaml.CSafeLoader,
    )
    (v1,) = [entry for entry in crd["spec"]["versions"] if entry["name"] == "v1"]
    whole = _strict(v1["schema"]["openAPIV3Schema"])
    whole["properties"] |= {
        "apiVersion": {"const": f"{crd['spec']['group']}/v1"},
        "kind": {"const": crd["spec"]["names"]["kind"]},
    }
    del whole["properties"]["status"]
    whole["required"] = ["apiVersion", "kind", "metadata", "spec"]
    return {"$comment": _COMMENT.format(version=version)} | _shared(whole)


def _strict(node: dict[str, Any]) -> dict[str, Any]:
    """A Kubernetes schema as JSON schema, which refuses fields that it does not have."""
    if node.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    strict: dict[str, Any] = {key: node[key] for key in _KEPT if key in node}
    if "type" in node:
        strict["type"] = node["type"]
    if "items" in node:
        strict["items"] = _strict(node["items"])
    if "properties" in node:
        strict["properties"] = {key: _strict(part) for key, part in node["properties"].items()}
        needed = [
            key
            for key in node.get("required", ())
            if "default" not in node["properties"].get(key, {})
        ]
        strict |= {"required": needed} if needed else {}
        if not node.get("x-kubernetes-preserve-unknown-fields"):
            strict["additionalProperties"] = False
    if isinstance(more := node.get("additionalProperties"), dict):
        strict["additionalProperties"] = _strict(more)
    return strict


def _shared(whole: dict[str, Any]) -> dict[str, Any]:
    """The same schema, with each large part that occurs several times in `$defs` once."""
    times = Counter(json.dumps(node, sort_keys=True) for node in _schemas(whole))
    names: dict[str, str] = {}
    parts: dict[str, Any] = {}

    def replaced(node: Any, *, outermost: bool = False) -> Any:
        if isinstance(node, dict):
            text = json.dumps(node, sort_keys=True)
            if not outermost and len(text) > _LARGE and times[text] > 1:
                if text not in names:
                    names[text] = f"part{len(names)}"
                    parts[names[text]] = replaced(node, outermost=True)
                return {"$ref": f"#/$defs/{names[text]}"}
            return {key: replaced(part) for key, part in node.items()}
        return node

    return {**replaced(whole, outermost=True), "$defs": parts}


def _schemas(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        if isinstance(node.get("type"), str):  # else it maps the names of fields to schemas
            yield node
        for part in node.values():
            yield from _schemas(part)


if __name__ == "__main__":
    schema = schema_of(Path(sys.argv[1]), sys.argv[2])
    FILE.write_text(json.dumps(schema, separators=(",", ":")) + "\n", encoding="utf-8")
