//! `loquat models list`, `rm` and `verify`: what is here.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::{print, repo_id, table};
use crate::catalog::here::here;
use crate::hub::cache::Cache;
use crate::hub::{HubError, options};
use crate::sanitize::one_line;
use crate::units::{ByteSize, n_files};

/// `loquat models list`.
pub fn list(as_json: bool) {
    let models = here();
    if as_json {
        let models: Vec<Value> = models
            .iter()
            .map(|model| {
                json!({
                    "name": model.name, "store": model.store, "revision": model.revision, "commit": model.commit,
                    "path": model.path.to_string_lossy(), "bytes": model.bytes,
                })
            })
            .collect();
        return print(&format!("{}\n", json!({"models": models})));
    }
    let mut rows = vec![vec!["demo".into(), String::new(), "built in".into()]];
    rows.extend(models.iter().map(|model| {
        let commit = model.commit.as_deref().map(|commit| format!(", commit {}", &commit[..7]));
        let size = format!("{:>8}", ByteSize(model.bytes));
        vec![model.name.clone(), size, format!("{}{}", model.store, commit.unwrap_or_default())]
    }));
    print(&table(&["MODEL", "SIZE", "WHERE"], &rows));
    if models.is_empty() {
        print("\nNo other model of the family is here. `loquat models fit` says which would fit.\n");
    }
}

fn cache() -> Result<Cache, HubError> {
    options::cache().map(Cache::new).ok_or(HubError::NoCache)
}

/// `loquat models rm`; says whether there was something.
///
/// # Errors
/// If it isn't a name, or the files can't be removed.
pub fn remove(named: &str) -> Result<bool, HubError> {
    let id = repo_id(named)?;
    match cache()?.remove(&id)? {
        Some(bytes) => print(&format!("{id} is removed: {} are free again\n", ByteSize(bytes))),
        None => return Ok(false),
    }
    Ok(true)
}

/// `loquat models verify`; says whether all is right.
///
/// # Errors
/// If it isn't a name, or files can't be read.
pub fn verify(named: &[String], repair: bool) -> Result<bool, HubError> {
    let cache = cache()?;
    let mut ids = named.iter().map(|name| repo_id(name)).collect::<Result<Vec<_>, _>>()?;
    if ids.is_empty() {
        ids = cache.list().into_iter().map(|model| model.id).collect();
        ids.dedup();
    }
    let mut all_right = true;
    for id in ids {
        let begin = |name: &str, bytes| {
            let _ = writeln!(io::stderr(), "checking {id}: {} ({})", one_line(name), ByteSize(bytes));
        };
        let checked = cache.verify(&id, begin)?;
        let damaged: Vec<_> = checked.iter().filter(|blob| !blob.is_right).collect();
        if damaged.is_empty() {
            print(&format!("{id}: {} checked, all right\n", n_files(checked.len())));
            continue;
        }
        all_right = false;
        for blob in damaged {
            print(&format!("{id}: {} is damaged\n", one_line(&blob.name)));
            if repair {
                let removed = std::fs::remove_file(&blob.blob);
                let failed =
                    |source| HubError::File { doing: "cannot remove", path: blob.blob.clone(), source };
                removed.map_err(failed)?;
            }
        }
        print(&match repair {
            true => format!("{id}: removed; `loquat models pull {id}` fetches them anew\n"),
            false => format!("{id}: `loquat models verify --repair {id}` removes them\n"),
        });
    }
    Ok(all_right)
}
