"""Any file given to `npu-dra validate`."""

from __future__ import annotations

from typing import Any, Final

import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from dev.fuzz.values import encoded, expanded, mangled, spoilt
from tests.fuzz.test_kubeconfig import WORDS
from tests.fuzz.test_opaque_config import GOOD as PARAMETERS
from trio_npu_dra.kit.base.errors import UnreadableManifest
from trio_npu_dra.tools.manifests import inspect
from trio_npu_dra.tools.names import unknown_class
from trio_npu_dra.tools.yaml_nodes import Remark

CEL: Final = """\
"model" in device.attributes["npu.huawei.com"] &&
device.capacity["npu.huawei.com"]["aiCores"] > 1"""
GOOD: Final[dict[str, Any]] = {
    "apiVersion": "v1",
    "kind": "List",
    "items": [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "spec": {
                "config": [{"opaque": {"driver": "npu.huawei.com", "parameters": PARAMETERS}}]
            },
        },
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "spec": {
                "devices": {
                    "requests": [
                        {
                            "name": "a",
                            "exactly": {
                                "deviceClassName": "npu.huawei.com",
                                "selectors": [{"cel": {"expression": CEL}}],
                                "capacity": {"requests": {"memCapacity": "8Gi"}},
                            },
                        },
                        {"name": "b", "firstAvailable": [{"name": "c"}]},
                    ],
                    "constraints": [
                        {"requests": ["a", "b/c"], "matchAttribute": "npu.huawei.com/model"}
                    ],
                }
            },
        },
    ],
}
HEAD: Final = (
    b"apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nspec:\n  config:\n"
    b"  - opaque:\n      driver: npu.huawei.com\n      parameters: "
)
documents = (
    spoilt(GOOD).map(encoded)
    | st.just(yaml.safe_dump(GOOD).encode()).flatmap(mangled)
    | st.lists(st.sampled_from(WORDS), max_size=20).map(lambda words: "".join(words).encode())
    | st.lists(st.sampled_from(WORDS), max_size=20).map(
        lambda words: HEAD + "".join(words).encode()
    )
    | st.binary(max_size=40)
)


@given(content=documents)
@example(content=HEAD + b"!!bool")
@example(content=HEAD + b"!!bool {}")
@example(content=HEAD + b"!!int ")
@example(content=HEAD + b"!!timestamp x")
@example(content=HEAD + b"!!int " + b"9" * 5000)
@example(content=HEAD + b"{? [a] : b}")
@example(content=HEAD + b"&a {<<: *a}")
@example(content=HEAD + b"&a [*a]")
@example(content=HEAD + b"{a: &a {b: 1, <<: {c: 2}}, a: *a}")
@example(content=HEAD + b'{"\\ud800": 1}')
@example(content=b"apiVersion: v1\nkind: List\nitems: &a [{apiVersion: v1, kind: List, items: *a}]")
@example(content=b'{"kind": "\\ud800\\udc00"}')
@example(content=b"[" * 1000)
def test_any_file_is_looked_at_or_unreadable(content: bytes) -> None:
    """What is said of it fits a line, and has the line of the file."""
    lines = content.count(b"\n") + content.count(b"\r") + 3 * content.count(b"\xe2\x80") + 2
    try:
        report = inspect(expanded(content))
    except UnreadableManifest as error:
        words = str(error)
        assert 1 <= int(words.partition(": ")[0]) <= lines
        assert len(words.splitlines()) == 1
    else:
        doubts = [
            Remark(line=one.line, text=doubt)
            for one in report.asked
            if (doubt := unknown_class(one.text, report.classes))
        ]
        for remark in (*report.problems, *report.passed_over, *doubts):
            assert 1 <= remark.line <= lines
            assert len(remark.text.splitlines()) == 1
            assert remark.text.encode()
