//! What the slash commands do.

use crate::msg::{Form, HistoryCommand, Mtp, SamplingOptions};
use crate::sanitize::one_line;
use crate::tui::attach::Kind;
use crate::tui::commands::{self, Slash, SystemChange};
use crate::tui::drafts::{self, SpecView};
use crate::tui::effect::{Effect, Work};
use crate::tui::page::{Page, PageKind};
use crate::tui::persona;
use crate::tui::pictures::paths;
use crate::tui::state::{Model, State, Why};
use crate::tui::theme::Tone;
use crate::tui::transcript::figures;

use super::{
    attach, compact, compare, copy, examine, follow, history, keys, list, models, new_chat, note, notify,
    overflow, picker, quit, turns,
};

pub fn run(state: &mut State, command: Slash) -> Vec<Effect> {
    match command {
        Slash::Help => state.page = Some(Page::new(PageKind::Help)),
        Slash::Keys => state.page = Some(Page::new(PageKind::Keys)),
        Slash::Model(filter) => return models::open(state, &filter),
        Slash::New => return new_chat(state),
        Slash::Quit => return quit(state),
        Slash::Regenerate(seed) => return turns::regenerate(state, seed),
        Slash::Continue => return turns::go_on(state),
        Slash::Edit(number) => turns::edit(state, number),
        Slash::Undo => return turns::undo(state),
        Slash::Branch => list::open_branches(state),
        Slash::History(words) => return list::open_history(state, &words),
        Slash::Resume(stored) => return history::resume(state, stored),
        Slash::Rename(title) => return history::rename(state, &title),
        Slash::Copy(what) => return copy::copy(state, what),
        Slash::Theme(None) => list::open_themes(state),
        Slash::Theme(Some(name)) => return list::choose_theme(state, name),
        Slash::Persona(None) => list::open_personas(state),
        Slash::Persona(Some(name)) => return take_persona(state, &name),
        Slash::Preset(None) => list::open_presets(state),
        Slash::Preset(Some(name)) => take_preset(state, &name),
        Slash::Compare(number) => compare::open(state, number),
        Slash::Context => return examine::ask(state, Why::Context),
        Slash::Prompt => return examine::ask(state, Why::Prompt),
        Slash::Drop(number) => return overflow::drop(state, number),
        Slash::Compact(None | Some(true)) => return compact::begin(state),
        Slash::Compact(Some(false)) => return compact::take_back(state),
        Slash::Schema(None) => {
            let text = match &state.schema {
                Some(name) => format!("Answers are held to {}", one_line(name)),
                None => "Answers are free · /schema FILE holds them to a JSON Schema".to_owned(),
            };
            notify(state, Tone::Faint, text, 5);
        }
        Slash::Schema(Some(file)) if file == "off" => {
            (state.schema, state.options.form) = (None, None);
            notify(state, Tone::Faint, "Answers are free, from the next message", 5);
        }
        Slash::Schema(Some(file)) => return read_schema(state, &file),
        Slash::Doctor => {
            notify(state, Tone::Faint, "Looking", 3);
            return vec![Effect::Work(Work::Diagnose)];
        }
        Slash::Config(None) => return vec![Effect::Work(Work::ShowSettings(String::new()))],
        Slash::Config(Some((name, None))) => return vec![Effect::Work(Work::ShowSettings(name))],
        Slash::Config(Some((setting, Some(value)))) => {
            return vec![Effect::Work(Work::Configure { setting, value })];
        }
        Slash::Crop(number, region) => return attach::crop(state, number, region),
        Slash::File(paths) => return attach::text_files(state, &paths),
        Slash::Mouse(on) => return keys::set_mouse(state, on.unwrap_or(!state.mouse)),
        Slash::Raw => {
            state.is_raw = !state.is_raw;
            let text = if state.is_raw { "Answers as they were written" } else { "Answers with Markdown" };
            notify(state, Tone::Faint, text, 4);
        }
        Slash::Export(format, file) => return copy::export_to(state, format, &file),
        Slash::Image(paths) if paths.is_empty() => return picker::open(state),
        Slash::Image(paths) => return attach::typed(state, Kind::Still, &paths),
        Slash::Clip(paths) => return attach::typed(state, Kind::Clip, &paths),
        Slash::Paste => return vec![Effect::Work(Work::ReadClipboard)],
        Slash::ClearAttachments => attach::clear(state),
        Slash::Detail(None) => {
            let text = format!("Pictures are shown to the model in detail {}", state.detail);
            notify(state, Tone::Faint, text, 5);
        }
        Slash::Detail(Some(detail)) => return attach::set_detail(state, detail),
        Slash::Think(None) => {
            let text = format!("Thinking is {}", thinking(state));
            notify(state, Tone::Faint, text, 5);
        }
        Slash::Think(Some(think)) => {
            think.apply(&mut state.options);
            let text = format!("Thinking is {}, from the next message", thinking(state));
            notify(state, Tone::Faint, text, 5);
        }
        Slash::Mtp(None) => {
            let text = format!("MTP is {}", state.options.mtp.unwrap_or_default());
            notify(state, Tone::Faint, text, 5);
        }
        Slash::Mtp(Some(mtp)) => {
            state.options.mtp = Some(mtp);
            let (tone, text) = match &state.model {
                Model::Ready(model) if !model.can_draft && mtp != Mtp::Off => {
                    (Tone::Warning, format!("{} has no MTP head: nothing will be drafted", model.name))
                }
                _ => (Tone::Faint, format!("MTP is {mtp}, from the next message")),
            };
            notify(state, tone, text, 5);
        }
        Slash::Spec(None) => {
            let text = format!("MTP's guesses are {}", shown(state.spec_view));
            notify(state, Tone::Faint, text, 5);
        }
        Slash::Spec(Some(view)) => show_drafts(state, view),
        Slash::Set(None) => say(state, settings_text(state)),
        Slash::Set(Some(setting)) => {
            commands::apply(setting, &mut state.options);
            notify(state, Tone::Faint, "Set, from the next message · /set lists the settings", 5);
        }
        Slash::System(None) => {
            let text = match &state.chat.system {
                Some(text) => format!("System prompt:\n{text}"),
                None => "No system prompt. /system TEXT sets one".to_owned(),
            };
            say(state, text);
        }
        Slash::System(Some(change)) => {
            let (system, text) = match change {
                SystemChange::Remove => (None, "System prompt removed, from the next message"),
                SystemChange::Replace(text) => (Some(text), "System prompt set, from the next message"),
            };
            state.persona = None;
            notify(state, Tone::Faint, text, 5);
            return set_system(state, system);
        }
        Slash::Stats => say(state, stats_text(state)),
    }
    Vec::new()
}

