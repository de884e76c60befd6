//! Attaching pictures, sending them, and getting them back.

use insta::assert_snapshot;

use super::*;
use crate::chat::{Detail, Part};
use crate::tui::attach::Kind;
use crate::tui::picker::{Look, Seen};
use crate::tui::pictures::graphics::{Graphics, Images, Protocol};

/// Plays on a model that sees.
fn play_seeing(script: &str) -> Run {
    play_on(80, 24, &format!("~sees {script}"))
}

/// The parts of the messages that were submitted, as words.
fn parts(run: &Run) -> Vec<Vec<String>> {
    let word = |part: &Part| match part {
        Part::Image(picture) => format!("image {}", picture.name),
        Part::Clip(picture) => format!("clip {}", picture.name),
        Part::Text(text) => text.clone(),
        Part::Call(call) => format!("call {}", call.name),
    };
    run.sent()
        .into_iter()
        .filter_map(|command| match command {
            Command::Submit { message, .. } => Some(message.parts.iter().map(word).collect()),
            _ => None,
        })
        .collect()
}

fn chips(run: &Run) -> Vec<&str> {
    run.state.attached.iter().map(|attached| attached.what.name.as_str()).collect()
}

#[test]
fn a_picture_is_asked_about_shown_with_its_cost_and_sent_only_with_enter() {
    let mut run = play_seeing("/image photo.jpg \"b c.png\"<enter>");
    assert_eq!(chips(&run), ["photo.jpg", "b c.png"]);
    assert_eq!(run.sent().len(), 2);
    assert!(matches!(run.sent()[0], Command::Inspect { picture: PictureId(1), .. }));
    assert!(run.screen().contains("[Image 2  b c.png · reading…]"));
    run.play("~ready(4032x3024 11844) ~ready(640x480 972)");
    assert!(run.screen().contains("[Image 1  photo.jpg 4032x3024 → 1152x864 · 972 tok]"));
    assert!(parts(&run).is_empty(), "attaching sends nothing");
    run.play("what is it?<enter>");
    assert_eq!(parts(&run), [["image photo.jpg", "image b c.png", "what is it?"]]);
    assert!(run.state.attached.is_empty());
    let Some(Command::Submit { message, .. }) = run.sent().last().copied() else { panic!("it was sent") };
    let sources: Vec<bool> =
        message.pictures().map(|what| matches!(what.source, PictureSource::Bytes(_))).collect();
    assert_eq!(sources, [true, true], "what was read is what is sent, whatever happens to the file");
}

#[test]
fn pictures_alone_are_not_a_question() {
    let mut run = play_seeing("/image a.png<enter> <enter>");
    assert!(parts(&run).is_empty());
    assert!(run.screen().contains("Type a question about the picture"));
    assert_eq!(chips(&run), ["a.png"]);
}

#[test]
fn a_picture_that_is_still_being_read_can_be_sent() {
    let mut run = play_seeing("/image a.png<enter> hi<enter> ~ready(4032x3024 972)");
    assert_eq!(parts(&run), [["image a.png", "hi"]]);
    assert!(run.screen().contains("[Image 1  a.png 4032x3024"), "{}", run.screen());
}

#[test]
fn a_refused_picture_is_not_kept_and_the_sentence_says_why() {
    let mut run = play_seeing("/image a.heic b.png<enter> ~refused(a.heic: HEIC \\e[31mcan't be read)");
    assert_eq!(chips(&run), ["b.png"]);
    assert!(run.screen().contains("Not attached: a.heic: HEIC can't be read"));
    run.play("~refused(the file doesn't exist)");
    assert!(run.screen().contains("Not attached: b.png: the file doesn't exist"));
}

#[test]
fn a_refused_picture_brings_its_waiting_message_back() {
    let run = play_seeing("one<enter> ~start(5) /image a.png<enter> two<enter> ~refused(gone)");
    assert!(run.state.queue.is_empty());
    assert_eq!(run.state.composer.text(), "two");
    assert!(run.state.attached.is_empty());
}

#[test]
fn backspace_at_the_start_takes_the_last_picture_back() {
    let mut run = play_seeing("/image a.png b.png<enter> hi<bs><bs><bs>");
    assert_eq!(chips(&run), ["a.png"]);
    run.play("x<home><bs>");
    assert_eq!((chips(&run).len(), run.state.composer.text().as_str()), (0, "x"));
    run.play("<home><bs>");
    assert_eq!(run.state.composer.text(), "x");
}

