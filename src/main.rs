//! The program: parse, dispatch, exit code.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use color_eyre::eyre::WrapErr;

use loquat::batch::{self, Outcome, replay, run, tell};
use loquat::catalog::resolve::{self, ResolveError};
use loquat::cli::{
    BatchArgs, BenchArgs, Cli, CliCommand, DevCommand, InspectArgs, ModelsCommand, RunArgs, ScreenArgs,
    Switch,
};
use loquat::config::{self, Config};
use loquat::engine::generate::EngineError;
use loquat::engine::prompt::child;
use loquat::hub::Hub;
use loquat::msg::StoredId;
use loquat::remote::RemoteOptions;
use loquat::session::{self, Keep, Session};
use loquat::settings::{self, Settings};
use loquat::tui::{Exit, Mode};
use loquat::{bench, dev, doctor, history, installation, logging, manual, models, paths, serve, themes, tui};

fn main() -> ExitCode {
    // First of all, before anything is set up: a child that renders a template needs nothing else.
    if std::env::args_os().nth(1).is_some_and(|argument| argument == child::ARGUMENT) {
        return child::main();
    }
    quiet_vulkan();
    let cli = Cli::parse();
    set_hub_variables(cli.model.offline);
    match dispatch(cli) {
        Ok(code) => {
            log::info!("ended with exit code {code}");
            ExitCode::from(code)
        }
        Err(error) => {
            log::error!("{error:#}");
            tell(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Mesa's Vulkan layer looks for a Wayland display and complains on standard error where there is none, as in
/// a container. Without a display it has nothing to choose for us.
#[cfg(target_os = "linux")]
fn quiet_vulkan() {
    if std::env::var_os("XDG_RUNTIME_DIR").is_none() && std::env::var_os("NODEVICE_SELECT").is_none() {
        // SAFETY: this is the program's only thread; others start later.
        unsafe { std::env::set_var("NODEVICE_SELECT", "1") };
    }
}

#[cfg(not(target_os = "linux"))]
fn quiet_vulkan() {}

/// The Hub's libraries report what they transfer unless told otherwise. And offline is offline for everybody.
fn set_hub_variables(offline: bool) {
    // SAFETY: this is the program's only thread; others start later.
    unsafe { std::env::set_var("HF_HUB_DISABLE_TELEMETRY", "1") };
    if offline {
        // SAFETY: as above.
        unsafe { std::env::set_var("HF_HUB_OFFLINE", "1") };
    }
}

fn dispatch(cli: Cli) -> color_eyre::Result<u8> {
    let interactive = io::stdin().is_terminal() && io::stdout().is_terminal();
    if let Some(CliCommand::Config(command)) = &cli.command {
        return Ok(said(config::commands::run(command, cli.config.as_deref())));
    }
    match &cli.command {
        Some(CliCommand::Completions { shell }) => return Ok(printed(&manual::completions(*shell))),
        Some(CliCommand::Man { out: None }) => return Ok(printed(&manual::page())),
        Some(CliCommand::Man { out: Some(folder) }) => {
            let written = manual::write_pages(folder);
            return Ok(said(
                written.map_err(|error| format!("cannot write to {}: {error}", folder.display())),
            ));
        }
        // It has to work where the settings don't.
        Some(CliCommand::Doctor { json }) => {
            let report = doctor::examine(cli.config.as_deref(), cli.model.device);
            let text = if *json { report.json().to_string() } else { report.lines().join("\n") };
            let code = printed(format!("{text}\n").as_bytes());
            return Ok(code.max(u8::from(!report.is_well())));
        }
        Some(CliCommand::Update(args)) => return Ok(said(installation::update::update(args))),
        Some(CliCommand::Uninstall(args)) => {
            return Ok(said(installation::uninstall::uninstall(args, cli.config.as_deref())));
        }
        _ => {}
    }
    let mut cli = cli;
    let folder = std::env::current_dir().unwrap_or_default();
    // `--model` names one of the server's models then; that of the settings is one of this machine.
    let typed_model = cli.model.model.as_ref().map(|model| model.to_string_lossy().into_owned());
    let config = Config::load(cli.config.as_deref(), &folder).map_err(|error| error.to_string());
    let filled = config.and_then(|config| {
        config::fill(&mut cli, &config).map_err(|error| error.to_string())?;
        let remote = config::remote(cli.model.engine.as_deref(), &config)?;
        Ok((config, remote))
    });
    let (config, remote) = match filled {
        Ok(filled) => filled,
        Err(why) => {
            tell(&why);
            return Ok(Outcome::Usage.exit_code());
        }
    };
    match settings::log_level(cli.log) {
        Ok(level) => {
            if let Some(folder) = paths::state() {
                logging::start(&folder, level);
            }
        }
        Err(error) => {
            tell(&error.to_string());
            return Ok(Outcome::Usage.exit_code());
        }
    }
    log::info!("loquat {} on {} {}", env!("CARGO_PKG_VERSION"), std::env::consts::OS, std::env::consts::ARCH);
    if let Some(CliCommand::Keys { probe }) = &cli.command {
        let keymap = config::keys::load(cli.screen.keys.unwrap_or_default());
        return Ok(match keymap {
            Ok(keymap) if *probe => said(tui::probe::probe(&keymap)),
            Ok(keymap) => printed(tui::probe::list(&keymap).as_bytes()),
            Err(why) => said(Err(why)),
        });
    }
    if let Some(folder) = cli.model.models_folder.take() {
        // SAFETY: this is the program's only thread; others start later. It was empty, or the file wouldn't count.
        unsafe { std::env::set_var("HF_HUB_CACHE", folder) };
    }
    let keep_days = cli.history.keep_days;
    let mut model = cli.model;
    if let Some(CliCommand::Models(ModelsCommand::Inspect(InspectArgs { named: Some(named), .. }))) =
        &cli.command
    {
        model.model = Some(named.clone());
    }
    let manifest = match &cli.command {
        Some(CliCommand::Replay(args)) => match replay::read(&args.manifest) {
            Ok(manifest) => Some(manifest),
            Err(why) => {
                tell(&why);
                return Ok(Outcome::Usage.exit_code());
            }
        },
        _ => None,
    };
    if let Some(path) = manifest.as_ref().and_then(|manifest| manifest["model"]["path"].as_str()) {
        model.model.get_or_insert_with(|| path.into());
    }
    let mut settings = match Settings::new(model, cli.turn, &cli.history) {
        Ok(settings) => settings,
        Err(error) => {
            tell(&error.to_string());
            return Ok(Outcome::Usage.exit_code());
        }
    };
    settings.remote =
        remote.map(|remote| RemoteOptions { model: typed_model.or(remote.model.clone()), ..remote });
    let opens_chat = matches!(cli.command, None | Some(CliCommand::Chat | CliCommand::Resume { .. }));
    let is_chat = interactive && opens_chat;
    let reads_lines = mode(&cli.screen) == Mode::Plain;
    let loads_a_model = match &cli.command {
        Some(CliCommand::Models(command)) => matches!(command, ModelsCommand::Inspect(_)),
        Some(CliCommand::Dev(DevCommand::Frames { .. })) => false,
        Some(CliCommand::History(_) | CliCommand::Config(_) | CliCommand::Theme(_)) => false,
        Some(CliCommand::Bench(_) | CliCommand::Dev(_)) => true,
        _ => settings.remote.is_none(),
    };
    if loads_a_model && let Err(code) = resolve_model(&mut settings, is_chat)? {
        return Ok(code);
    }
    match cli.command {
        Some(CliCommand::Dev(command)) => Ok(run_dev(&settings, command).exit_code()),
        Some(CliCommand::Batch(args)) => {
            let settings = settings.without_states().answering(args.jobs());
            with_session(&settings, async |session| batch(session, &settings, &args).await)
        }
        Some(CliCommand::Serve(args)) => {
            let settings = settings.answering(args.parallel);
            with_session(&settings, async |session| {
                serve::serve(session, &settings, &args)
                    .await
                    .map(Outcome::exit_code)
                    .wrap_err("the server failed")
            })
        }
        Some(CliCommand::Replay(args)) => {
            let manifest = manifest.expect("it was read before the settings");
            let settings = settings.without_states();
            with_session(&settings, async |session| {
                replay::replay(session, &manifest, &args)
                    .await
                    .map(Outcome::exit_code)
                    .wrap_err("cannot write")
            })
        }
        Some(CliCommand::Bench(args)) => Ok(run_bench(&settings, &args).exit_code()),
        Some(CliCommand::Models(command)) => run_models(&settings, &command),
        Some(CliCommand::History(command)) => {
            let folder = settings::history_folder();
            let run = |folder: PathBuf| history::run(&folder, &command).map_err(|error| error.to_string());
            Ok(said(folder.and_then(run)))
        }
        // Done above: they mend files that nothing else can read, or read none.
        Some(
            CliCommand::Config(_)
            | CliCommand::Doctor { .. }
            | CliCommand::Update(_)
            | CliCommand::Uninstall(_)
            | CliCommand::Completions { .. }
            | CliCommand::Keys { .. }
            | CliCommand::Man { .. },
        ) => Ok(Outcome::Done.exit_code()),
        Some(CliCommand::Theme(command)) => match themes::run(&command) {
            Ok(is_good) => Ok(if is_good { Outcome::Done } else { Outcome::SomeFailed }.exit_code()),
            Err(why) => {
                tell(&why);
                Ok(Outcome::Usage.exit_code())
            }
        },
        Some(CliCommand::Run(args)) => one_shot(&settings, args),
        None if !interactive && !cli.screen.plain => one_shot(&settings, RunArgs::default()),
        Some(CliCommand::Chat | CliCommand::Resume { .. }) if !interactive && !reads_lines => {
            tell(
                "a chat needs a terminal; --plain takes one message a line, and `loquat run` and `loquat batch` are for scripts",
            );
            Ok(Outcome::Usage.exit_code())
        }
        Some(CliCommand::Resume { id }) => {
            chat(&settings, cli.screen, &config, cli.config.as_deref(), keep_days, Some(Resumed { id }))
        }
        None | Some(CliCommand::Chat) => {
            let resumed = cli.history.continues.then_some(Resumed { id: None });
            chat(&settings, cli.screen, &config, cli.config.as_deref(), keep_days, resumed)
        }
    }
}

/// The kept conversation that goes on: this one, or the last.
struct Resumed {
    id: Option<i64>,
}

fn chat(
    settings: &Settings,
    screen: ScreenArgs,
    config: &Config,
    explicit: Option<&Path>,
    keep_days: Option<u32>,
    resumed: Option<Resumed>,
) -> color_eyre::Result<u8> {
    let mode = mode(&screen);
    let explicit = explicit.map(Path::to_owned);
    let (file, device) = (explicit.clone(), settings.load.device);
    let program = tui::Program {
        keep: config::keep,
        diagnose: Arc::new(move || doctor::examine(file.as_deref(), Some(device)).lines().join("\n")),
        settings: Arc::new(move |name| config::commands::report(explicit.as_deref(), name)),
    };
    let history = match settings.keeps_chats.then(settings::history_folder).transpose() {
        Ok(history) => history,
        // A chat without a history is better than none; resuming is impossible then.
        Err(why) if resumed.is_none() => {
            tell(&format!("this chat is not kept: {why}"));
            None
        }
        Err(why) => {
            tell(&why);
            return Ok(Outcome::Usage.exit_code());
        }
    };
    if let Some(resumed) = &resumed
        && let Err(why) = can_resume(history.as_deref(), resumed)
    {
        tell(&why);
        return Ok(Outcome::Usage.exit_code());
    }
    let tui_settings = match tui_settings(settings, screen, config) {
        Ok(tui_settings) => tui::TuiSettings {
            inline: mode == Mode::Inline,
            // The terminal scrolls and selects there; pixels wouldn't move with its lines.
            mouse: tui_settings.mouse && mode != Mode::Inline,
            images: if mode == Mode::Inline {
                tui::Images::Only(tui::Protocol::Off)
            } else {
                tui_settings.images
            },
            keeps_chats: history.is_some(),
            // Who goes on with a conversation isn't new here.
            offers_models: tui_settings.offers_models && resumed.is_none(),
            resume: resumed.map(|resumed| resumed.id.map(StoredId)),
            ..tui_settings
        },
        Err(why) => {
            tell(&why);
            return Ok(Outcome::Usage.exit_code());
        }
    };
    let history = history.map(|folder| Keep { folder, days: keep_days.filter(|days| *days > 0) });
    let mut farewell = None;
    let code = keeping_session(settings, history, async |session| {
        let ended = match mode {
            Mode::Plain => tui::plain::run(session, tui_settings, program).await?,
            Mode::Full | Mode::Inline => tui::run(session, tui_settings, program).await?,
        };
        farewell = ended.kept;
        Ok(match ended.exit {
            Exit::Failed(code) => Outcome::of_code(code).exit_code(),
            exit => exit.code(),
        })
    })?;
    // After everything is written, so that what it promises is true.
    if let Some((stored, title)) = farewell {
        tell(&history::farewell(stored, &title));
    }
    Ok(code)
}

/// What the chat begins with.
fn tui_settings(
    settings: &Settings,
    screen: ScreenArgs,
    config: &Config,
) -> Result<tui::TuiSettings, String> {
    let (personas, presets) = (config.personas(), config.presets());
    let named =
        |what: &str, name: &str| format!("there is no {what} {name}; `loquat config edit` defines it");
    let mut defaults = settings.turn.clone();
    if let Some(name) = &screen.preset {
        let preset = presets.iter().find(|(known, _)| known == name).ok_or_else(|| named("preset", name))?;
        defaults.sampling = settings::over(&defaults.sampling, &preset.1);
    }
    let persona = screen.persona.filter(|_| settings.system.is_none());
    let system = match &persona {
        Some(name) => {
            let found = personas.iter().find(|(known, _)| known == name);
            Some(found.ok_or_else(|| named("persona", name))?.1.clone())
        }
        None => settings.system.clone(),
    };
    Ok(tui::TuiSettings {
        defaults,
        system,
        detail: settings.detail,
        images: tui_images(screen.images)?,
        folder: std::env::current_dir().unwrap_or_default(),
        home: std::env::home_dir(),
        offers_models: settings.load.is_default && settings.remote.is_none(),
        theme: themes::chosen(screen.theme)?,
        themes_folder: themes::folder(),
        keymap: config::keys::load(screen.keys.unwrap_or_default())?,
        mouse: screen.mouse != Some(Switch::Off),
        smooth: screen.smooth_scroll != Some(Switch::Off),
        spec_view: screen.drafting.unwrap_or_default(),
        personas,
        persona,
        presets,
        overflow: screen.overflow.unwrap_or_default(),
        notify: screen.notify.unwrap_or_default(),
        facts: tui::Facts {
            date: loquat::store::today(),
            model: String::new(),
            cwd: std::env::current_dir().unwrap_or_default().to_string_lossy().into_owned(),
        },
        ..tui::TuiSettings::default()
    })
}

fn can_resume(history: Option<&Path>, resumed: &Resumed) -> Result<(), String> {
    let folder = history.ok_or("nothing can be resumed without a history (--no-history)")?;
    history::check(folder, resumed.id).map_err(|error| error.to_string())
}

/// Prints a text that is made for pipes: one that closes early is fine.
fn printed(text: &[u8]) -> u8 {
    match io::stdout().write_all(text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            said(Err(format!("cannot write: {error}")))
        }
        _ => Outcome::Done.exit_code(),
    }
}

/// The exit code of a command that does what it is asked or says why not.
fn said(result: Result<(), String>) -> u8 {
    let outcome = match result {
        Ok(()) => Outcome::Done,
        Err(why) => {
            tell(&why);
            Outcome::Usage
        }
    };
    outcome.exit_code()
}

/// The flag comes before the environment variable.
fn tui_images(flag: Option<tui::Images>) -> Result<tui::Images, String> {
    const NAME: &str = "LOQUAT_IMAGES";
    match (flag, std::env::var(NAME)) {
        (Some(images), _) => Ok(images),
        (None, Ok(value)) if !value.is_empty() => {
            value.parse().map_err(|why| format!("the environment variable {NAME} is {value:?}: {why}"))
        }
        (None, _) => Ok(tui::Images::Auto),
    }
}

/// How a chat is to be shown.
fn mode(screen: &ScreenArgs) -> Mode {
    let is_accessible = std::env::var("ACCESSIBLE").is_ok_and(|value| !matches!(value.as_str(), "" | "0"));
    match screen {
        ScreenArgs { plain: true, .. } => Mode::Plain,
        ScreenArgs { inline: true, .. } if !is_dumb_terminal() => Mode::Inline,
        _ if is_accessible || is_dumb_terminal() => Mode::Plain,
        _ => screen.mode.unwrap_or_default(),
    }
}

/// A terminal that can't move the cursor, such as an editor's shell window.
fn is_dumb_terminal() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb" || term.is_empty())
}

fn one_shot(settings: &Settings, args: RunArgs) -> color_eyre::Result<u8> {
    let question = run::read_question(&args, settings.detail);
    match question.and_then(|question| Ok((question, batch::form(&args.form)?))) {
        Ok((question, form)) => with_session(settings, async |session| {
            run::run(session, settings, &args, form, question)
                .await
                .map(Outcome::exit_code)
                .wrap_err("cannot write the answer")
        }),
        Err(why) => {
            tell(&why);
            Ok(Outcome::Usage.exit_code())
        }
    }
}

async fn batch(session: Session, settings: &Settings, args: &BatchArgs) -> color_eyre::Result<u8> {
    batch::batch(session, settings, args).await.map(Outcome::exit_code).wrap_err("cannot write the answers")
}

/// Runs a face on a session of its own, and ends the session after it.
fn with_session(
    settings: &Settings,
    face: impl AsyncFnOnce(Session) -> color_eyre::Result<u8>,
) -> color_eyre::Result<u8> {
    keeping_session(settings, None, face)
}

/// The same, and conversations are kept in this folder.
fn keeping_session(
    settings: &Settings,
    history: Option<Keep>,
    face: impl AsyncFnOnce(Session) -> color_eyre::Result<u8>,
) -> color_eyre::Result<u8> {
    // One worker is enough: the engine has a thread of its own and its kernels have a pool.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .wrap_err("cannot start the runtime")?;
    let code = runtime.block_on(async {
        let (session, ended) =
            session::start_keeping(settings.load.clone(), settings.remote.clone(), history)
                .wrap_err("cannot start the engine")?;
        let code = face(session).await;
        // It doesn't wait longer than it takes to save what the model has read.
        let _ = ended.await;
        code
    });
    // A thread that waits for standard input, or an engine in the middle of a step, must not hold up the exit.
    runtime.shutdown_background();
    code
}

fn run_dev(settings: &Settings, command: DevCommand) -> Outcome {
    let result = match command {
        DevCommand::Forward { cases, out } => dev::forward(&settings.load, &cases, &out),
        DevCommand::Render => dev::render(&settings.load.dir),
        DevCommand::Tokenize => dev::tokenize(&settings.load.dir),
        DevCommand::Frames { rows, size } => dev::frames(rows, &size),
    };
    result.unwrap_or_else(|(outcome, why)| {
        tell(&why);
        outcome
    })
}

fn run_bench(settings: &Settings, args: &BenchArgs) -> Outcome {
    outcome(bench::bench(&settings.load, args))
}

fn run_models(settings: &Settings, command: &ModelsCommand) -> color_eyre::Result<u8> {
    let found = |found: bool| if found { Outcome::Done } else { Outcome::NoModel };
    let result = match command {
        ModelsCommand::Inspect(args) => return Ok(outcome(models::inspect(&settings.load, args)).exit_code()),
        ModelsCommand::List { json } => {
            models::list::list(*json);
            Ok(Outcome::Done)
        }
        ModelsCommand::Rm { named } => models::list::remove(named).map(|removed| {
            if !removed {
                tell(&format!("{named} is not in the Hub's cache"));
            }
            found(removed)
        }),
        ModelsCommand::Verify { named, repair } => models::list::verify(named, *repair).map(found),
        ModelsCommand::Search { words } => {
            return online(async |hub| models::search::search(hub, words).await.map(|()| Outcome::Done));
        }
        ModelsCommand::Info { named, json } => {
            return online(async |hub| models::info::info(hub, named, *json).await.map(|()| Outcome::Done));
        }
        ModelsCommand::Pull { named } => {
            return online(async |hub| models::pull::pull(hub, named).await.map(|()| Outcome::Done));
        }
        ModelsCommand::Fit { named, json } => {
            return online(async |hub| models::fit::fits(hub, &settings.load, named, *json).await.map(found));
        }
    };
    Ok(told(result).exit_code())
}

/// Runs what talks to the Hub. Ctrl+C stops it; what was downloaded is kept.
fn online<E: std::fmt::Display>(
    work: impl AsyncFnOnce(&Hub) -> Result<Outcome, E>,
) -> color_eyre::Result<u8> {
    let hub = match loquat::catalog::hub() {
        Ok(hub) => hub,
        Err(error) => return Ok(told(Err(error)).exit_code()),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.wrap_err("cannot start the runtime")?;
    let outcome = runtime.block_on(async {
        tokio::select! {
            result = work(&hub) => told(result),
            _ = tokio::signal::ctrl_c() => {
                models::progress::end();
                tell("stopped; the same command goes on where this one was");
                Outcome::Signal(2)
            }
        }
    });
    runtime.shutdown_background();
    Ok(outcome.exit_code())
}

fn told<E: std::fmt::Display>(result: Result<Outcome, E>) -> Outcome {
    result.unwrap_or_else(|error| {
        tell(&error.to_string());
        Outcome::NoModel
    })
}

/// Makes a folder of what `--model` names; an exit code if there is none.
fn resolve_model(settings: &mut Settings, is_chat: bool) -> color_eyre::Result<Result<(), u8>> {
    if let resolve::Named::Path(_) = resolve::named(&settings.load.dir) {
        return Ok(Ok(()));
    }
    // Whoever opens a chat with a model wants it here; a script says so with --pull.
    let may_pull = settings.pull || is_chat;
    let mut resolved = None;
    let code = online(async |hub| {
        let reporter = models::progress::reporter(&settings.load.dir.to_string_lossy());
        let result = resolve::resolve(hub, &settings.load.dir, may_pull.then_some(&reporter)).await;
        if may_pull {
            models::progress::end();
        }
        resolved = Some(result?);
        Ok::<_, ResolveError>(Outcome::Done)
    })?;
    Ok(match resolved {
        Some(dir) => {
            settings.load.dir = dir;
            Ok(())
        }
        None => Err(code),
    })
}

fn outcome(result: Result<(), EngineError>) -> Outcome {
    match result {
        Ok(()) => Outcome::Done,
        Err(error) => {
            tell(&error.to_string());
            Outcome::of_code(error.code())
        }
    }
}
