"""DeviceTaintRules take NPUs out of service: what docs/guides/maintain.md says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from dev.cluster.api import Object
from dev.cluster.driver import NPUS, Driver
from tests.e2e.faults import number
from tests.e2e.space import EXAMPLES, Space, claim, pod, request

pytestmark = [pytest.mark.cluster, pytest.mark.every_version, pytest.mark.since("1.37")]

EXAMPLE = (EXAMPLES / "drain-npu.yaml").read_text(encoding="utf-8")
KIND = "devicetaintrule"
KEY = "example.com/maintenance"
NODE = "drain-node"
IN_PROGRESS = "EvictionInProgress"


@pytest.fixture(autouse=True)
def rules_end(driver: Driver) -> Iterator[None]:
    """No rule outlives its test, even one that fails."""
    yield
    rules = driver.cluster.objects("devicetaintrules", namespace=None)
    driver.cluster.remove(KIND, *(str(rule["metadata"]["name"]) for rule in rules))


def apply_to_node(driver: Driver, effect: str) -> None:
    """Apply the example's rule to all NPUs of the node."""
    rule = yaml.safe_load(EXAMPLE)
    rule["metadata"]["name"] = NODE
    rule["spec"]["deviceSelector"] = {"driver": "npu.huawei.com", "pool": driver.node.name}
    rule["spec"]["taint"]["effect"] = effect
    driver.cluster.kubectl("apply", "--filename", "-", stdin=yaml.safe_dump(rule))


def change_effect(driver: Driver, effect: str) -> None:
    """Change the effect of the node's rule as the guide does."""
    change = f'{{"spec":{{"taint":{{"effect":"{effect}"}}}}}}'
    driver.cluster.kubectl("patch", KIND, NODE, "--type=merge", f"--patch={change}")


def wait_status(driver: Driver, reason: str, words: str) -> None:
    """Wait until the status of the node's rule, as it is now, has that reason and message."""

    def look() -> bool:
        rule = driver.cluster.get(KIND, NODE)
        assert rule is not None
        return any(
            one["type"] == IN_PROGRESS
            and one["observedGeneration"] == rule["metadata"]["generation"]
            and one["reason"] == reason
            and words in one["message"]
            for one in rule.get("status", {}).get("conditions", [])
        )

    driver.cluster.wait(look, f"the rule's status {reason} with {words!r}")


def tolerant(seconds: int | None = None) -> Object:
    """A request that tolerates maintenance, for some seconds or for ever."""
    made = request()
    new = {"key": KEY, "operator": "Exists", "effect": "NoSchedule"}
    old: Object = {**new, "effect": "NoExecute"}
    if seconds is not None:
        old["tolerationSeconds"] = seconds
    made["exactly"]["tolerations"] = [new, old]
    return made


def test_drained_npu_loses_its_pod_and_is_given_out_when_the_rule_is_gone(
    driver: Driver, space: Space
) -> None:
    """Just that pod, whose claim is unprepared; other NPUs are given out, and slices stay."""
    space.start("leaves")
    stays = space.start("stays")
    (device,) = space.allocated("leaves")
    slices = driver.versions()
    text = EXAMPLE.replace("worker-1", driver.node.name).replace("npu-3", device)

    driver.cluster.kubectl("apply", "--filename", "-", stdin=text)
    space.wait_gone("leaves")
    space.wait(lambda: len(driver.traces()) == 2, "only the other claim prepared")
    space.start("others", request(count=NPUS - 2))
    assert device not in space.allocated("others")
    same = f'device.attributes["npu.huawei.com"].physicalId == {number(device)}'
    space.apply(claim("waits", request(cel=same)), pod("waits", "waits"))
    space.assert_waits("waits")
    space.assert_runs_on(stays, npus=1)
    assert driver.versions() == slices

    driver.cluster.kubectl("delete", "--filename", "-", stdin=text)
    space.wait_phase("waits")
    assert space.allocated("waits") == [device]


def test_rule_of_a_node_is_tried_and_then_made_stronger(driver: Driver, space: Space) -> None:
    """`None` says what would be evicted, NoSchedule keeps new pods away, NoExecute old ones too."""
    runs = space.start("runs")
    apply_to_node(driver, "None")
    selected = f"{NPUS} published devices selected. 1 allocated device selected. "
    wait_status(driver, "NoEffect", f"{selected}1 pod would be evicted in 1 namespace ")
    space.start("second")

    change_effect(driver, "NoSchedule")
    wait_status(driver, "OtherEffect", "Eviction only happens for the NoExecute effect.")
    space.apply(claim("waits"), pod("waits", "waits"))
    space.assert_waits("waits")
    space.assert_runs_on(runs, npus=1)

    change_effect(driver, "NoExecute")
    ended = f"--for=condition={IN_PROGRESS}=false"
    driver.cluster.kubectl("wait", ended, f"{KIND}/{NODE}", "--timeout=120s")
    wait_status(driver, "Completed", "2 pods evicted")
    space.wait_gone("runs")
    space.wait_gone("second")

    driver.cluster.kubectl("delete", KIND, NODE)
    space.wait_phase("waits")


def test_claims_that_tolerate_a_rule_keep_and_get_npus(driver: Driver, space: Space) -> None:
    """For ever, or for a time; the example of a monitor tolerates all taints."""
    stays, later = space.start("stays", tolerant()), space.start("later", tolerant(3600))
    space.start("leaves")
    space.let_look_on()
    space.apply_example("admin-access")

    def monitor(but: str = "") -> Object | None:
        pods = driver.cluster.objects("pods", namespace=space.name, selector="app=npu-monitor")
        running = [one for one in pods if one["status"].get("phase") == "Running"]
        return next((one for one in running if one["metadata"]["name"] != but), None)

    watcher = space.wait(monitor, "the monitor's pod")
    apply_to_node(driver, "NoExecute")
    space.wait_gone("leaves")
    wait_status(driver, "PodsPendingEviction", "1 pod needs to be evicted in 1 namespace.")
    for each in (stays, later, watcher):
        space.assert_runs_on(each)

    space.start("starts", tolerant())
    name = watcher["metadata"]["name"]
    space.delete_pod(name)
    space.wait(lambda: monitor(but=name), "another pod of the monitor")
    space.delete("daemonset", "npu-monitor")
