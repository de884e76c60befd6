//! `loquat models info`: what there is to know of a model on the Hub before it is fetched.

use serde_json::{Value, json};

use super::{model_ref, print};
use crate::hub::api::RemoteFile;
use crate::hub::select::Wanted;
use crate::hub::table::known;
use crate::hub::{Hub, HubError};
use crate::sanitize::one_line;
use crate::units::{ByteSize, n_files};

/// `loquat models info`.
///
/// # Errors
/// If the Hub can't be asked, or has nothing that can be used.
pub async fn info(hub: &Hub, named: &str, as_json: bool) -> Result<(), HubError> {
    let model = model_ref(named)?;
    let listing = hub.listing(&model.id, &model.revision).await?;
    let wanted = listing.choose(model.quant.as_deref())?;
    let files = hub.needed(&listing, &wanted).await?;
    let here = hub.cache()?.find(&model);
    let total: u64 = files.iter().map(|file| file.size).sum();
    let table = known().iter().find(|known| known.id == model.id.to_string());
    if as_json {
        let file = |file: &&RemoteFile| json!({"name": one_line(&file.name), "bytes": file.size, "hash": file.hash.as_str()});
        let files: Vec<Value> = files.iter().map(file).collect();
        let format = match &wanted {
            Wanted::Safetensors { .. } => "safetensors",
            Wanted::Gguf { .. } => "gguf",
        };
        let info = json!({
            "name": model.to_string(), "commit": listing.commit, "licence": listing.licence,
            "gated": listing.is_gated, "downloads": listing.downloads, "format": format, "bytes": total,
            "files": files, "installed": here.map(|here| here.path.to_string_lossy().into_owned()),
            "parameters": table.map(|known| known.parameters), "context": table.map(|known| known.context),
            "modes": table.map(|known| &known.modes), "formats": table.map(|known| &known.formats),
        });
        print(&format!("{info}\n"));
        return Ok(());
    }
    let mut lines = vec![("commit", listing.commit.clone())];
    lines.push(("licence", listing.licence.clone().unwrap_or_else(|| "not stated".into())));
    if listing.is_gated {
        lines.push(("access", format!("accept its terms at https://huggingface.co/{}", model.id)));
    }
    if let Some(known) = table {
        lines.push(("input", known.modes.join(", ")));
        lines.push(("context", format!("up to {} tokens", known.context)));
        lines.push(("formats", known.formats.join(", ")));
    }
    lines.push(("download", format!("{} in {}", ByteSize(total), n_files(files.len()))));
    let here = here.map(|here| one_line(&here.path.display().to_string()));
    lines.push(("here", here.unwrap_or_else(|| "no".into())));
    let mut text = format!("{model}\n");
    for (name, value) in lines {
        text += &format!("  {name:<22} {value}\n");
    }
    text += "\nfiles\n";
    for file in files {
        text += &format!("  {:>10}  {}\n", ByteSize(file.size), one_line(&file.name));
    }
    print(&text);
    Ok(())
}