#[test]
fn pictures_are_taken_back_by_command_and_by_ctrl_c_on_an_empty_draft() {
    let mut run = play_seeing("/image a.png b.png<enter> /clear-attachments<enter>");
    assert!(run.state.attached.is_empty());
    assert!(run.screen().contains("2 pictures taken back"));
    run.play("/image a.png<enter> draft<c-c>");
    assert_eq!(chips(&run), ["a.png"], "first the words");
    run.play("x<bs> <c-c>");
    assert!(run.state.attached.is_empty());
    assert!(!run.effects.contains(&Effect::Quit));
}

#[test]
fn a_model_that_reads_text_only_says_so() {
    let mut run = play("/image a.png<enter>");
    assert!(run.screen().contains("Qwen3.5-0.8B reads text only: it doesn't see pictures"));
    assert!(run.sent().is_empty() && run.state.attached.is_empty());
    assert!(play("<c-o>").screen().contains("reads text only"));
    let mut early = play_on(80, 24, "/image a.png<enter> look<enter> ~loaded");
    assert!(early.screen().contains("Not attached: Qwen3.5-0.8B reads text only"));
    assert!(parts(&early).is_empty());
    assert_eq!(early.state.composer.text(), "look");
}

#[test]
fn a_failed_message_gives_its_pictures_and_words_back() {
    let mut run = play_seeing(
        "/image a.png<enter> ~ready(640x480 972) look<enter> ~start(1000) later<enter> ~failed(out of memory)",
    );
    assert_eq!(chips(&run), ["a.png"]);
    assert_eq!(run.state.composer.text(), "look\n\nlater");
    run.play("<enter>");
    assert_eq!(parts(&run)[1], ["image a.png", "look\n\nlater"]);
}

#[test]
fn pictures_wait_with_their_message_and_come_back_with_it() {
    let mut run = play_seeing("one<enter> ~start(5) /image a.png<enter> ~ready(640x480 972) two<enter>");
    assert!(run.screen().contains("queue 1: \"two\" +1 picture"));
    assert!(run.state.attached.is_empty());
    run.play("<up>");
    assert_eq!((chips(&run), run.state.composer.text().as_str()), (vec!["a.png"], "two"));
    run.play("<enter> ~delta(1) ~finish");
    assert_eq!(parts(&run)[1], ["image a.png", "two"]);
}

#[test]
fn later_turns_and_regeneration_keep_the_pictures() {
    let mut run =
        play_seeing("/image a.png<enter> ~ready(640x480 972) look<enter> ~start(9) ~delta(hm) ~finish");
    run.play("/regen<enter>");
    assert_eq!(parts(&run)[1], ["image a.png", "look"]);
    run.play("~start(9) ~delta(hm) ~finish /system brief<enter> more<enter>");
    let opened = run.sent().into_iter().rev().find_map(|command| match command {
        Command::Open { messages, .. } => Some(messages.clone()),
        _ => None,
    });
    assert_eq!(opened.unwrap()[1].pictures().count(), 1);
}

#[test]
fn detail_holds_for_pictures_that_wait_and_for_later_ones() {
    let mut run = play_seeing("/image a.png<enter> ~ready(640x480 972) /detail high<enter>");
    assert!(run.screen().contains("a.png · reading…"));
    run.play("~ready(640x480 11844) /image b.png<enter>");
    let details: Vec<Detail> = run.state.attached.iter().map(|attached| attached.what.detail).collect();
    assert_eq!(details, [Detail::High, Detail::High]);
    assert!(play("/detail 0<enter>").screen().contains("expected low, auto, high or a number of pixels"));
    assert!(play("/detail<enter>").screen().contains("in detail auto"));
}

#[test]
fn a_clip_is_sent_as_a_clip() {
    let mut run = play_seeing("/clip a.gif<enter> ~ready(640x480 972)");
    assert!(run.screen().contains("[Clip 1  a.gif 640x480 → 1152x864 · 972 tok]"));
    assert_eq!(run.state.attached[0].kind, Kind::Clip);
    run.play("what moves?<enter>");
    assert_eq!(parts(&run), [["clip a.gif", "what moves?"]]);
}

