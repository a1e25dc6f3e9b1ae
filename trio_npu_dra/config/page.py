"""The page docs/config.md, made from the model."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import fill, indent
from typing import Any, Final

import yaml
from pydantic import BaseModel

from trio_npu_dra.config.model import API_VERSION, DRIVER, KIND, MAX_OF_CLAIM
from trio_npu_dra.config.shape import Choice, Member, Object, Several, Shape, listed, shape

_WIDTH: Final = 100

_HEAD: Final = f"""\
# Configuring a claim

<!-- Made by `just config` from trio_npu_dra/config: change it there. -->

A ResourceClaim, a ResourceClaimTemplate or a DeviceClass may say what containers get with its NPUs.
It does so in an opaque config for the driver `{DRIVER}`:

```yaml
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata:
  name: npu
spec:
  devices:
    requests:
    - name: npu
      exactly:
        deviceClassName: {DRIVER}
    config:
    - requests: [npu]  # leave it out for all requests
      opaque:
        driver: {DRIVER}
        parameters:
"""
_RULES: Final = f"""\
## Which config counts

- A DeviceClass has its configs in `spec.config`. They apply to the requests that are served by the
  class, before those of the claim: a field that the claim sets too is the claim's. The variables of
  both come together; of two with one name the claim's counts.
- Of several configs in one place the later counts, again field by field.
- The variables of all NPUs of a claim together may have {MAX_OF_CLAIM >> 10} KiB. They are noted
  on the node with each share of an NPU, so a claim with many shares may have fewer; its pod's event
  says so.
- `requests` limits a config to some requests of the claim. `parent/sub` is one alternative of
  `firstAvailable`, `parent` alone means all of them.
- A container gets what the configs of its own requests say. If it uses several NPUs, it gets the
  files of the Ascend driver and a way to its libraries as soon as one of them gives these. Two
  requests of a claim that set one variable to two values are refused when the claim is prepared,
  because a container can use both; of two claims with such variables the runtime takes one.
- A class that changes changes no claim that is allocated already: the scheduler copies the config
  into the claim.

## When a config is wrong

It is refused where it is seen first, always in the same words:

- `npu-dra validate FILE...` reads manifests, `-` is standard input. It asks no cluster and prints
  `file:line: what`. Its exit status is 0 if all is right, 1 if something is wrong, and 2 if a file
  cannot be read. Objects that have no config are passed over, and named.
- The API server refuses a ResourceClaim, a ResourceClaimTemplate or a DeviceClass with a wrong
  config, by the policy in `k8s/base/npu-config.yaml`.
- The driver refuses the claim when a pod is about to start: `kubectl describe pod` shows it.

```console
$ npu-dra validate claim.yaml
claim.yaml:9: opaque config in the ResourceClaim: driverMounts is "no": write true or false
configs for {DRIVER}: 1, problems: 1
```

Editors can use the JSON schema of the parameters, `k8s/schema/npuconfig.v1alpha1.json`.
"""


def page() -> str:
    """The content of the page."""
    root = shape()
    whole = _parameters({member.name: member.examples[0] for member in _optional(root)})
    head = _HEAD + indent(whole, " " * 10) + "```\n"
    return "\n".join((head, "## Fields\n", *map(_field, _optional(root)), _RULES))


def _optional(root: Object) -> Iterator[Member]:
    return (member for member in root.fields if not member.is_required)


def _field(member: Member) -> str:
    """A section about one field."""
    inner = member.shape.item if isinstance(member.shape, Several) else member.shape
    parts = [f"### `{member.name}`", _filled(member.words)]
    if isinstance(inner, Object):
        rows = (_row(each) for each in inner.fields)
        parts.append("\n".join(("| field | default | says |", "|---|---|---|", *rows)))
    else:
        default = "" if member.default is None else f"; {_default(member)} by default"
        parts.append(f"{listed(_values(inner), 'or')}{default}.")
    parts.append(f"```yaml\n{_parameters({member.name: member.examples[0]})}```\n")
    return "\n\n".join(parts)


def _values(what: Shape) -> Iterator[str]:
    values = what.values if isinstance(what, Choice) else ("true", "false")
    return (f"`{value}`" for value in values)


def _row(member: Member) -> str:
    return f"| `{member.name}` | {_default(member)} | {member.words} |"


def _default(member: Member) -> str:
    return "none: it must be there" if member.is_required else f"`{_yaml(member.default)}`"


def _parameters(fields: dict[str, Any]) -> str:
    return yaml.safe_dump({"apiVersion": API_VERSION, "kind": KIND} | fields, sort_keys=False)


def _yaml(value: Any) -> str:
    plain = value.model_dump(by_alias=True) if isinstance(value, BaseModel) else value
    return yaml.safe_dump(plain, default_flow_style=True).removesuffix("...\n").strip()


def _filled(text: str) -> str:
    return fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False)
