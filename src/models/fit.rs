//! `loquat models fit`: which models would fit into this machine's memory.

use serde_json::{Value, json};

use super::{print, table};
use crate::catalog::fit::{Fit, FitError, fit, look};
use crate::catalog::resolve::{Named, named};
use crate::engine::generate::LoadOptions;
use crate::hub::table::known;
use crate::hub::{Hub, HubError};
use crate::sanitize::one_line;
use crate::units::ByteSize;

/// `loquat models fit`; says whether all could be judged.
///
/// # Errors
/// If one of the names is none.
pub async fn fits(hub: &Hub, load: &LoadOptions, names: &[String], as_json: bool) -> Result<bool, FitError> {
    let names: Vec<String> = match names {
        [] => known().iter().map(|model| model.id.clone()).collect(),
        names => names.to_vec(),
    };
    let mut judged = Vec::new();
    for name in names {
        let result = match named(name.as_ref()) {
            Named::Path(path) => look(load, path)
                .map(|inspection| Fit { download_bytes: 0, inspection })
                .map_err(FitError::from),
            Named::Hub(model) => fit(hub, &model, load).await,
            Named::Ollama(_) => Err(HubError::Name(name.clone()).into()),
        };
        judged.push((name, result));
    }
    let all_judged = judged.iter().all(|(_, result)| result.is_ok());
    if as_json {
        let rows: Vec<Value> = judged.iter().map(|(name, result)| to_json(name, result)).collect();
        print(&format!("{}\n", json!({"models": rows})));
        return Ok(all_judged);
    }
    let context =
        judged.iter().find_map(|(_, result)| Some(result.as_ref().ok()?.inspection.memory.context_tokens));
    let needs = format!("NEEDS AT {}", context.map_or("FULL CONTEXT".into(), |tokens| tokens.to_string()));
    let rows: Vec<Vec<String>> = judged
        .into_iter()
        .map(|(name, result)| match result {
            Ok(fit) => vec![
                one_line(&name),
                match fit.download_bytes {
                    0 => "here".into(),
                    bytes => ByteSize(bytes).to_string(),
                },
                ByteSize(fit.inspection.memory.needs.total()).to_string(),
                fit.judgement().words(),
            ],
            Err(error) => vec![one_line(&name), String::new(), String::new(), one_line(&error.to_string())],
        })
        .collect();
    print(&table(&["MODEL", "DOWNLOAD", &needs, "ON THIS MACHINE"], &rows));
    Ok(all_judged)
}

fn to_json(name: &str, result: &Result<Fit, FitError>) -> Value {
    match result {
        Ok(fit) => {
            let memory = &fit.inspection.memory;
            json!({
                "name": one_line(name), "download_bytes": fit.download_bytes,
                "needs_bytes": memory.needs.total(), "available_bytes": memory.available,
                "context": memory.context_tokens, "fits": memory.fits(),
                "fitting_context": memory.fitting_context, "vision": fit.inspection.sees,
                "mtp": fit.inspection.has_mtp,
            })
        }
        Err(error) => json!({"name": one_line(name), "error": one_line(&error.to_string())}),
    }
}
