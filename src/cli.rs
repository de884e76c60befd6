//! What was typed: clap's view of the command line. What it means is in `settings.rs`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::chat::Detail;
use crate::chat::export::Format;
use crate::engine::device::DeviceChoice;
use crate::engine::weights::quantised::Quant;
use crate::msg::{Mtp, Think};
use crate::tui::{Images, Mode, Notify, Overflow, Preset, SpecView};

/// A terminal assistant that runs Qwen3.5-family models on your own machine.
///
/// Without a command: a chat if input and output are a terminal, else one answer to what standard input says.
#[derive(Debug, Parser)]
// A flag given twice: the last one counts, so that an alias can be overridden.
#[command(name = "loquat", version, max_term_width = 100, args_override_self = true)]
#[command(after_help = "Examples:
  loquat                                   chat with the built-in demo model
  loquat --model DIR                       chat with the model in DIR
  git diff | loquat run --model DIR 'Write a commit message'
  loquat run --model DIR -i chart.png 'The data as CSV'
  loquat models fit                        which models would fit into the memory of this machine
  loquat models pull Qwen/Qwen3.5-0.8B     download one; loquat --model Qwen/Qwen3.5-0.8B then chats with it
  loquat resume                            go on with the last conversation
  loquat history search fruit              conversations in which a word occurs
  loquat models inspect DIR                what the model in DIR is, and whether it fits into memory
  printf 'Capital of France?\\nCapital of Peru?\\n' | loquat batch --model DIR

