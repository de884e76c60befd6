//! The tower, and pictures among text, against the reference implementation's numbers.

use std::path::Path;

use serde_json::Value;

use super::super::clip;
use super::super::eyes::Eyes;
use super::*;
use crate::chat::{Detail, Message, Part, Picture, Role};
use crate::engine::cache::TokenKey;
use crate::engine::config::ModelConfig;
use crate::engine::generate::read;
use crate::engine::golden::{self, Tensors, argmax, assert_close, cpu, gpu};
use crate::engine::model::{Model, Tokens};
use crate::engine::prompt::pictures::{Layout, Seen, layout};
use crate::engine::tokenizer::Tokenizer;
use crate::engine::weights::Checkpoint;

struct Case {
    name: &'static str,
    model: Model,
    eyes: Eyes,
    tokenizer: Tokenizer,
    meta: Value,
}

impl Case {
    fn open(name: &'static str, device: OpenDevice) -> Self {
        Self::open_in(&golden::path(name, "model"), name, device)
    }

    fn open_in(dir: &Path, name: &'static str, device: OpenDevice) -> Self {
        let config = ModelConfig::open(dir).unwrap();
        let checkpoint = Checkpoint::open(dir).unwrap();
        let tokenizer = Tokenizer::open(dir).unwrap();
        let eyes = Eyes::open(dir, &config, &checkpoint, &tokenizer, &device).unwrap().unwrap();
        let model = Model::load(config, &checkpoint, dir, device).unwrap();
        Self { name, model, eyes, tokenizer, meta: golden::json(name, "golden/meta.json") }
    }

    fn tolerance(&self, what: &str) -> f64 {
        self.meta["tolerance"][what].as_f64().unwrap()
    }

    /// The pictures of a case as a conversation has them.
    fn pictures(&self, case: &str) -> Vec<Message> {
        let names = self.meta["vl"][case]["images"].as_array().unwrap();
        let parts = names.iter().map(|name| {
            let file = format!("images/{}.png", name.as_str().unwrap());
            Part::Image(Picture::file(golden::path("vision", &file), Detail::High))
        });
        vec![Message { role: Role::User, parts: parts.collect(), reasoning: None }]
    }

    /// Checks positions, features in place, logits and greedy ids.
    fn check_prompt(&self, name: &str, seen: &[Seen], features: &[Tensor<2>], file: &Tensors) {
        let ids = file.ids("input_ids");
        let text = self.meta["vl"][name]["expanded_text"].as_str().unwrap();
        assert_eq!(self.tokenizer.encode(text).unwrap(), ids, "{name}");
        let Layout { keys, positions, spans, next_position } =
            layout(&ids, seen, |id| self.eyes.is_pad(id)).unwrap();
        let got: Vec<f64> = positions.0.concat().into_iter().map(|p| p as f64).collect();
        assert_eq!(got, file.values("position_ids"), "{name}");
        assert_eq!(next_position as f64 - ids.len() as f64, file.values("rope_delta")[0], "{name}");

        let parts = spans
            .iter()
            .map(|span| (span.start, features[span.picture].clone().narrow(0, span.feature, span.len)));
        let tokens =
            Tokens { ids: &ids, keys, positions, features: parts.collect(), next_position, is_draft: false };
        let mut cache = self.model.new_cache();
        let mut taps = Vec::new();
        let normed = self.model.forward_tokens(tokens, &mut cache, Some(&mut taps));
        let last = taps.len() - 1;
        for i in [0, last] {
            let got = read(taps[i].clone()).unwrap();
            let what = format!("hidden.{i}");
            assert_close(&got, file.values(&what), self.tolerance("hidden"), &format!("{name} {what}"));
        }
        let logits = read(self.model.logits(normed)).unwrap();
        assert_close(&logits, file.values("logits"), self.tolerance("logits"), &format!("{name} logits"));

        let vocab = self.model.config.vocab_size;
        let mut row = logits[logits.len() - vocab..].to_vec();
        let mut greedy = Vec::new();
        for expected in file.values("greedy.logits").chunks_exact(vocab) {
            assert_close(&row, expected, self.tolerance("logits"), &format!("{name} greedy logits"));
            greedy.push(argmax(&row));
            let hidden = self.model.forward(&greedy[greedy.len() - 1..], &mut cache, None);
            row = read(self.model.logits(hidden)).unwrap();
        }
        assert_eq!(greedy, file.ids("greedy.ids"), "{name}");
    }
}

const PICTURES: [&str; 4] = ["image_square", "image_tiny", "image_two", "image_odd"];

