//! Where pictures stand in a prompt: placeholders written out, and the position of every token on three axes.
//!
//! The template writes one placeholder for each picture. It becomes as many as the picture has tokens; that of a
//! clip becomes one group for each temporal slot, with the time before it.
//! Source: `Qwen3VLProcessor` as released (its groups replace the clip's whole placeholder), and
//! `get_rope_index` of the reference implementation.

use super::super::cache::TokenKey;
use super::super::model::rope::Positions;

pub const IMAGE_PAD: &str = "<|image_pad|>";
pub const VIDEO_PAD: &str = "<|video_pad|>";
const VISION_START: &str = "<|vision_start|>";
const VISION_END: &str = "<|vision_end|>";

/// A picture or clip as the prompt needs to know it.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// Of its content and size: two pictures with the same key look the same to the model.
    pub key: TokenKey,
    /// Rows and columns of tokens.
    pub rows: usize,
    pub columns: usize,
    /// Seconds at which each temporal slot of a clip is; `None` for a picture.
    pub times: Option<Vec<f64>>,
}

impl Seen {
    pub fn slots(&self) -> usize {
        self.times.as_ref().map_or(1, Vec::len)
    }

    pub fn n_tokens(&self) -> usize {
        self.slots() * self.rows * self.columns
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the chat template made room for {places} of {pictures} pictures; this model's template may not be able to take them"
)]
pub struct Misplaced {
    places: usize,
    pictures: usize,
}

/// Writes out the placeholders of `text`, which has one for each of `seen`, in order.
///
/// # Errors
/// [`Misplaced`] if it hasn't.
pub fn expand(text: &str, seen: &[Seen]) -> Result<String, Misplaced> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut places = 0;
    let misplaced = |places| Misplaced { places, pictures: seen.len() };
    while let Some(at) = rest.find(IMAGE_PAD).into_iter().chain(rest.find(VIDEO_PAD)).min() {
        let picture = seen.get(places).ok_or_else(|| misplaced(places + 1))?;
        places += 1;
        let n = picture.rows * picture.columns;
        match &picture.times {
            None if rest[at..].starts_with(IMAGE_PAD) => {
                out.push_str(&rest[..at]);
                out.push_str(&IMAGE_PAD.repeat(n));
                rest = &rest[at + IMAGE_PAD.len()..];
            }
            Some(times) if rest[at..].starts_with(VIDEO_PAD) => {
                // The groups bring their own start and end.
                out.push_str(rest[..at].strip_suffix(VISION_START).unwrap_or(&rest[..at]));
                for time in times {
                    out.push_str(&format!(
                        "<{time:.1} seconds>{VISION_START}{}{VISION_END}",
                        VIDEO_PAD.repeat(n)
                    ));
                }
                rest = &rest[at + VIDEO_PAD.len()..];
                rest = rest.strip_prefix(VISION_END).unwrap_or(rest);
            }
            _ => return Err(misplaced(places - 1)),
        }
    }
    out.push_str(rest);
    match places == seen.len() {
        true => Ok(out),
        false => Err(misplaced(places)),
    }
}

/// A run of placeholder tokens and whose features replace them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// First token.
    pub start: usize,
    pub len: usize,
    /// Index of the picture, and the first of its features.
    pub picture: usize,
    pub feature: usize,
}

/// What a prompt's tokens are, besides their ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    pub keys: Vec<TokenKey>,
    pub positions: Positions,
    pub spans: Vec<Span>,
    /// The position of the first token after the prompt, on all axes.
    pub next_position: i64,
}