fn set_system(state: &mut State, system: Option<String>) -> Vec<Effect> {
    state.chat.system.clone_from(&system);
    state.out_of_step = true;
    let conversation = state.conversation;
    history::change(state, HistoryCommand::SetSystem { conversation, system })
}

/// Takes a system prompt by its name.
pub fn take_persona(state: &mut State, name: &str) -> Vec<Effect> {
    if name == "off" {
        state.persona = None;
        notify(state, Tone::Faint, "No persona, from the next message", 5);
        return set_system(state, None);
    }
    let is_known = |name: &str| state.personas.iter().any(|(known, _)| known == name);
    let (name, vars) = match persona::split(name, is_known) {
        Ok(split) => split,
        Err(problem) => {
            notify(state, Tone::Error, one_line(&problem), 8);
            return Vec::new();
        }
    };
    let name = name.as_str();
    let Some((_, text)) = state.personas.iter().find(|(known, _)| known == name) else {
        let problem = unknown("persona", name, state.personas.iter().map(|(name, _)| name.as_str()));
        notify(state, Tone::Error, problem, 8);
        return Vec::new();
    };
    let text = match persona::render(text, &state.facts, &vars) {
        Ok(text) => text,
        Err(why) => {
            let problem = format!("Persona {} can't be used: {}", one_line(name), one_line(&why));
            notify(state, Tone::Error, problem, 8);
            return Vec::new();
        }
    };
    state.persona = Some(name.to_owned());
    state.persona_vars = vars;
    notify(state, Tone::Faint, format!("Persona {}, from the next message", one_line(name)), 5);
    set_system(state, Some(text))
}

/// The model is known: the persona of a chat that hasn't begun may name it.
pub fn model_is_known(state: &mut State) {
    if let Model::Ready(info) = &state.model {
        state.facts.model.clone_from(&info.name);
    }
    let Some(name) = state.persona.clone().filter(|_| state.chat.is_empty()) else { return };
    let Some((_, text)) = state.personas.iter().find(|(known, _)| *known == name) else { return };
    match persona::render(text, &state.facts, &state.persona_vars) {
        Ok(text) => state.chat.system = Some(text),
        Err(why) => note(state, Tone::Error, format!("Persona {name} can't be used: {why}")),
    }
}

fn read_schema(state: &mut State, file: &str) -> Vec<Effect> {
    match paths::arguments(file, state.home.as_deref()) {
        Ok(mut paths) if paths.len() == 1 => vec![Effect::Work(Work::ReadSchema(paths.remove(0)))],
        Ok(_) => {
            notify(state, Tone::Error, "/schema takes one file; quote a name with spaces", 8);
            Vec::new()
        }
        Err(problem) => {
            notify(state, Tone::Error, problem, 8);
            Vec::new()
        }
    }
}

