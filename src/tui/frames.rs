//! Measures the interface without a terminal: how long an update and a drawing take in a long conversation.

use std::time::{Duration, Instant};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use crate::chat::conversation::{Answered, Conversation};
use crate::chat::{Channel, Message, Role};
use crate::msg::{ConversationId, Event, HistoryEvent, ModelInfo, StoredId, TurnStats};

use super::msg::Msg;
use super::state::{State, TuiSettings};
use super::theme::{AUTO, Colours, Depth, Theme};
use super::update::update;
use super::view;

const QUESTION: &str =
    "How does the borrow checker decide that a reference lives long enough? 漢字 too, please 👩‍👩‍👧.";

const ANSWER: &str = "## Lifetimes\n\nA reference must not *outlive* what it **points to**. The compiler compares \
regions, not scopes; see `rustc --explain E0597` for more, and the table:\n\n| Region | Begins | Ends |\n|---|---|---|\n\
| `'a` | at the borrow | at the last use |\n| `'static` | never | never |\n\n1. Each use extends the region.\n\
2. A loan that is still live blocks a move.\n   - also of a part\n   - also in a loop\n\n```rust\n\
fn longest<'a>(x: &'a str, y: &'a str) -> &'a str {\n    if x.len() > y.len() { x } else { y }\n}\n```\n\n\
So $f(x) = x^2$ holds for regions, and 寿命 (lifetimes) are checked once for each function. \
> A quote that goes on for a while, so that it has to be wrapped on most screens that people use every day.\n";

const N: usize = 600;

struct Bench {
    state: State,
    terminal: Terminal<TestBackend>,
    theme: Theme,
}

impl Bench {
    fn send(&mut self, message: Msg) {
        // What it asks for is somebody else's work.
        update(&mut self.state, message);
    }

    fn draw(&mut self) {
        self.state.layout();
        let drawn = self.terminal.draw(|frame| view::draw(frame, &self.state, self.theme));
        drawn.expect("memory can always be drawn into");
    }

    /// From a message to the drawn screen.
    fn time(&mut self, message: Msg) -> Duration {
        let started = Instant::now();
        self.send(message);
        self.draw();
        started.elapsed()
    }
}

/// One line a measurement, with medians and the slowest of a hundred.
pub fn measure(rows: usize, width: u16, height: u16) -> Vec<String> {
    let colours = Colours { folder: None, depth: Depth::True, is_light: Some(false) };
    let theme = colours.theme(AUTO).expect("the built-in themes are good");
    let terminal = Terminal::new(TestBackend::new(width, height)).expect("memory can always be drawn into");
    let state = State::new(TuiSettings::default(), width, height);
    let mut bench = Bench { state, terminal, theme };
    bench.send(Msg::Session(Event::ModelLoaded(ModelInfo {
        name: "model".into(),
        commit: None,
        note: None,
        device: "CPU".into(),
        device_note: None,
        context_tokens: 262_144,
        thinks_by_default: false,
        pictures: None,
        clips: None,
        can_draft: false,
        parallel: 1,
        load_time: Duration::ZERO,
    })));
    bench.state.loading = Some(ConversationId(9));
    let loaded = Box::new(conversation(rows, width));
    let n_messages = loaded.len();
    let open = bench.time(Msg::Session(Event::History(HistoryEvent::Loaded {
        conversation: ConversationId(9),
        stored: StoredId(1),
        loaded,
    })));
    let n_rows = bench.state.transcript.n_rows();
    let mut lines = vec![
        format!(
            "{n_rows} rows in {n_messages} messages on {width}x{height}, milliseconds from message to drawn screen"
        ),
        format!("{:<34}{:>10.2}", "opening it", ms(open)),
    ];
    let mut report = |name: &str, times: Vec<Duration>| lines.push(line(name, times));

    report("scrolling by the wheel", (0..N).map(|_| bench.time(Msg::Wheel(-3))).collect());
    let page = |code| Msg::Key(KeyEvent::new(code, KeyModifiers::NONE));
    report("scrolling by pages", (0..N).map(|_| bench.time(page(KeyCode::PageUp))).collect());
    bench.send(page(KeyCode::End));
    bench.draw();
    let typed = |n: usize| page(KeyCode::Char(if n % 6 == 5 { ' ' } else { 'x' }));
    report("typing", (0..N).map(|n| bench.time(typed(n))).collect());

    bench.send(page(KeyCode::Enter));
    let turn = bench.state.last_turn;
    let mut stats = TurnStats { prompt_tokens: 9, ..TurnStats::default() };
    let mut delta = |text: &str| {
        stats.completion_tokens += 1;
        stats.decode_time += Duration::from_millis(5);
        Msg::Session(Event::Delta { turn, channel: Channel::Answer, text: text.to_owned(), stats })
    };
    let long = ANSWER.repeat(8);
    let tokens: Vec<&str> = long.split_inclusive(' ').collect();
    report("an answer's tokens", tokens.iter().map(|text| bench.time(delta(text))).collect());
    let mut typing = Vec::new();
    for (n, text) in tokens.iter().take(N).enumerate() {
        bench.send(delta(text));
        typing.push(bench.time(typed(n)));
    }
    report("typing while an answer is written", typing);

    let sizes = [(width - 1, height), (width, height)];
    let resizes = (0..6).map(|n| {
        let (width, height) = sizes[n % 2];
        bench.terminal.backend_mut().resize(width, height);
        bench.time(Msg::Resize { width, height })
    });
    report("another width", resizes.collect());
    let mut settling = Vec::new();
    while !bench.state.transcript.is_settled() {
        settling.push(bench.time(Msg::Tick(bench.state.now)));
    }
    settling.push(bench.time(Msg::Tick(bench.state.now)));
    report("wrapping the rest of it", settling);
    lines
}

/// Questions and answers that take at least so many rows.
fn conversation(rows: usize, width: u16) -> Conversation {
    // An answer takes at least its lines, on a narrow screen more.
    let per_pair = ANSWER.lines().count().max(ANSWER.len() / usize::from(width.max(1)));
    let mut chat = Conversation::new(None);
    for _ in 0..rows / per_pair.max(1) + 1 {
        let question = chat.add(chat.head(), Message::text(Role::User, QUESTION), None);
        chat.add(Some(question), Message::text(Role::Assistant, ANSWER), Some(Answered::default()));
    }
    chat
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn line(name: &str, mut times: Vec<Duration>) -> String {
    times.sort();
    let at = |share: f64| ms(times[((times.len() - 1) as f64 * share).round() as usize]);
    format!("{name:<34}{:>10.2} median {:>10.2} p99 {:>10.2} most", at(0.5), at(0.99), at(1.0))
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_measurement_gives_a_line() {
        let lines = super::measure(300, 60, 20);
        assert_eq!(lines.len(), 9, "{lines:?}");
        let n_rows: usize = lines[0].split(' ').next().unwrap().parse().unwrap();
        assert!(n_rows >= 300);
    }
}
