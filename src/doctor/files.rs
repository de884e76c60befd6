//! How the program was installed, the person's folders, settings, models and conversations.

use std::env;
use std::path::{Path, PathBuf};

use super::{Check, Report, shown};
use crate::config::{self, Config};
use crate::engine::device::DeviceChoice;
use crate::hub::cache::{Cache, folder_bytes};
use crate::hub::options::{self, HubOptions};
use crate::hub::stores;
use crate::installation;
use crate::paths;
use crate::settings;
use crate::store;
use crate::themes as own_themes;
use crate::tui::theme::file as themes;
use crate::units::ByteSize;

pub fn program(report: &mut Report) {
    let (program, source) = installation::find();
    report.ok("version", env!("CARGO_PKG_VERSION"));
    report.ok("installed by", format!("{}: {}", source.name(), shown(&program)));
    let name = if cfg!(windows) { "loquat.exe" } else { "loquat" };
    let path = env::var_os("PATH").unwrap_or_default();
    let first = env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    match first.and_then(|first| first.canonicalize().ok()) {
        Some(first) if first != program => report.warn(
            "in PATH",
            format!("`loquat` starts another one: {}", shown(&first)),
            "remove one of them, or change PATH",
        ),
        Some(_) => report.ok("in PATH", "yes"),
        None => report.ok("in PATH", "no; it is started by its whole name"),
    }
}

/// What files and variables say, as far as other checks need it, and what is wrong with them.
#[derive(Default)]
pub struct ReadSettings {
    pub device: Option<DeviceChoice>,
    /// Where models are.
    pub cache: Option<PathBuf>,
    pub checks: Vec<Check>,
}

pub fn read_settings(explicit: Option<&Path>) -> ReadSettings {
    let mut report = Report { area: "Settings", ..Report::default() };
    let folder = env::current_dir().unwrap_or_default();
    let files = config::files(explicit, &folder);
    if files.is_empty() {
        report.ok("files", "none; the defaults hold (`loquat config edit` begins one)");
    }
    for (file, result) in files {
        match result {
            Ok(()) => report.ok("file", shown(&file)),
            Err(why) => report.bad(
                "file",
                why,
                "`loquat config edit` opens your own file; `loquat config check` looks again",
            ),
        }
    }
    for (name, why) in config::wrong_variables() {
        report.bad(
            "variable",
            format!("{name}: {why}"),
            format!("unset {name}, or give it a value that it can have"),
        );
    }
    let config = Config::load(explicit, &folder).unwrap_or_default();
    if let Err(why) = config::keys::load(config::preset(&config)) {
        report.bad("keys", why, "`loquat config edit --keys` opens the file");
    }
    if let Err(why) = config::remote(None, &config) {
        report.bad("server", why, "or unset LOQUAT_ENGINE");
    }
    let own = own_themes::folder();
    for name in themes::names(own.as_deref()) {
        if let Err(why) = themes::resolve(&name, own.as_deref()) {
            report.warn(
                "theme",
                why,
                format!("mend or delete it; its folder is {}", own.as_deref().map(shown).unwrap_or_default()),
            );
        }
    }
    let wanted = config.get("ui.theme").map(|(_, name, _)| name.to_owned());
    if let Err(why) = own_themes::chosen(wanted) {
        report.bad("theme", why, "`loquat theme list` shows what there is");
    }
    let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let of_file = || config.get("device").map(|(_, value, _)| value.to_owned());
    ReadSettings {
        device: variable("LOQUAT_DEVICE").or_else(of_file).and_then(|value| value.parse().ok()),
        cache: config::models_folder(&config).or_else(options::cache),
        checks: report.checks,
    }
}

pub fn folders(report: &mut Report, cache: Option<&Path>) {
    let private = true;
    folder(report, "settings", paths::config(), "LOQUAT_CONFIG_DIR", !private);
    folder(report, "conversations", settings::history_folder().ok(), "LOQUAT_DATA_DIR", private);
    folder(report, "saved states", paths::cache(), "XDG_CACHE_HOME", !private);
    folder(report, "models", cache.map(Path::to_owned), "HF_HUB_CACHE", !private);
}