Exit codes: 0 done; 1 internal error; 2 wrong usage or input; 3 some records of a batch failed;
4 no record of a batch could be read; 5 no usable model; 6 the model doesn't fit into memory; 7 the engine failed; 128 + n stopped by signal n.")]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<CliCommand>,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub turn: TurnArgs,
    #[command(flatten)]
    pub screen: ScreenArgs,
    #[command(flatten)]
    pub history: HistoryArgs,
    /// What goes into the log file: off, error, warn, info, debug or trace; never what is said [default: warn]
    /// [env: LOQUAT_LOG]
    #[arg(long, global = true, value_name = "LEVEL")]
    pub log: Option<log::LevelFilter>,
    /// A file of settings that comes before your own (`loquat config path`)
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum CliCommand {
    /// Chat in the terminal (what `loquat` alone does).
    Chat,
    /// Go on with a kept conversation, the last one if none is named.
    Resume {
        /// Its number in `loquat history list`
        id: Option<i64>,
    },
    /// Look at kept conversations.
    #[command(subcommand)]
    History(HistoryCommand),
    /// Settings that hold for every run.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Look at colour themes.
    #[command(subcommand)]
    Theme(ThemeCommand),
    /// The keys of a chat, or what this terminal sends for each that you press.
    Keys {
        /// Show each key with what it does, until Ctrl+C comes twice
        #[arg(long)]
        probe: bool,
    },
    /// Answer one prompt and exit; only the answer goes to standard output.
    Run(RunArgs),
    /// Answer many prompts: lines, JSONL or CSV in, text, JSONL or CSV out.
    Batch(Box<BatchArgs>),
    /// Answer programs over HTTP as OpenAI's API does, for this machine only.
    Serve(ServeArgs),
    /// Run a batch again from its manifest, and say where answers differ.
    Replay(ReplayArgs),
    /// Measure this machine with this model: reading, writing, drafting, looking at pictures.
    Bench(BenchArgs),
    /// Find, download and look at models.
    #[command(subcommand)]
    Models(ModelsCommand),
    /// Look for what is wrong here: device, memory, terminal, folders, settings. Exits with 1 if something is.
    Doctor {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Install the newest release, or say which command does.
    Update(UpdateArgs),
    /// Remove Loquat from this machine; conversations and settings stay.
    Uninstall(UninstallArgs),
    /// Print what a shell reads to complete commands and flags.
    Completions {
        /// Of this shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page.
    Man {
        /// Write it and a page for each command into this folder
        #[arg(long, value_name = "FOLDER")]
        out: Option<PathBuf>,
    },
    /// Conformance commands, documented in `src/dev.rs`.
    #[command(hide = true, subcommand)]
    Dev(DevCommand),
}

#[derive(Debug, Args)]
pub struct UpdateArgs {
    /// Only say whether there is a newer release
    #[arg(long)]
    pub check: bool,
    /// Where releases are: an address that has SHA256SUMS and the archives
    #[arg(long, value_name = "URL")]
    pub from: Option<String>,
}

#[derive(Debug, Args)]
pub struct UninstallArgs {
    /// Also remove the downloaded models of the family, from the cache that all of the Hub's tools share
    #[arg(long)]
    pub purge_models: bool,
    /// Don't ask
    #[arg(long, short)]
    pub yes: bool,
}

/// Which model, and where it runs.
#[derive(Debug, Args)]
pub struct ModelArgs {
    /// Folder with a model in Hub layout (config.json, tokenizer.json, *.safetensors), a GGUF file, a model of the Hugging
    /// Face Hub as OWNER/NAME[:QUANT][@REVISION], or `demo` for the built-in one [default: demo] [env: LOQUAT_MODEL]
    #[arg(long, short, global = true, value_name = "MODEL")]
    pub model: Option<PathBuf>,
    /// Ask a server in place of a model on this machine: its name in your settings ([remote.NAME]), or its address such as
    /// http://127.0.0.1:8000/v1 [env: LOQUAT_ENGINE]
    #[arg(long, global = true, value_name = "NAME|URL")]
    pub engine: Option<String>,
    /// Download the model if it isn't here; a chat does so without it
    #[arg(long, global = true)]
    pub pull: bool,
    /// Make no connection at all [env: HF_HUB_OFFLINE]
    #[arg(long, global = true)]
    pub offline: bool,
    /// Where to run: auto, cpu, gpu or gpu:NUMBER [default: auto] [env: LOQUAT_DEVICE]
    #[arg(long, global = true, value_name = "DEVICE")]
    pub device: Option<DeviceChoice>,
    /// Most tokens that a prompt and its answer may have together [default: 32768, or the model's limit] [env: LOQUAT_CONTEXT]
    #[arg(long, global = true, value_name = "TOKENS",
          value_parser = clap::value_parser!(u32).range(16..))]
    pub context: Option<u32>,
    /// Load a model that doesn't fit into memory; it will be slow, or the system may stop it
    #[arg(long, global = true)]
    pub force: bool,
    /// Bits per weight after loading: none (as in the files), q8, q4, or auto, which takes the most that fit into
    /// memory. Quantised weights are kept on disk for the next start [default: auto] [env: LOQUAT_QUANT]
    #[arg(long, global = true, value_name = "auto|none|q8|q4")]
    pub quant: Option<Quant>,
    /// Keep what the model has read on disk, so that a prompt that begins alike isn't read again: off, auto (what
    /// took longer than 2 seconds to read) or always [default: auto; off in a batch] [env: LOQUAT_SAVED_STATES]
    #[arg(long, global = true, value_name = "off|auto|always")]
    pub saved_states: Option<SavedStates>,
    /// Set in files.
    #[arg(skip)]
    pub models_folder: Option<PathBuf>,
}

/// Which conversations are kept so that they need not be read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SavedStates {
    Off,
    /// Those that took a while to read.
    #[default]
    Auto,
    Always,
}

impl FromStr for SavedStates {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            "auto" => Ok(Self::Auto),
            "always" => Ok(Self::Always),
            _ => Err("expected off, auto or always".into()),
        }
    }
}

