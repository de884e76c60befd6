//! One page of HTML that needs nothing else. HTML inside of messages is text.

use pulldown_cmark::{Alignment, CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

use super::{Conversation, caption, on_path, picture_line, speaker, title};

const STYLE: &str = "body{max-width:46rem;margin:2rem auto;padding:0 1rem;font:16px/1.55 system-ui,sans-serif;\
color:#1d2125;background:#fdfdfb}\
h1{font-size:1.5rem}h2{font-size:1rem;margin:2rem 0 .3rem;color:#8a5a00}\
h2.user{color:#0b6b72}pre{padding:.8rem;overflow-x:auto;background:#f1efe9;border-radius:6px}\
code{font-family:ui-monospace,monospace;font-size:.92em}table{border-collapse:collapse}\
td,th{border:1px solid #cfcac0;padding:.25rem .6rem}blockquote{margin:0;padding-left:1rem;border-left:3px solid #cfcac0}\
.faint{color:#6b6f76;font-size:.9rem}\
@media(prefers-color-scheme:dark){body{color:#d8dee9;background:#15181c}pre{background:#20242a}\
h2{color:#e0b060}h2.user{color:#7fc8cf}td,th{border-color:#454b54}.faint{color:#9aa2ad}}";

pub fn page(conversation: &Conversation) -> String {
    let title = escaped(title(conversation));
    let mut out = format!(
        "<!doctype html>\n<html><head><meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width\">\n<title>{title}</title>\n<style>{STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n"
    );
    if let Some(system) = &conversation.system {
        out.push_str(&format!("<h2>System prompt</h2>\n<p>{}</p>\n", escaped(system)));
    }
    for node in on_path(conversation) {
        let role = node.message.role;
        out.push_str(&format!("<h2 class=\"{}\">{}</h2>\n", role.as_str(), speaker(role)));
        for picture in node.message.pictures() {
            out.push_str(&format!("<p class=\"faint\">{}</p>\n", escaped(&picture_line(picture))));
        }
        push_markdown(&mut out, &node.message.plain_text());
        if let Some(caption) = node.answered.as_ref().and_then(caption) {
            out.push_str(&format!("<p class=\"faint\">{}</p>\n", escaped(&caption)));
        }
    }
    out.push_str("</body></html>\n");
    out
}

fn push_markdown(out: &mut String, text: &str) {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut table = Table::default();
    for event in Parser::new_ext(text, options) {
        match event {
            Event::Start(tag) => start(out, &tag, &mut table),
            Event::End(tag) => end(out, tag, &mut table),
            Event::Text(text)
            | Event::Html(text)
            | Event::InlineHtml(text)
            | Event::InlineMath(text)
            | Event::DisplayMath(text) => out.push_str(&escaped(&text)),
            Event::Code(text) => out.push_str(&format!("<code>{}</code>", escaped(&text))),
            Event::SoftBreak => out.push('\n'),
            Event::HardBreak => out.push_str("<br>\n"),
            Event::Rule => out.push_str("<hr>\n"),
            Event::TaskListMarker(done) => out.push_str(if done { "☑ " } else { "☐ " }),
            Event::FootnoteReference(name) => out.push_str(&escaped(&name)),
        }
    }
}

#[derive(Default)]
struct Table {
    alignments: Vec<Alignment>,
    column: usize,
    is_head: bool,
}

fn start(out: &mut String, tag: &Tag, table: &mut Table) {
    match tag {
        Tag::Paragraph => out.push_str("<p>"),
        // Below the headings of the page.
        Tag::Heading { .. } => out.push_str("<h3>"),
        Tag::BlockQuote(_) => out.push_str("<blockquote>\n"),
        Tag::CodeBlock(CodeBlockKind::Fenced(language)) if !language.is_empty() => {
            out.push_str(&format!("<pre><code class=\"language-{}\">", escaped(language)));
        }
        Tag::CodeBlock(_) => out.push_str("<pre><code>"),
        Tag::List(Some(first)) => out.push_str(&format!("<ol start=\"{first}\">\n")),
        Tag::List(None) => out.push_str("<ul>\n"),
        Tag::Item => out.push_str("<li>"),
        Tag::Table(alignments) => {
            *table = Table { alignments: alignments.clone(), ..Table::default() };
            out.push_str("<table>\n");
        }
        Tag::TableHead => {
            (table.is_head, table.column) = (true, 0);
            out.push_str("<tr>");
        }
        Tag::TableRow => {
            (table.is_head, table.column) = (false, 0);
            out.push_str("<tr>");
        }
        Tag::TableCell => {
            let align = match table.alignments.get(table.column) {
                Some(Alignment::Right) => " style=\"text-align:right\"",
                Some(Alignment::Center) => " style=\"text-align:center\"",
                _ => "",
            };
            table.column += 1;
            out.push_str(&format!("<{}{align}>", if table.is_head { "th" } else { "td" }));
        }
        Tag::Emphasis => out.push_str("<em>"),
        Tag::Strong => out.push_str("<strong>"),
        Tag::Strikethrough => out.push_str("<del>"),
        // Other addresses could be programs.
        Tag::Link { dest_url, .. } if is_web(dest_url) => {
            out.push_str(&format!("<a rel=\"noreferrer\" href=\"{}\">", escaped(dest_url)));
        }
        Tag::Link { .. } => out.push_str("<a>"),
        // A page that fetches a stranger's picture tells the stranger that it was read.
        Tag::Image { .. } => out.push_str("<em>"),
        _ => {}
    }
}

fn end(out: &mut String, tag: TagEnd, table: &mut Table) {
    out.push_str(match tag {
        TagEnd::Paragraph => "</p>\n",
        TagEnd::Heading(_) => "</h3>\n",
        TagEnd::BlockQuote(_) => "</blockquote>\n",
        TagEnd::CodeBlock => "</code></pre>\n",
        TagEnd::List(true) => "</ol>\n",
        TagEnd::List(false) => "</ul>\n",
        TagEnd::Item => "</li>\n",
        TagEnd::Table => "</table>\n",
        TagEnd::TableHead | TagEnd::TableRow => "</tr>\n",
        TagEnd::TableCell if table.is_head => "</th>",
        TagEnd::TableCell => "</td>",
        TagEnd::Emphasis | TagEnd::Image => "</em>",
        TagEnd::Strong => "</strong>",
        TagEnd::Strikethrough => "</del>",
        TagEnd::Link => "</a>",
        _ => "",
    });
}

fn is_web(address: &str) -> bool {
    ["https://", "http://", "mailto:"].iter().any(|scheme| address.starts_with(scheme))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
