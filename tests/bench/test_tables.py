"""From raw results to medians, ratios and verdicts."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from bench.cases import CASES, Bar, Case
from bench.processes import parse_stat
from bench.tables import bar_table, case_table, figures, medians, render

REQUESTS = Case("requests", "request", {})
CHUNKS = Case("chunks", "chunk", {})


def result(**changes: Any) -> dict[str, Any]:
    """One result as the load generator prints it."""
    whole: dict[str, Any] = {
        "requests": 100,
        "chunks": 4000,
        "seconds": 2.0,
        "cpu_us": 20_000.0,
        "rss_kb": 2048,
        "latency_us": None,
        "ttfb_us": {"p50": 70, "p99": 90, "max": 99},
        "delay_us": None,
        "errors": 0,
    }
    return {**whole, **changes}


class FiguresTests(SynchronousTestCase):
    """``figures`` and ``medians``."""

    def test_unit(self) -> None:
        """Processor time and rate are per request or per chunk, as the case says."""
        requests, chunks = figures(REQUESTS, result()), figures(CHUNKS, result())
        self.assertEqual((requests["cpu"], requests["per_second"]), (200.0, 50.0))
        self.assertEqual((chunks["cpu"], chunks["per_second"]), (5.0, 2000.0))

    def test_nobody_charged(self) -> None:
        """Straight to the stub no process is charged, so there is no cost and no memory, not zero of them."""
        found = figures(REQUESTS, result(cpu_us=0.0))
        self.assertNotIn("cpu", found)
        self.assertNotIn("rss_mb", found)

    def test_nothing_seen(self) -> None:
        """A window without a complete answer has no cost and divides by nothing."""
        found = figures(REQUESTS, result(requests=0, seconds=0.0, ttfb_us=None))
        self.assertEqual(found, {"per_second": 0.0, "errors": 0.0})

    def test_medians(self) -> None:
        """Over rounds the median counts, the spread is kept, and errors add up."""
        costs = [result(cpu_us=cost, errors=1) for cost in (10_000.0, 90_000.0, 20_000.0)]
        row = medians(REQUESTS, {"us": costs})["us"]
        self.assertEqual(
            (row["cpu"], row["cpu_low"], row["cpu_high"], row["errors"]), (200.0, 100.0, 900.0, 3)
        )


class TableTests(SynchronousTestCase):
    """What is printed."""

    def test_ratios(self) -> None:
        """An engine's cost is shown as a multiple of nginx's, and ours as a multiple of the engine's."""
        rounds = {"us": [result(cpu_us=30_000.0)], "nginx": [result(cpu_us=20_000.0)]}
        lines = case_table(REQUESTS, medians(REQUESTS, rounds)).splitlines()
        self.assertEqual(lines[3].split()[:5], ["us", "300.0", "300.0-300.0", "1.50", "1.00"])
        self.assertEqual(lines[4].split()[:5], ["nginx", "200.0", "200.0-200.0", "1.00", "1.50"])

    def test_added(self) -> None:
        """The time to the first byte that a router adds is what it takes beyond the stub alone."""
        rounds = {
            "straight": [result(cpu_us=0.0, ttfb_us={"p50": 20, "p99": 1, "max": 1})],
            "us": [result()],
        }
        lines = case_table(REQUESTS, medians(REQUESTS, rounds)).splitlines()
        self.assertEqual(lines[4].split()[6:9], ["70", "90", "50"])

    def test_columns(self) -> None:
        """Columns are as wide as their widest cell, the first to the left, the others to the right."""
        self.assertEqual(render(["a", "b"], [["long", "1"]]), "a     b\n----  -\nlong  1")


class BarTests(SynchronousTestCase):
    """The bars."""

    def test_upper(self) -> None:
        """A bar holds at its limit and is missed above it."""
        bar = Bar("c32", "cpu", "nginx", 2.0)
        self.assertEqual((bar.holds(2.0), bar.holds(2.01)), (True, False))

    def test_lower(self) -> None:
        """A bar on throughput holds at its limit and is missed below it."""
        bar = Bar("saturated", "per_second", "nginx", 0.9, at_least=True)
        self.assertEqual((bar.holds(0.9), bar.holds(0.89)), (True, False))

    def test_verdict(self) -> None:
        """The ratio of two medians stands beside its limit, with a verdict."""
        text = bar_table({"c32": {"us": {"cpu": 250.0}, "vllm-rr": {"cpu": 100.0}}})
        self.assertIn("2.50  <= 2.0   MISSED", text)

    def test_unmeasured(self) -> None:
        """A bar whose peer was not measured is left out."""
        self.assertEqual(bar_table({"c32": {"us": {"cpu": 250.0}}}), "")

    def test_names(self) -> None:
        """Every bar names a case that exists."""
        from bench.cases import BARS

        self.assertEqual({bar.case for bar in BARS} - set(CASES), set())


class StatTests(SynchronousTestCase):
    """``parse_stat``."""

    def test_awkward_name(self) -> None:
        """A process name may hold blanks and parentheses."""
        self.assertEqual(parse_stat("12 (a) S 3 (b) S 7 12 12"), (12, 7))