/// How to answer. What is not given comes from the model's files and its card's recommendations.
#[derive(Debug, Args)]
pub struct TurnArgs {
    /// Instructions that come before the conversation
    #[arg(long, short, global = true, value_name = "TEXT")]
    pub system: Option<String>,
    /// Whether the model thinks before it answers; low (512), high (4096) or a number of tokens closes its thinking
    /// after so many
    #[arg(long, global = true, value_name = "on|off|low|high|TOKENS")]
    pub think: Option<Think>,
    /// Longest answer, thinking included
    #[arg(long, global = true, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_tokens: Option<u32>,
    /// How much of each picture the model sees: low, auto, high or a number of pixels [default: auto]
    #[arg(long, global = true, value_name = "DETAIL")]
    pub detail: Option<Detail>,
    /// How many tokens the model's draft head guesses ahead: off, auto or a number up to 8 [default: auto]
    #[arg(long, global = true, value_name = "off|auto|N")]
    pub mtp: Option<Mtp>,
    /// 0 always takes the likeliest token; higher is more varied
    #[arg(
        long,
        global = true,
        value_name = "NUMBER",
        allow_negative_numbers = true,
        help_heading = "Sampling"
    )]
    pub temperature: Option<f32>,
    /// Choose among this many likeliest tokens; 0 is all
    #[arg(
        long,
        global = true,
        value_name = "COUNT",
        allow_negative_numbers = true,
        help_heading = "Sampling"
    )]
    pub top_k: Option<usize>,
    /// Choose among the likeliest tokens that have this probability together
    #[arg(
        long,
        global = true,
        value_name = "SHARE",
        allow_negative_numbers = true,
        help_heading = "Sampling"
    )]
    pub top_p: Option<f32>,
    /// Leave out tokens less likely than this share of the likeliest
    #[arg(
        long,
        global = true,
        value_name = "SHARE",
        allow_negative_numbers = true,
        help_heading = "Sampling"
    )]
    pub min_p: Option<f32>,
    /// Lower the score of every token that the answer already has
    #[arg(
        long,
        global = true,
        value_name = "NUMBER",
        allow_negative_numbers = true,
        help_heading = "Sampling"
    )]
    pub presence_penalty: Option<f32>,
    /// The same, for each time that it has it
    #[arg(
        long,
        global = true,
        value_name = "NUMBER",
        allow_negative_numbers = true,
        help_heading = "Sampling"
    )]
    pub frequency_penalty: Option<f32>,
    /// Divide the score of every token that the answer already has
    #[arg(
        long,
        global = true,
        value_name = "NUMBER",
        allow_negative_numbers = true,
        help_heading = "Sampling"
    )]
    pub repetition_penalty: Option<f32>,
    /// The same seed gives the same text on the same device
    #[arg(
        long,
        global = true,
        value_name = "NUMBER",
        allow_negative_numbers = true,
        help_heading = "Sampling"
    )]
    pub seed: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    On,
    Off,
}

impl FromStr for Switch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "on" => Ok(Self::On),
            "off" => Ok(Self::Off),
            _ => Err("expected on or off".into()),
        }
    }
}

/// What a chat looks like.
#[derive(Debug, Default, Args)]
pub struct ScreenArgs {
    /// How a chat shows pictures: auto, kitty, sixel, iterm2, blocks or off [default: auto] [env: LOQUAT_IMAGES]
    #[arg(long, global = true, value_name = "HOW")]
    pub images: Option<Images>,
    /// Colours of a chat: the name of a theme or its file, or auto for one that fits the terminal [default: auto]
    /// [env: LOQUAT_THEME]
    #[arg(long, global = true, value_name = "THEME")]
    pub theme: Option<String>,
    /// Line by line, for screen readers, dumb terminals and scripts: nothing moves the cursor [env: ACCESSIBLE=1]
    #[arg(long, global = true, conflicts_with = "inline")]
    pub plain: bool,
    /// Below what the terminal shows; the conversation stays in its scrollback
    #[arg(long, global = true)]
    pub inline: bool,
    // Settings of files, without flags.
    #[arg(skip)]
    pub mode: Option<Mode>,
    #[arg(skip)]
    pub notify: Option<Notify>,
    #[arg(skip)]
    pub keys: Option<Preset>,
    #[arg(skip)]
    pub mouse: Option<Switch>,
    #[arg(skip)]
    pub smooth_scroll: Option<Switch>,
    #[arg(skip)]
    pub drafting: Option<SpecView>,
    #[arg(skip)]
    pub overflow: Option<Overflow>,
    #[arg(skip)]
    pub persona: Option<String>,
    #[arg(skip)]
    pub preset: Option<String>,
}

