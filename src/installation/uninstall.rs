//! `loquat uninstall`: what it would delete, a question, and then that and nothing else.

use std::env;
use std::fs;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Component, Path, PathBuf};

use super::{LIST, Source, find};
use crate::cli::UninstallArgs;
use crate::config::{self, Config};
use crate::hub::cache::{Cache, folder_bytes};
use crate::hub::names::RepoId;
use crate::hub::{options, stores};
use crate::paths;
use crate::sanitize::one_line;
use crate::units::{ByteSize, n_files};

/// Folders of our own below a prefix, to remove when they are empty.
const FOLDERS: [&str; 2] = ["share/loquat", "share/doc/loquat"];

/// What would be deleted.
#[derive(Default)]
struct Plan {
    /// The prefix and the files below it that `install.sh` wrote.
    program: Option<(PathBuf, Vec<PathBuf>)>,
    cache: Option<PathBuf>,
    models: Option<(Cache, Vec<RepoId>)>,
}

/// # Errors
/// A sentence: nobody to ask, a list that can't be right, or files that stay.
pub fn uninstall(args: &UninstallArgs, explicit: Option<&Path>) -> Result<(), String> {
    let (program, source) = find();
    let mut plan = Plan { cache: paths::cache().filter(|cache| cache.is_dir()), ..Plan::default() };
    if let Source::Archive(prefix) = &source {
        plan.program = Some((prefix.clone(), installed(prefix)?));
    }
    if args.purge_models {
        plan.models = models(explicit)?;
    }
    say(&plan.describe(&program, &source));
    if plan.is_empty() {
        return Ok(());
    }
    if !args.yes && !agreed()? {
        say("Nothing was deleted.\n");
        return Ok(());
    }
    plan.carry_out()?;
    say("Done.\n");
    Ok(())
}

/// Files below the prefix; a list that names others was not written by `install.sh`.
fn installed(prefix: &Path) -> Result<Vec<PathBuf>, String> {
    let list = prefix.join(LIST);
    let text = fs::read_to_string(&list).map_err(|error| format!("{}: {error}", list.display()))?;
    let files: Vec<PathBuf> = text.lines().filter(|line| !line.is_empty()).map(PathBuf::from).collect();
    let is_below = |file: &PathBuf| file.components().all(|part| matches!(part, Component::Normal(_)));
    match files.iter().find(|file| !is_below(file)) {
        Some(file) => {
            Err(format!("{} names {}, which install.sh never wrote", list.display(), file.display()))
        }
        None => Ok(files),
    }
}

fn models(explicit: Option<&Path>) -> Result<Option<(Cache, Vec<RepoId>)>, String> {
    let config = Config::load(explicit, &env::current_dir().unwrap_or_default())
        .map_err(|error| format!("{error} (so it isn't known where models are)"))?;
    let Some(root) = config::models_folder(&config).or_else(options::cache) else { return Ok(None) };
    let cache = Cache::new(root);
    let of_family = cache.list().into_iter().filter(|model| stores::is_of_family(&model.path));
    let mut ids: Vec<RepoId> = of_family.map(|model| model.id).collect();
    ids.dedup();
    Ok((!ids.is_empty()).then_some((cache, ids)))
}

impl Plan {
    fn is_empty(&self) -> bool {
        self.program.is_none() && self.cache.is_none() && self.models.is_none()
    }

    fn describe(&self, program: &Path, source: &Source) -> String {
        let shown = |path: &Path| one_line(&path.display().to_string());
        let mut text = String::from("To be deleted:\n");
        if let Some((prefix, files)) = &self.program {
            text += &format!("  the program: {} in {}\n", n_files(files.len()), shown(prefix));
            for file in files {
                text += &format!("    {}\n", shown(file));
            }
        }
        if let Some(cache) = &self.cache {
            text +=
                &format!("  what can be made again: {} ({})\n", shown(cache), ByteSize(folder_bytes(cache)));
        }
        if let Some((cache, ids)) = &self.models {
            for id in ids {
                text += &format!("  the model {id} ({})\n", ByteSize(folder_bytes(&cache.repo(id))));
            }
        }
        if self.is_empty() {
            text += "  nothing\n";
        }
        text += "Kept:\n";
        if self.program.is_none() {
            let remove = source.removed_by();
            text +=
                &format!("  {}, installed by {}; this removes it: {remove}\n", shown(program), source.name());
        }
        for (what, folder) in [("conversations", paths::data()), ("settings", paths::config())] {
            if let Some(folder) = folder.filter(|folder| folder.is_dir()) {
                text += &format!("  {what}: {} ({})\n", shown(&folder), ByteSize(folder_bytes(&folder)));
            }
        }
        if self.models.is_none() {
            text +=
                "  downloaded models, of which `loquat models list` tells (--purge-models deletes them)\n";
        }
        text
    }

    /// The program comes last: if something else fails, it is still there to try again.
    fn carry_out(&self) -> Result<(), String> {
        let failed = |path: &Path, error: io::Error| format!("cannot delete {}: {error}", path.display());
        if let Some((cache, ids)) = &self.models {
            for id in ids {
                cache.remove(id).map_err(|error| error.to_string())?;
            }
        }
        if let Some(cache) = &self.cache {
            fs::remove_dir_all(cache).map_err(|error| failed(cache, error))?;
        }
        let Some((prefix, files)) = &self.program else { return Ok(()) };
        for file in files.iter().map(|file| prefix.join(file)).chain([prefix.join(LIST)]) {
            match fs::remove_file(&file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(&file, error)),
                _ => {}
            }
        }
        for folder in FOLDERS {
            // Somebody else's files in it are a reason to keep it.
            let _ = fs::remove_dir(prefix.join(folder));
        }
        Ok(())
    }
}

fn agreed() -> Result<bool, String> {
    if !io::stdin().is_terminal() {
        return Err("nothing was deleted: there is nobody to ask; --yes says so beforehand".into());
    }
    say("Delete it? [y/N] ");
    let _ = io::stdout().flush();
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(|error| error.to_string())?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

fn say(text: &str) {
    let _ = io::stdout().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_leaves_its_prefix_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let list = dir.path().join(LIST);
        fs::create_dir_all(list.parent().unwrap()).unwrap();
        fs::write(&list, "bin/loquat\nshare/man/man1/loquat.1.gz\n").unwrap();
        assert_eq!(installed(dir.path()).unwrap().len(), 2);
        for wrong in ["/etc/passwd", "bin/../../x", "..", "./x/../../y"] {
            fs::write(&list, format!("bin/loquat\n{wrong}\n")).unwrap();
            assert!(installed(dir.path()).unwrap_err().contains("never wrote"), "{wrong}");
        }
    }
}
