//! Mathematics in LaTeX as a line of text: signs by their characters, fractions with a slash, small digits where
//! Unicode has them. What isn't known stays as it was written.

/// Commands that are one sign.
const SIGNS: &[(&str, &str)] = &[
    ("alpha", "α"),
    ("beta", "β"),
    ("gamma", "γ"),
    ("delta", "δ"),
    ("epsilon", "ε"),
    ("varepsilon", "ε"),
    ("zeta", "ζ"),
    ("eta", "η"),
    ("theta", "θ"),
    ("vartheta", "ϑ"),
    ("iota", "ι"),
    ("kappa", "κ"),
    ("lambda", "λ"),
    ("mu", "μ"),
    ("nu", "ν"),
    ("xi", "ξ"),
    ("pi", "π"),
    ("rho", "ρ"),
    ("sigma", "σ"),
    ("tau", "τ"),
    ("upsilon", "υ"),
    ("phi", "φ"),
    ("varphi", "φ"),
    ("chi", "χ"),
    ("psi", "ψ"),
    ("omega", "ω"),
    ("Gamma", "Γ"),
    ("Delta", "Δ"),
    ("Theta", "Θ"),
    ("Lambda", "Λ"),
    ("Xi", "Ξ"),
    ("Pi", "Π"),
    ("Sigma", "Σ"),
    ("Phi", "Φ"),
    ("Psi", "Ψ"),
    ("Omega", "Ω"),
    ("times", "×"),
    ("cdot", "·"),
    ("div", "÷"),
    ("pm", "±"),
    ("mp", "∓"),
    ("ast", "∗"),
    ("circ", "∘"),
    ("le", "≤"),
    ("leq", "≤"),
    ("ge", "≥"),
    ("geq", "≥"),
    ("ne", "≠"),
    ("neq", "≠"),
    ("approx", "≈"),
    ("equiv", "≡"),
    ("sim", "∼"),
    ("simeq", "≃"),
    ("propto", "∝"),
    ("ll", "≪"),
    ("gg", "≫"),
    ("to", "→"),
    ("rightarrow", "→"),
    ("leftarrow", "←"),
    ("Rightarrow", "⇒"),
    ("Leftarrow", "⇐"),
    ("implies", "⇒"),
    ("iff", "⇔"),
    ("Leftrightarrow", "⇔"),
    ("leftrightarrow", "↔"),
    ("mapsto", "↦"),
    ("infty", "∞"),
    ("partial", "∂"),
    ("nabla", "∇"),
    ("sum", "∑"),
    ("prod", "∏"),
    ("int", "∫"),
    ("oint", "∮"),
    ("in", "∈"),
    ("notin", "∉"),
    ("subset", "⊂"),
    ("subseteq", "⊆"),
    ("supset", "⊃"),
    ("supseteq", "⊇"),
    ("cup", "∪"),
    ("cap", "∩"),
    ("setminus", "∖"),
    ("emptyset", "∅"),
    ("varnothing", "∅"),
    ("forall", "∀"),
    ("exists", "∃"),
    ("neg", "¬"),
    ("land", "∧"),
    ("wedge", "∧"),
    ("lor", "∨"),
    ("vee", "∨"),
    ("oplus", "⊕"),
    ("otimes", "⊗"),
    ("perp", "⊥"),
    ("parallel", "∥"),
    ("angle", "∠"),
    ("degree", "°"),
    ("ldots", "…"),
    ("dots", "…"),
    ("cdots", "⋯"),
    ("vdots", "⋮"),
    ("prime", "′"),
    ("hbar", "ℏ"),
    ("ell", "ℓ"),
    ("Re", "ℜ"),
    ("Im", "ℑ"),
    ("aleph", "ℵ"),
    ("langle", "⟨"),
    ("rangle", "⟩"),
    ("lfloor", "⌊"),
    ("rfloor", "⌋"),
    ("lceil", "⌈"),
    ("rceil", "⌉"),
    ("mid", "|"),
    ("vert", "|"),
    ("Vert", "‖"),
    ("therefore", "∴"),
    ("because", "∵"),
    ("quad", "  "),
    ("qquad", "    "),
    ("lbrace", "{"),
    ("rbrace", "}"),
    ("star", "⋆"),
    ("bullet", "•"),
    ("checkmark", "✓"),
    ("square", "□"),
    ("blacksquare", "■"),
];

