"""Raw results of interleaved rounds -> medians, ratios and their tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from bench.cases import BARS, CASES, Case

#: Results of one case: engine -> one result a round.
Rounds = Mapping[str, Sequence[Mapping[str, Any]]]


def figures(case: Case, result: Mapping[str, Any]) -> dict[str, float]:
    """One result as comparable figures; microseconds unless named otherwise, absent where unseen."""
    done = case.done(dict(result))
    found = {
        "per_second": done / result["seconds"] if result["seconds"] else 0.0,
        "errors": float(result["errors"]),
    }
    if done and result["cpu_us"]:
        found |= {"cpu": result["cpu_us"] / done, "rss_mb": result["rss_kb"] / 1024}
    for name in ("ttfb", "delay"):
        if series := result[f"{name}_us"]:
            found |= {f"{name}_p50": series["p50"], f"{name}_p99": series["p99"]}
    return found


def medians(case: Case, rounds: Rounds) -> dict[str, dict[str, float]]:
    """Engine -> median of each figure over its rounds; errors are added up instead."""
    table: dict[str, dict[str, float]] = {}
    for engine, results in rounds.items():
        seen = [figures(case, result) for result in results]
        names = {name for row in seen for name in row}
        table[engine] = {name: median([row[name] for row in seen if name in row]) for name in names}
        table[engine]["errors"] = sum(row["errors"] for row in seen)
        if costs := [row["cpu"] for row in seen if "cpu" in row]:
            table[engine] |= {"cpu_low": min(costs), "cpu_high": max(costs)}
    return table


def _cell(value: float | None, form: str = ".0f") -> str:
    return "-" if value is None else format(value, form)


def _ratio(row: Mapping[str, float], other: Mapping[str, float] | None, name: str = "cpu") -> str:
    if other is None or not other.get(name) or name not in row:
        return "-"
    return format(row[name] / other[name], ".2f")


def render(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Plain columns, the first to the left, the others to the right."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = []
    for row in [head, ["-" * width for width in widths], *rows]:
        cells = [
            cell.ljust(w) if i == 0 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def case_table(case: Case, table: Mapping[str, Mapping[str, float]], reference: str = "nginx") -> str:
    """All engines of one case; ratios compare processor time per unit."""
    base, us, direct = table.get(reference), table.get("us"), table.get("straight", {})
    head = ["engine", f"cpu/{case.unit} us", "low-high", f"x {reference}", "us / it", f"{case.unit}s/s"]
    head += ["first byte p50", "p99", "added p50", "delay p50", "p99", "RSS MB", "errors"]
    rows = []
    for engine, row in table.items():
        first = row.get("ttfb_p50")
        straight = direct.get("ttfb_p50")
        added = first - straight if first is not None and straight is not None and row is not direct else None
        spread = f"{row['cpu_low']:.1f}-{row['cpu_high']:.1f}" if "cpu_low" in row else "-"
        cost = [_cell(row.get("cpu"), ".1f"), spread, _ratio(row, base), _ratio(us, row) if us else "-"]
        latency = [_cell(first), _cell(row.get("ttfb_p99")), _cell(added)]
        delay = [_cell(row.get("delay_p50")), _cell(row.get("delay_p99"))]
        rows.append(
            [
                engine,
                *cost,
                _cell(row["per_second"]),
                *latency,
                *delay,
                _cell(row.get("rss_mb")),
                _cell(row["errors"]),
            ]
        )
    return f"{case.name}\n{render(head, rows)}"


def bar_table(results: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """The bars whose two engines were measured (*results*: case -> engine -> figure)."""
    rows = []
    for bar in BARS:
        table = results.get(bar.case, {})
        us, peer = table.get("us", {}), table.get(bar.peer, {})
        if bar.metric not in us or not peer.get(bar.metric):
            continue
        ratio = us[bar.metric] / peer[bar.metric]
        sign = ">=" if bar.at_least else "<="
        verdict = "holds" if bar.holds(ratio) else "MISSED"
        rows.append(
            [CASES[bar.case].name, bar.metric, bar.peer, f"{ratio:.2f}", f"{sign} {bar.limit}", verdict]
        )
    return render(["bar", "figure", "us over", "ratio", "limit", "verdict"], rows) if rows else ""
