use crossterm::event::{KeyCode, KeyModifiers};

use super::file::conflict;
use super::*;

const PRESETS: [Preset; 3] = [Preset::Default, Preset::Emacs, Preset::Vim];

/// The file has this text; with `UPDATE_DOCS` set it is written.
fn assert_written(path: &str, text: &str) {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, text).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(written, text, "{path} is out of date: UPDATE_DOCS=1 cargo test --lib keymap");
}

fn meaning(keymap: &Keymap, modifiers: KeyModifiers, code: KeyCode, draft_is_empty: bool) -> Meaning {
    let situation = Situation { draft_is_empty, in_transcript: false };
    keymap.meaning(None, KeyEvent::new(code, modifiers), situation)
}

#[test]
fn no_preset_has_a_key_that_does_two_things() {
    for preset in PRESETS {
        assert_eq!(conflict(&Keymap::new(preset)), None, "{preset:?}");
    }
}

#[test]
fn the_template_is_the_default_and_names_every_action() {
    assert_written("config/keymap.toml", &template());
    assert_eq!(read(&template(), Preset::Emacs), Ok(Keymap::new(Preset::Emacs)));
    let uncommented = template()
        .replace("\n#", "\n")
        .lines()
        .filter(|line| line.contains(" = ["))
        .fold(String::new(), |all, line| all + line + "\n");
    assert_eq!(read(&uncommented, Preset::Default), Ok(Keymap::default()));
    assert_eq!(uncommented.lines().count(), BINDINGS.len());
}

#[test]
fn the_page_of_keys_is_that_of_the_tables() {
    assert_written("docs/keys.md", &reference());
}

#[test]
fn a_key_given_to_one_action_leaves_the_other() {
    let keymap = read("new_chat = [\"ctrl+t\"]\nstash = []\nhelp = \"f3\"", Preset::Default).unwrap();
    let control = |c| meaning(&keymap, KeyModifiers::CONTROL, KeyCode::Char(c), false);
    assert_eq!(control('t'), Meaning::Action(Action::NewChat));
    assert_eq!((control('n'), control('s')), (Meaning::Nothing, Meaning::Nothing));
    assert_eq!(keymap.hint(Action::ToggleThinking), "");
    assert_eq!(keymap.hint(Action::Help), "F3");
}

#[test]
fn mistakes_are_told() {
    let error = |text: &str| read(text, Preset::Default).unwrap_err();
    assert_eq!(error("sned = [\"enter\"]"), "there is no action sned; did you mean send?");
    assert_eq!(
        error("stash = [\"ctrl+i\"]"),
        "stash: \"ctrl+i\": terminals can't tell Ctrl+I from another key"
    );
    assert_eq!(
        error("stash = [\"ctrl+alt+x\"]"),
        "stash: \"ctrl+alt+x\": Ctrl+Alt and a letter types a character on some keyboards"
    );
    assert_eq!(error("stash = [\"hyper+x\"]"), "stash: \"hyper+x\": hyper is none of ctrl, alt and shift");
    assert_eq!(error("stash = [\"f13\"]"), "stash: \"f13\": there is no key f13");
    assert_eq!(error("stash = [\"s\"]"), "stash: \"s\" is typed into the draft; put ctrl+ or alt+ before it");
    assert_eq!(error("stash = [\"a b c\"]"), "stash: \"a b c\": at most two keys after one another");
    assert_eq!(error("stash = 3"), "stash: expected a list of keys, such as [\"ctrl+x\"]");
    assert_eq!(error("\nstash = ["), "line 2: unclosed array, expected `]`");
    assert_eq!(error("stash = [\"f5\"]\npalette = [\"f5\"]"), "F5 is both stash and palette");
    assert_eq!(error("stash = [\"f5\"]\npalette = [\"f5 x\"]"), "F5 (stash) begins like F5 x (palette)");
}

#[test]
fn two_keys_after_one_another_are_one_binding() {
    let keymap = Keymap::default();
    let situation = Situation { draft_is_empty: false, in_transcript: false };
    let control = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL);
    assert_eq!(keymap.meaning(None, control('x'), situation), Meaning::Begun);
    let first = Some(Press::from(control('x')));
    assert_eq!(keymap.meaning(first, control('e'), situation), Meaning::Action(Action::Editor));
    assert_eq!(keymap.meaning(first, control('q'), situation), Meaning::Nothing);
}

#[test]
fn caps_lock_and_an_empty_draft_are_taken_into_account() {
    let keymap = Keymap::default();
    let capital = meaning(&keymap, KeyModifiers::CONTROL, KeyCode::Char('C'), false);
    assert_eq!(capital, Meaning::Action(Action::Interrupt));
    let ctrl_d = |is_empty| meaning(&keymap, KeyModifiers::CONTROL, KeyCode::Char('d'), is_empty);
    assert_eq!(ctrl_d(true), Meaning::Action(Action::Quit));
    assert_eq!(ctrl_d(false), Meaning::Action(Action::Edit(Edit::DeleteForward)));
    let backspace = meaning(&keymap, KeyModifiers::CONTROL, KeyCode::Char('h'), false);
    assert_eq!(backspace, Meaning::Action(Action::Edit(Edit::DeleteBack)));
}