#[derive(Debug, Default, Args)]
pub struct RunArgs {
    /// The prompt; text on standard input comes before it, with a blank line between
    pub prompt: Option<String>,
    /// Picture that the prompt is about; may be given several times. `-` is a picture on standard input
    #[arg(long = "image", short = 'i', value_name = "FILE")]
    pub pictures: Vec<PathBuf>,
    /// GIF as a moving picture; may be given several times
    #[arg(long = "clip", value_name = "FILE")]
    pub clips: Vec<PathBuf>,
    /// Print one JSON object, as a batch does, in place of text
    #[arg(long)]
    pub json: bool,
    /// Print speed and token counts to standard error
    #[arg(long)]
    pub stats: bool,
    /// Print the model's thinking to standard error
    #[arg(long)]
    pub show_thinking: bool,
    #[command(flatten)]
    pub form: FormArgs,
}

/// What answers are held to.
#[derive(Debug, Default, Args)]
pub struct FormArgs {
    /// Every answer is JSON that this JSON Schema allows
    #[arg(long, value_name = "FILE", conflicts_with = "regex", help_heading = "Form of the answer")]
    pub schema: Option<PathBuf>,
    /// Every answer is a text that this regular expression matches as a whole
    #[arg(long, value_name = "PATTERN", help_heading = "Form of the answer")]
    pub regex: Option<String>,
}

#[derive(Debug, Args)]
pub struct BatchArgs {
    /// Files to read, one after the other; standard input if none is given
    pub inputs: Vec<PathBuf>,
    #[command(flatten)]
    pub read: BatchInputArgs,
    #[command(flatten)]
    pub write: BatchOutputArgs,
    #[command(flatten)]
    pub form: FormArgs,
    /// Records that are answered at the same time, fewer where memory is short [default: 8; 4 of a remote engine; 1 if
    /// deterministic or with a manifest]
    #[arg(long, short, value_name = "COUNT", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=256))]
    pub jobs: Option<usize>,
    /// What to do when a record fails
    #[arg(long, value_name = "continue|stop", default_value = "continue")]
    pub on_error: OnError,
    /// Stop when so many records have failed
    #[arg(long, value_name = "COUNT", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    pub max_errors: Option<usize>,
    /// A record that takes longer fails; waiting for its turn doesn't count
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<std::time::Duration>,
    /// What to do with a conversation that is longer than the context
    #[arg(long, value_name = "error|drop-oldest", default_value = "error")]
    pub overflow: BatchOverflow,
    /// Every run gives the same bytes: each record is read anew, nothing is drafted, no figures of speed
    #[arg(long)]
    pub deterministic: bool,
    /// Stop after this many records
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<usize>,
    /// Count tokens and estimate the time; answer nothing
    #[arg(long, conflicts_with_all = ["resume", "manifest"])]
    pub dry_run: bool,
    /// How far the batch is, on standard error [default: auto, which is a line in a terminal and nothing elsewhere]
    #[arg(long, value_name = "auto|none|json", default_value = "auto")]
    pub progress: ProgressForm,
    /// Write down everything that is needed to run the batch again (`loquat replay FILE`)
    #[arg(long, value_name = "FILE")]
    pub manifest: Option<PathBuf>,
}

/// What a batch reads.
#[derive(Debug, Args)]
#[command(next_help_heading = "Input")]
pub struct BatchInputArgs {
    /// Form of the input [default: jsonl if it begins with `{`, else lines]
    #[arg(long = "in", value_name = "FORM")]
    pub input_form: Option<InputForm>,
    /// Records end with a NUL byte, those of text output too
    #[arg(short = '0', long = "null", conflicts_with = "input_form")]
    pub null: bool,
    /// What a record of lines or nul is
    #[arg(long = "as", value_name = "text|image", default_value = "text")]
    pub read_as: ReadAs,
    /// The prompt of records that have none
    #[arg(long, value_name = "TEXT")]
    pub prompt: Option<String>,
    /// Make each prompt of this text, or of @FILE: `{{ prompt }}`, `{{ vars.lang }}`, `{{ id }}`, `{{ index }}`
    #[arg(long, value_name = "TEXT|@FILE")]
    pub template: Option<String>,
    /// Fetch pictures that records name by http:// or https:// addresses; otherwise such records fail
    #[arg(long)]
    pub allow_net: bool,
}