/// Commands that change how their argument looks, and nothing else.
const PLAIN: [&str; 18] = [
    "text",
    "mathrm",
    "mathbf",
    "mathit",
    "mathsf",
    "mathtt",
    "mathcal",
    "operatorname",
    "textbf",
    "textit",
    "boldsymbol",
    "boxed",
    "displaystyle",
    "textstyle",
    "left",
    "right",
    "mathop",
    "mathbin",
];

const BIG: [&str; 8] = ["big", "Big", "bigg", "Bigg", "bigl", "bigr", "limits", "nolimits"];

const RAISED: &str = "0⁰1¹2²3³4⁴5⁵6⁶7⁷8⁸9⁹+⁺-⁻=⁼(⁽)⁾nⁿiⁱaᵃbᵇcᶜdᵈeᵉfᶠgᵍhʰjʲkᵏlˡmᵐoᵒpᵖrʳsˢtᵗuᵘvᵛwʷxˣyʸzᶻTᵀ′′";
const LOWERED: &str = "0₀1₁2₂3₃4₄5₅6₆7₇8₈9₉+₊-₋=₌(₍)₎aₐeₑhₕiᵢjⱼkₖlₗmₘnₙoₒpₚrᵣsₛtₜuᵤvᵥxₓ";
const BLACKBOARD: &str = "CℂHℍNℕPℙQℚRℝZℤE𝔼1𝟙";

/// How deep braces may be in each other; deeper ones stay as they are.
const MAX_DEPTH: usize = 32;

/// A formula in one line.
pub fn readable(formula: &str) -> String {
    readable_lines(formula).join(" ")
}

/// A formula with the lines that it has.
pub fn readable_lines(formula: &str) -> Vec<String> {
    let without_environments = strip_environments(formula);
    let lines = without_environments.split("\\\\").map(|line| {
        let text = convert(line, 0);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    });
    lines.filter(|line| !line.is_empty()).collect()
}

/// `\begin{aligned} … \end{aligned}` only says how lines stand; they are split at `\\` anyway.
fn strip_environments(formula: &str) -> String {
    let mut out = String::new();
    let mut rest = formula;
    while let Some(at) = ["\\begin{", "\\end{"].iter().filter_map(|word| rest.find(word)).min() {
        out.push_str(&rest[..at]);
        let Some(close) = rest[at..].find('}') else { break };
        out.push_str(" \\\\ ");
        rest = &rest[at + close + 1..];
    }
    out + rest
}

fn convert(source: &str, depth: usize) -> String {
    if depth > MAX_DEPTH {
        return source.to_owned();
    }
    let mut out = String::new();
    let mut rest = source;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '\\' => rest = command(rest, &mut out, depth),
            '^' | '_' => {
                let (argument, after) = argument(rest);
                rest = after;
                out.push_str(&script(&convert(argument, depth + 1), c));
            }
            '{' | '}' => {}
            // Where lines are aligned.
            '&' => {}
            '~' => out.push(' '),
            '\'' => out.push('′'),
            other => out.push(other),
        }
    }
    out
}

/// A command behind its backslash; gives what stands after it.
fn command<'a>(rest: &'a str, out: &mut String, depth: usize) -> &'a str {
    let len = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
    if len == 0 {
        // `\{`, `\%`, `\,` …
        let Some(c) = rest.chars().next() else {
            out.push('\\');
            return rest;
        };
        match c {
            ',' | ';' | ':' | ' ' => out.push(' '),
            '!' => {}
            other => out.push(other),
        }
        return &rest[c.len_utf8()..];
    }
    let (name, after) = rest.split_at(len);
    match name {
        "frac" | "dfrac" | "tfrac" | "cfrac" => {
            let (above, after) = argument(after);
            let (below, after) = argument(after);
            let part = |text| grouped(&convert(text, depth + 1));
            out.push_str(&format!("{}/{}", part(above), part(below)));
            after
        }
        "binom" => {
            let (n, after) = argument(after);
            let (k, after) = argument(after);
            out.push_str(&format!("C({}, {})", convert(n, depth + 1), convert(k, depth + 1)));
            after
        }
        "sqrt" => {
            let (root, after) = match after.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
                Some((root, after)) => (script(&convert(root, depth + 1), '^'), after),
                None => (String::new(), after),
            };
            let (inner, after) = argument(after);
            out.push_str(&format!("{root}√{}", grouped(&convert(inner, depth + 1))));
            after
        }
        "mathbb" => {
            let (inner, after) = argument(after);
            out.extend(inner.chars().map(|c| pair(BLACKBOARD, c).unwrap_or(c)));
            after
        }
        "overline" | "bar" | "hat" | "vec" | "tilde" | "dot" | "ddot" | "widehat" => {
            let mark = match name {
                "hat" | "widehat" => '\u{302}',
                "vec" => '\u{20d7}',
                "tilde" => '\u{303}',
                "dot" => '\u{307}',
                "ddot" => '\u{308}',
                _ => '\u{304}',
            };
            let (inner, after) = argument(after);
            let inner = convert(inner, depth + 1);
            out.push_str(&inner);
            // Over several letters it would stand over the last one only.
            if inner.chars().count() == 1 {
                out.push(mark);
            }
            after
        }
        _ if PLAIN.contains(&name) || BIG.contains(&name) => after.strip_prefix('.').unwrap_or(after),
        _ => {
            match SIGNS.iter().find(|(known, _)| *known == name) {
                Some((_, sign)) => out.push_str(sign),
                // Functions such as \sin are known by their names.
                None => out.push_str(name),
            }
            after
        }
    }
}

