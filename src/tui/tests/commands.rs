//! Slash commands, as typed.

use super::*;
use crate::msg::TurnOptions;

fn last_options(run: &Run) -> TurnOptions {
    match run.sent().last() {
        Some(Command::Submit { options, .. }) => options.clone(),
        other => panic!("no message was sent last: {other:?}"),
    }
}

#[test]
fn settings_hold_for_the_messages_after_them() {
    let run = play("/set temperature 0.5<enter> /set max_tokens 64<enter> /think off<enter> hi<enter>");
    let options = last_options(&run);
    assert_eq!(options.sampling.temperature, Some(0.5));
    assert_eq!(options.max_tokens, Some(64));
    assert_eq!(options.thinking, Some(false));
}

#[test]
fn an_unknown_command_is_never_sent_and_stays_in_the_draft() {
    let mut run = play("/hlep<enter>");
    assert!(run.sent().is_empty());
    assert_eq!(run.state.composer.text(), "/hlep");
    assert!(run.screen().contains("No command /hlep: did you mean /help"));
}

#[test]
fn a_double_slash_is_a_message() {
    assert_eq!(play("//help<enter>").submitted(), ["/help"]);
}

#[test]
fn a_system_prompt_is_sent_with_the_next_message() {
    let mut run = play("one<enter> ~start(1) ~delta(1) ~finish /system be brief<enter> two<enter>");
    let [.., Command::Open { messages, .. }, Command::Submit { .. }] = run.sent()[..] else {
        panic!("the conversation is stated anew");
    };
    let texts: Vec<_> =
        messages.iter().map(|message| (message.role.as_str(), message.plain_text())).collect();
    assert_eq!(
        texts,
        [("system", "be brief".to_owned()), ("user", "one".to_owned()), ("assistant", "1".to_owned())]
    );
    run.play("~start(1) ~delta(2) ~finish /system<enter>");
    assert!(run.screen().contains("be brief"));
}

#[test]
fn regenerating_asks_the_last_question_again() {
    let mut run = play("one<enter> ~start(1) ~delta(bad) ~finish /regen 7<enter>");
    assert_eq!(run.submitted(), ["one", "one"]);
    assert_eq!(last_options(&run).sampling.seed, Some(7));
    assert!(!run.screen().contains("bad"));
    run.play("/regen<enter>");
    assert!(run.screen().contains("An answer is being written"));
    assert_eq!(play("/regen<enter>").submitted(), Vec::<String>::new());
}

#[test]
fn quit_new_help_and_keys_do_as_they_say() {
    assert_eq!(play("/quit<enter>").effects, [Effect::Quit]);
    assert!(matches!(play("/new<enter>").effects[..], [Effect::Send(Command::Close { .. })]));
    assert!(play("/help<enter>").screen().contains("Esc closes"));
    assert!(play("/keys<enter>").screen().contains("Esc closes"));
}

#[test]
fn tab_completes_the_first_command_that_fits() {
    assert_eq!(play("/th<tab>").state.composer.text(), "/think ");
    assert_eq!(play("/q<tab>").state.composer.text(), "/quit");
    assert_eq!(play("th<tab>").state.composer.text(), "th");
}

#[test]
fn themes_are_tried_out_in_their_list() {
    let theme = |name: &str| Effect::Theme(name.to_owned());
    let mut run = play("");
    run.state.themes = ["auto", "night", "paper"].map(str::to_owned).into();
    run.state.theme = "auto".to_owned();
    run.play("/theme<enter> <down>");
    assert_eq!(run.effects, [theme("night")]);
    run.play("<esc>");
    assert_eq!(run.effects.last(), Some(&theme("auto")));
    run.play("/theme<enter> <down> <c-c>");
    assert_eq!(run.effects.last(), Some(&theme("auto")));
    run.play("/theme<enter> pap");
    assert_eq!(run.effects.last(), Some(&theme("paper")));
    run.play("<enter>");
    assert_eq!(run.state.theme, "paper");
    run.play("/theme night<enter>");
    let kept = Effect::Work(Work::Keep { setting: "ui.theme", value: "night".into() });
    assert_eq!(run.effects[run.effects.len() - 2..], [theme("night"), kept], "and for the next start");
}

#[test]
fn a_persona_names_what_is_known_and_what_is_given() {
    let text = "I am {{ model }} on {{ date }}, for {{ vars.who | default('all') }}";
    let settings = |persona: Option<&str>| TuiSettings {
        personas: vec![("host".into(), text.into()), ("bad".into(), "{{ nobody }}".into())],
        persona: persona.map(str::to_owned),
        system: persona.map(|_| text.to_owned()),
        facts: crate::tui::persona::Facts { date: "2026-12-01".into(), ..Default::default() },
        ..TuiSettings::default()
    };
    let run = play_with(settings(None), 80, 24, "~loaded /persona host who=Ada Lovelace<enter>");
    let system = run.state.chat.system.unwrap();
    assert!(system.ends_with(" on 2026-12-01, for Ada Lovelace"), "{system}");
    // One that the settings name is made when the model is known.
    let run = play_with(settings(Some("host")), 80, 24, "~loaded");
    let system = run.state.chat.system.unwrap();
    assert!(!system.contains('{') && system.ends_with("for all"), "{system}");
    let mut run = play_with(settings(None), 80, 24, "~loaded /persona bad<enter>");
    assert!(run.screen().contains("Persona bad can't be used"), "{}", run.screen());
}

#[test]
fn who_looks_elsewhere_is_told_of_a_long_answer() {
    let told = |focused: bool, seconds: u64| {
        let mut run = play("");
        run.message(Msg::Focus(focused));
        run.play("one<enter> ~start(5) ~delta(a)");
        let stats = TurnStats { decode_time: Duration::from_secs(seconds), ..TurnStats::default() };
        let turn = run.state.last_turn;
        run.message(Msg::Session(Event::TurnFinished { turn, finish: Finish::Stop, stats }));
        run.effects.iter().any(|effect| *effect == Effect::Notify("The answer is there: one".into()))
    };
    assert!(told(false, 11));
    assert!(!told(true, 11) && !told(false, 2));
}
