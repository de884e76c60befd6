"""Simple pictures and questions about them.

A case is (pictures, question template, answer, what a right answer must contain, labels). A question template uses
the `[a|b]` form of `facts.py`; a template that begins with `!` is for the evaluation. Everything comes from the
random stream it is given.
"""

from __future__ import annotations

import math

import numpy as np
from PIL import Image, ImageDraw, ImageFont

COLOURS = {
    "red": (220, 30, 30), "green": (30, 160, 50), "blue": (35, 65, 220), "yellow": (245, 215, 25), "orange": (250, 135, 15),
    "purple": (135, 40, 165), "black": (15, 15, 15), "white": (250, 250, 250),
}
SHAPES = ["circle", "square", "triangle", "star", "cross"]
NUMBERS = ["zero", "one", "two", "three", "four", "five"]
GLYPHS = list("0123456789") + list("ABCEHKLMSTXZ")
PLACES = {"left": (0.2, 0.5), "right": (0.8, 0.5), "top": (0.5, 0.2), "bottom": (0.5, 0.8), "middle": (0.5, 0.5)}
WHERE = {"left": "on the left", "right": "on the right", "top": "at the top", "bottom": "at the bottom", "middle": "in the middle"}
# Pixel sizes that the processor makes of squares, 4:3, 3:2 and 16:9, lying and standing.
SIZES = [(128, 128), (128, 96), (96, 128), (160, 96), (96, 160)]
SIZE_WEIGHTS = [0.6, 0.1, 0.1, 0.1, 0.1]

# Labels of the auxiliary loss: what a picture holds, as yes/no values.
LABELS = (
    [f"{c} {s}" for c in COLOURS for s in SHAPES] + [f"count {n}" for n in range(1, 6)] + [f"glyph {g}" for g in GLYPHS]
    + ["dark"] + [f"at {p}" for p in PLACES] + list(COLOURS) + SHAPES
)
LABEL_INDEX = {name: i for i, name in enumerate(LABELS)}


class Canvas:
    """Draws at twice or more the final size; `picture` brings it down as the processor would."""

    def __init__(self, rng, size, dark=None, avoid=()):
        self.rng, self.size = rng, size
        scale = rng.uniform(1.2, 3.0)
        self.w, self.h = (max(48, round(n * scale)) for n in size)
        self.dark = rng.random() < 0.25 if dark is None else dark
        self.background = self.pick_background(avoid)
        self.image = Image.new("RGB", (self.w, self.h), self.background)
        self.draw = ImageDraw.Draw(self.image)

    def pick_background(self, avoid):
        while True:
            grey = self.rng.integers(0, 60) if self.dark else self.rng.integers(205, 256)
            tint = self.rng.integers(-12, 13, 3) if self.rng.random() < 0.5 else np.zeros(3, int)
            colour = tuple(int(v) for v in np.clip(grey + tint, 0, 255))
            if all(sum(abs(a - b) for a, b in zip(colour, COLOURS[c])) > 200 for c in avoid):
                return colour
            if {"white", "black"} <= set(avoid):  # neither light nor dark stands apart: a middle grey does
                return (128, 128, 128)
            self.dark = not self.dark

    def shape(self, name, colour, x, y, r):
        """Centre in shares of the picture, radius in shares of its shorter side."""
        x, y, r = x * self.w, y * self.h, r * min(self.w, self.h)
        fill = tuple(int(np.clip(v + self.rng.integers(-18, 19), 0, 255)) for v in COLOURS[colour])
        turn = self.rng.uniform(-0.25, 0.25)
        at = lambda radius, angle: (x + radius * math.sin(angle + turn), y - radius * math.cos(angle + turn))
        if name == "circle":
            self.draw.ellipse((x - r, y - r, x + r, y + r), fill=fill)
        elif name == "square":
            self.draw.polygon([at(r * 1.2, math.pi * (0.25 + i / 2)) for i in range(4)], fill=fill)
        elif name == "triangle":
            self.draw.polygon([at(r * 1.2, math.pi * 2 * i / 3) for i in range(3)], fill=fill)
        elif name == "star":
            self.draw.polygon([at(r * (1.2 if i % 2 == 0 else 0.5), math.pi * i / 5) for i in range(10)], fill=fill)
        else:
            for angle in (0, math.pi / 2):
                wide = 0.36 * r
                ux, uy = math.sin(angle + turn), -math.cos(angle + turn)
                px, py = -uy * wide, ux * wide
                a, b = (x - 1.1 * r * ux, y - 1.1 * r * uy), (x + 1.1 * r * ux, y + 1.1 * r * uy)
                self.draw.polygon([(a[0] + px, a[1] + py), (b[0] + px, b[1] + py), (b[0] - px, b[1] - py), (a[0] - px, a[1] - py)], fill=fill)

    def glyph(self, text, colour):
        size = int(min(self.w, self.h) * self.rng.uniform(0.5, 0.85))
        font = ImageFont.load_default(size)
        x = self.w * self.rng.uniform(0.42, 0.58)
        y = self.h * self.rng.uniform(0.45, 0.55)
        self.draw.text((x, y), text, fill=COLOURS[colour], font=font, anchor="mm")

    def picture(self):
        return self.image.resize(self.size, Image.BICUBIC)


