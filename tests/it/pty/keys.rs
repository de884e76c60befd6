//! Every key of the table and every slash command, with the built-in model: each does what the help says.

use std::fs;
use std::path::Path;

use super::terminal::{Terminal, USUAL_ANSWERS};

/// A chat with the demo model whose history, settings and editor are its own.
struct Chat {
    terminal: Terminal,
    _dir: tempfile::TempDir,
}

impl Chat {
    fn start(settings: &str, rows: u16) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        fs::write(path.join("config.toml"), settings).unwrap();
        let editor = path.join("editor.sh");
        fs::write(&editor, "#!/bin/sh\nprintf 'written in the editor' > \"$1\"\n").unwrap();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            fs::set_permissions(&editor, fs::Permissions::from_mode(0o700)).unwrap();
        }
        let folder = path.to_str().unwrap();
        let variables = [
            ("HF_HUB_OFFLINE", "1"),
            ("LOQUAT_CONFIG_DIR", folder),
            ("VISUAL", editor.to_str().unwrap()),
            ("LOQUAT_SAVED_STATES", "off"),
        ];
        let arguments = ["--model", "demo", "--device", "cpu", "--max-tokens", "48", "--temperature", "0"];
        let program = Path::new(env!("CARGO_BIN_EXE_loquat"));
        let terminal = Terminal::start_with(path, USUAL_ANSWERS, program, &arguments, &variables, 100, rows);
        terminal.wait_for_text("ready");
        Self { terminal, _dir: dir }
    }

    /// Sends keys and waits for a text.
    fn press(&self, keys: &str, shown: &str) {
        self.terminal.send(keys);
        self.terminal.wait_for_text(shown);
    }

    /// Closes what is open, and waits until this is gone.
    fn close(&self, keys: &str, gone: &str) {
        self.terminal.send(keys);
        self.terminal.wait_for(&format!("no {gone:?}"), |screen| !screen.contents().contains(gone));
    }

    /// Sends a message, or a command that makes an answer, and waits for the whole answer.
    fn ask(&self, question: &str) {
        let draft = format!("│ {question}");
        self.press(question, &draft);
        self.terminal.send("\r");
        // When the draft is gone the turn has begun.
        self.answered(&draft);
    }

    /// Waits until nothing is being answered and this text is gone.
    fn answered(&self, gone: &str) {
        self.terminal.wait_for("an answer", |screen| {
            let text = screen.contents();
            text.contains("first token") && text.contains(" ready · ") && !text.contains(gone)
        });
    }
}

const ESC: &str = "\x1b";
const PAGE_UP: &str = "\x1b[5~";
const PAGE_DOWN: &str = "\x1b[6~";
const UP: &str = "\x1b[A";
const END: &str = "\x1b[F";

#[test]
fn the_keys_of_the_draft_do_what_the_help_says() {
    let mut chat = Chat::start("", 32);
    chat.press("one\x1b\rtwo", "│ two");
    chat.press("\nthree\\\rfour", "│ four");
    chat.close("\x03", "four");
    chat.press(UP, "│ four");
    chat.close("\x03", "four");

    chat.press("half a thought", "half a thought");
    chat.press("\x13", "Put aside");
    chat.press("\x13", "│ half a thought");
    chat.press("\x07", "│ written in the editor");
    chat.press("\x17\x17undo", "│ written in undo");
    chat.press("\x1f\x1f\x1f\x1f\x1f", "│ written in the");
    chat.press("\x15\x18\x05", "│ written in the editor");
    chat.press("\x15", "Write a message");

    let paste: String = (0..40).map(|n| format!("row {n}\r")).collect();
    chat.press(&format!("\x1b[200~{paste}\x1b[201~"), "[Pasted 40 lines]");
    chat.press("\x1be", "│ row 39");
    chat.close("\x03", "row 39");

    chat.press("\x10", "Everything that can be done");
    chat.close(ESC, "Everything that can be done");
    chat.press("@Cargo.to", "› Cargo.toml");
    chat.press("\t", "│ Cargo.toml");
    chat.press("\x15/the", "› /theme");
    chat.press("\t", "› auto");
    chat.close("\x15", "› auto");
    chat.press("\x0f", "Enter attaches");
    chat.close(ESC, "Enter attaches");
    chat.press("\x1bOP", "Esc closes");
    chat.close(ESC, "Esc closes");
    chat.press("\x1bOQ", "Mouse off");
    chat.terminal.wait_for_bytes("\x1b[?1000l");
    chat.press("\x1bOQ", "Mouse on");
    chat.press("\x0c", "Write a message");
    chat.terminal.send("\x04");
    assert_eq!(chat.terminal.wait_for_exit(), 0);
    chat.terminal.assert_given_back();
}

