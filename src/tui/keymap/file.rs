//! `keymap.toml`: keys that a person wants otherwise than the preset has them.

use toml::Table;

use super::{BINDINGS, Keymap, Preset, Sequence, When};
use crate::tui::commands::nearest;

/// The preset with the changes of a file.
///
/// # Errors
/// A sentence about the first mistake: an action or key that doesn't exist, or a key that would do two things.
pub fn read(text: &str, preset: Preset) -> Result<Keymap, String> {
    let table: Table = toml::from_str(text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start.min(text.len()));
        format!("line {}: {}", text[..start].matches('\n').count() + 1, error.message())
    })?;
    let mut keymap = Keymap::new(preset);
    let mut changed = vec![false; BINDINGS.len()];
    for (name, value) in &table {
        let idx = BINDINGS.iter().position(|binding| binding.name == name).ok_or_else(|| {
            let near = nearest(name, BINDINGS.iter().map(|binding| binding.name));
            let hint = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
            format!("there is no action {name}{hint}")
        })?;
        let keys = match value {
            toml::Value::String(keys) => vec![keys.as_str()],
            toml::Value::Array(keys) => keys
                .iter()
                .map(|keys| keys.as_str().ok_or_else(|| format!("{name}: keys are written in quotes")))
                .collect::<Result<_, _>>()?,
            _ => return Err(format!("{name}: expected a list of keys, such as [\"ctrl+x\"]")),
        };
        let parsed = keys.into_iter().map(|keys| {
            let parsed = Sequence::parse(keys).map_err(|why| format!("{name}: {keys:?}: {why}"))?;
            if parsed.0.is_typed() && BINDINGS[idx].when != When::Transcript {
                return Err(format!("{name}: {keys:?} is typed into the draft; put ctrl+ or alt+ before it"));
            }
            Ok(parsed)
        });
        keymap.keys[idx] = parsed.collect::<Result<_, String>>()?;
        changed[idx] = true;
    }
    // A key that was given to another action leaves the one that has it from the preset.
    for idx in (0..BINDINGS.len()).filter(|idx| !changed[*idx]) {
        let others: Vec<Sequence> = (0..BINDINGS.len())
            .filter(|other| changed[*other] && BINDINGS[*other].when == BINDINGS[idx].when)
            .flat_map(|other| keymap.keys[other].clone())
            .collect();
        keymap.keys[idx].retain(|keys| !others.iter().any(|other| other.clashes(*keys)));
    }
    match conflict(&keymap) {
        Some(problem) => Err(problem),
        None => Ok(keymap),
    }
}

/// A key that does two things in the same situation.
pub fn conflict(keymap: &Keymap) -> Option<String> {
    for (a, one) in BINDINGS.iter().enumerate() {
        for (b, other) in BINDINGS.iter().enumerate().skip(a).filter(|(_, it)| it.when == one.when) {
            for (at, keys) in keymap.keys[a].iter().enumerate() {
                let rest = if a == b { at + 1 } else { 0 };
                if let Some(clash) = keymap.keys[b].iter().skip(rest).find(|clash| clash.clashes(*keys)) {
                    return Some(match keys == clash {
                        true => format!("{} is both {} and {}", keys.label(), one.name, other.name),
                        false => format!(
                            "{} ({}) begins like {} ({})",
                            keys.label(),
                            one.name,
                            clash.label(),
                            other.name
                        ),
                    });
                }
            }
        }
    }
    None
}