/// What a batch writes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct BatchOutputArgs {
    /// Form of the output [default: jsonl for jsonl input, else text]
    #[arg(long = "out", value_name = "FORM")]
    pub output_form: Option<OutputForm>,
    /// Write to this new file in place of standard output
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Write line breaks inside a text answer as \n, so that one line is one answer
    #[arg(long)]
    pub one_line: bool,
    /// Write answers in the order of the records, or as they are done
    #[arg(long, value_name = "input|done", default_value = "input")]
    pub order: Order,
    /// Go on with the output file of an earlier run; =force goes on although settings or model differ
    #[arg(long, value_name = "force", num_args = 0..=1, require_equals = true, default_missing_value = "same", requires = "output")]
    pub resume: Option<Resume>,
    /// Also try those again that have failed
    #[arg(long, requires = "resume")]
    pub retry_errors: bool,
}

fn seconds(text: &str) -> Result<std::time::Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds < 1e9 => Ok(std::time::Duration::from_secs_f64(seconds)),
        _ => Err("expected a number of seconds above 0".into()),
    }
}

#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Port; 0 takes a free one, which is told on standard error
    #[arg(long, default_value_t = 8080)]
    pub port: u16,
    /// Address to listen at; any but this machine's own needs a key
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub host: std::net::IpAddr,
    /// File with the key that clients must send [env: LOQUAT_SERVE_KEY, which holds the key itself]
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Questions that may wait while others are answered; more are refused
    #[arg(long, value_name = "COUNT", default_value_t = 32)]
    pub queue: usize,
    /// Questions that are answered at the same time, fewer where memory is short
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=32))]
    pub parallel: usize,
}

/// So many answers share the reading of the weights by default.
const JOBS: usize = 8;

impl BatchArgs {
    /// Records to be answered at the same time by a model of this machine. What is to be repeated exactly is done one
    /// by one: what an answer can take over from the one before must not depend on chance.
    pub fn jobs(&self) -> usize {
        let is_repeated = self.deterministic || self.manifest.is_some();
        self.jobs.unwrap_or(if is_repeated { 1 } else { JOBS })
    }
}

