//! The choice of models, as a person sees it and as the session manager hears of it.

use super::*;
use crate::msg::{DownloadProgress, Judgement, Machine, ModelCommand, ModelEvent, ModelRow, TurnId, Verdict};

const GIB: u64 = 1 << 30;

fn row(name: &str, gib: u64, store: Option<&str>) -> ModelRow {
    ModelRow {
        name: name.into(),
        bytes: Some(gib * GIB),
        store: store.map(str::to_owned),
        about: "text · apache-2.0".into(),
    }
}

fn judged(name: &str, verdict: Verdict) -> ModelEvent {
    let judgement = Judgement {
        download_bytes: GIB,
        needs_bytes: 2 * GIB,
        context_tokens: 32_768,
        terms: vec![("weights", GIB), ("KV cache", GIB), ("vision tower", 0)],
        quant: None,
        tokens_per_second: Some(12),
        verdict,
    };
    ModelEvent::Judged { name: name.into(), judgement: Ok(judgement) }
}

fn tell(run: &mut Run, event: ModelEvent) {
    run.message(Msg::Session(Event::Models(event)));
}

fn asked(run: &Run) -> Vec<&ModelCommand> {
    let commands = run.sent().into_iter().filter_map(|command| match command {
        Command::Models(command) => Some(command),
        _ => None,
    });
    commands.collect()
}

/// A first start that has looked at the machine.
fn welcome() -> Run {
    let settings = TuiSettings { offers_models: true, ..TuiSettings::default() };
    let state = State::new(settings, 100, 24);
    let mut run = Run { state, effects: Vec::new(), stats: TurnStats::default() };
    run.play("~loaded");
    let machine = Machine { memory_bytes: Some(8 * GIB), ..Machine::default() };
    let models = vec![row("Qwen/small", 1, None), row("Qwen/large", 4, None), row("Qwen/huge", 90, None)];
    tell(&mut run, ModelEvent::Listed { machine, models });
    run
}

/// A first start, at three sizes; then with a download.
#[test]
fn first_run_and_download() {
    use insta::assert_snapshot;
    for name in ["first_run", "download", "model_picker"] {
        let mut screens = String::new();
        for (width, height) in [(40, 12), (80, 24), (200, 60)] {
            let settings = TuiSettings { offers_models: true, ..TuiSettings::default() };
            let state = State::new(settings, width, height);
            let mut run = Run { state, effects: Vec::new(), stats: TurnStats::default() };
            run.play("~note(No GPU was found, so the CPU answers.)");
            let machine = Machine {
                memory_bytes: Some(8 * GIB),
                disk_bytes: Some(80 * GIB),
                bandwidth_bytes: Some(20 * GIB),
                folder: Some("~/.cache/huggingface/hub".into()),
                offline: false,
            };
            let here = row("Qwen/Qwen3.5-0.8B", 1, Some("Hub cache"));
            let models = vec![here, row("Qwen/Qwen3.5-2B", 4, None), row("Qwen/Qwen3.5-27B", 54, None)];
            tell(&mut run, ModelEvent::Listed { machine, models });
            tell(&mut run, judged("Qwen/Qwen3.5-0.8B", Verdict::Fits { spare_bytes: 4 * GIB }));
            tell(&mut run, judged("Qwen/Qwen3.5-2B", Verdict::FitsAt { context_tokens: 8192 }));
            tell(&mut run, judged("Qwen/Qwen3.5-27B", Verdict::TooBig));
            if name != "first_run" {
                run.play("<down>");
            }
            if name == "download" {
                run.play("<enter>");
                let progress = DownloadProgress {
                    done_bytes: GIB,
                    total_bytes: 4 * GIB,
                    bytes_per_second: 12 << 20,
                    seconds_left: Some(256),
                    note: None,
                };
                tell(&mut run, ModelEvent::Downloading { name: "Qwen/Qwen3.5-2B".into(), progress });
            }
            if name == "model_picker" {
                run.play("<esc>/model<enter> <down> <tab>");
            }
            screens.push_str(&format!("{width}x{height}\n{}\n", run.screen()));
        }
        assert_snapshot!(name, screens);
    }
}

#[test]
fn the_model_that_a_person_chose_and_that_works_is_remembered() {
    let mut run = welcome();
    tell(
        &mut run,
        ModelEvent::Listed {
            machine: Machine::default(),
            models: vec![row("Qwen/small", 1, Some("Hub cache"))],
        },
    );
    run.play("<enter>");
    let kept = |run: &Run| {
        let kept = |effect: &&Effect| matches!(effect, Effect::Work(Work::Keep { setting: "model", .. }));
        run.effects.iter().filter(kept).count()
    };
    assert_eq!(kept(&run), 0, "not before it is loaded");
    run.play("~loaded");
    assert_eq!(kept(&run), 1);
    run.play("~loaded");
    assert_eq!(kept(&run), 1);
}

/// The line under the cursor.
fn selected(run: &mut Run) -> String {
    let screen = run.screen();
    screen.lines().find(|line| line.starts_with(" │ › ")).unwrap_or_default().to_owned()
}

