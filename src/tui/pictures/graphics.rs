//! What pictures this terminal can show: asked once, at the start, with what the environment says of
//! terminals that answer wrongly.
//!
//! Not ratatui-image's own question: it reads from a thread of its own that outlives a terminal which doesn't
//! answer and swallows the next key, sets the terminal's modes, and changes tmux's settings.

use std::env;
use std::str::FromStr;

/// What a person wants to see of pictures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Images {
    /// The best that the terminal says it can.
    #[default]
    Auto,
    Only(Protocol),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Kitty,
    Sixel,
    Iterm2,
    /// Half blocks: coloured characters, two pixels each, which every terminal can show.
    Blocks,
    /// No pictures, only their names and sizes.
    Off,
}

impl FromStr for Images {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "auto" => Self::Auto,
            "kitty" => Self::Only(Protocol::Kitty),
            "sixel" => Self::Only(Protocol::Sixel),
            "iterm2" => Self::Only(Protocol::Iterm2),
            "blocks" => Self::Only(Protocol::Blocks),
            "off" => Self::Only(Protocol::Off),
            _ => return Err("expected auto, kitty, sixel, iterm2, blocks or off".into()),
        })
    }
}

/// How pictures are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Graphics {
    pub protocol: Protocol,
    /// Width and height of a character in pixels.
    pub cell: (u16, u16),
    /// Sequences have to be wrapped for tmux to pass them on.
    pub in_tmux: bool,
    /// Most pixels along a side.
    pub max_side: u32,
}

/// What the environment says about the terminal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Environment {
    pub in_tmux: bool,
    pub over_ssh: bool,
    /// It may print a question of kitty's instead of ignoring it.
    is_console: bool,
    /// Its own protocol is its best: the others are incomplete.
    prefers_iterm2: bool,
    /// It claims more than it can draw.
    only_iterm2_or_blocks: bool,
    knows_iterm2: bool,
}

/// What the terminal said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Answer {
    pub kitty: bool,
    pub sixel: bool,
    pub cell: Option<(u16, u16)>,
    /// Keys such as Shift+Enter can be told apart.
    pub keyboard: bool,
    /// Whether the background is light.
    pub is_light: Option<bool>,
}

/// About what characters are in most terminals; half blocks only need the proportion.
const USUAL_CELL: (u16, u16) = (10, 20);

/// Sharper than a preview ever needs.
const MAX_SIDE: u32 = 1024;
/// Pixels take time on their way.
const MAX_SIDE_OVER_SSH: u32 = 512;

impl Environment {
    pub fn read() -> Self {
        let text = |name| env::var(name).unwrap_or_default();
        let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
        let (term, program) = (text("TERM"), text("TERM_PROGRAM"));
        let is_iterm = program.contains("iTerm") || text("LC_TERMINAL").contains("iTerm");
        let is_wezterm = program.contains("WezTerm") || is_set("WEZTERM_EXECUTABLE");
        Self {
            in_tmux: is_set("TMUX") || term.starts_with("tmux") || term.starts_with("screen"),
            over_ssh: is_set("SSH_CONNECTION") || is_set("SSH_TTY"),
            is_console: term == "linux",
            prefers_iterm2: is_iterm || is_wezterm,
            only_iterm2_or_blocks: is_set("KONSOLE_VERSION"),
            knows_iterm2: ["mintty", "vscode", "Tabby", "Hyper", "rio", "Bobcat", "WarpTerminal"]
                .iter()
                .any(|known| program.contains(known)),
        }
    }

    /// For people, where the terminal isn't asked: what its answer will most likely lead to.
    pub fn likely_pictures(self) -> &'static str {
        if self.in_tmux {
            "half blocks, as tmux may forget others (--images asks for them)"
        } else if self.is_console || self.only_iterm2_or_blocks {
            "half blocks"
        } else if self.prefers_iterm2 || self.knows_iterm2 {
            "iTerm2's protocol"
        } else {
            "kitty's protocol, sixel or half blocks: a chat asks the terminal which it knows"
        }
    }
}

impl Graphics {
    /// Before the terminal has answered, and where nobody asks it.
    pub fn unasked(wanted: Images, environment: Environment) -> Self {
        Self::new(wanted, environment, Answer::default())
    }