/// An error is a sentence.
pub fn schema_read(state: &mut State, result: Result<(String, serde_json::Value), String>) {
    match result {
        Ok((name, schema)) => {
            let name = name.rsplit(['/', '\\']).next().unwrap_or(&name).to_owned();
            let text = format!("Answers are JSON that {} allows, from the next message", one_line(&name));
            (state.schema, state.options.form) = (Some(name), Some(Form::Schema(schema)));
            notify(state, Tone::Faint, text, 6);
        }
        Err(problem) => notify(state, Tone::Error, one_line(&problem), 8),
    }
}

/// Takes sampling settings by their name. A seed that was set stays.
pub fn take_preset(state: &mut State, name: &str) {
    let Some((_, sampling)) = state.presets.iter().find(|(known, _)| known == name) else {
        let problem = unknown("preset", name, state.presets.iter().map(|(name, _)| name.as_str()));
        return notify(state, Tone::Error, problem, 8);
    };
    let seed = sampling.seed.or(state.options.sampling.seed);
    state.options.sampling = SamplingOptions { seed, ..sampling.clone() };
    notify(state, Tone::Faint, format!("Preset {}, from the next message", one_line(name)), 5);
}

fn unknown<'a>(what: &str, given: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    let given = one_line(&given.chars().take(40).collect::<String>());
    let hint = match commands::nearest(&given, known.clone()) {
        Some(near) => format!("did you mean {}?", one_line(near)),
        None => format!("there are: {}", one_line(&known.collect::<Vec<_>>().join(", "))),
    };
    format!("No {what} {given}; {hint}")
}

pub fn show_drafts(state: &mut State, view: SpecView) {
    state.spec_view = view;
    // That nothing is to be seen may have reasons.
    let when = match view {
        SpecView::Off => "",
        _ if state.drafting().is_none() => ", as soon as there are any",
        SpecView::Lane if state.areas().is_none_or(|areas| areas.spec.is_none()) => ", in a larger window",
        SpecView::Lane | SpecView::Tint => "",
    };
    notify(state, Tone::Faint, format!("MTP's guesses are {}{when}", shown(view)), 5);
}

/// For how long the next answer is thought about.
fn thinking(state: &State) -> String {
    match state.options.max_thinking {
        Some(most) => format!("on, for {most} tok at most"),
        None if state.thinks() => "on".to_owned(),
        None => "off".to_owned(),
    }
}

fn shown(view: SpecView) -> &'static str {
    match view {
        SpecView::Lane => "shown",
        SpecView::Tint => "tinted in new answers, without Markdown",
        SpecView::Off => "hidden",
    }
}

fn say(state: &mut State, text: String) {
    note(state, Tone::Faint, text);
    follow(state);
}

fn settings_text(state: &State) -> String {
    let mut text = "Settings (/set KEY VALUE changes one, /set KEY default undoes it)".to_owned();
    for ((name, value), (_, accepts)) in commands::values(&state.options).into_iter().zip(commands::SETTINGS)
    {
        let value = value.unwrap_or_else(|| "model's own".to_owned());
        text.push_str(&format!("\n{name:<20}{value:<14}{accepts}"));
    }
    text
}

fn stats_text(state: &State) -> String {
    let mtp = state.options.mtp.unwrap_or_default();
    let Some(stats) = state.last_stats else { return format!("No answer yet, so no figures\nMTP is {mtp}") };
    let mut text = "Last answer".to_owned();
    let mut line = |name: &str, value: String| text.push_str(&format!("\n{name:<16}{value}"));
    line("prompt", format!("{} tok, {} of them cached", stats.prompt_tokens, stats.cached_tokens));
    if stats.restored_tokens > 0 {
        line("", format!("{} tok restored from a saved state", stats.restored_tokens));
    }
    if stats.image_tokens > 0 {
        line("pictures", format!("{} tok of the prompt", stats.image_tokens));
    }
    line("answer", format!("{} tok, {} of them thinking", stats.completion_tokens, stats.thinking_tokens));
    line("reading", format!("{:.2} s", stats.prefill_time.as_secs_f64()));
    line("writing", format!("{:.2} s", stats.decode_time.as_secs_f64()));
    if let Some(figures) = figures(&stats) {
        line("speed", figures);
    }
    match drafts::summary(&stats) {
        Some(summary) => {
            line("drafting", summary);
            let (drafted, steps) = (stats.drafts.n_drafted(), stats.drafts.steps);
            line("", format!("{} of {drafted} right, in {steps} steps", stats.drafts.n_accepted()));
            line("", drafts::positions(&stats.drafts).collect::<Vec<_>>().join("  "));
        }
        None => line("drafting", "none".to_owned()),
    }
    line("waited", format!("{:.2} s", stats.queue_time.as_secs_f64()));
    line("seed", stats.seed.to_string());
    line("next message", format!("MTP {mtp}"));
    if let Model::Ready(info) = &state.model {
        line("context", format!("{} of {} tok", state.context_used, info.context_tokens));
        line("model loaded in", format!("{:.1} s", info.load_time.as_secs_f64()));
    }
    text
}