#[test]
fn a_dropped_path_becomes_a_picture_and_other_text_stays_text() {
    let mut run = play_seeing("~paste(/tmp/a\\ b.png)");
    assert!(run.state.composer.is_empty(), "nothing is decided before the file was looked for");
    run.play("~files(/tmp/b.png)");
    assert_eq!(chips(&run), ["b.png"]);
    assert!(run.state.composer.is_empty());
    let mut run = play_seeing("~paste(nowhere.png) ~nofiles");
    assert_eq!(run.state.composer.text(), "nowhere.png");
    run.play("~paste( is a name)");
    assert_eq!(run.state.composer.text(), "nowhere.png is a name");
    assert_eq!(play("~paste(/a.png)").state.composer.text(), "/a.png", "a model that doesn't see reads it");
}

#[test]
fn the_clipboard_gives_a_picture_or_its_text() {
    let mut run = play_seeing("<a-v>");
    assert_eq!(run.effects, [Effect::Work(Work::ReadClipboard)]);
    run.message(Msg::Done(Done::Clipboard(Ok(Clip::Picture(tiny_picture())))));
    assert_eq!(chips(&run), ["clipboard"]);
    run.play("~clip(some text)");
    assert_eq!(run.state.composer.text(), "some text");
    for (clip, says) in [
        (Ok(Clip::Empty), "neither a picture nor text"),
        (Err("There is no clipboard here\u{1b}[2J".to_owned()), "There is no clipboard here"),
    ] {
        run.message(Msg::Done(Done::Clipboard(clip)));
        assert!(run.screen().contains(says));
    }
    run.message(Msg::Done(Done::Clipboard(Ok(Clip::Files(vec!["/a/x.png".into(), "y.jpg".into()])))));
    assert_eq!(chips(&run), ["clipboard", "x.png", "y.jpg"]);
}

#[test]
fn an_at_sign_offers_files_and_a_picture_is_attached() {
    let mut run = play_seeing("see @ca");
    assert_eq!(run.effects, [Effect::Work(Work::FindFiles)], "one search for one word");
    assert!(run.screen().contains("looking for files"));
    run.play("~found(src/cache.rs pics/cat.png dog.png)");
    assert!(run.screen().contains("› pics/cat.png"), "{}", run.screen());
    run.play("<enter>");
    assert_eq!((chips(&run), run.state.composer.text().as_str()), (vec!["cat.png"], "see "));
    run.play("@rs ~found(src/cache.rs pics/cat.png) <tab>!");
    assert_eq!(run.state.composer.text(), "see src/cache.rs !");
}

#[test]
fn the_offer_moves_closes_and_never_holds_up_a_message() {
    let mut run = play_seeing("@ ~found(a.png b.png c.png) <down> <down> <down> <up>");
    assert_eq!(run.state.completion.as_ref().unwrap().selected, 2);
    run.play("<esc>b");
    assert!(run.state.completion.is_none(), "closed until the word ends");
    run.play(" @b ~found(a.png b.png)");
    let offers = &run.state.completion.as_ref().unwrap().matches;
    assert_eq!(offers.iter().map(|offer| offer.text.as_str()).collect::<Vec<_>>(), ["b.png"]);
    let run = play_seeing("thanks @nobody ~found(a.png) <enter>");
    assert_eq!(run.submitted(), ["thanks @nobody"]);
    assert_eq!(play_seeing("me@example.org<enter>").submitted(), ["me@example.org"]);
    let run = play_seeing("one<enter> ~finish @two ~found(x)<enter> ~finish <up><up>");
    assert_eq!(run.state.composer.text(), "one", "an earlier prompt opens no list");
}

#[test]
fn the_picker_opens_folders_filters_and_attaches() {
    let mut run = play_seeing("");
    run.state.picker_folder = "/home/me".into();
    run.play("<c-o> ~listed(pics/ a.png)");
    assert_eq!(run.effects, [Effect::Work(Work::ListFolder("/home/me".into()))]);
    run.play("<enter> ~listed(cat.png dog.png)");
    assert_eq!(run.state.picker.as_ref().unwrap().folder, std::path::Path::new("/home/me/pics"));
    run.play("do");
    assert!(run.screen().contains("› dog.png") && !run.screen().contains("cat.png"));
    run.play("<enter>");
    assert_eq!(chips(&run), ["dog.png"]);
    assert!(run.state.picker.is_none());
    run.play("<c-o>");
    assert_eq!(
        run.effects.last(),
        Some(&Effect::Work(Work::ListFolder("/home/me/pics".into()))),
        "where it was"
    );
    run.play("x<bs><bs>");
    assert_eq!(run.effects.last(), Some(&Effect::Work(Work::ListFolder("/home/me".into()))));
    run.play("<esc>");
    assert!(run.state.picker.is_none() && run.state.composer.is_empty());
}

