"""Draws docs/all-reduce.svg and docs/layer.svg from tables of PERFORMANCE.md: `python3 bench/ratio_plot.py`.

Each line is the time of another way divided by the time of symmetra: of all-reduces and of a decoder layer, at 4 ranks."""
import math
import pathlib
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parent.parent
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 320, 50, 200, 36, 44
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
    low: float
    step: float


def table(heading):
    """The cells of the first table behind a line, row by row."""
    text = (ROOT / "PERFORMANCE.md").read_text().split(f"\n{heading}:\n")[1]
    for line in text.strip().splitlines()[2:]:
        if not line.startswith("|"):
            return
        yield [cell.strip() for cell in line.strip("|").split("|")]


def all_reduce():
    """Columns: bytes, algorithm, symmetra, NCCL, NCCL symmetric, PyTorch one-shot, PyTorch two-shot."""
    sizes, lines = [], {"NCCL": [], "NCCL symmetric": [], "PyTorch symmetric memory": []}
    for cells in table("4 ranks"):
        number, unit = cells[0].split()
        sizes.append(int(number) << UNITS[unit])
        ours, nccl, symmetric, one_shot, two_shot = map(float, cells[2:7])
        for ratios, time in zip(lines.values(), (nccl, symmetric, min(one_shot, two_shot))):
            ratios.append(time / ours)
    ticks = []
    for size in sizes:
        unit, power = next(item for item in reversed(UNITS.items()) if size >> item[1])
        ticks.append(f"{size >> power}{unit}")
    title = "Time of an all-reduce divided by the time of symmetra, 4 H200, bf16"
    return Plot("all-reduce.svg", title, "bytes of a rank", sizes, ticks, lines, 0, 1)


def layer():
    """Columns: tokens, six ways of symmetra, NCCL's all-reduces, NCCL's reduce-scatters and all-gathers, tokens a second."""
    sizes, lines = [], {"NCCL, all-reduce": [], "NCCL, reduce-scatter": []}
    for cells in table("layer, 4 ranks"):
        times = [float(cell) if cell != "-" else None for cell in cells[:9]]
        best = min(time for time in times[1:7] if time)
        sizes.append(int(times[0]))
        for ratios, time in zip(lines.values(), times[7:9]):
            ratios.append(time and time / best)
    title = "Time of a Llama-3 70B layer divided by the best of symmetra, 4 H100, bf16"
    return Plot("layer.svg", title, "tokens", sizes, [str(size) for size in sizes], lines, 0.9, 0.1)


def draw(plot):
    first, last = math.log2(plot.sizes[0]), math.log2(plot.sizes[-1])
    most = max(ratio for ratios in plot.lines.values() for ratio in ratios if ratio)
    steps = math.ceil((most - plot.low) / plot.step - 1e-9)

    def x(size):
        return LEFT + (math.log2(size) - first) / (last - first) * (WIDTH - LEFT - RIGHT)

    def y(ratio):
        return HEIGHT - BOTTOM - (ratio - plot.low) / (steps * plot.step) * (HEIGHT - TOP - BOTTOM)

    svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="14">{plot.title}</text>',
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 8}" text-anchor="middle">{plot.across}</text>',
    ]
    for number in range(steps + 1):
        ratio = round(plot.low + number * plot.step, 3)
        colour = "black" if ratio == 1 else "#dddddd"
        svg.append(f'<path d="M{LEFT} {y(ratio):.1f}H{WIDTH - RIGHT}" stroke="{colour}"/>')
        svg.append(f'<text x="{LEFT - 8}" y="{y(ratio) + 4:.1f}" text-anchor="end">{ratio:g}</text>')
    every = 2 if len(plot.sizes) > 10 else 1
    for size, words in list(zip(plot.sizes, plot.ticks))[::every]:
        svg.append(f'<text x="{x(size):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{words}</text>')
    for (name, ratios), colour in zip(plot.lines.items(), COLOURS):
        points = " ".join(f"{x(size):.1f},{y(ratio):.1f}" for size, ratio in zip(plot.sizes, ratios) if ratio)
        svg.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
    for number, (name, colour) in enumerate([*zip(plot.lines, COLOURS), ("symmetra", "black")]):
        height = TOP + 14 + 20 * number
        svg.append(f'<path d="M{WIDTH - RIGHT + 12} {height - 4}h16" stroke="{colour}" stroke-width="2"/>')
        svg.append(f'<text x="{WIDTH - RIGHT + 34}" y="{height}">{name}</text>')
    (ROOT / "docs" / plot.file).write_text("\n".join([*svg, "</svg>"]) + "\n")


for plot in (all_reduce(), layer()):
    draw(plot)
