"""What happened, on its way to metrics that are loaded later."""

from threading import Thread

from trio_npu_dra.agent.observe.inbox import MetricsInbox
from trio_npu_dra.agent.observe.latency import EventPublished
from trio_npu_dra.ascend.dcmi.types import DcmiCall


def test_what_happened_before_there_was_a_listener_comes_first() -> None:
    """Then facts come as they happen."""
    facts, heard = MetricsInbox(are_kept=True), list[object]()
    facts(EventPublished(1))
    facts(EventPublished(2))
    assert heard == []
    facts.tell(heard.append)
    assert heard == [EventPublished(1), EventPublished(2)]
    facts(EventPublished(3))
    assert heard[2:] == [EventPublished(3)]


def test_nothing_is_kept_without_a_listener() -> None:
    """Without pages there are no metrics."""
    facts, heard = MetricsInbox(are_kept=False), list[object]()
    facts(EventPublished(1))
    facts.tell(heard.append)
    assert heard == []


def test_no_fact_of_another_thread_is_lost() -> None:
    """The thread of DCMI calls does not wait while the metrics are made."""
    facts, heard = MetricsInbox(are_kept=True), list[object]()
    calls = [DcmiCall(function="f", seconds=0, code=code) for code in range(2000)]

    def call_all() -> None:
        for call in calls:
            facts(call)

    thread = Thread(target=call_all)
    thread.start()
    facts.tell(heard.append)
    thread.join()
    assert sorted(fact.code for fact in heard if isinstance(fact, DcmiCall)) == list(range(2000))