#[test]
fn the_picker_decodes_one_picture_at_a_time() {
    let mut run = play_seeing("<c-o> ~listed(a.png b.png c.png) <down> <down>");
    let looks = |run: &Run| {
        let is_look = |effect: &&Effect| matches!(effect, Effect::Work(Work::LookAt { .. }));
        run.effects.iter().filter(is_look).count()
    };
    assert_eq!(looks(&run), 1);
    let look = Look { path: "a.png".into(), seen: Err("can't be shown".into()) };
    run.message(Msg::Done(Done::LookedAt(look)));
    assert_eq!(looks(&run), 2);
    let Some(Effect::Work(Work::LookAt { path, .. })) = run.effects.last() else {
        panic!("c.png is looked at")
    };
    assert!(path.ends_with("c.png"), "what was passed on the way isn't decoded");
}

#[test]
fn esc_stops_looking_at_pictures_as_it_stops_everything() {
    let run = play_seeing("/image a.png<enter> q<enter> ~looking(4/10) <esc>");
    assert!(matches!(run.sent().last(), Some(Command::Cancel { .. })));
}

/// A message with a picture of which the preview is there.
fn asked_about_a_picture(width: u16, height: u16) -> Run {
    let mut run = play_on(width, height, "~sees /image florence.jpg<enter> ~ready(4032x3024 11844)");
    if matches!(run.effects.last(), Some(Effect::Work(_))) {
        run.work();
    }
    run
}

#[test]
fn chips_on_screens() {
    for (width, height) in [(100, 24), (40, 12), (20, 6)] {
        let mut run =
            play_on(width, height, "~sees /image florence.jpg a.png<enter> ~ready(4032x3024 11844)");
        run.play("what is it");
        assert_snapshot!(format!("chips_{width}x{height}"), run.screen());
    }
    let mut run = play_on(80, 24, "~sees /image 1.png 2.png 3.png 4.png 5.png 6.png<enter>");
    assert_snapshot!("chips_many_80x24", run.screen());
}

#[test]
fn looking_at_a_picture() {
    for (width, height) in [(80, 24), (40, 12)] {
        let mut run = asked_about_a_picture(width, height);
        run.play("What is written on the sign?<enter> ~looking(4/10)");
        assert_snapshot!(format!("looking_{width}x{height}"), run.screen());
    }
}

#[test]
fn a_preview_is_drawn_clipped_and_covered() {
    let mut run = asked_about_a_picture(80, 24);
    run.play("look<enter> ~start(5)");
    assert_eq!(run.screen().matches('▄').count(), 1, "8 x 4 pixels are one character");
    run.play("<f1>");
    assert!(!run.screen().contains('▄'));
    let mut off = play_seeing("");
    off.state.graphics = Graphics::unasked(Images::Only(Protocol::Off), Default::default());
    off.play("/image a.png<enter> ~ready(640x480 972)");
    assert!(!off.effects.iter().any(|effect| matches!(effect, Effect::Work(_))), "nothing is decoded");
}

#[test]
fn picker() {
    for (width, height) in [(80, 24), (40, 12), (30, 8)] {
        let mut run = play_on(width, height, "~sees");
        run.state.picker_folder = "/home/me/pictures".into();
        run.play("<c-o> ~listed(2025/ 2026/ florence.jpg sign.png) <down> <down>");
        let path = run.state.picker.as_ref().unwrap().folder.join("florence.jpg");
        let seen = Ok(Seen { width: 4032, height: 3024, preview: None });
        run.message(Msg::Done(Done::LookedAt(Look { path, seen })));
        assert_snapshot!(format!("picker_{width}x{height}"), run.screen());
    }
}

#[test]
fn file_list() {
    for (width, height) in [(80, 24), (40, 12)] {
        let files =
            "~found(src/main.rs photos/2026/florence/ponte-vecchio-by-night-with-a-long-name.jpg a.png)";
        let mut run = play_on(width, height, &format!("~sees look at @ {files} <down>"));
        assert_snapshot!(format!("file_list_{width}x{height}"), run.screen());
    }
}

#[test]
fn empty_chat_of_a_model_that_sees() {
    assert_snapshot!("empty_sees_80x24", play_seeing("").screen());
}