#[test]
fn the_keys_of_the_chat_do_what_the_help_says() {
    let mut chat = Chat::start("", 18);
    chat.terminal.send("What is Loquat?\r");
    chat.terminal.wait_for_text("Esc stops");
    chat.press("How do I attach a picture?\r", "queue 1:");
    chat.press(UP, "│ How do I attach a picture?");
    chat.press("\r", "queue 1:");
    chat.answered("queue 1:");
    chat.press("\x12attach", "› How do I attach a picture?");
    chat.press("\r", "│ How do I attach a picture?");
    chat.close("\x15", "│ How do I");

    chat.press("\t", "y copy");
    chat.press("y", "a digit is that code block");
    chat.press("y", "Copied the last answer");
    chat.terminal.wait_for_bytes("\x1b]52;c;");
    chat.press("\t", "Enter send");
    chat.press(PAGE_UP, "more below");
    chat.close(PAGE_DOWN, "more below");
    chat.press(PAGE_UP, "more below");
    chat.close(END, "more below");
    chat.press("\x05", "MTP's guesses are");
    chat.press("\x14", "ready");
    chat.press("\x02", "There is one branch only");
    chat.ask("/regen 5");
    chat.press("\x02", "Branches of this conversation");
    chat.close(ESC, "Branches of this");
    chat.press("\x0e", "New chat");
    chat.close("", "What is Loquat?");
    chat.terminal.send("\x03\x03");
    assert_eq!(chat.terminal.wait_for_exit(), 0);
}

#[test]
fn what_was_asked_in_an_earlier_run_is_found() {
    let mut chat = Chat::start("", 32);
    chat.ask("What is Loquat?");
    chat.terminal.send("\x04");
    assert_eq!(chat.terminal.wait_for_exit(), 0);
    let program = Path::new(env!("CARGO_BIN_EXE_loquat"));
    let arguments = ["--model", "demo", "--device", "cpu"];
    let again = Terminal::start_in(chat._dir.path(), USUAL_ANSWERS, program, &arguments, 100, 32);
    again.wait_for_text("ready");
    again.send("\x12loq");
    again.wait_for_text("› What is Loquat?");
}

#[test]
fn vim_and_keys_of_ones_own_come_from_files() {
    let chat = Chat::start("[ui]\nkeys = \"vim\"\nmouse = false\n", 32);
    assert!(!chat.terminal.has_written("\x1b[?1000h"), "the mouse is left to the terminal");
    chat.press("one two three", "INSERT");
    chat.press(ESC, "NORMAL");
    chat.press("0dw", "│ two three");
    chat.press("ccfour", "│ four");
}