#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// What `loquat batch --manifest` wrote
    pub manifest: PathBuf,
    /// Print one JSON object for each record
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Tokens of the prompt that is read, and behind which tokens are written
    #[arg(long, value_name = "TOKENS", default_value_t = 256)]
    pub prompt: usize,
    /// How often each step is measured
    #[arg(long, value_name = "COUNT", default_value_t = 12, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    pub repeat: usize,
    /// Also look at a square picture of this side, in pixels; may be given more than once
    #[arg(long, value_name = "PIXELS", value_parser = clap::value_parser!(u32).range(1..=16384))]
    pub picture: Vec<u32>,
    /// Also say how long the kernels take for a token (on the CPU)
    #[arg(long)]
    pub profile: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum ModelsCommand {
    /// The models on this machine: in the Hub's cache, of Ollama and of LM Studio.
    List {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Models that can be downloaded: those that Loquat knows, and what the Hub finds.
    Search {
        /// Parts of names; without any, those that Loquat knows
        #[arg(value_name = "WORD")]
        words: Vec<String>,
    },
    /// What there is to know of a model on the Hub: licence, access, and the files that would be downloaded.
    Info {
        /// OWNER/NAME[:QUANT][@REVISION]
        #[arg(value_name = "MODEL")]
        named: String,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Download a model, or go on where an earlier try stopped.
    Pull {
        /// OWNER/NAME[:QUANT][@REVISION]
        #[arg(value_name = "MODEL")]
        named: String,
    },
    /// Remove a model from the Hub's cache, all of its revisions.
    Rm {
        /// OWNER/NAME
        #[arg(value_name = "MODEL")]
        named: String,
    },
    /// Check the files of models against their hashes.
    Verify {
        /// OWNER/NAME; without any, all models in the Hub's cache
        #[arg(value_name = "MODEL")]
        named: Vec<String>,
        /// Remove damaged files, so that a pull fetches them anew
        #[arg(long)]
        repair: bool,
    },
    /// Whether models would fit into the memory of this machine, before they are downloaded.
    Fit {
        /// As for --model; without any, the models that Loquat knows
        #[arg(value_name = "MODEL")]
        named: Vec<String>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// What a model is, how large its parts are, and whether it fits into memory; it is not loaded.
    Inspect(InspectArgs),
}

#[derive(Debug, Args)]
pub struct InspectArgs {
    /// As for --model, which it comes before
    #[arg(value_name = "MODEL")]
    pub named: Option<PathBuf>,
    /// Also list every tensor with its format, bytes and shape
    #[arg(long)]
    pub tensors: bool,
    /// Print one JSON object, with all tensors
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// What is set, by files and environment variables.
    Show {
        /// All settings, each with where its value is from
        #[arg(long)]
        origin: bool,
    },
    /// Where your file is.
    Path,
    /// Open your file in $VISUAL or $EDITOR; a new one has every setting with its comment.
    Edit {
        /// The file of keys in its place
        #[arg(long)]
        keys: bool,
    },
    /// The value of one setting.
    Get { name: String },
    /// Change one setting in your file, or in that of --config; comments stay.
    Set {
        name: String,
        #[arg(allow_negative_numbers = true)]
        value: String,
    },
    /// Look for mistakes, also in your file of keys.
    Check {
        /// This file in place of all that hold here
        file: Option<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
pub enum ThemeCommand {
    /// The names of all themes.
    List,
    /// Whether themes can be read: the contrast of each of their colours with the background they are made for.
    Check {
        /// Names or files; all themes if none is given
        names: Vec<String>,
    },
}

/// Whether conversations are kept, and which one goes on.
#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// Go on with the last conversation, as `loquat resume` does
    #[arg(long = "continue", short = 'c')]
    pub continues: bool,
    /// Keep nothing of this chat [env: LOQUAT_HISTORY=off]
    #[arg(long, global = true)]
    pub no_history: bool,
    /// Set in files.
    #[arg(skip)]
    pub keep_days: Option<u32>,
}

#[derive(Debug, Subcommand)]
pub enum HistoryCommand {
    /// All conversations, the newest first.
    List {
        /// One JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Conversations in which all of these words occur.
    Search {
        #[arg(required = true)]
        words: Vec<String>,
        /// One JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// A conversation as Markdown.
    Show { id: i64 },
    /// Give a conversation another title.
    Rename {
        id: i64,
        #[arg(required = true)]
        title: Vec<String>,
    },
    /// Delete a conversation; it can be taken back for 30 days.
    Delete { id: i64 },
    /// Take a deletion back.
    Undelete { id: i64 },
    /// A conversation as a file; JSON has all its branches.
    Export {
        id: i64,
        /// md, json or html
        #[arg(long, default_value = "md", value_name = "FORMAT")]
        format: Format,
        /// Write to this new file in place of standard output
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum InputForm {
    /// One prompt per line
    Lines,
    /// One JSON object per line, also those of OpenAI's batch files
    Jsonl,
    /// Prompts that end with a NUL byte
    Nul,
    /// A table whose first row names the columns
    Csv,
    /// Each file is one prompt
    Whole,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OutputForm {
    Text,
    Jsonl,
    Csv,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReadAs {
    Text,
    /// The name of a picture
    Image,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Order {
    Input,
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Resume {
    #[value(hide = true)]
    Same,
    Force,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BatchOverflow {
    Error,
    DropOldest,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ProgressForm {
    Auto,
    None,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnError {
    Continue,
    Stop,
}

#[derive(Debug, Subcommand)]
pub enum DevCommand {
    /// Logits, hidden states and greedy ids of given prompts
    Forward {
        /// One JSON case a line
        #[arg(long)]
        cases: PathBuf,
        /// The safetensors file to write
        #[arg(long)]
        out: PathBuf,
    },
    /// Chat templates: JSONL of messages on standard input to JSONL of text and ids
    Render,
    /// Tokenizer: JSONL of texts on standard input to JSONL of ids
    Tokenize,
    /// How long the chat takes to draw a long conversation
    Frames {
        /// Rows of the conversation, at least
        #[arg(long, value_name = "ROWS", default_value_t = 100_000)]
        rows: usize,
        /// Columns and rows of the screen
        #[arg(long, value_name = "WIDTHxHEIGHT", default_value = "120x40")]
        size: String,
    },
}