/// Positions and pictures of `ids`, made from a text that was [`expand`]ed. `is_pad` tells placeholder tokens.
///
/// # Errors
/// [`Misplaced`] if there are not as many placeholders as the pictures have tokens.
pub fn layout(ids: &[u32], seen: &[Seen], is_pad: impl Fn(u32) -> bool) -> Result<Layout, Misplaced> {
    let mut keys = Vec::with_capacity(ids.len());
    let mut axes: [Vec<i64>; 3] = Default::default();
    let mut spans = Vec::new();
    let mut next = 0;
    let mut places = 0;
    let mut slots =
        seen.iter().enumerate().flat_map(|(i, picture)| (0..picture.slots()).map(move |slot| (i, slot)));
    while keys.len() < ids.len() {
        let start = keys.len();
        if !is_pad(ids[start]) {
            keys.push(TokenKey::from(ids[start]));
            axes.iter_mut().for_each(|axis| axis.push(next));
            next += 1;
            continue;
        }
        let misplaced = Misplaced { places, pictures: seen.len() };
        let (picture, slot) = slots.next().ok_or_else(|| misplaced.clone())?;
        let Seen { key, rows, columns, .. } = seen[picture];
        let n = rows * columns;
        if ids[start..].iter().take(n).filter(|id| is_pad(**id)).count() != n {
            return Err(misplaced);
        }
        for row in 0..rows as i64 {
            for column in 0..columns as i64 {
                for (axis, offset) in axes.iter_mut().zip([0, row, column]) {
                    axis.push(next + offset);
                }
            }
        }
        keys.extend(std::iter::repeat_n(key, n));
        spans.push(Span { start, len: n, picture, feature: slot * n });
        next += rows.max(columns) as i64;
        places = picture + 1;
    }
    match slots.next() {
        None => Ok(Layout { keys, positions: Positions(axes), spans, next_position: next }),
        Some(_) => Err(Misplaced { places, pictures: seen.len() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(key: u32, rows: usize, columns: usize) -> Seen {
        Seen { key: TokenKey::from(key), rows, columns, times: None }
    }

    #[test]
    fn positions_follow_the_example_of_the_specification() {
        // Three tokens of text, a picture of 2 x 3 tokens, two tokens of text.
        let ids = [5, 6, 7, 1, 1, 1, 1, 1, 1, 8, 9];
        let layout = layout(&ids, &[picture(99, 2, 3)], |id| id == 1).unwrap();
        assert_eq!(
            layout.positions.0,
            [
                [0, 1, 2, 3, 3, 3, 3, 3, 3, 6, 7],
                [0, 1, 2, 3, 3, 3, 4, 4, 4, 6, 7],
                [0, 1, 2, 3, 4, 5, 3, 4, 5, 6, 7],
            ]
        );
        assert_eq!(layout.next_position, 8);
        assert_eq!(layout.spans, [Span { start: 3, len: 6, picture: 0, feature: 0 }]);
        assert_eq!(layout.keys[2..5], [7, 99, 99].map(TokenKey::from));
    }

    #[test]
    fn a_clip_becomes_groups_with_times() {
        let clip = Seen { times: Some(vec![0.25, 1.25]), ..picture(9, 1, 2) };
        let text = "a<|vision_start|><|video_pad|><|vision_end|>b";
        assert_eq!(
            expand(text, &[clip]).unwrap(),
            "a<0.2 seconds><|vision_start|><|video_pad|><|video_pad|><|vision_end|>\
             <1.2 seconds><|vision_start|><|video_pad|><|video_pad|><|vision_end|>b"
        );
    }

    #[test]
    fn a_template_that_forgets_or_invents_pictures_is_noticed() {
        for (text, n) in
            [("", 1), ("<|image_pad|>", 0), ("<|image_pad|><|image_pad|>", 1), ("<|video_pad|>", 1)]
        {
            let seen = vec![picture(9, 1, 1); n];
            assert!(expand(text, &seen).is_err(), "{text} with {n}");
        }
        let two = [picture(9, 1, 2), picture(8, 1, 1)];
        for ids in [&[1, 1][..], &[1, 0, 1], &[1, 1, 1, 1], &[0]] {
            assert!(layout(ids, &two, |id| id == 1).is_err(), "{ids:?}");
        }
        assert_eq!(layout(&[1, 1, 1], &two, |id| id == 1).unwrap().spans.len(), 2);
    }
}
