//! A cache as a file, so that a conversation can go on after the program has ended without being read again.
//!
//! The file is safetensors: the keys of the tokens, keys and values of each full-attention layer, and for some
//! checkpoints the states of the linear layers. Numbers are kept as they are, in f32: what goes on from a file is
//! what would have gone on without it. Knows nothing of folders and budgets; those are in `engine::states`.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashMap;
use std::path::Path;

use burn::tensor::{Tensor, TensorData};
use safetensors::tensor::{Dtype, SafeTensors, View};
use serde::{Deserialize, Serialize};

use super::super::model::rope::Positions;
use super::mtp::Waiting;
use super::{Cache, Checkpoint, DeltaState, Kv, LayerState, Moment, TokenKey};

/// Names under which the header keeps what isn't a tensor.
const MODEL: &str = "model";
const MOMENTS: &str = "moments";
const KEYS: &str = "keys";

#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    #[error("the device failed")]
    Device,
    #[error(transparent)]
    File(#[from] safetensors::SafeTensorError),
}

/// What a file says of a checkpoint besides its tensors.
#[derive(Debug, Serialize, Deserialize)]
struct Facts {
    len: usize,
    next_position: i64,
    /// Filled slots of the MTP head, and where its waiting rows stand.
    mtp: Option<(usize, [Vec<i64>; 3])>,
}

/// The beginning of a file: for whom it is, and what its cache had read.
pub struct Head {
    pub model: String,
    pub keys: Vec<TokenKey>,
    moments: Vec<Facts>,
}

impl Head {
    /// Reads what comes before the numbers; `None` if it isn't such a file.
    pub fn read(file: &[u8]) -> Option<Self> {
        let (header_bytes, metadata) = SafeTensors::read_metadata(file).ok()?;
        let said = metadata.metadata().as_ref()?;
        let (start, end) = metadata.info(KEYS)?.data_offsets;
        // The length of the header stands before it.
        let data = file.get(size_of::<u64>() + header_bytes..)?;
        let keys = data.get(start..end)?;
        let keys =
            keys.chunks_exact(8).map(|key| TokenKey(u64::from_le_bytes(key.try_into().expect("8 bytes"))));
        let keys: Vec<TokenKey> = keys.collect();
        let moments: Vec<Facts> = serde_json::from_str(said.get(MOMENTS)?).ok()?;
        let fits = |moment: &Facts| moment.len <= keys.len();
        moments.iter().all(fits).then(|| Self {
            model: said.get(MODEL).cloned().unwrap_or_default(),
            keys,
            moments,
        })
    }

    /// The longest checkpoint that is not behind `len`; 0 if there is none.
    pub fn reach(&self, len: usize) -> usize {
        self.moments.iter().map(|moment| moment.len).filter(|n| *n <= len).max().unwrap_or(0)
    }
}

