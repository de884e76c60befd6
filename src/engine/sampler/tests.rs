use proptest::prelude::*;

use super::rng::Rng;
use super::*;
use crate::msg::SamplingOptions;

/// Everything off, temperature 1: draws from the plain softmax.
const PLAIN: SamplingParams = SamplingParams { temperature: 1.0, ..GREEDY };
const GREEDY: SamplingParams = SamplingParams::GREEDY;
const LOGITS: [f32; 6] = [1.0, 3.0, 2.5, -1.0, 2.0, 0.5];

/// The probabilities by the definition: everything sorted, everything in f64.
fn probabilities(logits: &[f32], said: &[u32], params: &SamplingParams) -> Vec<f64> {
    let mut logits: Vec<f64> = logits.iter().map(|&logit| f64::from(logit)).collect();
    for (id, logit) in logits.iter_mut().enumerate() {
        let count = said.iter().filter(|&&token| token as usize == id).count();
        if count > 0 {
            let factor = f64::from(params.repetition_penalty);
            *logit = if *logit > 0.0 { *logit / factor } else { *logit * factor };
            *logit -= f64::from(params.presence_penalty) + f64::from(params.frequency_penalty) * count as f64;
        }
    }
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    let best = logits[order[0]];
    let weight = |id: usize| ((logits[id] - best) / f64::from(params.temperature)).exp();
    if params.top_k > 0 {
        order.truncate(params.top_k);
    }
    let total: f64 = order.iter().map(|&id| weight(id)).sum();
    let mut reached = 0.0;
    let mut kept = Vec::new();
    for &id in &order {
        kept.push(id);
        reached += weight(id);
        if params.top_p < 1.0 && reached >= f64::from(params.top_p) * total {
            break;
        }
    }
    kept.retain(|&id| weight(id) >= f64::from(params.min_p));
    let total: f64 = kept.iter().map(|&id| weight(id)).sum();
    let mut probabilities = vec![0.0; logits.len()];
    for id in kept {
        probabilities[id] = weight(id) / total;
    }
    probabilities
}

/// Draws many tokens and compares how often each came with its probability.
fn assert_distribution(said: &[u32], params: SamplingParams) {
    const DRAWS: usize = 20_000;
    let mut sampler = Sampler::new(params, 7);
    said.iter().for_each(|&token| sampler.accept(token));
    let mut counts = [0usize; LOGITS.len()];
    for _ in 0..DRAWS {
        counts[sampler.sample(&LOGITS, LOGITS.len()).unwrap() as usize] += 1;
    }
    for (id, p) in probabilities(&LOGITS, said, &params).into_iter().enumerate() {
        let share = counts[id] as f64 / DRAWS as f64;
        // Five standard deviations of a count, so about one false alarm in two million.
        let tolerance = 5.0 * (p * (1.0 - p) / DRAWS as f64).sqrt();
        assert!((share - p).abs() <= tolerance, "token {id}: drawn {share}, probability {p}, {params:?}");
    }
}

#[test]
fn every_setting_gives_its_distribution() {
    let said = [1, 1, 3, 4];
    assert_distribution(&[], PLAIN);
    assert_distribution(&[], SamplingParams { temperature: 0.5, ..PLAIN });
    assert_distribution(&[], SamplingParams { temperature: 2.0, ..PLAIN });
    assert_distribution(&[], SamplingParams { top_k: 3, ..PLAIN });
    assert_distribution(&[], SamplingParams { top_k: 1, ..PLAIN });
    assert_distribution(&[], SamplingParams { top_k: 100, ..PLAIN });
    assert_distribution(&[], SamplingParams { top_p: 0.8, ..PLAIN });
    assert_distribution(&[], SamplingParams { top_p: 0.01, ..PLAIN });
    assert_distribution(&[], SamplingParams { min_p: 0.2, ..PLAIN });
    assert_distribution(&[], SamplingParams { min_p: 1.0, ..PLAIN });
    assert_distribution(&said, SamplingParams { presence_penalty: 1.5, ..PLAIN });
    assert_distribution(&said, SamplingParams { frequency_penalty: 0.7, ..PLAIN });
    assert_distribution(&said, SamplingParams { repetition_penalty: 1.3, ..PLAIN });
    assert_distribution(
        &said,
        SamplingParams {
            temperature: 0.7,
            top_k: 5,
            top_p: 0.9,
            min_p: 0.05,
            presence_penalty: 0.5,
            frequency_penalty: 0.2,
            repetition_penalty: 1.1,
        },
    );
}