def pick(rng, items):
    return items[int(rng.integers(len(items)))]


def some(rng, items, n):
    return [items[i] for i in rng.permutation(len(items))[:n]]


def plural(shape):
    return "crosses" if shape == "cross" else shape + "s"


def article(words):
    return ("an " if words[0] in "aeio" else "a ") + words


# ---------------------------------------------------------------- kinds of picture


def one_shape(rng, size):
    colour, shape = pick(rng, list(COLOURS)), pick(rng, SHAPES)
    c = Canvas(rng, size, avoid=[colour])
    r = rng.uniform(0.16, 0.36)
    c.shape(shape, colour, rng.uniform(r * 0.9 + 0.05, 0.95 - r * 0.9), rng.uniform(r * 0.9 + 0.05, 0.95 - r * 0.9), r)
    labels = [f"{colour} {shape}", "count 1"] + ["dark"] * c.dark
    ask = rng.random()
    if ask < 0.5:
        return [c], ["[What is|What's] [in the picture|in this picture|on the picture|in the image|this|shown here|in the photo]?", "What [do you see|can you see|does the picture show|is shown][ here|]?",
                     "[Describe|Look at] [the picture|this picture|the image|this].", "[What|Which] [shape and colour|colour and shape] is [this|it]?", "Tell me what [you see|this is|is in the picture].",
                     "!Say what you see.", "!What have we here?", "!Please describe what is shown."], f"The picture shows {article(f'{colour} {shape}')}.", [f"{colour} {shape}"], labels, "colour+shape"
    if ask < 0.75:
        return [c], [f"[What|Which] colo[u|]r is [it|this|the {shape}|the shape|this {shape}]?", f"What is the colo[u|]r of [this|it|the {shape}|the shape]?", f"[Tell me|Name] the colo[u|]r of the [{shape}|shape].",
                     f"!Which colour does the {shape} have?", "!And the colour?"], f"It is {colour}.", [colour], labels, "colour"
    return [c], ["[What|Which] shape is [it|this|that]?", f"What is the shape[ here| of this|]?", f"[What|Which] [kind|sort] of shape is [this|it]?", f"[Name|Tell me] the shape.", f"!Which shape do you see?", "!And the shape?"], \
        f"It is {article(shape)}.", [shape], labels, "shape"


def count(rng, size):
    n = int(rng.integers(1, 6))
    colour, shape = pick(rng, list(COLOURS)), pick(rng, SHAPES)
    c = Canvas(rng, size, avoid=[colour])
    r = rng.uniform(0.08, 0.13) if n > 3 else rng.uniform(0.09, 0.16)
    scatter(rng, c, n, r, lambda x, y: c.shape(shape, colour, x, y, r))
    things = plural(shape)
    are = "is one " + shape if n == 1 else f"are {NUMBERS[n]} {things}"
    return [c], [f"How many [{things}|shapes|{colour} {things}|things] [are there|are in the picture|do you see|can you see|are shown][ here|]?", f"[Count|Please count] the [{things}|shapes|{colour} {things}].",
                 f"[What is the number|Tell me the number] of [{things}|shapes]?", f"How many[ {things}|]?", f"!Could you count the {things}?", f"!How many {things} does the picture have?"], \
        f"There {are}.", [NUMBERS[n]], [f"{colour} {shape}", f"count {n}"] + ["dark"] * c.dark, "count"


def scatter(rng, c, n, r, put):
    """Places n things of radius r without touching each other."""
    side = min(c.w, c.h)
    mx, my = 1.35 * r * side / c.w, 1.35 * r * side / c.h
    while True:
        at = [(rng.uniform(mx, 1 - mx), rng.uniform(my, 1 - my)) for _ in range(n)]
        apart = (math.hypot((a[0] - b[0]) * c.w, (a[1] - b[1]) * c.h) for i, a in enumerate(at) for b in at[:i])
        if all(d > 2.6 * r * side for d in apart):
            break
    for x, y in at:
        put(x, y)