/// Writes what `checkpoints`, which are of `cache` and sorted by length, need to be gone on from.
///
/// # Errors
/// If the file can't be written or a device can't be read; what is at `path` then is of no use.
pub fn write(cache: &Cache, checkpoints: &[Checkpoint], model: &str, path: &Path) -> Result<(), SaveError> {
    let device_failed = Cell::new(false);
    let len = checkpoints.last().map_or(0, Checkpoint::len);
    let keys: Vec<u8> = cache.tokens()[..len].iter().flat_map(|key| key.0.to_le_bytes()).collect();
    let mut parts = vec![(KEYS.to_owned(), Part::Keys { shape: [len], bytes: keys })];
    let mut kv = |name: &str, kv: &Kv, len: usize| {
        if len > 0 {
            let (keys, values) = kv.first(len);
            parts.push((format!("{name}.keys"), Part::floats(keys, &device_failed)));
            parts.push((format!("{name}.values"), Part::floats(values, &device_failed)));
        }
    };
    for (i, layer) in cache.layers.iter().enumerate() {
        if let LayerState::Kv(state) = layer {
            kv(&format!("layers.{i}"), state, len);
        }
    }
    let mtp_len = checkpoints.iter().filter_map(|c| Some(c.moment.mtp.as_ref()?.0)).max().unwrap_or(0);
    if let Some(LayerState::Kv(state)) = cache.mtp.as_ref().map(|mtp| &mtp.kv) {
        kv("mtp", state, mtp_len);
    }
    let mut facts = Vec::new();
    for (n, Checkpoint { moment, .. }) in checkpoints.iter().enumerate() {
        for (i, state) in moment.delta.iter().enumerate() {
            let recurrent = state.recurrent.clone().expect("a checkpoint is taken between forward passes");
            parts.push((format!("moments.{n}.{i}.conv"), Part::floats(state.conv.clone(), &device_failed)));
            parts.push((format!("moments.{n}.{i}.recurrent"), Part::floats(recurrent, &device_failed)));
        }
        let mtp = moment.mtp.as_ref().map(|(len, waiting)| {
            for (name, rows) in [("hidden", &waiting.hidden), ("next", &waiting.next)] {
                if let Some(rows) = rows {
                    parts.push((
                        format!("moments.{n}.mtp.{name}"),
                        Part::floats(rows.clone(), &device_failed),
                    ));
                }
            }
            (*len, waiting.positions.0.clone())
        });
        facts.push(Facts { len: moment.len, next_position: moment.next_position, mtp });
    }
    let facts = serde_json::to_string(&facts).expect("numbers are JSON");
    let head = HashMap::from([(MODEL.to_owned(), model.to_owned()), (MOMENTS.to_owned(), facts)]);
    safetensors::serialize_to_file(parts, Some(head), path)?;
    match device_failed.get() {
        true => Err(SaveError::Device),
        false => Ok(()),
    }
}

/// A tensor on its way into a file. Numbers come from the device when they are written, one tensor at a time.
enum Part<'a> {
    Keys { shape: [usize; 1], bytes: Vec<u8> },
    Floats { shape: Vec<usize>, read: Box<dyn Fn() -> Option<Vec<u8>> + 'a>, failed: &'a Cell<bool> },
}

impl<'a> Part<'a> {
    fn floats<const D: usize>(tensor: Tensor<D>, failed: &'a Cell<bool>) -> Self {
        let (shape, read) = (tensor.dims().to_vec(), move || bytes(tensor.clone().try_into_data().ok()?));
        Self::Floats { shape, read: Box::new(read), failed }
    }
}

fn bytes(data: TensorData) -> Option<Vec<u8>> {
    let values: Vec<f32> = data.try_to_vec().ok()?;
    Some(values.iter().flat_map(|value| value.to_le_bytes()).collect())
}

impl View for Part<'_> {
    fn dtype(&self) -> Dtype {
        match self {
            Self::Keys { .. } => Dtype::U64,
            Self::Floats { .. } => Dtype::F32,
        }
    }

    fn shape(&self) -> &[usize] {
        match self {
            Self::Keys { shape, .. } => shape,
            Self::Floats { shape, .. } => shape,
        }
    }

    fn data(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Keys { bytes, .. } => bytes.into(),
            Self::Floats { read, failed, .. } => match read() {
                Some(bytes) => bytes.into(),
                None => {
                    failed.set(true);
                    vec![0; self.data_len()].into()
                }
            },
        }
    }

    fn data_len(&self) -> usize {
        match self {
            Self::Keys { bytes, .. } => bytes.len(),
            Self::Floats { shape, .. } => shape.iter().product::<usize>() * size_of::<f32>(),
        }
    }
}

/// Fills `cache`, which is of the same model, from a file up to its last checkpoint that is not behind `len`. Gives
/// the checkpoints up to there; `None`, with an empty cache, if the file isn't complete.
pub fn read(file: &[u8], len: usize, cache: &mut Cache) -> Option<Vec<Checkpoint>> {
    cache.reset();
    let head = Head::read(file)?;
    let tensors = Tensors(SafeTensors::deserialize(file).ok()?);
    let restored = restore(&head, &tensors, len, cache);
    if restored.is_none() {
        cache.reset();
    }
    restored
}