#[test]
fn temperature_zero_takes_the_best_and_the_lowest_among_equals() {
    let mut sampler = Sampler::new(GREEDY, 0);
    assert_eq!(sampler.sample(&LOGITS, 6), Ok(1));
    assert_eq!(sampler.sample(&[0.0, 5.0, 5.0], 3), Ok(1));
    assert_eq!(sampler.sample(&[f32::NEG_INFINITY, -3.0], 2), Ok(1));
}

#[test]
fn penalties_move_the_greedy_choice_too() {
    let mut sampler = Sampler::new(SamplingParams { presence_penalty: 1.0, ..GREEDY }, 0);
    sampler.accept(1);
    assert_eq!(sampler.sample(&LOGITS, 6), Ok(2));
    sampler.accept(1);
    assert_eq!(sampler.sample(&LOGITS, 6), Ok(2), "presence counts once");
}

#[test]
fn padding_rows_are_never_chosen() {
    let logits = [1.0, 2.0, 9.0, f32::NAN];
    for params in [GREEDY, PLAIN, SamplingParams { top_k: 2, ..PLAIN }] {
        let mut sampler = Sampler::new(params, 3);
        for _ in 0..100 {
            assert!(sampler.sample(&logits, 2).unwrap() < 2);
        }
    }
    assert_eq!(Sampler::new(GREEDY, 0).sample(&[1.0], 100), Ok(0), "fewer logits than the vocabulary has");
}

#[test]
fn broken_logits_are_errors() {
    for params in [GREEDY, PLAIN, SamplingParams { top_k: 1, top_p: 0.5, min_p: 0.5, ..PLAIN }] {
        let mut sampler = Sampler::new(params, 0);
        let infinite = f32::INFINITY;
        assert_eq!(sampler.sample(&[0.0, f32::NAN], 2), Err(SamplerError::NotANumber { token: 1 }));
        assert_eq!(sampler.sample(&[infinite, 0.0], 2), Err(SamplerError::NotANumber { token: 0 }));
        assert_eq!(sampler.sample(&[-infinite, -infinite], 2), Err(SamplerError::NothingToChoose));
        assert_eq!(sampler.sample(&[], 0), Err(SamplerError::NothingToChoose));
        assert_eq!(sampler.sample(&[-infinite, 0.0], 2), Ok(1), "one token left is enough");
    }
}

