"""Where each part of the program went: module by module, the share of its time on every device."""

import re

import numpy as np
from jaxtyping import Float64, Int32

from gdp.cluster import Cluster
from gdp.graph import Graph
from gdp.report.markup import Markup, percent, shorten, tag, text
from gdp.report.quantity import count, seconds, share
from gdp.report.timeline import device_class

MAX_ROWS = 24


def modules_chart(graph: Graph, cluster: Cluster, device: Int32[np.ndarray, " ops"], op_s: Float64[np.ndarray, " ops"]) -> Markup:
    """A bar per module, in program order; `op_s` is each op's time where it is. Empty where the program has no modules."""
    groups = module_groups(graph)
    if len(groups) < 2:
        return Markup("")
    total = float(op_s.sum()) or 1.0
    largest = max(float(op_s[ops].sum()) for ops in groups.values()) or 1.0
    heaviest = sorted(groups, key=lambda name: -float(op_s[groups[name]].sum()))[:MAX_ROWS]
    rows = []
    for name, ops in groups.items():
        if name not in heaviest:
            continue
        of_device = np.bincount(device[ops], weights=op_s[ops], minlength=cluster.num_devices)
        at, pieces = 0.0, []
        for number, part in enumerate(of_device.tolist()):
            if part <= 0:
                continue
            title = f"{shorten(name)} on {cluster.devices[number].name}: {seconds(part)}, {count(int((device[ops] == number).sum()))} ops"
            pieces.append(
                tag(
                    "rect",
                    {"class": f"{device_class(number)} w", "x": percent(at / largest), "width": percent(part / largest), "height": 16},
                    tag("title", {}, text(title)),
                )
            )
            at += part
        drawing = tag(
            "svg", {"width": "100%", "height": 16, "role": "img", "aria-label": f"{name}: {_in_words(cluster, of_device)}"}, *pieces
        )
        where = tag("span", {}, text(f"{seconds(float(of_device.sum()))} on {_in_words(cluster, of_device)}"))
        label = tag("div", {"class": "lane-label"}, tag("b", {"title": name}, text(shorten(name))), where)
        rows.append(tag("div", {"class": "lane module"}, label, drawing))
    keys = [tag("li", {}, tag("i", {"class": f"key {device_class(i)}"}), text(where.name)) for i, where in enumerate(cluster.devices)]
    shown = float(sum(op_s[groups[name]].sum() for name in heaviest))
    rest = (
        tag(
            "p",
            {"class": "hint"},
            text(f"{count(len(groups) - MAX_ROWS)} lighter modules, {share(1 - shown / total)} of the time, are not drawn."),
        )
        if len(groups) > MAX_ROWS
        else Markup("")
    )
    return tag("div", {}, tag("ul", {"class": "legend"}, *keys), tag("div", {"class": "lanes"}, *rows), rest)


def module_groups(graph: Graph) -> dict[str, np.ndarray]:
    """Ops by module, at the shallowest depth where no more than half of the working ops are in one module; ops without a module are left out."""
    paths = [tuple(part for part in re.split(r"[./]", path) if part) for path in graph.module_path]
    inside = [op for op in range(graph.num_ops) if paths[op] and graph.works[op]]
    groups: dict[str, list[int]] = {}
    for depth in range(1, 1 + max((len(paths[op]) for op in inside), default=0)):
        finer: dict[str, list[int]] = {}
        for op in inside:
            finer.setdefault(".".join(paths[op][:depth]), []).append(op)
        if groups and len(finer) > 4 * MAX_ROWS:
            break
        groups = finer
        if max(len(ops) for ops in groups.values()) <= len(inside) / 2 and len(groups) > 2:
            break
    return {name: np.array(ops, np.int64) for name, ops in groups.items()}


def _in_words(cluster: Cluster, of_device: np.ndarray) -> str:
    used = np.flatnonzero(of_device)
    if not len(used):
        return "no device"
    total = float(of_device.sum())
    ordered: list[int] = used[np.argsort(-of_device[used], kind="stable")].tolist()
    if len(ordered) == 1:
        return cluster.devices[ordered[0]].name
    first = ", ".join(f"{cluster.devices[i].name} {share(float(of_device[i]) / total)}" for i in ordered[:2])
    return first if len(ordered) == 2 else f"{first}, +{len(ordered) - 2}"