fn restore(head: &Head, tensors: &Tensors, len: usize, cache: &mut Cache) -> Option<Vec<Checkpoint>> {
    let moments: Vec<(usize, &Facts)> =
        head.moments.iter().enumerate().filter(|(_, m)| m.len <= len).collect();
    let moments: Option<Vec<Moment>> =
        moments.iter().map(|(n, facts)| moment(*n, facts, tensors, &cache.empty)).collect();
    let moments = moments?;
    let last = moments.last()?.clone();
    let mut layers = Vec::new();
    for (i, layer) in cache.layers.iter().enumerate() {
        if let LayerState::Kv(kv) = layer {
            layers.push((i, tensors.kv(&format!("layers.{i}"), last.len, kv)?));
        }
    }
    let mtp = match (&cache.mtp, &last.mtp) {
        (Some(mtp), Some((len, _))) => match &mtp.kv {
            LayerState::Kv(kv) if *len > 0 => Some(tensors.kv("mtp", *len, kv)?),
            _ => None,
        },
        (None, None) => None,
        _ => return None,
    };
    for (i, kv) in layers {
        cache.layers[i] = LayerState::Kv(kv);
    }
    if let (Some(state), Some(kv)) = (&mut cache.mtp, mtp) {
        state.kv = LayerState::Kv(kv);
    }
    cache.tokens = head.keys[..last.len].to_vec();
    cache.restore(&last);
    Some(moments.into_iter().map(|moment| cache.note(moment)).collect())
}

fn moment(n: usize, facts: &Facts, tensors: &Tensors, like: &Moment) -> Option<Moment> {
    let state = |(i, like): (usize, &DeltaState)| {
        let conv = tensors.get(&format!("moments.{n}.{i}.conv"), like.conv.dims(), &like.conv.device())?;
        let recurrent = like.recurrent.as_ref()?;
        let recurrent =
            tensors.get(&format!("moments.{n}.{i}.recurrent"), recurrent.dims(), &recurrent.device())?;
        Some(DeltaState { conv, recurrent: Some(recurrent), draft: None })
    };
    let delta: Option<Vec<DeltaState>> = like.delta.iter().enumerate().map(state).collect();
    let mtp = match &facts.mtp {
        None => None,
        Some((len, positions)) => {
            let rows = positions[0].len();
            let device = like.delta.first()?.conv.device();
            let waiting = |name: &str, rows: usize| match rows {
                0 => Some(None),
                _ => tensors.rows(&format!("moments.{n}.mtp.{name}"), rows, &device).map(Some),
            };
            let waiting = Waiting {
                hidden: waiting("hidden", rows)?,
                next: waiting("next", rows.saturating_sub(1))?,
                positions: Positions(positions.clone()),
            };
            Some((*len, waiting))
        }
    };
    Some(Moment { len: facts.len, next_position: facts.next_position, delta: delta?, mtp })
}

struct Tensors<'a>(SafeTensors<'a>);

impl Tensors<'_> {
    fn values(&self, name: &str, shape: &[usize]) -> Option<Vec<f32>> {
        let view =
            self.0.tensor(name).ok().filter(|view| view.dtype() == Dtype::F32 && view.shape() == shape)?;
        Some(view.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
    }

    fn get<const D: usize>(
        &self,
        name: &str,
        shape: [usize; D],
        device: &burn::tensor::Device,
    ) -> Option<Tensor<D>> {
        Some(Tensor::from_data(TensorData::new(self.values(name, &shape)?, shape), device))
    }

    /// `[n, width]` of whatever width.
    fn rows(&self, name: &str, n: usize, device: &burn::tensor::Device) -> Option<Tensor<2>> {
        let width = *self.0.tensor(name).ok()?.shape().get(1)?;
        self.get(name, [n, width], device)
    }

    /// The first `len` keys and values of what is stored, with room for more.
    fn kv(&self, name: &str, len: usize, like: &Kv) -> Option<Kv> {
        let (like, _) = like.tensors.as_ref()?;
        let [heads, _, d] = like.dims();
        let part = |name: String| {
            let stored = *self.0.tensor(&name).ok()?.shape().get(1)?;
            let values: Tensor<3> = self.get(&name, [heads, stored, d], &like.device())?;
            (len <= stored).then(|| values.narrow(1, 0, len))
        };
        let (keys, values) = (part(format!("{name}.keys"))?, part(format!("{name}.values"))?);
        Some(Kv::of(keys, values))
    }
}
