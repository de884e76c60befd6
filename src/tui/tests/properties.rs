//! Nothing that anybody types, sends or resizes brings the interface down.

use proptest::prelude::*;

use super::*;

fn step() -> impl Strategy<Value = String> {
    let keys = proptest::sample::select(vec![
        "enter", "esc", "up", "down", "left", "right", "home", "end", "pgup", "pgdn", "tab", "bs", "space",
        "f1", "f2", "c-o", "a-v", "a-enter", "c-j", "c-c", "c-d", "c-t", "c-n", "c-b", "c-r", "del", "c-l",
        "c-s", "c-p", "c-x", "c-g", "a-e", "y", "j", "s-tab", "c-z", "c-w", "c-u", "c-k", "c-y", "c-_",
        "a-b", "a-f", "c-left", "s-enter", "c-a", "c-e", "q",
    ]);
    let events = proptest::sample::select(vec![
        "~loaded",
        "~sees",
        "~looking(3/9)",
        "/image a.png",
        "/clip b.gif",
        "/detail high",
        "@",
        "~found(a.png src/b.rs 漢.png)",
        "~start(9)",
        "~prefill(3/9)",
        "~think(hm\\n)",
        "~delta(words and 漢字 👩‍👩‍👧 )",
        "~delta(\\e[3)",
        "~delta(a\\nb\\nc\\n)",
        "~steps(3/2 0/0 8/8)",
        "~finish",
        "~length",
        "~cancelled",
        "~failed(no)",
        "~nomodel(no)",
        "~wait(700)",
        "~paste(a\\nbe\u{301}\\n漢)",
        "/regen",
        "/compare",
        "/context",
        "/prompt",
        "/drop 1",
        "/raw",
        "/spec tint",
        "/crop 1 left",
        "~toolong",
        "~counted(9 20000 9 20000 9)",
        "~prompts(a; b)",
        "~edited(c\\nd)",
        "~paste(1\\n2\\n3\\n4\\n5\\n6\\n7\\n8\\n9\\n10\\n11\\n12\\n13\\n14\\n15\\n16\\n17\\n18)",
        "/edit",
        "/edit 1",
        "/continue",
        "/undo",
        "/branch",
        "/history",
        "/copy c1",
        "~kept(7)",
        "~history(7 one; 8 two)",
        "~deleted(7 one)",
        "~renamed(8 z)",
        "~off(broken)",
        "/new",
        "/set top_k 3",
        "/system x",
        "/stats",
        "/mtp 3",
        "/spec off",
        "/spec lane",
        "//",
        "hé漢👩‍👩‍👧",
    ]);
    prop_oneof![
        4 => keys.prop_map(|key| format!("<{key}> ")),
        4 => events.prop_map(|event| format!("{event} ")),
        1 => (1u16..130, 1u16..50).prop_map(|(width, height)| format!("~resize({width}x{height}) ")),
    ]
}

proptest! {
    #[test]
    fn any_sequence_of_keys_events_and_sizes_can_be_drawn(steps in proptest::collection::vec(step(), 0..60)) {
        let mut run = play_on(80, 24, "");
        for step in steps {
            run.play(&step);
            let screen = run.screen();
            prop_assert_eq!(screen.lines().count(), usize::from(run.state.height));
            prop_assert!(!screen.chars().any(|c| c != '\n' && c.is_control()));
        }
    }

    /// Whatever happens, turns are numbered one after another and none is sent while another is open.
    #[test]
    fn turns_follow_one_another(steps in proptest::collection::vec(step(), 0..60)) {
        let mut run = play("");
        let mut n_turns = 0;
        for step in steps {
            let was_busy = run.state.active.is_some();
            let conversation = run.state.conversation;
            run.play(&step);
            let sent = run.submitted().len();
            let may_send = !was_busy || run.state.conversation != conversation || step.starts_with('~');
            prop_assert!(sent == n_turns || (may_send && sent == n_turns + 1), "{}", step);
            n_turns = sent;
            prop_assert_eq!(run.state.last_turn.0, n_turns as u64);
        }
    }
}

#[test]
fn a_resize_storm_during_an_answer_ends_in_the_right_screen() {
    let script = "~loaded q<enter> ~start(5) ";
    let words = "~delta(some words of a long answer, 漢字 too; ) ";
    let mut stormy = play_on(80, 24, script);
    let mut calm = play_on(80, 24, script);
    for n in 0..500_u32 {
        let (width, height) = (1 + n * 37 % 200, 1 + n * 13 % 60);
        stormy.play(&format!("~resize({width}x{height})"));
        stormy.screen();
        if n % 10 == 0 {
            stormy.play(words);
            calm.play(words);
        }
    }
    stormy.play("~resize(80x24)");
    assert_eq!(stormy.screen(), calm.screen());
}