#[test]
fn the_best_that_fits_comes_first_and_the_cursor_stays_where_a_person_put_it() {
    let mut run = welcome();
    assert!(selected(&mut run).contains("Qwen/small"));
    tell(&mut run, judged("Qwen/small", Verdict::Fits { spare_bytes: GIB }));
    tell(&mut run, judged("Qwen/large", Verdict::Fits { spare_bytes: GIB / 2 }));
    tell(&mut run, judged("Qwen/huge", Verdict::TooBig));
    assert!(selected(&mut run).contains("Qwen/large"), "{}", run.screen());
    run.play("<down>");
    assert!(selected(&mut run).contains("Qwen/small"));
    tell(&mut run, judged("Qwen/large", Verdict::TooBig));
    assert!(selected(&mut run).contains("Qwen/small"));
    assert!(run.screen().contains("8.00 GiB of memory free"));
    run.play("<tab>");
    assert!(run.screen().contains("weights 1.00 GiB, KV cache 1.00 GiB"), "{}", run.screen());
}

#[test]
fn typing_on_a_first_start_goes_to_the_chat() {
    let mut run = welcome();
    run.play("hello");
    assert_eq!(run.state.composer.text(), "hello");
    assert!(run.state.models.open.is_none());
    let mut run = welcome();
    run.play("<esc>");
    assert!(run.state.models.open.is_none());
    assert!(asked(&run).is_empty());
}

#[test]
fn one_key_downloads_then_the_model_takes_over_and_is_tried_out() {
    let mut run = welcome();
    run.play("<enter>");
    let name = "Qwen/small".to_owned();
    assert_eq!(asked(&run), [&ModelCommand::Download(name.clone())]);
    let progress = DownloadProgress {
        done_bytes: GIB / 2,
        total_bytes: GIB,
        bytes_per_second: 1 << 20,
        ..Default::default()
    };
    tell(&mut run, ModelEvent::Downloading { name: name.clone(), progress });
    assert!(
        run.screen().contains("downloading Qwen/small 512 MiB of 1.00 GiB · 1.00 MiB/s"),
        "{}",
        run.screen()
    );
    run.play("<enter>");
    assert!(run.screen().contains("paused: Qwen/small 512 MiB of 1.00 GiB"), "{}", run.screen());
    // What was on its way when it was paused changes nothing.
    tell(&mut run, ModelEvent::Downloaded { name: name.clone() });
    run.play("<enter>");
    tell(&mut run, ModelEvent::Downloaded { name: name.clone() });
    let expected = [
        ModelCommand::Download(name.clone()),
        ModelCommand::StopDownload,
        ModelCommand::Download(name.clone()),
        ModelCommand::Load(name.clone()),
    ];
    assert_eq!(asked(&run), expected.iter().collect::<Vec<_>>());
    tell(&mut run, ModelEvent::Loading { name });
    run.play("~loaded");
    let Some(Command::Submit { turn, .. }) = run.sent().last().copied() else { panic!("no self-test") };
    let turn = *turn;
    let stats = TurnStats { completion_tokens: 2, ..TurnStats::default() };
    run.message(Msg::Session(Event::Delta { turn, channel: Channel::Answer, text: "Paris.".into(), stats }));
    run.message(Msg::Session(Event::TurnFinished { turn, finish: Finish::Stop, stats }));
    assert!(run.screen().contains("Self-test: Paris."), "{}", run.screen());
    // The chat knows nothing of it.
    run.play("Hello<enter>");
    assert_eq!(run.state.active.map(|active| active.turn), Some(TurnId(turn.0 + 1)));
}

#[test]
fn a_download_goes_on_behind_the_chat_and_says_when_it_failed() {
    let mut run = welcome();
    run.play("<enter> <esc>");
    let name = "Qwen/small".to_owned();
    assert!(run.screen().contains("downloading Qwen/small · /model"), "{}", run.screen());
    tell(&mut run, ModelEvent::DownloadFailed { name, why: "no connection to \u{1b}[31mhost".into() });
    assert!(
        run.screen().contains("Qwen/small was not downloaded: no connection to host"),
        "{}",
        run.screen()
    );
}

#[test]
fn any_name_of_the_hub_can_be_typed_and_what_is_here_is_used() {
    let mut run = play("/model<enter>");
    let here = row("Qwen/here", 1, Some("Hub cache"));
    let models = vec![row("Qwen/small", 1, None), here];
    tell(&mut run, ModelEvent::Listed { machine: Machine::default(), models });
    assert!(run.screen().contains("here, 0 B to download"), "{}", run.screen());
    run.play("some/other<enter>");
    assert_eq!(asked(&run).last(), Some(&&ModelCommand::Download("some/other".into())));
    run.play("<del> <down> <enter>");
    assert_eq!(asked(&run).last(), Some(&&ModelCommand::Search("some/other".into())));
    let found = Ok(vec![row("some/other-GGUF", 1, None)]);
    tell(&mut run, ModelEvent::Found { words: "some/other".into(), found });
    assert!(run.screen().contains("some/other-GGUF"), "{}", run.screen());

    let mut run = play("/model here<enter>");
    let models = vec![row("Qwen/here", 1, Some("Hub cache"))];
    tell(&mut run, ModelEvent::Listed { machine: Machine::default(), models });
    run.play("<enter>");
    assert_eq!(asked(&run).last(), Some(&&ModelCommand::Load("Qwen/here".into())));
}
