//! How likely tokens were, for callers who want to know: of the model's own distribution, before any setting changes it.

use super::tokenizer::Tokenizer;
use crate::chat::Channel;
use crate::msg::TokenInfo;

/// What there is to say of a token that was sampled from `logits`, with the `n_top` likeliest ones.
pub fn token_info(
    tokenizer: &Tokenizer,
    logits: &[f32],
    id: u32,
    n_top: usize,
    channel: Channel,
) -> TokenInfo {
    let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|logit| f64::from(logit - best).exp()).sum();
    let logprob = |id: u32| {
        let logit = logits.get(id as usize).copied().unwrap_or(f32::NEG_INFINITY);
        // JSON knows no infinity.
        ((f64::from(logit - best) - sum.ln()) as f32).max(-9999.0)
    };
    let bytes = |id: u32| tokenizer.bytes_of(id).to_vec();
    let top = likeliest(logits, n_top).into_iter().map(|id| (id, bytes(id), logprob(id)));
    TokenInfo { id, bytes: bytes(id), logprob: logprob(id), top: top.collect(), channel }
}

/// The best first; among equals the lowest id.
fn likeliest(logits: &[f32], n: usize) -> Vec<u32> {
    let mut kept: Vec<u32> = Vec::with_capacity(n + 1);
    for id in 0..logits.len() as u32 {
        let logit = logits[id as usize];
        let at = kept.partition_point(|other| logits[*other as usize] >= logit);
        if at < n {
            kept.insert(at, id);
            kept.truncate(n);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_likeliest_come_first_and_equals_in_order() {
        assert_eq!(likeliest(&[0.0, 3.0, 1.0, 3.0, f32::NEG_INFINITY], 3), [1, 3, 2]);
        assert_eq!(likeliest(&[1.0], 3), [0]);
        assert!(likeliest(&[1.0, 2.0], 0).is_empty());
    }
}
