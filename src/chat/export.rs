//! A conversation as a file for others: Markdown and HTML of the branch that is looked at, JSON of the whole tree.
//!
//! The texts are given as they were written; only HTML, which a browser obeys, is made harmless.

mod html;

use std::fmt;
use std::str::FromStr;

use serde_json::{Value, json};

use super::conversation::{Answered, Conversation, Ending, Node};
use super::{Message, Part, Picture, Role};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Markdown,
    Json,
    Html,
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "md" => Ok(Self::Markdown),
            "json" => Ok(Self::Json),
            "html" => Ok(Self::Html),
            _ => Err("expected md, json or html".into()),
        }
    }
}

/// What its files are called: `md`, `json`, `html`.
impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Markdown => "md",
            Self::Json => "json",
            Self::Html => "html",
        })
    }
}

pub fn export(conversation: &Conversation, format: Format) -> String {
    match format {
        Format::Markdown => markdown(conversation),
        Format::Json => json(conversation),
        Format::Html => html::page(conversation),
    }
}

fn title(conversation: &Conversation) -> &str {
    conversation.title.as_deref().unwrap_or("Conversation")
}

fn on_path(conversation: &Conversation) -> impl Iterator<Item = &Node> {
    conversation.path().into_iter().filter_map(|id| conversation.node(id))
}

fn markdown(conversation: &Conversation) -> String {
    let mut out = format!("# {}\n", title(conversation));
    if let Some(system) = &conversation.system {
        out.push_str(&format!("\n## System prompt\n\n{}\n", system.trim()));
    }
    for node in on_path(conversation) {
        out.push_str(&format!("\n## {}\n", speaker(node.message.role)));
        for picture in node.message.pictures() {
            out.push_str(&format!("\n*{}*\n", picture_line(picture)));
        }
        let text = node.message.plain_text();
        if !text.trim().is_empty() {
            out.push_str(&format!("\n{}\n", text.trim_matches('\n').trim_end()));
        }
        if let Some(caption) = node.answered.as_ref().and_then(caption) {
            out.push_str(&format!("\n*{caption}*\n"));
        }
    }
    out
}

fn speaker(role: Role) -> &'static str {
    match role {
        Role::System => "System",
        Role::User => "You",
        Role::Assistant => "Assistant",
        Role::Tool => "Tool",
    }
}

fn picture_line(picture: &Picture) -> String {
    format!("Picture: {}", picture.name.replace(['\n', '*'], " "))
}

/// By which model, and whether something is missing.
fn caption(answered: &Answered) -> Option<String> {
    let ending = match answered.ending {
        Some(Ending::Finished) => None,
        Some(Ending::Length) => Some("cut off at the token limit"),
        Some(Ending::Stopped) => Some("stopped"),
        Some(Ending::Failed) => Some("failed"),
        None => Some("interrupted"),
    };
    let model = (!answered.model.is_empty()).then_some(answered.model.as_str());
    let parts: Vec<&str> = model.into_iter().chain(ending).collect();
    (!parts.is_empty()).then(|| parts.join(" · "))
}

fn json(conversation: &Conversation) -> String {
    let messages: Vec<Value> = conversation
        .nodes()
        .map(|(id, node)| {
            let mut value = message_json(&node.message);
            value["id"] = id.0.into();
            value["parent"] = node.parent.map(|parent| parent.0).into();
            if let Some(answered) = &node.answered {
                value["answered"] = serde_json::to_value(answered).unwrap_or_default();
            }
            value
        })
        .collect();
    let whole = json!({
        "v": 1,
        "title": conversation.title,
        "system": conversation.system,
        "head": conversation.head().map(|head| head.0),
        "messages": messages,
    });
    format!("{whole:#}\n")
}

fn message_json(message: &Message) -> Value {
    let pictures: Vec<Value> = message
        .parts
        .iter()
        .filter_map(|part| match part {
            Part::Text(_) | Part::Call(_) => None,
            Part::Image(picture) => {
                Some(json!({"kind": "image", "name": picture.name, "detail": picture.detail.to_string()}))
            }
            Part::Clip(picture) => {
                Some(json!({"kind": "clip", "name": picture.name, "detail": picture.detail.to_string()}))
            }
        })
        .collect();
    let mut json = json!({"role": message.role.as_str(), "content": message.plain_text()});
    if let Some(reasoning) = &message.reasoning {
        json["reasoning_content"] = reasoning.as_str().into();
    }
    if !pictures.is_empty() {
        json["pictures"] = pictures.into();
    }
    json
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::{Detail, PictureSource};

    fn chat() -> Conversation {
        let mut chat = Conversation::new(Some("be brief".into()));
        chat.title = Some("A <script> title".into());
        let picture = Picture {
            name: "a*b.png".into(),
            source: PictureSource::File("/secret/a.png".into()),
            detail: Detail::Auto,
        };
        let parts = vec![Part::Image(picture), Part::Text("What is **this**?".into())];
        let question = chat.add(None, Message { role: Role::User, parts, reasoning: None }, None);
        let answered = |ending| Answered { model: "toy".into(), ending, ..Answered::default() };
        let old = Message::text(Role::Assistant, "an old answer");
        chat.add(Some(question), old, answered(Some(Ending::Finished)).into());
        let text = "A list:\n\n- <img src=x onerror=alert(1)>\n- `a < b`\n\n```rust\nlet x = \"<b>\";\n```\n\n\
                    | a | b |\n|---|--:|\n| 1 | 2 |\n\n[bad](javascript:alert(1)) [good](https://example.com/?a=1&b=2)\n";
        let answer = Message { reasoning: Some("hm".into()), ..Message::text(Role::Assistant, text) };
        chat.add(Some(question), answer, Some(answered(Some(Ending::Stopped))));
        chat
    }

    #[test]
    fn markdown_has_the_branch_that_is_looked_at() {
        insta::assert_snapshot!(export(&chat(), Format::Markdown));
    }

    #[test]
    fn html_is_harmless() {
        let page = export(&chat(), Format::Html);
        insta::assert_snapshot!(page);
        for bad in ["<script", "<img", "javascript:"] {
            assert!(!page.contains(bad), "{bad}");
        }
    }

    #[test]
    fn json_has_the_whole_tree_and_no_paths() {
        let json: Value = serde_json::from_str(&export(&chat(), Format::Json)).unwrap();
        assert_eq!(json["messages"].as_array().unwrap().len(), 3);
        assert_eq!(json["messages"][2]["parent"], 0);
        assert_eq!(json["messages"][2]["reasoning_content"], "hm");
        assert_eq!(json["messages"][2]["answered"]["model"], "toy");
        assert_eq!(json["messages"][0]["pictures"][0]["name"], "a*b.png");
        assert_eq!(json["head"], 2);
        assert!(!json.to_string().contains("secret"));
    }
}