    pub fn new(wanted: Images, environment: Environment, answer: Answer) -> Self {
        let protocol = match (wanted, answer.cell) {
            (Images::Only(protocol), _) => protocol,
            // tmux passes pictures on only when told to, and forgets them when it redraws.
            (Images::Auto, _) if environment.in_tmux => Protocol::Blocks,
            // Without the size of a character a picture can't be given its place.
            (Images::Auto, None) => Protocol::Blocks,
            (Images::Auto, Some(_)) if environment.prefers_iterm2 => Protocol::Iterm2,
            (Images::Auto, Some(_)) if environment.only_iterm2_or_blocks => Protocol::Blocks,
            (Images::Auto, Some(_)) if answer.kitty => Protocol::Kitty,
            (Images::Auto, Some(_)) if answer.sixel => Protocol::Sixel,
            (Images::Auto, Some(_)) if environment.knows_iterm2 => Protocol::Iterm2,
            (Images::Auto, Some(_)) => Protocol::Blocks,
        };
        let cell = match protocol {
            Protocol::Blocks | Protocol::Off => USUAL_CELL,
            Protocol::Kitty | Protocol::Sixel | Protocol::Iterm2 => answer.cell.unwrap_or(USUAL_CELL),
        };
        let max_side = if environment.over_ssh { MAX_SIDE_OVER_SSH } else { MAX_SIDE };
        // tmux draws sixels itself, if it was built to.
        let in_tmux = environment.in_tmux && protocol != Protocol::Sixel;
        Self { protocol, cell, in_tmux, max_side }
    }

    /// The terminal draws pixels that the screen's cells know nothing of.
    pub fn draws_outside_cells(self) -> bool {
        matches!(self.protocol, Protocol::Sixel | Protocol::Iterm2)
    }
}

/// The question to the terminal. The last part is answered by every terminal, so its answer ends the others'.
pub fn question(wanted: Images, environment: Environment) -> String {
    let mut question = String::new();
    let draws_pixels = match wanted {
        Images::Auto => !environment.in_tmux,
        Images::Only(protocol) => !matches!(protocol, Protocol::Blocks | Protocol::Off),
    };
    if draws_pixels && !environment.is_console {
        if wanted == Images::Auto && !environment.prefers_iterm2 && !environment.only_iterm2_or_blocks {
            // May one pixel be shown by kitty's protocol?
            question.push_str("\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\");
        }
        // How large is a character?
        question.push_str("\x1b[16t");
    }
    if !environment.is_console {
        // What colour is the background?
        question.push_str("\x1b]11;?\x1b\\");
    }
    // Which keyboard reports are on; who are you?
    question.push_str("\x1b[?u\x1b[c");
    question
}

/// What a terminal sends while it answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Typed meanwhile.
    Typed(char),
    Pasted(String),
    /// The last answer.
    End,
}

/// Takes complete pieces from the front of `bytes` until one is for the caller. Answers before the last go
/// into `answer`; `None` means that more has to come.
pub fn next_piece(bytes: &mut Vec<u8>, answer: &mut Answer) -> Option<Piece> {
    loop {
        let (n_bytes, piece) = piece(bytes, answer)?;
        bytes.drain(..n_bytes);
        if piece.is_some() {
            return piece;
        }
    }
}

