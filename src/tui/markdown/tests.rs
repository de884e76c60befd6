//! What Markdown looks like, and that it looks the same however it came.

use insta::assert_snapshot;
use proptest::prelude::*;

use super::*;
use crate::tui::wrap::display_width;

fn rendered(text: &str, width: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    render(text, Settled::default(), width, 0, 0, &Highlights::default(), &mut rows);
    rows
}

fn drawn(rows: &[Row]) -> String {
    let line = |row: &Row| row.iter().map(|(_, text)| text.as_str()).collect::<String>();
    rows.iter().map(|row| line(row).trim_end().to_owned() + "\n").collect()
}

const EVERYTHING: &str = "\
# A title

Some *emphasis*, **strong**, ***both***, ~~gone~~ and `code`, a [link](https://example.com/a) and <https://loquat.example>.
A second line of the same paragraph that is long enough to be wrapped somewhere.

### Deeper

- one
- two, with a text that is so long that it has to go on in another row, hanging
  - nested
  - 漢字の項目がとても長い場合も正しい幅で折り返されるはずです
- [ ] to do
- [x] done

10. ten
11. eleven

    a paragraph of eleven

> quoted text that is long enough to be wrapped, so that the bar stands before each row
>
> - a list in it

```rust
fn main() {
    println!(\"hello, this line is rather long and has to be wrapped on narrow screens\");
}
```

| Name | Count | Remark |
|:-----|------:|:------:|
| 枇杷 | 12 | a **yellow** fruit |
| a rather long name of something | 1234 | x |

---

Euler: $e^{i\\pi} + 1 = 0$, and \\(x_1 \\le \\frac{a}{b}\\):

$$\\sum_{i=1}^{n} i = \\frac{n(n+1)}{2}$$

\\[
a &= b \\\\
c &= d
\\]

Costs $5 and $6. A &amp; B &lt;tag&gt; <b>raw</b><br>next

![a cat](cat.png)

[ref]: https://example.com/definition
";

#[test]
fn everything_at_80_columns() {
    assert_snapshot!(drawn(&rendered(EVERYTHING, 76)));
}

#[test]
fn everything_at_40_columns() {
    assert_snapshot!(drawn(&rendered(EVERYTHING, 36)));
}

#[test]
fn a_table_without_room_is_a_list_of_records() {
    assert_snapshot!(drawn(&rendered(EVERYTHING, 18)));
}

#[test]
fn what_is_still_being_written_is_shown_as_far_as_it_is_known() {
    for text in ["```py\nx = 1", "| a | b |\n|--", "**bold", "[link](http", "- ", "$x", "\\(x", "1."] {
        assert!(!drawn(&rendered(text, 40)).trim().is_empty(), "{text:?}");
    }
}

#[test]
fn nothing_that_a_terminal_obeys_comes_out_of_entities() {
    let text =
        "a&#27;[31mb &#x1b;]0;t&#7; `&#27;` &#x202e;\n\n```&#27;x\n&#27;\n```\n[x](<a&#27;b>) \\(&#27;\\)";
    let drawn = drawn(&rendered(text, 60));
    assert!(!drawn.contains(|c: char| c != '\n' && c.is_control()), "{drawn:?}");
    assert!(!drawn.contains('\u{202e}'));
}

#[test]
fn code_blocks_are_numbered_and_given_as_they_were_written() {
    let text = "one\n```rust title=x\nlet a = \"<&\";\n\n\tb\n```\n- item\n  ~~~\n  in a list\n  ~~~\n\n      indented\n";
    let blocks = code_blocks(text);
    let codes: Vec<&str> = blocks.iter().map(|block| block.code.as_str()).collect();
    assert_eq!(codes, ["let a = \"<&\";\n\n\tb\n", "in a list\n", "indented\n"]);
    assert_eq!(blocks[0].language, "rust");
    let mut rows = Vec::new();
    let (_, n_code) = render(text, Settled::default(), 60, 0, 4, &Highlights::default(), &mut rows);
    assert_eq!(n_code, 3);
    assert!(drawn(&rows).contains("╭ 5 rust") && drawn(&rows).contains("╭ 7 text"), "{}", drawn(&rows));
}

#[test]
fn highlighted_code_keeps_its_letters() {
    let mut highlights = Highlights::default();
    let text = "```python\ndef f(x):\n    return x  # 漢字\n```\n";
    let plain = drawn(&rendered(text, 50));
    highlights.fill(highlight::highlight(&code_blocks(text)));
    let mut rows = Vec::new();
    render(text, Settled::default(), 50, 0, 0, &highlights, &mut rows);
    assert_eq!(drawn(&rows), plain);
    assert!(rows.concat().iter().any(|(tone, _)| *tone == Tone::Keyword));
}

/// Lines that begin or continue every kind of block, in any order.
fn markdown() -> impl Strategy<Value = String> {
    let lines = proptest::sample::select(vec![
        "",
        "",
        "text and *more* of it",
        "漢字 **太字** `code`",
        "# head",
        "===",
        "---",
        "- item",
        "  - nested",
        "* star",
        "1. one",
        "2. two",
        "   more of the item",
        "> quote",
        "> > deep",
        "```rust",
        "```",
        "~~~",
        "    code",
        "| a | b |",
        "|---|--:|",
        "| 1 | 2 |",
        "[ref]: http://x",
        "\"title\"",
        "[ref] used",
        "<div>",
        "</div>",
        "<!--",
        "-->",
        "$$",
        "x^2",
        "\\[",
        "\\]",
        "\\(a\\) $b$",
        "- [x] done",
        "  ",
        "\t",
        "* * *",
        "<br>",
        "&#27;[31m",
        "![p](q)",
        "[a](b",
        "**",
        "_x_",
        "\\",
        "1) a",
        "+ plus",
        "[^1]: note",
        "text  ",
        "a\\",
    ]);
    proptest::collection::vec(lines, 0..14).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_stream_looks_the_same_however_it_is_cut(text in markdown(), cuts in proptest::collection::vec(0usize..200, 0..12), width in 1usize..60) {
        let chars: Vec<char> = text.chars().collect();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(chars.len())).collect();
        cuts.push(chars.len());
        cuts.sort_unstable();
        let (mut rows, mut settled) = (Vec::new(), Settled::default());
        let highlights = Highlights::default();
        for cut in cuts {
            let so_far: String = chars[..cut].iter().collect();
            rows.truncate(settled.n_rows);
            (settled, _) = render(so_far.trim_end(), settled, width, 0, 0, &highlights, &mut rows);
        }
        let whole = rendered(text.trim_end(), width);
        prop_assert_eq!(drawn(&rows), drawn(&whole));
        prop_assert_eq!(rows, whole);
    }

    #[test]
    fn rows_fit_and_are_harmless(text in markdown(), noise in any::<String>(), width in 1usize..60) {
        // What comes here was cleaned as a stream.
        let text = crate::sanitize::clean(&(text + &noise));
        for row in rendered(&text, width) {
            let line: String = row.iter().map(|(_, text)| text.as_str()).collect();
            prop_assert!(!line.contains(|c: char| c.is_control()), "{:?}", line);
            // Marks of deep containers need room of their own; one wide character can't be broken.
            prop_assert!(width < 24 || display_width(line.trim_end()) <= width, "{:?} in {}", line, width);
        }
    }
}

#[test]
fn html_behind_a_footnote_that_ends_a_list_is_the_same_when_it_streams() {
    let text = "- item\n\n- item\n- item\n\n\n[^1]: note\n<br>\ntext and *more* of it\n- item";
    for cut in 1..text.len() {
        let (mut rows, mut settled) = (Vec::new(), Settled::default());
        for part in [&text[..cut], text] {
            rows.truncate(settled.n_rows);
            (settled, _) = render(part.trim_end(), settled, 20, 0, 0, &Highlights::default(), &mut rows);
        }
        assert_eq!(
            drawn(&rows),
            drawn(&rendered(text, 20)),
            "cut at {cut}: {:?}",
            super::blocks(&text[..cut])
        );
    }
}