fn folder(
    report: &mut Report,
    name: &'static str,
    folder: Option<PathBuf>,
    variable: &str,
    is_private: bool,
) {
    let Some(folder) = folder else {
        return report.bad(name, "there is no home folder", format!("set HOME, or {variable}"));
    };
    let path = shown(&folder);
    // What isn't there yet is made below the nearest folder that is.
    let there = folder.ancestors().find(|folder| folder.symlink_metadata().is_ok());
    let Some(there) = there else {
        return report.bad(
            name,
            format!("{path} can't be reached"),
            format!("set {variable} to another folder"),
        );
    };
    if !there.is_dir() {
        return report.bad(
            name,
            format!("{path}: {} is no folder", shown(there)),
            format!("move it away, or set {variable} to another folder"),
        );
    }
    if !is_writable(there) {
        let advice = format!("give yourself the right to write there, or set {variable} to another folder");
        return report.bad(name, format!("{path} can't be written"), advice);
    }
    if there != folder {
        return report.ok(name, format!("{path} (not there yet)"));
    }
    match others_may_read(&folder) {
        true if is_private => {
            report.warn(
                name,
                format!("{path} can be read by others"),
                format!("chmod 700 '{}'", folder.display()),
            );
        }
        _ => report.ok(name, path),
    }
}

/// Asked of the system, so that nothing is left behind; it knows of read-only disks too.
#[cfg(unix)]
fn is_writable(folder: &Path) -> bool {
    use rustix::fs::{Access, access};
    access(folder, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}

#[cfg(not(unix))]
fn is_writable(folder: &Path) -> bool {
    // Windows tells by trying only.
    let file = folder.join(format!("loquat-doctor-{}", std::process::id()));
    let made = std::fs::OpenOptions::new().write(true).create_new(true).open(&file);
    made.and_then(|made| {
        drop(made);
        std::fs::remove_file(file)
    })
    .is_ok()
}

#[cfg(unix)]
fn others_may_read(folder: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    folder.metadata().is_ok_and(|meta| meta.permissions().mode() & 0o077 != 0)
}

#[cfg(not(unix))]
fn others_may_read(_folder: &Path) -> bool {
    false
}

pub fn models(report: &mut Report, cache: Option<&Path>) {
    report.ok("built in", "demo");
    let cache = cache.map(|root| Cache::new(root.to_owned()));
    let installed = cache.iter().flat_map(Cache::list).filter(|model| stores::is_of_family(&model.path));
    for model in installed {
        let kind = if model.path.is_file() { "GGUF" } else { "safetensors" };
        report.ok("complete", format!("{} ({kind}, {})", model.id, ByteSize(model.bytes)));
    }
    for id in cache.iter().flat_map(Cache::unfinished) {
        report.warn(
            "unfinished",
            format!("{id}: a download was interrupted"),
            format!("`loquat models pull {id}` goes on with it, `loquat models rm {id}` removes it"),
        );
    }
    for model in stores::others() {
        report.ok("found", format!("{} of {} ({})", model.name, model.store, ByteSize(model.bytes)));
    }
    match HubOptions::from_environment() {
        Err(error) => report.bad("Hub", error.to_string(), "unset HF_ENDPOINT"),
        Ok(hub) => {
            let token = if hub.token.is_some() { "with a token" } else { "without a token" };
            let offline = if hub.offline { ", offline (HF_HUB_OFFLINE)" } else { "" };
            report.ok("Hub", format!("{} {token}{offline}", hub.endpoint.host_str().unwrap_or("?")));
        }
    }
}

pub fn history(report: &mut Report) {
    let Ok(folder) = settings::history_folder() else { return };
    match store::examine(&folder) {
        Ok(None) => report.ok("database", "no conversation is kept yet"),
        Ok(Some(conversations)) => {
            let s = if conversations == 1 { "" } else { "s" };
            report.ok("database", format!("sound, {conversations} conversation{s}"));
        }
        Err(error) => report.bad("database", error.to_string(), format!("its folder is {}", shown(&folder))),
    }
    if let Some(cache) = paths::cache().filter(|cache| cache.is_dir()) {
        report.ok("can be remade", ByteSize(folder_bytes(&cache)).to_string());
    }
}
