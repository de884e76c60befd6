//! What the tower has encoded lately: a picture that stays in the conversation is not looked at twice.

use burn::tensor::Tensor;

use super::super::cache::TokenKey;

/// Features kept, in tokens of all pictures together: 64 MiB at a hidden size of 1024.
const MAX_TOKENS: usize = 16_384;

/// Features by the key of their picture, the least recently used first.
#[derive(Default)]
pub struct Features {
    entries: Vec<(TokenKey, Tensor<2>)>,
}

impl Features {
    /// The features `[tokens, hidden_size]` of a picture.
    pub fn get(&mut self, key: TokenKey) -> Option<Tensor<2>> {
        let index = self.entries.iter().position(|(k, _)| *k == key)?;
        let entry = self.entries.remove(index);
        self.entries.push(entry);
        self.entries.last().map(|(_, features)| features.clone())
    }

    /// Keeps the features of one more picture, and forgets others if there are too many.
    pub fn put(&mut self, key: TokenKey, features: Tensor<2>) {
        self.entries.retain(|(k, _)| *k != key);
        self.entries.push((key, features));
        let tokens = |entries: &[(TokenKey, Tensor<2>)]| -> usize {
            entries.iter().map(|(_, features)| features.dims()[0]).sum()
        };
        while self.entries.len() > 1 && tokens(&self.entries) > MAX_TOKENS {
            self.entries.remove(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    #[test]
    fn the_least_recently_used_go_first() {
        let mut features = Features::default();
        let picture = |n: usize| Tensor::<2>::zeros([n, 1], &Device::flex());
        let key = |n: u32| TokenKey::from(n);
        features.put(key(1), picture(8_000));
        features.put(key(2), picture(8_000));
        assert!(features.get(key(1)).is_some());
        features.put(key(3), picture(1_000));
        assert!(features.get(key(2)).is_none());
        assert_eq!(features.get(key(1)).unwrap().dims(), [8_000, 1]);
        // One picture is kept however large it is.
        features.put(key(4), picture(20_000));
        assert!(features.get(key(4)).is_some() && features.get(key(3)).is_none());
    }
}