fn check_pictures(mut case: Case, names: &[&str]) {
    for name in names {
        let file = Tensors::open(case.name, &format!("golden/{name}.safetensors"));
        let looked = case.eyes.look_at(&case.pictures(name)).unwrap();
        let mut taps = Taps::default();
        let mut features = Vec::new();
        let mut patches = Vec::new();
        let mut grids = Vec::new();
        for picture in &looked {
            let pixels = case.eyes.pixels(picture).unwrap();
            let encoder = &case.eyes.encoder;
            let grid = encoder.layout.grid(&pixels);
            grids.extend(grid.map(|n| n as f64));
            patches.extend(encoder.layout.patches(&pixels, 0, 0..grid[1] * grid[2]));
            let mut steps = 0;
            let encoded = encoder.encode(
                &pixels,
                &mut || {
                    steps += 1;
                    ControlFlow::Continue(())
                },
                Some(&mut taps),
            );
            assert_eq!(steps, encoder.n_steps(grid[0], grid[1] * grid[2]));
            features.push(encoded.unwrap());
        }
        assert_eq!(grids, file.values("image_grid_thw"));
        assert_close(&patches, file.values("pixel_values"), 1e-7, &format!("{name} pixels"));
        let merged = read(Tensor::cat(features.clone(), 0)).unwrap();
        let tolerance = case.tolerance("vision_merged");
        assert_close(&merged, file.values("visual.merged"), tolerance, &format!("{name} features"));
        if *name == "image_square" {
            let stages = [("visual.patch_embed", taps.patch_embed), ("visual.pos_embed", taps.positions)];
            let blocks = taps.blocks.into_iter().enumerate();
            let blocks = blocks.map(|(i, x)| (format!("visual.block.{i}"), x));
            let stages = stages.into_iter().map(|(name, x)| (name.to_owned(), x.unwrap())).chain(blocks);
            for (stage, x) in stages {
                assert_close(&read(x).unwrap(), file.values(&stage), tolerance, &stage);
            }
        }
        let seen: Vec<Seen> = looked.iter().map(|looked| looked.seen.clone()).collect();
        case.check_prompt(name, &seen, &features, &file);
    }
}

fn check_clip(device: OpenDevice) {
    let case = Case::open("vision", device);
    let file = Tensors::open("vision", "golden/video.safetensors");
    let meta = &case.meta["vl"]["video"];
    let frames: Vec<_> = meta["frames"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| {
            image::open(golden::path("vision", "images").join(name.as_str().unwrap())).unwrap().into_rgb8()
        })
        .collect();
    let all: Vec<usize> = (0..frames.len()).collect();
    let layout = &case.eyes.encoder.layout;
    let clip =
        clip::prepare(&frames, &all, meta["fps"].as_f64().unwrap(), &case.eyes.processor.clip).unwrap();
    let [slots, rows, columns] = layout.grid(&clip.pixels);
    assert_eq!([slots, rows, columns].map(|n| n as f64), file.values("video_grid_thw"));
    let patches: Vec<f32> =
        (0..slots).flat_map(|slot| layout.patches(&clip.pixels, slot, 0..rows * columns)).collect();
    assert_close(&patches, file.values("pixel_values_videos"), 1e-7, "clip pixels");
    let features = case.eyes.encoder.encode(&clip.pixels, &mut || ControlFlow::Continue(()), None).unwrap();
    let merged = read(features.clone()).unwrap();
    assert_close(&merged, file.values("visual.merged"), case.tolerance("vision_merged"), "clip features");
    let seen = Seen { key: TokenKey::from(1), rows: rows / 2, columns: columns / 2, times: Some(clip.times) };
    case.check_prompt("video", &[seen], &[features], &file);
}

#[test]
fn pictures_give_the_reference_features_positions_and_logits_on_the_cpu() {
    check_pictures(Case::open("vision", cpu()), &PICTURES);
    check_pictures(Case::open("moe", cpu()), &PICTURES[..1]);
}

#[test]
fn pictures_give_the_reference_features_positions_and_logits_on_a_gpu() {
    check_pictures(Case::open("vision", gpu()), &PICTURES);
    check_pictures(Case::open("moe", gpu()), &PICTURES[..1]);
}

#[test]
fn a_gguf_model_with_its_tower_sees_the_same() {
    let mut case = Case::open_in(&golden::path("gguf", "vision"), "vision", cpu());
    // GGUF has no place for the limits of a picture's size: all released models have the same. The fixture hasn't.
    case.eyes.processor.image = Case::open("vision", cpu()).eyes.processor.image;
    check_pictures(case, &PICTURES);
}

#[test]
fn a_clip_gives_the_reference_features_positions_and_logits_on_the_cpu() {
    check_clip(cpu());
}

#[test]
fn a_clip_gives_the_reference_features_positions_and_logits_on_a_gpu() {
    check_clip(gpu());
}

#[test]
fn encoding_stops_when_asked() {
    let mut case = Case::open("vision", cpu());
    let looked = case.eyes.look_at(&case.pictures("image_square")).unwrap();
    let mut reported = Vec::new();
    let stopped = case.eyes.encode(&looked[0], &mut |done, total| {
        reported.push((done, total));
        if done == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(stopped.unwrap().is_none());
    assert_eq!(reported, [(0, 3), (1, 3), (2, 3)]);
    assert!(case.eyes.remembered(&looked[0]).is_none());
}
