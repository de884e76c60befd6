//! What the MTP head remembers: keys and values of its layer, and the trunk's states that it has still to read.
//!
//! Its slot t joins the trunk's state of token t with the embedding of token t + 1, so it is always behind the
//! trunk by what comes next. States wait here until they are wanted: a draft, or enough of them.

use burn::tensor::Tensor;

use super::super::model::rope::Positions;
use super::{Kv, LayerState};

#[derive(Clone)]
pub struct MtpState {
    pub(super) kv: LayerState,
    /// Trunk states of the last tokens, whose slots are not filled; with them the embeddings of the tokens behind
    /// all but the last one.
    waiting: Waiting,
}

#[derive(Clone, Default)]
pub(super) struct Waiting {
    pub(super) hidden: Option<Tensor<2>>,
    pub(super) next: Option<Tensor<2>>,
    pub(super) positions: Positions,
}

/// Slots to fill.
pub struct Rows {
    pub hidden: Tensor<2>,
    pub next: Tensor<2>,
    pub positions: Positions,
}

impl MtpState {
    pub(super) fn new(kv: Kv) -> Self {
        Self { kv: LayerState::Kv(kv), waiting: Waiting::default() }
    }

    pub fn kv_mut(&mut self) -> &mut LayerState {
        &mut self.kv
    }

    /// Slots that are filled.
    pub fn len(&self) -> usize {
        match &self.kv {
            LayerState::Kv(kv) => kv.len(),
            LayerState::Delta(_) => unreachable!("the head has a full-attention layer"),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets the slots from `len` on.
    pub fn truncate(&mut self, len: usize) {
        if let LayerState::Kv(kv) = &mut self.kv {
            kv.len = len;
        }
    }

    pub fn n_waiting(&self) -> usize {
        self.waiting.hidden.as_ref().map_or(0, |hidden| hidden.dims()[0])
    }

    /// Notes tokens that the trunk has read: its states `[t, hidden_size]`, their embeddings and positions.
    pub fn push(&mut self, hidden: Tensor<2>, embeds: Tensor<2>, positions: &Positions) {
        let t = embeds.dims()[0];
        // The first token follows one whose slot is filled already, or none.
        let skip = usize::from(self.waiting.hidden.is_none());
        if t > skip {
            append(&mut self.waiting.next, embeds.narrow(0, skip, t - skip));
        }
        append(&mut self.waiting.hidden, hidden);
        self.waiting.positions.extend(positions);
    }

    /// Takes all waiting rows but the last, whose next token isn't known yet.
    pub fn take_known(&mut self) -> Option<Rows> {
        let n = self.n_waiting().checked_sub(1).filter(|n| *n > 0)?;
        let hidden = self.waiting.hidden.take().expect("rows wait");
        self.waiting.hidden = Some(hidden.clone().narrow(0, n, 1));
        let positions = self.waiting.positions.slice(0..n);
        self.waiting.positions = self.waiting.positions.slice(n..n + 1);
        let next = self.waiting.next.take().expect("a token follows all but the last");
        Some(Rows { hidden: hidden.narrow(0, 0, n), next, positions })
    }

    /// Takes all waiting rows; `next` is the embedding of the token that comes now.
    pub fn take_all(&mut self, next: Tensor<2>) -> Option<Rows> {
        let hidden = self.waiting.hidden.take()?;
        append(&mut self.waiting.next, next);
        let next = self.waiting.next.take().expect("it was just put there");
        let positions = std::mem::take(&mut self.waiting.positions);
        Some(Rows { hidden, next, positions })
    }

    /// Forgets the last `n` tokens, which wait.
    pub(super) fn drop_last(&mut self, n: usize) {
        let Waiting { hidden, next, positions } = &mut self.waiting;
        let rows = hidden.as_ref().map_or(0, |hidden| hidden.dims()[0]);
        let left = rows.saturating_sub(n);
        *hidden = hidden.take().filter(|_| left > 0).map(|hidden| hidden.narrow(0, 0, left));
        *next = next.take().filter(|_| left > 1).map(|next| next.narrow(0, 0, left - 1));
        *positions = positions.slice(0..left);
    }

    pub(super) fn waiting(&self) -> Waiting {
        self.waiting.clone()
    }

    pub(super) fn restore(&mut self, len: usize, waiting: Waiting) {
        self.truncate(len);
        self.waiting = waiting;
    }
}

fn append(all: &mut Option<Tensor<2>>, more: Tensor<2>) {
    *all = Some(match all.take() {
        None => more,
        Some(before) => Tensor::cat(vec![before, more], 0),
    });
}
