//! Pictures that wait with the draft, and the message they wait for.

use std::sync::Arc;

use crate::chat::{Message, Part, Picture, PictureSource, Role};
use crate::msg::{PictureFacts, PictureId};
use crate::sanitize::one_line;

use super::pictures::preview::Preview;
use super::wrap::{display_width, shorten};

/// How the model is to look at a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Still,
    /// Its frames one after another.
    Clip,
}

/// A picture of a message.
#[derive(Debug, Clone, PartialEq)]
pub struct Attached {
    pub id: PictureId,
    pub kind: Kind,
    pub what: Picture,
    /// `None` while the session manager reads the file.
    pub facts: Option<PictureFacts>,
    pub preview: Option<Preview>,
    /// As it was before a part of it was cut out.
    pub whole: Option<Box<Picture>>,
}

impl Attached {
    pub fn new(id: PictureId, kind: Kind, what: Picture) -> Self {
        Self { id, kind, what, facts: None, preview: None, whole: None }
    }
}

/// A message before it is sent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Draft {
    pub text: String,
    pub attached: Vec<Attached>,
}

impl Draft {
    /// The message in the order that models are trained on: pictures first.
    pub fn message(&self) -> Message {
        let pictures = self.attached.iter().map(Attached::part);
        let parts = pictures.chain([Part::Text(self.text.clone())]).collect();
        Message { role: Role::User, parts, reasoning: None }
    }
}

impl Attached {
    pub fn part(&self) -> Part {
        match self.kind {
            Kind::Still => Part::Image(self.what.clone()),
            Kind::Clip => Part::Clip(self.what.clone()),
        }
    }

    /// The content of its file, once it is loaded.
    pub fn bytes(&self) -> Option<&Arc<[u8]>> {
        match &self.what.source {
            PictureSource::Bytes(bytes) => Some(bytes),
            PictureSource::File(_) | PictureSource::Address(_) => None,
        }
    }

    /// What is shown before it is sent: its label, and what more pixels would cost.
    pub fn chip(&self, number: usize, width: usize) -> String {
        let tails = self.tails();
        let more = self.facts.filter(|facts| self.kind == Kind::Still && facts.full_tokens > facts.tokens);
        let more = more.map(|facts| format!("{}  full: {} tok, /detail high", tails[0], facts.full_tokens));
        self.written(number, width, more.into_iter().chain(tails))
    }

    /// `[Image 1  photo.jpg 4032x3024 → 1152x864 · 972 tok]`. In a narrow place the name is cut first, then
    /// what matters less goes.
    pub fn label(&self, number: usize, width: usize) -> String {
        self.written(number, width, self.tails())
    }

    /// With the first of the tails for which there is room.
    fn written(&self, number: usize, width: usize, tails: impl IntoIterator<Item = String>) -> String {
        /// What a cut name keeps.
        const NAME: usize = 8;
        let head = match self.kind {
            Kind::Still => format!("[Image {number}  "),
            Kind::Clip => format!("[Clip {number}  "),
        };
        let name = one_line(&self.what.name);
        for tail in tails {
            let fixed = display_width(&head) + display_width(&tail);
            if fixed + NAME.min(display_width(&name)) <= width {
                return format!("{head}{}{tail}", shorten(&name, width - fixed));
            }
        }
        shorten(&format!("[{number} {name}]"), width)
    }

    /// What stands behind the name, the fullest first.
    fn tails(&self) -> Vec<String> {
        let Some(facts) = self.facts else { return vec![" · reading…]".into(), "…]".into()] };
        let size = format!("{}x{}", facts.width, facts.height);
        let tokens = match facts.frames {
            1 => format!("{} tok]", facts.tokens),
            frames => format!("{frames} frames · {} tok]", facts.tokens),
        };
        let seen = match (facts.model_width, facts.model_height) == (facts.width, facts.height) {
            true => format!(" {size} · {tokens}"),
            false => format!(" {size} → {}x{} · {tokens}", facts.model_width, facts.model_height),
        };
        vec![seen, format!(" · {tokens}")]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::Detail;

    fn photo(name: &str) -> Attached {
        Attached {
            facts: Some(PictureFacts {
                width: 4032,
                height: 3024,
                model_width: 1152,
                model_height: 864,
                frames: 1,
                tokens: 972,
                full_tokens: 11_844,
            }),
            ..Attached::new(PictureId(1), Kind::Still, Picture::file(name.into(), Detail::Auto))
        }
    }

    #[test]
    fn a_narrow_label_cuts_the_name_first_and_never_the_cost() {
        let photo = photo("holiday-in-florence.jpg");
        let labels: Vec<String> = [100, 70, 50, 30, 10].map(|width| photo.chip(2, width)).into();
        assert_eq!(
            labels,
            [
                "[Image 2  holiday-in-florence.jpg 4032x3024 → 1152x864 · 972 tok]  full: 11844 tok, /detail high",
                "[Image 2  holiday-in-florence.jpg 4032x3024 → 1152x864 · 972 tok]",
                "[Image 2  holiday… 4032x3024 → 1152x864 · 972 tok]",
                "[Image 2  holiday-… · 972 tok]",
                "[2 holida…",
            ]
        );
        assert!(!photo.label(2, 100).contains("full"), "what is sent can't be changed any more");
    }

    #[test]
    fn a_label_says_what_is_not_known_yet() {
        let reading = Attached { facts: None, ..photo("a.png") };
        assert_eq!(reading.label(1, 80), "[Image 1  a.png · reading…]");
        let clip = Attached { kind: Kind::Clip, ..photo("a.gif") };
        assert_eq!(clip.label(1, 80), "[Clip 1  a.gif 4032x3024 → 1152x864 · 972 tok]");
        let hostile = Attached { facts: None, ..photo("a\u{1b}[31m\nb.png") };
        assert_eq!(hostile.label(1, 80), "[Image 1  a b.png · reading…]");
    }
}