def position(rng, size):
    place = pick(rng, list(PLACES))
    colour, shape = pick(rng, list(COLOURS)), pick(rng, SHAPES)
    c = Canvas(rng, size, avoid=[colour])
    x, y = PLACES[place]
    c.shape(shape, colour, x + rng.uniform(-0.06, 0.06), y + rng.uniform(-0.06, 0.06), rng.uniform(0.1, 0.17))
    labels = [f"{colour} {shape}", "count 1", f"at {place}"] + ["dark"] * c.dark
    return [c], [f"Where is [the {shape}|the {colour} {shape}|it|the shape]?", f"[In which|On which|In what] [part|place|side] of the [picture|image] is [the {shape}|the shape|it]?",
                 f"[What is|Tell me] the [position|place] of the [{shape}|shape].", f"Where [do you see|can you see] [the {shape}|it]?", f"!Whereabouts is the {shape}?", f"!Can you find the {shape}?"], \
        f"The {shape} is {WHERE[place]}.", [WHERE[place]], labels, "position"


def two_places(rng, size):
    (ca, sa), (cb, sb) = zip(some(rng, list(COLOURS), 2), some(rng, SHAPES, 2))
    across = rng.random() < 0.5
    c = Canvas(rng, size, avoid=[ca, cb])
    spots = [(0.26, 0.5), (0.74, 0.5)] if across else [(0.5, 0.26), (0.5, 0.74)]
    for (x, y), colour, shape in zip(spots, (ca, cb), (sa, sb)):
        c.shape(shape, colour, x + rng.uniform(-0.04, 0.04), y + rng.uniform(-0.04, 0.04), rng.uniform(0.11, 0.17))
    which = int(rng.integers(2))
    place = (["left", "right"] if across else ["top", "bottom"])[which]
    thing = [f"{ca} {sa}", f"{cb} {sb}"][which]
    return [c], [f"[What is|What's|What do you see] {WHERE[place]}?", f"[Which|What] shape is {WHERE[place]}?", f"Which thing is {WHERE[place]}?", f"!What stands {WHERE[place]}?"], \
        f"A{'n' if thing[0] in 'aeio' else ''} {thing} is {WHERE[place]}.", [thing], [f"{ca} {sa}", f"{cb} {sb}", "count 2"], "two places"


def bigger(rng, size):
    (ca, sa), (cb, sb) = zip(some(rng, list(COLOURS), 2), some(rng, SHAPES, 2))
    c = Canvas(rng, size, avoid=[ca, cb])
    radii = [rng.uniform(0.19, 0.24), rng.uniform(0.08, 0.12)]
    spots = [(0.27, 0.5), (0.75, 0.5)] if rng.random() < 0.5 else [(0.5, 0.27), (0.5, 0.76)]
    if rng.random() < 0.5:
        spots.reverse()
    for (x, y), colour, shape, r in zip(spots, (ca, cb), (sa, sb), radii):
        c.shape(shape, colour, x + rng.uniform(-0.03, 0.03), y + rng.uniform(-0.03, 0.03), r)
    labels = [f"{ca} {sa}", f"{cb} {sb}", "count 2"]
    if rng.random() < 0.5:
        return [c], ["[Which|Which one|Which shape|What] is [bigger|larger|the bigger one|the biggest]?", "!Which shape is the larger one?"], f"The {ca} {sa} is bigger.", [f"{ca} {sa}"], labels, "size"
    return [c], ["[Which|Which one|Which shape|What] is [smaller|the smaller one|the smallest]?", "!Which shape is the tiny one?"], f"The {cb} {sb} is smaller.", [f"{cb} {sb}"], labels, "size"


def glyph(rng, size):
    text = pick(rng, GLYPHS)
    colour = pick(rng, [c for c in COLOURS if c != "yellow"])
    c = Canvas(rng, size, avoid=[colour])
    c.glyph(text, colour)
    kind = "digit" if text.isdigit() else "letter"
    return [c], [f"[Which|What] [{kind}|character] is [this|it|that|shown|in the picture]?", f"[What|Which] {kind} do you see?", f"[Read|Name] the [{kind}|character].", f"[What is|What's] written [here|in the picture]?",
                 f"!Can you read the {kind}?", f"!Tell me which {kind} you see."], f"It is the {kind} {text}.", [f"{kind} {text}."], [f"glyph {text}"] + ["dark"] * c.dark, "glyph"


