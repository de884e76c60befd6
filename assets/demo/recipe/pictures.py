"""Simple pictures and questions about them.

A scene is one picture, or two to compare, with the questions that suit it. A question is (group, ways to ask, answer,
what a right answer must contain); ways use the `[a|b]` form of `facts.py`, and one that begins with `!` is for the
evaluation. Everything comes from the random stream it is given.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from PIL import Image, ImageDraw, ImageFont

# Several tones of each colour: people draw with the pure ones too.
COLOURS = {
    "red": [(220, 30, 30), (255, 0, 0), (200, 20, 40)], "green": [(30, 160, 50), (0, 128, 0), (0, 220, 0)],
    "blue": [(35, 65, 220), (0, 0, 255), (20, 90, 230)], "yellow": [(245, 215, 25), (255, 255, 0), (255, 230, 50)],
    "orange": [(250, 135, 15), (255, 165, 0), (255, 140, 0)], "purple": [(135, 40, 165), (128, 0, 128), (155, 50, 215)],
    "black": [(15, 15, 15), (0, 0, 0), (30, 30, 30)], "white": [(250, 250, 250), (255, 255, 255), (240, 240, 240)],
}
SHAPES = ["circle", "square", "triangle", "star", "cross"]
NUMBERS = ["zero", "one", "two", "three", "four", "five"]
GLYPHS = list("0123456789") + list("ABCEHKLMSTXZ")  # have labels
DRAWN_GLYPHS = list("0123456789") + list("ACEHTX")
PLACES = {
    "left": (0.2, 0.5), "right": (0.8, 0.5), "top": (0.5, 0.2), "bottom": (0.5, 0.8), "middle": (0.5, 0.5),
    "top left": (0.2, 0.2), "top right": (0.8, 0.2), "bottom left": (0.2, 0.8), "bottom right": (0.8, 0.8),
}
PLACE_WEIGHTS = [0.14, 0.14, 0.14, 0.14, 0.16, 0.07, 0.07, 0.07, 0.07]
WHERE = {"left": "on the left", "right": "on the right", "top": "at the top", "bottom": "at the bottom", "middle": "in the middle"} | {
    p: f"at the {p}" for p in list(PLACES)[5:]}

# ---------------------------------------------------------------- sizes

CELL = 32
MIN_PIXELS, MAX_PIXELS = 12288, 18600  # areas, as in the processor's configuration


def resized(w, h):
    """The size that the family's processor brings a picture to."""
    to = lambda n: round(n / CELL) * CELL
    if to(w) * to(h) > MAX_PIXELS:
        by = math.sqrt(w * h / MAX_PIXELS)
        return tuple(max(CELL, math.floor(n / by / CELL) * CELL) for n in (w, h))
    if to(w) * to(h) < MIN_PIXELS:
        by = math.sqrt(MIN_PIXELS / (w * h))
        return tuple(math.ceil(n * by / CELL) * CELL for n in (w, h))
    return to(w), to(h)


@dataclass(frozen=True)
class Frame:
    """A picture's size as drawn and as the model sees it."""

    drawn: tuple
    seen: tuple


COMMON_ASPECTS = [1.0] * 8 + [4 / 3] * 3 + [3 / 2] * 2 + [16 / 9] * 2 + [1.25, 1.1, 2.0]


def frame(rng, seen=None):
    """A random frame; with `seen`, one that the processor brings to that size."""
    while True:
        aspect = pick(rng, COMMON_ASPECTS) if rng.random() < 0.7 else math.exp(rng.uniform(0, math.log(2.4)))
        if seen and rng.random() < 0.6:  # most draws of a free aspect would miss a rare size
            aspect = max(seen) / min(seen) * math.exp(rng.uniform(-0.25, 0.2))
        area = MAX_PIXELS * math.exp(rng.uniform(math.log(1.2), math.log(4)))
        long, short = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        upright = seen[0] < seen[1] if seen and seen[0] != seen[1] else rng.random() < 0.5
        drawn = (short, long) if upright else (long, short)
        if seen in (None, resized(*drawn)):
            return Frame(drawn, resized(*drawn))


# ---------------------------------------------------------------- labels of the auxiliary losses

