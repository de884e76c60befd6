//! `loquat theme`: which themes there are, and whether they can be read.

use std::env;
use std::io::{self, Write};
use std::path::PathBuf;

use crate::cli::ThemeCommand;
use crate::paths;
use crate::sanitize::one_line;
use crate::tui::theme::{AUTO, check, file};

/// Where themes of the person's own are.
pub fn folder() -> Option<PathBuf> {
    Some(paths::config()?.join("themes"))
}

/// The flag comes before the environment variable; a name must be that of a theme.
///
/// # Errors
/// A sentence when it is none.
pub fn chosen(flag: Option<String>) -> Result<String, String> {
    let named = flag.or_else(|| env::var("LOQUAT_THEME").ok()).filter(|name| !name.is_empty());
    let name = named.unwrap_or_else(|| AUTO.to_owned());
    if name != AUTO {
        file::resolve(&name, folder().as_deref())?;
    }
    Ok(name)
}

/// False if something can't be read.
///
/// # Errors
/// A sentence for a theme that can't be used at all.
pub fn run(command: &ThemeCommand) -> Result<bool, String> {
    let folder = folder();
    let (mut out, mut is_good) = (String::new(), true);
    match command {
        ThemeCommand::List => {
            for name in file::names(folder.as_deref()) {
                out.push_str(&format!("{}\n", one_line(&name)));
            }
        }
        ThemeCommand::Check { names } => {
            let all = if names.is_empty() { file::names(folder.as_deref()) } else { names.clone() };
            for name in all {
                let theme = file::resolve(&name, folder.as_deref())?;
                out.push_str(&format!("{}\n", one_line(&name)));
                if !check::fits_background(&theme) {
                    is_good = false;
                    out.push_str("  its background is not as light or dark as its appearance says\n");
                }
                for line in check::check(&theme) {
                    let mark = if line.is_good() { "ok " } else { "LOW" };
                    let contrast = match line.contrast {
                        Some(contrast) => format!("{contrast:5.1} of {:.1}", line.needed),
                        None => "the terminal's own".to_owned(),
                    };
                    out.push_str(&format!("  {mark} {:<18}{contrast}\n", line.token));
                    is_good &= line.is_good();
                }
            }
        }
    }
    // Whoever closed it has read enough.
    let _ = io::stdout().write_all(out.as_bytes());
    Ok(is_good)
}