/// How many bytes the first piece takes, and what it is for the caller.
fn piece(bytes: &[u8], answer: &mut Answer) -> Option<(usize, Option<Piece>)> {
    const PASTE: &[u8] = b"\x1b[200~";
    const PASTE_END: &[u8] = b"\x1b[201~";
    match bytes {
        [] | [0x1b] => None,
        _ if bytes.starts_with(PASTE) => {
            let end = position(bytes, PASTE_END)?;
            let text = String::from_utf8_lossy(&bytes[PASTE.len()..end]).into_owned();
            Some((end + PASTE_END.len(), Some(Piece::Pasted(text))))
        }
        [0x1b, b'[', rest @ ..] => {
            let end = rest.iter().position(|byte| (0x40..=0x7e).contains(byte))?;
            let is_last = control_sequence(&rest[..end], rest[end], answer);
            Some((end + 3, is_last.then_some(Piece::End)))
        }
        // APC (kitty), DCS, OSC: up to the string terminator.
        [0x1b, b'_' | b'P' | b']', ..] => {
            let end = position(bytes, b"\x1b\\").map(|at| at + 2);
            let end = end.or_else(|| position(bytes, b"\x07").map(|at| at + 1))?;
            answer.kitty |= bytes.starts_with(b"\x1b_Gi=31;OK");
            answer.is_light = answer.is_light.or_else(|| is_light(&bytes[..end]));
            Some((end, None))
        }
        // Alt and a key; it did nothing useful yet.
        [0x1b, _, ..] => Some((2, None)),
        _ => {
            let n_bytes = match bytes[0] {
                0..=0x7f => 1,
                0xc0..=0xdf => 2,
                0xe0..=0xef => 3,
                0xf0..=0xf7 => 4,
                _ => return Some((1, None)),
            };
            let c = std::str::from_utf8(bytes.get(..n_bytes)?).ok().and_then(|text| text.chars().next());
            Some((n_bytes, c.map(Piece::Typed)))
        }
    }
}

/// Reads the answer about the background: `ESC ] 11 ; rgb:RRRR/GGGG/BBBB`.
fn is_light(answer: &[u8]) -> Option<bool> {
    let text = std::str::from_utf8(answer).ok()?;
    let channels = text.strip_prefix("\x1b]11;rgb:")?.trim_end_matches(['\x07', '\\', '\x1b']);
    // The first two digits are enough of each.
    let channels: Vec<u32> =
        channels.split('/').map(|hex| u32::from_str_radix(hex.get(..2)?, 16).ok()).collect::<Option<_>>()?;
    match channels[..] {
        [r, g, b] => Some(2126 * r + 7152 * g + 722 * b > 10_000 * 128),
        _ => None,
    }
}

/// What some terminals say in the environment: `15;0` is white on black.
pub fn is_light_by_environment() -> Option<bool> {
    let value = env::var("COLORFGBG").ok()?;
    let background: u8 = value.rsplit(';').next()?.parse().ok()?;
    Some(background == 7 || background == 15)
}

/// Reads one control sequence; true if it is the last answer.
fn control_sequence(parameters: &[u8], kind: u8, answer: &mut Answer) -> bool {
    let text = std::str::from_utf8(parameters).unwrap_or_default();
    match (kind, text.strip_prefix('?')) {
        (b'c', Some(attributes)) => {
            answer.sixel |= attributes.split(';').any(|attribute| attribute == "4");
            true
        }
        (b'u', Some(_)) => {
            answer.keyboard = true;
            false
        }
        (b't', None) => {
            let numbers: Vec<u16> = text.split(';').filter_map(|number| number.parse().ok()).collect();
            if let [6, height, width] = numbers[..]
                && height > 0
                && width > 0
            {
                answer.cell = Some((width, height));
            }
            false
        }
        _ => false,
    }
}

