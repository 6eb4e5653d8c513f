"""Draws docs/all-reduce.svg from the all-reduce table of PERFORMANCE.md: `python3 bench/ratio_plot.py`.

Each line is the time of another library divided by the time of symmetra, at 4 ranks."""
import math
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 320, 50, 200, 36, 44
UNITS = {"Ki": 10, "Mi": 20, "Gi": 30}
# Columns of the table: bytes, algorithm, symmetra, NCCL, NCCL symmetric, PyTorch one-shot, PyTorch two-shot.
SIDES = {
    "NCCL": ("#d95f02", lambda row: row[3]),
    "NCCL symmetric": ("#7570b3", lambda row: row[4]),
    "PyTorch symmetric memory": ("#1b9e77", lambda row: min(row[5], row[6])),
}


def rows():
    text = (ROOT / "PERFORMANCE.md").read_text().split("\n4 ranks:\n")[1]
    for line in text.strip().splitlines()[2:]:
        if not line.startswith("|"):
            return
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        number, unit = cells[0].split()
        yield [int(number) << UNITS[unit], cells[1], *map(float, cells[2:])]


def main():
    table = list(rows())
    first, last = math.log2(table[0][0]), math.log2(table[-1][0])
    highest = math.ceil(max(side(row) / row[2] for row in table for _, side in SIDES.values()))

    def x(size):
        return LEFT + (math.log2(size) - first) / (last - first) * (WIDTH - LEFT - RIGHT)

    def y(ratio):
        return HEIGHT - BOTTOM - ratio / highest * (HEIGHT - TOP - BOTTOM)

    svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="14">Time of an all-reduce divided by the time of symmetra, 4 H200, bf16</text>',
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 8}" text-anchor="middle">bytes of a rank</text>',
    ]
    for ratio in range(highest + 1):
        colour = "black" if ratio == 1 else "#dddddd"
        svg.append(f'<path d="M{LEFT} {y(ratio):.1f}H{WIDTH - RIGHT}" stroke="{colour}"/>')
        svg.append(f'<text x="{LEFT - 8}" y="{y(ratio) + 4:.1f}" text-anchor="end">{ratio}</text>')
    for size, *_ in table[::2]:
        unit, power = next(item for item in reversed(UNITS.items()) if size >> item[1])
        svg.append(f'<text x="{x(size):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{size >> power}{unit}</text>')
    labels = []
    for name, (colour, side) in SIDES.items():
        points = " ".join(f"{x(row[0]):.1f},{y(side(row) / row[2]):.1f}" for row in table)
        svg.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        labels.append((name, colour))
    for number, (name, colour) in enumerate([*labels, ("symmetra", "black")]):
        height = TOP + 14 + 20 * number
        svg.append(f'<path d="M{WIDTH - RIGHT + 12} {height - 4}h16" stroke="{colour}" stroke-width="2"/>')
        svg.append(f'<text x="{WIDTH - RIGHT + 34}" y="{height}">{name}</text>')
    (ROOT / "docs/all-reduce.svg").write_text("\n".join([*svg, "</svg>"]) + "\n")


main()