def light(rng, size):
    dark = rng.random() < 0.5
    avoid = [] if rng.random() < 0.4 else [pick(rng, [c for c in COLOURS if c not in ("black", "white")])]
    c = Canvas(rng, size, dark=dark)
    if avoid:
        shape = pick(rng, SHAPES)
        c.shape(shape, avoid[0], rng.uniform(0.25, 0.75), rng.uniform(0.25, 0.75), rng.uniform(0.08, 0.15))
    labels = ["dark"] * dark + ([f"{avoid[0]} {shape}", "count 1"] if avoid else [])
    return [c], ["Is [the picture|it|the image|this picture|the background] [light or dark|dark or light|dark or bright]?", "[How bright is|How light is] [the picture|it|the image]?",
                 "!Would you call the picture light or dark?", "!Light or dark?"], f"The picture is {'dark' if dark else 'light'}.", ["dark" if dark else "light"], labels, "light"


def compare(rng, size):
    by_colour, same = rng.random() < 0.5, rng.random() < 0.5
    colours, shapes = some(rng, list(COLOURS), 2), some(rng, SHAPES, 2)
    if by_colour and same:
        colours[1] = colours[0]
    if not by_colour and same:
        shapes[1] = shapes[0]
    canvases = []
    for colour, shape in zip(colours, shapes):
        c = Canvas(rng, size, avoid=[colour])
        c.shape(shape, colour, rng.uniform(0.35, 0.65), rng.uniform(0.35, 0.65), rng.uniform(0.18, 0.32))
        canvases.append(c)
    labels = [[f"{c} {s}", "count 1"] for c, s in zip(colours, shapes)]
    if by_colour:
        answer, must = (f"Yes, both are {colours[0]}.", [f"Yes, both are {colours[0]}"]) if same else (
            f"No, the first is {colours[0]} and the second is {colours[1]}.", ["No", f"first is {colours[0]}", f"second is {colours[1]}"])
        ways = ["[Are they|Are both|Are the two|Are the shapes] [the same colo[u|]r|of the same colo[u|]r]?", "Do [they|both|the two|the pictures] have the same colo[u|]r?", "[Compare|Tell me about] the colo[u|]rs.",
                "!Is the colour of both the same?"]
    else:
        a, b = (article(s) for s in shapes)
        answer, must = (f"Yes, both are {plural(shapes[0])}.", [f"Yes, both are {plural(shapes[0])}"]) if same else (
            f"No, the first is {a} and the second is {b}.", ["No", f"first is {a}", f"second is {b}"])
        ways = ["[Are they|Are both|Are the two] [the same shape|of the same shape]?", "Do [they|both|the two|the pictures] [have|show] the same shape?", "[Compare|Tell me about] the shapes.", "!Is the shape of both the same?"]
    return canvases, ways, answer, must, labels, "compare"


KINDS = [(one_shape, 0.24), (count, 0.2), (position, 0.13), (two_places, 0.1), (bigger, 0.08), (glyph, 0.1), (light, 0.04), (compare, 0.11)]


def case(rng, size, kind=None):
    """One case: pictures of exactly `size`, the same before resizing, …, and the labels as a 0/1 row per picture."""
    if kind is None:
        kind = [k for k, _ in KINDS][int(rng.choice(len(KINDS), p=np.array([w for _, w in KINDS]) / sum(w for _, w in KINDS)))]
    canvases, ways, answer, must, labels, name = kind(rng, size)
    rows = np.zeros((len(canvases), len(LABELS)), np.float32)
    for row, names in zip(rows, labels if len(canvases) > 1 else [labels]):
        for label in names:
            for part in {label, *label.split()} & LABEL_INDEX.keys():
                row[LABEL_INDEX[part]] = 1
    return [c.picture() for c in canvases], [c.image for c in canvases], ways, answer, must, rows, name


def patches(image):
    """[N, 3*16*16] f32 in the order of 2x2 blocks, scaled to -1..1."""
    x = np.asarray(image, np.float32) / 127.5 - 1
    h, w = x.shape[0] // 32, x.shape[1] // 32
    x = x.reshape(h, 2, 16, w, 2, 16, 3).transpose(0, 3, 1, 4, 6, 2, 5)
    return np.ascontiguousarray(x.reshape(h * w * 4, 3 * 16 * 16))
