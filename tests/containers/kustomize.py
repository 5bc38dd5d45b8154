"""The part of kustomize that docker/kubernetes uses, since few machines have the tool itself.

An unknown field is an error, never ignored. If kustomize is installed, a test compares the output
of both. Names of generated objects get no hash here.
"""

from __future__ import annotations

import base64
import copy
from pathlib import Path
from typing import Any

import yaml

Manifest = dict[str, Any]

_FIELDS = {
    *("apiVersion", "kind", "resources", "components", "images", "replicas", "labels"),
    *("configMapGenerator", "secretGenerator", "patches"),
}
# Lists that a patch merges, by the field that tells their items apart; others it replaces.
_KEYS = {"containers": "name", "volumes": "name", "volumeMounts": "mountPath", "env": "name"}
_PORT_KEYS = ("port", "containerPort")  # of a Service and of a container


def render(directory: Path) -> list[Manifest]:
    """The manifests of the overlay in `directory`.

    Raises:
        ValueError: a kustomization has an unknown field.
    """
    return _apply(directory, [])


def _apply(directory: Path, manifests: list[Manifest]) -> list[Manifest]:
    """`manifests` and the directory's own, changed by its kustomization."""
    plan = yaml.safe_load((directory / "kustomization.yaml").read_text())
    if unknown := set(plan) - _FIELDS:
        raise ValueError(f"{directory}: {', '.join(sorted(unknown))}: not known here")
    for path in plan.get("resources", []):
        place = directory / path
        manifests += _apply(place, []) if place.is_dir() else _load(place)
    for path in plan.get("components", []):
        manifests = _apply(directory / path, manifests)
    for kind, field in (("ConfigMap", "configMapGenerator"), ("Secret", "secretGenerator")):
        for generator in plan.get(field, []):
            _generate(kind, directory, dict(generator), manifests)
    for patch in plan.get("patches", []):
        manifests = _patched(patch, manifests)
    for labels in plan.get("labels", []):
        _label(dict(labels), manifests)
    for count in plan.get("replicas", []):
        _find(manifests, "Deployment", count["name"])["spec"]["replicas"] = count["count"]
    for image in plan.get("images", []):
        _set_image(image, manifests)
    return manifests


def _load(path: Path) -> list[Manifest]:
    return list(yaml.safe_load_all(path.read_text()))


def _find(manifests: list[Manifest], kind: str, name: str) -> Manifest:
    (found,) = [
        item for item in manifests if (item["kind"], item["metadata"]["name"]) == (kind, name)
    ]
    return found


def _generate(kind: str, directory: Path, plan: Manifest, manifests: list[Manifest]) -> None:
    """Add the manifest of a generator, or merge it into an existing one."""
    name, behavior = plan.pop("name"), plan.pop("behavior", "create")
    lines = list(plan.pop("literals", []))
    for file in plan.pop("envs", []):
        lines += (directory / file).read_text().splitlines()
    if plan or behavior not in ("create", "merge"):
        raise ValueError(f"{directory}: {kind} {name}: {plan or behavior}: not known here")
    values = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    if kind == "Secret":
        values = {key: base64.b64encode(text.encode()).decode() for key, text in values.items()}
    if behavior == "merge":
        _find(manifests, kind, name)["data"].update(values)
        return
    about: Manifest = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "data": values}
    manifests.append(about | ({"type": "Opaque"} if kind == "Secret" else {}))


def _patched(patch: Manifest, manifests: list[Manifest]) -> list[Manifest]:
    if set(patch) != {"target", "patch"} or not set(patch["target"]) <= {"kind", "name"}:
        raise ValueError(f"{patch}: not known here")
    change = yaml.safe_load(patch["patch"])
    kind = patch["target"]["kind"]
    name = patch["target"].get("name", change["metadata"]["name"])
    if not any((item["kind"], item["metadata"]["name"]) == (kind, name) for item in manifests):
        return manifests  # of a component that is not used
    found = _find(manifests, kind, name)
    if change.get("$patch") == "delete":
        return [item for item in manifests if item is not found]
    return [_merged(item, change) if item is found else item for item in manifests]


def _merged(old: Any, new: Any, field: str = "") -> Any:
    """A strategic merge: mappings by key, known lists by their items' names, the rest replaced."""
    if isinstance(old, dict) and isinstance(new, dict):
        if "$patch" in new:
            raise ValueError(f"{field}: a $patch inside an object: not known here")
        made = copy.deepcopy(old)
        for key, value in new.items():
            if value is None:
                made.pop(key, None)
            else:
                made[key] = _merged(made[key], value, key) if key in made else value
        return made
    if isinstance(old, list) and isinstance(new, list) and field in (*_KEYS, "ports"):
        key = _KEYS.get(field) or next(each for each in _PORT_KEYS if each in old[0])
        added = {item[key]: item for item in new}
        merged = [_merged(item, added.pop(item[key], {})) for item in old]
        return [*added.values(), *merged]  # in kustomize's order
    return new


def _label(plan: Manifest, manifests: list[Manifest]) -> None:
    pairs, templates = plan.pop("pairs"), plan.pop("includeTemplates", False)
    if plan:
        raise ValueError(f"labels: {', '.join(plan)}: not known here")
    for item in manifests:
        places = [item]
        if templates and "template" in item.get("spec", {}):
            places.append(item["spec"]["template"])
        for place in places:
            place.setdefault("metadata", {}).setdefault("labels", {}).update(pairs)


def _set_image(plan: Manifest, manifests: list[Manifest]) -> None:
    for item in manifests:
        if item["kind"] != "Deployment":
            continue
        pod = item["spec"]["template"]["spec"]
        for container in [*pod.get("initContainers", []), *pod["containers"]]:
            if container["image"].partition(":")[0] == plan["name"]:
                container["image"] = f"{plan['newName']}:{plan['newTag']}"