#[test]
fn settings_out_of_any_range_neither_panic_nor_loop() {
    let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MIN_POSITIVE, -1.0, 0.0, f32::MAX];
    for value in odd {
        for params in [
            SamplingParams { temperature: value, ..PLAIN },
            SamplingParams { top_p: value, ..PLAIN },
            SamplingParams { min_p: value, ..PLAIN },
            SamplingParams { presence_penalty: value, ..PLAIN },
            SamplingParams { frequency_penalty: value, ..PLAIN },
            SamplingParams { repetition_penalty: value, ..PLAIN },
        ] {
            let mut sampler = Sampler::new(params, 0);
            sampler.accept(1);
            let _ = sampler.sample(&LOGITS, 6);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_tokens() {
    let draw = |seed| {
        let mut sampler = Sampler::new(SamplingParams { presence_penalty: 0.3, top_p: 0.95, ..PLAIN }, seed);
        (0..50)
            .map(|_| {
                let token = sampler.sample(&LOGITS, 6).unwrap();
                sampler.accept(token);
                token
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
}

#[test]
fn the_random_numbers_are_those_of_splitmix64() {
    // The first outputs for seed 1234567 in the algorithm's public test vectors.
    let mut rng = Rng::new(1_234_567);
    assert_eq!([rng.next_u64(), rng.next_u64()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
}

#[test]
fn a_real_vocabulary_needs_no_full_sort_and_agrees_with_one() {
    let mut rng = Rng::new(5);
    let logits: Vec<f32> = (0..248_077).map(|_| (rng.next_f64() * 20.0 - 10.0) as f32).collect();
    let mut order: Vec<u32> = (0..logits.len() as u32).collect();
    order.sort_by(|&a, &b| logits[b as usize].total_cmp(&logits[a as usize]).then(a.cmp(&b)));
    for k in [1, 20, 300, 100_000] {
        let mut kept = Vec::new();
        take_top_k(&logits, k, &mut kept);
        assert!(kept.iter().map(|candidate| candidate.id).eq(order[..k].iter().copied()), "k = {k}");
    }
}

fn mode(thinking: bool, thinks_by_default: bool, is_small: bool) -> Mode {
    Mode { thinking, thinks_by_default, is_small, has_images: false }
}

fn resolve(options: &SamplingOptions, config: &str, mode: Mode) -> SamplingParams {
    let config: GenerationConfig = serde_json::from_str(config).unwrap();
    SamplingParams::resolve(options, &config, mode).unwrap()
}

#[test]
fn without_wishes_the_cards_table_is_used() {
    let table = |mode| {
        let p = resolve(&SamplingOptions::default(), "{}", mode);
        assert_eq!((p.min_p, p.frequency_penalty, p.repetition_penalty), (0.0, 0.0, 1.0));
        (p.temperature, p.top_p, p.top_k, p.presence_penalty)
    };
    assert_eq!(table(mode(true, true, false)), (1.0, 0.95, 20, 1.5));
    assert_eq!(table(mode(false, true, false)), (0.7, 0.8, 20, 1.5));
    assert_eq!(table(mode(true, false, true)), (1.0, 0.95, 20, 1.5));
    assert_eq!(table(mode(false, false, true)), (1.0, 1.0, 20, 2.0));
    assert_eq!(table(Mode { has_images: true, ..mode(false, false, true) }), (0.7, 0.8, 20, 1.5));
    assert_eq!(table(Mode { has_images: true, ..mode(true, false, true) }), (0.6, 0.95, 20, 0.0));
}

#[test]
fn penalties_of_the_models_own_file_come_before_the_cards() {
    let config = r#"{"presence_penalty": 0.0, "frequency_penalty": 0.25, "repetition_penalty": 0.0}"#;
    let p = resolve(&SamplingOptions::default(), config, mode(false, false, true));
    // A repetition penalty of 0 makes no sense and is ignored.
    assert_eq!((p.presence_penalty, p.frequency_penalty, p.repetition_penalty), (0.0, 0.25, 1.0));
}

#[test]
fn the_models_own_file_speaks_for_its_default_mode() {
    let config =
        r#"{"temperature": 0.9, "top_k": 7, "top_p": 0.5, "do_sample": true, "eos_token_id": [2, 1]}"#;
    let none = SamplingOptions::default();
    let thinking = resolve(&none, config, mode(true, true, false));
    assert_eq!(
        (thinking.temperature, thinking.top_k, thinking.top_p, thinking.presence_penalty),
        (0.9, 7, 0.5, 1.5)
    );
    let other = resolve(&none, config, mode(false, true, false));
    assert_eq!((other.temperature, other.top_k, other.top_p), (0.7, 20, 0.8));
    assert_eq!(resolve(&none, r#"{"do_sample": false}"#, mode(true, true, false)).temperature, 0.0);
    let nonsense = resolve(&none, r#"{"temperature": -1, "top_p": 7}"#, mode(true, true, false));
    assert_eq!((nonsense.temperature, nonsense.top_p), (1.0, 0.95));
}

#[test]
fn a_persons_wish_comes_first_and_zero_is_a_wish() {
    let options = SamplingOptions {
        temperature: Some(0.0),
        top_k: Some(0),
        top_p: Some(1.0),
        min_p: Some(0.1),
        presence_penalty: Some(0.0),
        frequency_penalty: Some(0.2),
        repetition_penalty: Some(1.2),
        seed: None,
    };
    let config = r#"{"temperature": 0.9, "top_k": 7}"#;
    let expected = SamplingParams {
        temperature: 0.0,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.1,
        presence_penalty: 0.0,
        frequency_penalty: 0.2,
        repetition_penalty: 1.2,
    };
    assert_eq!(resolve(&options, config, mode(true, true, false)), expected);
}

#[test]
fn a_wish_that_makes_no_sense_is_refused_by_name() {
    let config = GenerationConfig::default();
    let refused = |options: SamplingOptions| {
        SamplingParams::resolve(&options, &config, mode(true, true, false)).unwrap_err().to_string()
    };
    let none = SamplingOptions::default;
    assert_eq!(
        refused(SamplingOptions { temperature: Some(-1.0), ..none() }),
        "temperature must be from 0 to 100, not -1"
    );
    assert_eq!(
        refused(SamplingOptions { top_p: Some(0.0), ..none() }),
        "top_p must be above 0 and at most 1, not 0"
    );
    assert!(refused(SamplingOptions { min_p: Some(f32::NAN), ..none() }).starts_with("min_p"));
    assert!(
        refused(SamplingOptions { presence_penalty: Some(1e9), ..none() }).starts_with("presence_penalty")
    );
    assert!(
        refused(SamplingOptions { frequency_penalty: Some(f32::INFINITY), ..none() })
            .starts_with("frequency_penalty")
    );
    assert!(
        refused(SamplingOptions { repetition_penalty: Some(0.0), ..none() })
            .starts_with("repetition_penalty")
    );
}

#[test]
fn the_stop_ids_may_be_one_or_several() {
    let ids =
        |config: &str| serde_json::from_str::<GenerationConfig>(config).unwrap().eos_token_ids().to_vec();
    assert_eq!(ids("{}"), [0u32; 0]);
    assert_eq!(ids(r#"{"eos_token_id": 3}"#), [3]);
    assert_eq!(ids(r#"{"eos_token_id": [3, 1]}"#), [3, 1]);
}

proptest! {
    #[test]
    fn only_tokens_that_the_definition_allows_are_drawn(
        logits in prop::collection::vec(prop_oneof![4 => (-8..8i32).prop_map(|x| x as f32 / 2.0), 1 => Just(f32::NEG_INFINITY)], 1..600),
        said in prop::collection::vec(0u32..20, 0..5),
        top_k in 0usize..40,
        top_p in prop::sample::select(vec![0.01f32, 0.3, 0.71, 0.93, 1.0]),
        min_p in prop::sample::select(vec![0.0f32, 0.07, 0.5]),
        presence_penalty in prop::sample::select(vec![0.0f32, 1.25]),
        seed: u64,
    ) {
        prop_assume!(logits.iter().any(|logit| logit.is_finite()));
        let params = SamplingParams { temperature: 0.8, top_k, top_p, min_p, presence_penalty, ..PLAIN };
        let mut sampler = Sampler::new(params, seed);
        said.iter().for_each(|&token| sampler.accept(token));
        let expected = probabilities(&logits, &said, &params);
        for _ in 0..20 {
            let token = sampler.sample(&logits, logits.len()).unwrap() as usize;
            prop_assert!(expected[token] > 0.0, "token {} of {:?}", token, params);
        }
    }
}