/// What each command shows. Overlays are closed by Esc.
const COMMANDS: &[(&str, &str, bool)] = &[
    ("help", "Esc closes", true),
    ("keys", "Esc closes", true),
    ("model", "Models", true),
    ("stats", "model loaded in", false),
    ("set", "temperature", false),
    ("set top_k 3", "Set, from the next message", false),
    ("think on", "Thinking is on", false),
    ("think off", "Thinking is off", false),
    ("mtp off", "MTP is off", false),
    ("spec tint", "MTP's guesses are tinted", false),
    ("spec lane", "MTP's guesses are shown", false),
    ("detail high", "in detail high", false),
    ("system Answer briefly.", "System prompt set", false),
    ("system", "Answer briefly.", false),
    ("system off", "System prompt removed", false),
    ("persona", "a system prompt of", false),
    ("persona pirate", "Persona pirate", false),
    ("persona off", "No persona", false),
    ("preset", "Sampling presets", true),
    ("preset precise", "Preset precise", false),
    ("context", "What fills the context", true),
    ("prompt", "What the model reads", true),
    ("drop 1", "[1] is left out", false),
    ("drop 1", "The model reads [1] again", false),
    ("compact", "nothing older", false),
    ("compact off", "Nothing is summed up", false),
    ("schema", "Answers are free", false),
    ("schema nowhere.json", "can't be read", false),
    ("raw", "Answers as they were written", false),
    ("raw", "Answers with Markdown", false),
    ("mouse off", "Mouse off", false),
    ("mouse on", "Mouse on", false),
    ("copy", "Copied the last answer", false),
    ("copy 1", "Copied message [1]", false),
    ("file Cargo.toml", "[Pasted", false),
    ("image", "Enter attaches", true),
    ("image tests/golden/vision/images/photo.jpg", "[Image 1  photo.jpg 150x110", false),
    ("crop 1 left", "part of photo.jpg", false),
    ("crop 1 off", "[Image 1  photo.jpg 150x110", false),
    ("clear-attachments", "Picture taken back", false),
    ("clip nowhere.gif", "Not attached", false),
    ("paste", "clipboard", false),
    ("theme paper", "Theme paper", false),
    ("theme", "Enter keeps it", true),
    ("rename Rivers", "Called: Rivers", false),
    ("history", "Conversations", true),
    ("history rivers", "Conversations", true),
    ("resume", "Conversations", true),
    ("edit 1", "Editing [1]", false),
    ("branch", "There is one branch only", false),
    ("compare", "There is one answer only", false),
    ("export md", "Written:", false),
    ("continue", "ready", false),
    ("regen 7", "ready", false),
    ("undo", "on the branch before", false),
    ("compare", "Two answers", true),
    ("config ui.mode", "is not set", false),
    ("config ui.mouse true", "holds from the next start", false),
    ("doctor", "database", false),
    ("new", "New chat", false),
];

#[test]
fn every_slash_command_does_what_it_says() {
    let mut chat = Chat::start("[personas.pirate]\nsystem = \"Talk like a pirate.\"\n", 32);
    let page = loquat::tui::keymap::reference();
    let listed = page.lines().filter_map(|line| line.strip_prefix("| `/"));
    for name in listed.map(|rest| rest.split([' ', '`', '/']).next().unwrap()).filter(|name| !name.is_empty())
    {
        let is_played = COMMANDS.iter().any(|(command, ..)| command.split(' ').next() == Some(name));
        assert!(is_played || name == "quit", "/{name} is in no flow");
    }
    let folder = chat._dir.path().display().to_string();
    chat.ask("What is Loquat?");
    for (command, shown, is_overlay) in COMMANDS {
        let command = match *command {
            "export md" => format!("export md {folder}/chat.md"),
            command => command.to_owned(),
        };
        // What a command left in the draft is in the way of the next.
        chat.terminal.send("\x15\x15");
        chat.terminal.wait_for_text("Write a message");
        if command.starts_with("continue") || command.starts_with("regen") {
            chat.ask(&format!("/{command}"));
            continue;
        }
        chat.terminal.send(&format!("/{command} \r"));
        if command == "persona" {
            chat.terminal.wait_for_text("Personas");
            chat.close(ESC, "Personas");
            continue;
        }
        chat.terminal.wait_for_text(shown);
        match command.as_str() {
            _ if *is_overlay => chat.close(ESC, shown),
            "edit 1" => chat.close(ESC, "Editing [1]"),
            "file Cargo.toml" => chat.close("\x15\x7f", "[Pasted"),
            _ => {}
        }
    }
    chat.terminal.send("\x15/quit\r");
    assert_eq!(chat.terminal.wait_for_exit(), 0);
    let settings = fs::read_to_string(chat._dir.path().join("config.toml")).unwrap();
    assert!(settings.contains("theme = \"paper\""), "{settings}");
    assert!(settings.contains("pirate"), "what was in the file stays");
}