/// The next argument: a group in braces, a command or one character.
fn argument(source: &str) -> (&str, &str) {
    let source = source.trim_start();
    if let Some(inner) = source.strip_prefix('{') {
        let mut depth = 1;
        let mut is_escaped = false;
        for (at, c) in inner.char_indices() {
            match c {
                _ if is_escaped => {}
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            is_escaped = c == '\\' && !is_escaped;
            if depth == 0 {
                return (&inner[..at], &inner[at + 1..]);
            }
        }
        return (inner, "");
    }
    let len = match source.strip_prefix('\\') {
        Some(name) => {
            let letters = name.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(name.len());
            1 + letters.max(name.chars().next().map_or(0, char::len_utf8))
        }
        None => source.chars().next().map_or(0, char::len_utf8),
    };
    source.split_at(len)
}

/// Raised or lowered, in small characters if there are some for all of it.
fn script(text: &str, kind: char) -> String {
    let table = if kind == '^' { RAISED } else { LOWERED };
    let small: Option<String> = text.chars().map(|c| pair(table, c)).collect();
    match small {
        Some(small) => small,
        None if text.chars().count() == 1 => format!("{kind}{text}"),
        None => format!("{kind}({text})"),
    }
}

/// With parentheses, unless it is one word.
fn grouped(text: &str) -> String {
    let is_word = text
        .chars()
        .all(|c| c.is_alphanumeric() || "′.".contains(c) || (!c.is_ascii() && !c.is_whitespace()));
    if is_word { text.to_owned() } else { format!("({text})") }
}

/// What stands behind a character in a table of pairs.
fn pair(table: &str, wanted: char) -> Option<char> {
    let mut chars = table.chars();
    while let (Some(from), Some(to)) = (chars.next(), chars.next()) {
        if from == wanted {
            return Some(to);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn formulas_read_like_text() {
        for (formula, expected) in [
            ("E = mc^2", "E = mc²"),
            ("x_{10} + y^{n+1}", "x₁₀ + yⁿ⁺¹"),
            (r"\frac{a}{b+1} \le \sqrt{2}", "a/(b+1) ≤ √2"),
            (r"\sqrt[3]{x+1}", "³√(x+1)"),
            (r"\sum_{i=1}^{n} i = \frac{n(n+1)}{2}", "∑ᵢ₌₁ⁿ i = (n(n+1))/2"),
            (r"\alpha \in \mathbb{R}", "α ∈ ℝ"),
            (r"\text{speed} = 3 \times 10^8\,\mathrm{m/s}", "speed = 3 × 10⁸ m/s"),
            (r"\left( \sin x \right)", "( sin x )"),
            (r"e^{i\pi} = -1", "e^(iπ) = -1"),
            (r"f'(x), \vec{v}, \{1, 2\}, 5\%", "f′(x), v\u{20d7}, {1, 2}, 5%"),
            (r"\frac12", "1/2"),
            (r"\unknown{x}", "unknownx"),
            ("", ""),
        ] {
            assert_eq!(readable(formula), expected, "{formula}");
        }
        assert_eq!(readable_lines("\\begin{aligned} a &= 1 \\\\ b &= 2 \\end{aligned}"), ["a = 1", "b = 2"]);
    }

    proptest! {
        #[test]
        fn any_formula_can_be_read(formula in r"[\\{}^_a-c\[\] &'漢]{0,60}(\\frac|\\sqrt\[|\\begin\{)?[{}\\^]{0,80}") {
            readable_lines(&formula);
        }
    }
}
