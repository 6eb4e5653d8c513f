"""Draws docs/all-reduce.svg and docs/layer.svg from bench/results: `python3 bench/ratio_plot.py`.

Each line is the time of another way divided by the time of symmetra: of all-reduces and of a decoder layer, at 4 ranks."""
import json
import math
import pathlib
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parent.parent
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 820, 360, 74, 190, 40, 58
TICK = 5
UNITS = {"Ki": 10, "Mi": 20, "Gi": 30}
COLOURS = ["#d95f02", "#7570b3", "#1b9e77"]


@dataclass
class Plot:
    """Lines over sizes that are powers of two."""

    file: str
    title: str
    across: str
    sizes: list
    ticks: list  # of the sizes, as words
    lines: dict  # a name: ratios, None where there is none
    best: str  # what the values are divided by
    low: float
    step: float


def table(name):
    """The rows of a file of results."""
    return json.loads((ROOT / "bench" / "results" / f"{name}.json").read_text())["rows"]


def all_reduce():
    """Columns: bytes, algorithm, symmetra, NCCL, NCCL symmetric, PyTorch one-shot, PyTorch two-shot."""
    sizes, lines = [], {"NCCL": [], "NCCL symmetric": [], "PyTorch symmetric memory": []}
    for cells in table("all-reduce-bf16-4"):
        number, unit = cells[0].split()
        sizes.append(int(number) << UNITS[unit])
        ours, nccl, symmetric, one_shot, two_shot = cells[2:7]
        for ratios, time in zip(lines.values(), (nccl, symmetric, min(one_shot, two_shot))):
            ratios.append(time / ours)
    ticks = []
    for size in sizes:
        unit, power = next(item for item in reversed(UNITS.items()) if size >> item[1])
        ticks.append(f"{size >> power}{unit}")
    title = "Time of an all-reduce divided by the time of symmetra, 4 H200, bf16"
    return Plot("all-reduce.svg", title, "message of a rank, bytes", sizes, ticks, lines, "symmetra", 0, 1)


def layer():
    """Columns: tokens, six ways of symmetra, NCCL's all-reduces, NCCL's reduce-scatters and all-gathers, tokens a second."""
    sizes, lines = [], {"NCCL, all-reduce": [], "NCCL, reduce-scatter": []}
    for times in table("layer-4"):
        best = min(time for time in times[1:7] if time)
        sizes.append(times[0])
        for ratios, time in zip(lines.values(), times[7:9]):
            ratios.append(time and time / best)
    title = "Time of a Llama-3 70B layer divided by the best of symmetra, 4 H100, bf16"
    return Plot("layer.svg", title, "tokens", sizes, [str(size) for size in sizes], lines, "symmetra, best way", 0.9, 0.1)


def draw(plot):
    first, last = math.log2(plot.sizes[0]), math.log2(plot.sizes[-1])
    most = max(ratio for ratios in plot.lines.values() for ratio in ratios if ratio)
    steps = math.ceil((most - plot.low) / plot.step - 1e-9)

    def x(size):
        return LEFT + (math.log2(size) - first) / (last - first) * (WIDTH - LEFT - RIGHT)

    def y(ratio):
        return HEIGHT - BOTTOM - (ratio - plot.low) / (steps * plot.step) * (HEIGHT - TOP - BOTTOM)

    base, end = HEIGHT - BOTTOM, WIDTH - RIGHT
    label = "time / time of symmetra (higher: symmetra is faster)"
    svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="15">{plot.title}</text>',
        f'<text x="{(LEFT + end) / 2:.0f}" y="{HEIGHT - 10}" text-anchor="middle">{plot.across}</text>',
        f'<text transform="translate(18 {(TOP + base) / 2:.0f}) rotate(-90)" text-anchor="middle">{label}</text>',
    ]
    for number in range(steps + 1):
        ratio = round(plot.low + number * plot.step, 3)
        colour = "black" if ratio == 1 else "#dddddd"
        svg.append(f'<path d="M{LEFT} {y(ratio):.1f}H{end}" stroke="{colour}"/>')
        svg.append(f'<path d="M{LEFT - TICK} {y(ratio):.1f}h{TICK}" stroke="black"/>')
        svg.append(f'<text x="{LEFT - TICK - 4}" y="{y(ratio) + 4:.1f}" text-anchor="end">{ratio:g}</text>')
    svg.append(f'<path d="M{LEFT} {TOP}V{base}H{end}" fill="none" stroke="black"/>')
    every = 2 if len(plot.sizes) > 10 else 1
    for number, (size, words) in enumerate(zip(plot.sizes, plot.ticks)):
        svg.append(f'<path d="M{x(size):.1f} {base}v{TICK}" stroke="black"/>')
        if number % every == 0:
            svg.append(f'<text x="{x(size):.1f}" y="{base + TICK + 14}" text-anchor="middle">{words}</text>')
    ends = [(y(1), plot.best, "black")]
    for (name, ratios), colour in zip(plot.lines.items(), COLOURS):
        points = [(x(size), y(ratio)) for size, ratio in zip(plot.sizes, ratios) if ratio]
        words = " ".join(f"{across:.1f},{up:.1f}" for across, up in points)
        svg.append(f'<polyline points="{words}" fill="none" stroke="{colour}" stroke-width="2"/>')
        svg += [f'<circle cx="{across:.1f}" cy="{up:.1f}" r="2.5" fill="{colour}"/>' for across, up in points]
        ends.append((points[-1][1], name, colour))
    # Each name stands where its line ends, and none covers another.
    height, names = math.inf, []
    for up, name, colour in sorted(ends, reverse=True):
        height = min(up, height - 18)
        names.append((up, height, name, colour))
    low = max(0, max(height for _, height, _, _ in names) - base)
    for up, height, name, colour in names:
        svg.append(f'<path d="M{end + 2} {up:.1f}L{end + 12} {height - low:.1f}" stroke="{colour}"/>')
        svg.append(f'<text x="{end + 16}" y="{height - low + 4:.1f}" fill="{colour}">{name}</text>')
    (ROOT / "docs" / plot.file).write_text("\n".join([*svg, "</svg>"]) + "\n")


for plot in (all_reduce(), layer()):
    draw(plot)