THINGS = [f"{c} {s}" for c in COLOURS for s in SHAPES] + list(COLOURS) + SHAPES + [f"glyph {g}" for g in GLYPHS]
COUNTS = [f"count {n}" for n in range(1, 6)]
SIDES = ["left", "right", "top", "bottom"]
# What each 32x32 cell shows, and what the whole picture does, as yes/no values. The cells of a thing also say where in the
# picture it is, how many there are and whether it is the bigger or the smaller one: what the trunk then only has to read.
CELL_LABELS = THINGS + ["centre"] + SIDES + COUNTS + ["bigger", "smaller"]
LABELS = THINGS + COUNTS + ["dark"] + [f"at {p}" for p in PLACES]
CELL_INDEX = {name: i for i, name in enumerate(CELL_LABELS)}
LABEL_INDEX = {name: i for i, name in enumerate(LABELS)}


class Canvas:
    """Draws at the frame's first size; `picture` brings it to what the model sees, as the processor would."""

    def __init__(self, rng, frame, dark=None, avoid=()):
        self.rng, self.frame = rng, frame
        self.w, self.h = frame.drawn
        self.side = min(self.w, self.h)
        self.dark = rng.random() < 0.25 if dark is None else dark
        self.background = self.pick_background(avoid)
        self.image = Image.new("RGB", (self.w, self.h), self.background)
        self.draw = ImageDraw.Draw(self.image)
        self.items = []  # (names of things, x, y, radius), in pixels as drawn
        self.labels = set()

    def pick_background(self, avoid):
        for _ in range(8):
            if self.rng.random() < 0.3:
                grey = 0 if self.dark else 255
            else:
                grey = self.rng.integers(0, 60) if self.dark else self.rng.integers(205, 256)
            tint = self.rng.integers(-12, 13, 3) if self.rng.random() < 0.5 else np.zeros(3, int)
            colour = tuple(int(v) for v in np.clip(grey + tint, 0, 255))
            if all(sum(abs(a - b) for a, b in zip(colour, tone)) > 200 for c in avoid for tone in COLOURS[c]):
                return colour
            self.dark = not self.dark
        self.dark = None  # neither light nor dark stands apart from all: a middle grey does
        return (128, 128, 128)

    def radius(self, low, high):
        """A radius in shares of the shorter side, but no smaller than what can be told apart."""
        low = max(low, 9 / min(self.frame.seen))
        return self.rng.uniform(low, max(high, low * 1.2))

    def shape(self, name, colour, x, y, r, more=()):
        """Centre in shares of the picture, radius in shares of its shorter side; `more` are further labels."""
        names = [f"{colour} {name}", colour, name]
        self.labels |= set(names)
        x, y, r = x * self.w, y * self.h, r * self.side
        self.items.append(([*names, *more], x, y, r))
        tone = pick(self.rng, COLOURS[colour])
        fill = tuple(int(min(max(v + self.rng.integers(-12, 13), 0), 255)) for v in tone)
        turn = 0 if self.rng.random() < 0.4 else self.rng.uniform(-0.25, 0.25)
        at = lambda radius, angle: (x + radius * math.sin(angle + turn), y - radius * math.cos(angle + turn))
        if name == "circle":
            self.draw.ellipse((x - r, y - r, x + r, y + r), fill=fill)
        elif name == "square":
            self.draw.polygon([at(r * 1.25, math.pi * (0.25 + i / 2)) for i in range(4)], fill=fill)
        elif name == "triangle":
            self.draw.polygon([at(r * 1.25, math.pi * 2 * i / 3) for i in range(3)], fill=fill)
        elif name == "star":
            inner = self.rng.uniform(0.42, 0.52)
            self.draw.polygon([at(r * (1.25 if i % 2 == 0 else inner), math.pi * i / 5) for i in range(10)], fill=fill)
        else:
            wide = self.rng.uniform(0.26, 0.4) * r
            for angle in (0, math.pi / 2):
                ux, uy = math.sin(angle + turn), -math.cos(angle + turn)
                px, py = -uy * wide, ux * wide
                a, b = (x - 1.1 * r * ux, y - 1.1 * r * uy), (x + 1.1 * r * ux, y + 1.1 * r * uy)
                self.draw.polygon([(a[0] + px, a[1] + py), (b[0] + px, b[1] + py), (b[0] - px, b[1] - py), (a[0] - px, a[1] - py)], fill=fill)

    def glyph(self, text, colour):
        self.labels |= {f"glyph {text}"}
        size = int(self.side * self.rng.uniform(0.5, 0.95))
        x = self.w * self.rng.uniform(0.42, 0.58)
        y = self.h * self.rng.uniform(0.45, 0.55)
        self.items.append(([f"glyph {text}"], x, y, size * 0.35))
        self.draw.text((x, y), text, fill=pick(self.rng, COLOURS[colour]), font=font(size), anchor="mm")

    def picture(self):
        return self.image.resize(self.frame.seen, Image.BICUBIC)

    def rows(self):
        """The labels of the picture and of its cells, row by row, as 0/1."""
        if self.dark:
            self.labels.add("dark")
        whole = np.zeros(len(LABELS), np.float32)
        whole[[LABEL_INDEX[name] for name in sorted(self.labels)]] = 1
        columns, lines = (n // CELL for n in self.frame.seen)
        cells = np.zeros((lines * columns, len(CELL_LABELS)), np.float32)
        x = (np.tile(np.arange(columns), lines) + 0.5) * self.w / columns
        y = (np.repeat(np.arange(lines), columns) + 0.5) * self.h / lines
        half = self.side * CELL / min(self.frame.seen) / 2
        for names, ix, iy, r in self.items:
            near = (x - ix) ** 2 + (y - iy) ** 2 < (r + 0.6 * half) ** 2
            mine = int(iy * lines / self.h) * columns + int(ix * columns / self.w)
            near[mine] = True
            sides = [side for side, there in zip(SIDES, (ix < 0.36 * self.w, ix > 0.64 * self.w, iy < 0.36 * self.h, iy > 0.64 * self.h)) if there]
            for name in [*names, *sides, *(name for name in COUNTS if name in self.labels)]:
                cells[near, CELL_INDEX[name]] = 1
            cells[mine, CELL_INDEX["centre"]] = 1
        return whole, cells


@lru_cache(maxsize=None)
def font(size):
    return ImageFont.load_default(size)


def pick(rng, items):
    return items[int(rng.integers(len(items)))]


def some(rng, items, n):
    return [items[i] for i in rng.permutation(len(items))[:n]]


def plural(shape):
    return "crosses" if shape == "cross" else shape + "s"


def article(words):
    return ("an " if words[0] in "aeio" else "a ") + words


def upper(text):
    return text[0].upper() + text[1:]


# ---------------------------------------------------------------- questions

DESCRIBE = ["[What is|What's] [in the picture|in this picture|on the picture|in the image|this|shown here|in the photo|here|that]?",
            "What [do you see|can you see|does the picture show|is shown|does it show][ here|]?", "[Describe|Look at|Explain] [the picture|this picture|the image|this|it].",
            "Tell me what [you see|this is|is in the picture|it shows].", "[What|Which] [shape and colour|colour and shape] is [this|it]?",
            "!Say what you see.", "!What have we here?", "!Please describe what is shown."]
LIGHT = ["Is [the picture|it|the image|this picture|the background] [light or dark|dark or light|dark or bright]?", "[How bright is|How light is] [the picture|it|the image]?",
         "!Would you call the picture light or dark?", "!Light or dark?"]


def ask_describe(what, must, group="describe"):
    return group, DESCRIBE, f"The picture shows {what}.", [must]


def ask_colour(shape, colour):
    return "colour", [f"[What|Which] colo[u|]r is [it|this|the {shape}|the shape|this {shape}]?", f"What is the colo[u|]r of [this|it|the {shape}|the shape]?",
                      f"[Tell me|Name] the colo[u|]r of the [{shape}|shape].", f"!Which colour does the {shape} have?", "!And the colour?"], f"It is {colour}.", [f"is {colour}."]


def ask_shape(shape):
    return "shape", ["[What|Which] shape is [it|this|that]?", "What is the shape[ here| of this|]?", "[What|Which] [kind|sort] of shape is [this|it]?", "[Name|Tell me] the shape.",
                     "!Which shape do you see?", "!And the shape?"], f"It is {article(shape)}.", [f"{shape}."]


def ask_count(things, n, one, generic=True):
    any_of = f"[{things}|shapes|things|objects]" if generic else "[shapes|things|objects]"
    are = f"is one {one}" if n == 1 else f"are {NUMBERS[n]} {things}"
    named = things if generic else "shapes"
    return "count", [f"How many {any_of} [are there|are in the picture|do you see|can you see|are shown|are here][ here|]?", f"[Count|Please count] the {any_of}.",
                     f"[What is the number|Tell me the number] of {any_of}?", f"How many[ {any_of}|]?", f"!Could you count the {named}?", f"!How many {named} does the picture have?"], \
        f"There {are}.", [NUMBERS[n]]


def ask_where(shape, colour, place):
    return "position", [f"Where is [the {shape}|the {colour} {shape}|it|the shape]?", f"[In which|On which|In what] [part|place|side] of the [picture|image] is [the {shape}|the shape|it]?",
                        f"[What is|Tell me] the [position|place] of the [{shape}|shape].", f"Where [do you see|can you see] [the {shape}|it]?", f"!Whereabouts is the {shape}?",
                        f"!Can you find the {shape}?"], f"The {shape} is {WHERE[place]}.", [f"is {WHERE[place]}."]


def ask_light(dark):
    word = "dark" if dark else "light"
    return "light", LIGHT, f"The picture is {word}.", [word]


# ---------------------------------------------------------------- scenes: (canvases, questions, the main one first)


def one_shape(rng, frame, main="colour+shape"):
    colour, shape = pick(rng, list(COLOURS)), pick(rng, SHAPES)
    c = Canvas(rng, frame, avoid=[colour])
    placed = main == "position" or rng.random() < 0.3
    if placed:
        place = list(PLACES)[int(rng.choice(len(PLACES), p=PLACE_WEIGHTS))]
        x, y = (v + rng.uniform(-0.06, 0.06) for v in PLACES[place])
        r = c.radius(0.1, 0.17)
        c.labels.add(f"at {place}")
    else:
        r = c.radius(0.13, 0.4)
        mx, my = (min(0.5, 1.1 * r * c.side / n + 0.02) for n in (c.w, c.h))
        x, y = rng.uniform(mx, 1 - mx), rng.uniform(my, 1 - my)
    c.labels.add("count 1")
    c.shape(shape, colour, x, y, r)
    asks = [ask_describe(article(f"{colour} {shape}"), f"{colour} {shape}.", "colour+shape"), ask_colour(shape, colour), ask_shape(shape), ask_count(plural(shape), 1, shape)]
    if placed:
        asks.append(ask_where(shape, colour, place))
    if c.dark is not None:
        asks.append(ask_light(c.dark))
    return [c], sorted(asks, key=lambda ask: ask[0] != main)


def count(rng, frame):
    n = int(rng.integers(1, 6))
    colour, shape = pick(rng, list(COLOURS)), pick(rng, SHAPES)
    c = Canvas(rng, frame, avoid=[colour])
    r = c.radius(0.07, 0.13) if n > 3 else c.radius(0.08, 0.17)
    scatter(rng, c, n, r, lambda x, y: c.shape(shape, colour, x, y, r))
    c.labels.add(f"count {n}")
    things = plural(shape)
    what = article(f"{colour} {shape}") if n == 1 else f"{NUMBERS[n]} {colour} {things}"
    return [c], [ask_count(things, n, shape), ask_describe(what, what + "."), ask_colour(shape, colour)]


def scatter(rng, c, n, r, put):
    """Places n things of radius r without touching each other; in a row or a column now and then."""
    if rng.random() < 0.25 and n > 1:
        across = c.w >= c.h if c.w != c.h else rng.random() < 0.5
        first, gap = 0.5 / n * rng.uniform(0.8, 1.2), 1 / n
        level = rng.uniform(0.3, 0.7)
        long = c.w if across else c.h
        if gap * long > 2.5 * r * c.side:
            for i in range(n):
                at = min(max(first + i * gap, 1.3 * r * c.side / long), 1 - 1.3 * r * c.side / long)
                put(*((at, level) if across else (level, at)))
            return
    mx, my = 1.35 * r * c.side / c.w, 1.35 * r * c.side / c.h
    apart = 2.6 * r * c.side
    while True:
        at = []
        for _ in range(40):
            x, y = rng.uniform(mx, 1 - mx), rng.uniform(my, 1 - my)
            if all(math.hypot((x - a) * c.w, (y - b) * c.h) > apart for a, b in at):
                at.append((x, y))
                if len(at) == n:
                    for x, y in at:
                        put(x, y)
                    return
        apart *= 0.97


def two_shapes(rng, frame, main="two places"):
    (ca, sa), (cb, sb) = zip(some(rng, list(COLOURS), 2), some(rng, SHAPES, 2))
    c = Canvas(rng, frame, avoid=[ca, cb])
    wide, high = c.w / c.side, c.h / c.side
    across = rng.random() < 0.5 if wide == high else rng.random() < (0.8 if wide > high else 0.2)
    big_first = rng.random() < 0.5
    unequal = main == "size" or rng.random() < 0.3
    if unequal:
        small = c.radius(0.08, 0.12)
        big = rng.uniform(max(1.7 * small, 0.19), max(1.9 * small, 0.24))
        radii = [big, small] if big_first else [small, big]
    else:
        radii = [c.radius(0.11, 0.17)] * 2
    spots = [(0.26, 0.5), (0.74, 0.5)] if across else [(0.5, 0.26), (0.5, 0.74)]
    for (x, y), colour, shape, r in zip(spots, (ca, cb), (sa, sb), radii):
        size = ["bigger" if r == max(radii) else "smaller"] if unequal else []
        c.shape(shape, colour, x + rng.uniform(-0.03, 0.03), y + rng.uniform(-0.03, 0.03), r, size)
    c.labels.add("count 2")
    things = [f"{ca} {sa}", f"{cb} {sb}"]
    places = ["left", "right"] if across else ["top", "bottom"]
    asks = []
    for i in ((0, 1) if rng.random() < 0.5 else (1, 0)):
        where = WHERE[places[i]]
        asks.append(("two places", [f"[What is|What's|What do you see] {where}?", f"[Which|What] shape is {where}?", f"Which thing is {where}?", f"What is shown {where}?", f"!What stands {where}?"],
                     f"{upper(where)} is {article(things[i])}.", [f"{where[3:]} is {article(things[i])}."]))
    i = int(rng.integers(2))
    colour, shape = things[i].split()
    asks.append(("position", [f"Where is the [{shape}|{colour} {shape}|{colour} shape]?", f"Where [do you see|can you see] the [{shape}|{colour} {shape}]?", f"!Whereabouts is the {shape}?"],
                 f"The {shape} is {WHERE[places[i]]}.", [f"is {WHERE[places[i]]}."]))
    asks.append(("colour", [f"[What|Which] colo[u|]r is the {shape}?", f"What is the colo[u|]r of the {shape}?", f"!Which colour does the {shape} have?"], f"It is {colour}.", [f"is {colour}."]))
    asks.append(ask_describe(f"{article(things[0])} and {article(things[1])}", f"{things[0]} and {article(things[1])}."))
    asks.append(ask_count("shapes", 2, "", generic=False))
    if unequal:
        big, small = things if big_first else things[::-1]
        asks.append(("size", ["[Which|Which one|Which shape|What] is [bigger|larger|the bigger one|the biggest]?", "[Name|Tell me] the [bigger|larger] [shape|one].", "!Of the two shapes, which is larger?"],
                     f"The {big} is bigger.", [f"{big} is"]))
        asks.append(("size", ["[Which|Which one|Which shape|What] is [smaller|the smaller one|the smallest]?", "[Name|Tell me] the smaller [shape|one].", "Which is the [tiny|little] one?", "!Of the two shapes, which is smaller?"],
                     f"The {small} is smaller.", [f"{small} is"]))
        if rng.random() < 0.5:
            asks[-2:] = asks[:-3:-1]
    return [c], sorted(asks, key=lambda ask: ask[0] != main)


def glyph(rng, frame):
    text = pick(rng, DRAWN_GLYPHS)
    colour = pick(rng, [c for c in COLOURS if c != "yellow"])
    c = Canvas(rng, frame, avoid=[colour])
    c.glyph(text, colour)
    kind = "digit" if text.isdigit() else "letter"
    return [c], [("glyph", [f"[Which|What] [{kind}|character] is [this|it|that|shown|in the picture]?", f"[What|Which] {kind} do you see?", f"[Read|Name] the [{kind}|character].",
                            "[What is|What's] written [here|in the picture]?", "What does it say?", f"!Can you read the {kind}?", f"!Tell me which {kind} you see."],
                  f"It is the {kind} {text}.", [f"{kind} {text}."]), ask_describe(f"the {kind} {text}", f"{kind} {text}.")]


def light(rng, frame):
    dark = rng.random() < 0.5
    c = Canvas(rng, frame, dark=dark)
    if rng.random() < 0.6:
        colour, shape = pick(rng, [c for c in COLOURS if c not in ("black", "white")]), pick(rng, SHAPES)
        c.shape(shape, colour, rng.uniform(0.25, 0.75), rng.uniform(0.25, 0.75), c.radius(0.08, 0.15))
        c.labels.add("count 1")
        return [c], [ask_light(dark), ask_describe(article(f"{colour} {shape}"), f"{colour} {shape}.", "colour+shape")]
    return [c], [ask_light(dark), ask_describe("nothing", "nothing.")]


def compared(a, b):
    """The answer names both before it judges: a small model judges better what it has said."""
    answer = f"The first is {a} and the second is {b}: {'the same' if a == b else 'not the same'}."
    return answer, [answer[4:]]


def compare(rng, frame, late=False):
    more = lambda ways: ways if late else []
    by_colour, same = rng.random() < 0.5, rng.random() < 0.5
    colours, shapes = some(rng, list(COLOURS), 2), some(rng, SHAPES, 2)
    if by_colour and same:
        colours[1] = colours[0]
    if not by_colour and same:
        shapes[1] = shapes[0]
    canvases = []
    for colour, shape in zip(colours, shapes):
        c = Canvas(rng, frame, avoid=[colour])
        c.shape(shape, colour, rng.uniform(0.35, 0.65), rng.uniform(0.35, 0.65), c.radius(0.16, 0.34))
        c.labels.add("count 1")
        canvases.append(c)
    colour_asks = ("compare", ["[Are they|Are both|Are the two|Are the shapes] [the same colo[u|]r|of the same colo[u|]r]?", "Do [they|both|the two|the pictures] have the same colo[u|]r?",
                               "[Compare|Tell me about] the colo[u|]rs.",
                               *more(["[Are|Is] the colo[u|]r[s|] the same[ in both| in the two]?", "Is it [the same|one] colo[u|]r [in both|twice]?",
                                      "Have [both|the two|they] [the same|one] colo[u|]r?"]), "!Is the colour of both the same?"],
                   *compared(*colours))
    a, b = (article(s) for s in shapes)
    shape_asks = ("compare", ["[Are they|Are both|Are the two] [the same shape|of the same shape]?", "Do [they|both|the two|the pictures] [have|show] the same shape?", "[Compare|Tell me about] the shapes.",
                              *more(["[Are|Is] the shape[s|] the same[ in both| in the two]?", "Is it [the same|one] shape [in both|twice]?",
                                     "Have [both|the two|they] [the same|one] shape?"]),
                              "!Is the shape of both the same?"],
                  *compared(a, b))
    what = " and ".join(article(f"{c} {s}") for c, s in zip(colours, shapes))
    described = ("describe", ["What do [you see|the pictures show|they show]?", "[Describe|Compare] [the pictures|both pictures|them].", "What is in the [two pictures|pictures]?", "!What have we here?"],
                 f"The pictures show {what}.", [what + "."])
    return canvases, [colour_asks, shape_asks, described] if by_colour else [shape_asks, colour_asks, described]


# (name, scene, share of the pictures, and of those of the end of the training: more of what is learned last)
KINDS = {
    "colour+shape": (one_shape, 0.13, 0.06), "colour": (lambda rng, frame: one_shape(rng, frame, "colour"), 0.03, 0.02), "shape": (lambda rng, frame: one_shape(rng, frame, "shape"), 0.05, 0.05),
    "position": (lambda rng, frame: one_shape(rng, frame, "position"), 0.24, 0.08), "count": (count, 0.28, 0.35), "two places": (two_shapes, 0.1, 0.05),
    "size": (lambda rng, frame: two_shapes(rng, frame, "size"), 0.07, 0.2), "glyph": (glyph, 0.12, 0.1), "light": (light, 0.02, 0.02), "compare": (compare, 0.11, 0.1),
}


def scene(rng, frame, kind=None, late=False):
    if kind is None:
        weights = np.array([shares[late] for _, *shares in KINDS.values()])
        kind = list(KINDS)[int(rng.choice(len(KINDS), p=weights / weights.sum()))]
    return KINDS[kind][0](rng, frame, *([late] if kind == "compare" else []))


def patches(image):
    """[N, 3*16*16] f32 in the order of 2x2 blocks, scaled to -1..1."""
    x = np.asarray(image, np.float32) / 127.5 - 1
    h, w = x.shape[0] // 32, x.shape[1] // 32
    x = x.reshape(h, 2, 16, w, 2, 16, 3).transpose(0, 3, 1, 4, 6, 2, 5)
    return np.ascontiguousarray(x.reshape(h * w * 4, 3 * 16 * 16))