fn position(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(bytes: &str) -> (Answer, String, bool) {
        let (mut bytes, mut answer) = (bytes.as_bytes().to_vec(), Answer::default());
        let (mut typed, mut ended) = (String::new(), false);
        while let Some(piece) = next_piece(&mut bytes, &mut answer) {
            match piece {
                Piece::Typed(c) => typed.push(c),
                Piece::Pasted(text) => typed.push_str(&text),
                Piece::End => ended = true,
            }
        }
        (answer, typed, ended)
    }

    fn chosen(environment: Environment, answer: &str) -> Protocol {
        Graphics::new(Images::Auto, environment, read(answer).0).protocol
    }

    #[test]
    fn six_terminals_get_the_pictures_they_can_show() {
        let plain = Environment::default();
        assert_eq!(chosen(plain, "\x1b_Gi=31;OK\x1b\\\x1b[6;20;10t\x1b[?0u\x1b[?62;c"), Protocol::Kitty);
        assert_eq!(chosen(plain, "\x1b[6;15;7t\x1b[?62;4;22c"), Protocol::Sixel);
        assert_eq!(chosen(plain, "\x1b[6;15;7t\x1b[?64;1;22c"), Protocol::Blocks, "xterm");
        assert_eq!(chosen(plain, ""), Protocol::Blocks, "silent");
        assert_eq!(
            chosen(plain, "\x1b_Gi=31;ENOTSUPPORTED\x1b\\\x1b[x\u{9b}4;4c\x1b[?62;4c"),
            Protocol::Blocks
        );
        let iterm = Environment { prefers_iterm2: true, ..plain };
        assert_eq!(chosen(iterm, "\x1b_Gi=31;OK\x1b\\\x1b[6;20;10t\x1b[?62;4c"), Protocol::Iterm2);
        let tmux = Environment { in_tmux: true, ..plain };
        assert_eq!(chosen(tmux, "\x1b[6;20;10t\x1b[?62;4c"), Protocol::Blocks);
    }

    #[test]
    fn a_wish_counts_more_than_an_answer() {
        let tmux = Environment { in_tmux: true, over_ssh: true, ..Environment::default() };
        let forced = |protocol| Graphics::new(Images::Only(protocol), tmux, Answer::default());
        assert_eq!(forced(Protocol::Kitty).protocol, Protocol::Kitty);
        assert!(forced(Protocol::Kitty).in_tmux && !forced(Protocol::Sixel).in_tmux);
        assert_eq!(forced(Protocol::Off).max_side, MAX_SIDE_OVER_SSH);
    }

    #[test]
    fn nothing_about_pictures_is_asked_where_none_are_drawn() {
        let plain = Environment::default();
        for wanted in [Images::Only(Protocol::Off), Images::Only(Protocol::Blocks)] {
            assert_eq!(question(wanted, plain), "\x1b]11;?\x1b\\\x1b[?u\x1b[c");
        }
        let tmux = Environment { in_tmux: true, ..plain };
        let console = Environment { is_console: true, ..plain };
        assert_eq!(question(Images::Auto, tmux), "\x1b]11;?\x1b\\\x1b[?u\x1b[c");
        assert_eq!(question(Images::Auto, console), "\x1b[?u\x1b[c");
        assert!(question(Images::Auto, plain).contains("\x1b_G"));
    }

    #[test]
    fn the_background_is_light_or_dark() {
        let background = |answer: &str| read(answer).0.is_light;
        assert_eq!(background("\x1b]11;rgb:fafa/f0f0/e0e0\x1b\\\x1b[?62c"), Some(true));
        assert_eq!(background("\x1b]11;rgb:16/19/1d\x07\x1b[?62c"), Some(false));
        for odd in [
            "\x1b]11;rgb:zz/19/1d\x07",
            "\x1b]11;rgb:1/2\x07",
            "\x1b]11;#fff\x07",
            "\x1b]10;rgb:ff/ff/ff\x07",
            "",
        ] {
            assert_eq!(background(&format!("{odd}\x1b[?62c")), None, "{odd:?}");
        }
    }

    #[test]
    fn what_is_typed_between_the_answers_is_kept() {
        let (answer, typed, ended) = read("he\x1b[6;20;10tl\x1b[200~a\rb\x1b[201~\x1b[?1ulö\r\x1b[?62;4;22c");
        assert_eq!((typed.as_str(), ended), ("hela\rblö\r", true));
        assert_eq!(answer, Answer { sixel: true, cell: Some((10, 20)), keyboard: true, ..Answer::default() });
    }

    proptest! {
        #[test]
        fn answers_cut_anywhere_are_read_alike(text in "[a-c\u{1b}\\[\\]_\\\\?;0-9cutöG=]{0,40}", cut in 0usize..40) {
            let (mut buffer, mut answer, mut pieces) = (Vec::new(), Answer::default(), Vec::new());
            let cut = cut.min(text.len());
            for part in [&text.as_bytes()[..cut], &text.as_bytes()[cut..]] {
                buffer.extend_from_slice(part);
                while let Some(piece) = next_piece(&mut buffer, &mut answer) {
                    pieces.push(piece);
                }
            }
            let (mut buffer, mut whole, mut expected) = (text.as_bytes().to_vec(), Answer::default(), Vec::new());
            while let Some(piece) = next_piece(&mut buffer, &mut whole) {
                expected.push(piece);
            }
            prop_assert_eq!((answer, pieces), (whole, expected));
        }
    }
}
