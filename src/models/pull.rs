//! `loquat models pull`, and the download behind `--model OWNER/NAME`.

use super::{model_ref, print, progress};
use crate::hub::cache::Installed;
use crate::hub::names::ModelRef;
use crate::hub::{Hub, HubError, stores};
use crate::sanitize::one_line;

/// `loquat models pull`: prints where the model is.
///
/// # Errors
/// If it can't be fetched; what arrived is kept.
pub async fn pull(hub: &Hub, named: &str) -> Result<(), HubError> {
    let model = model_ref(named)?;
    let installed = fetch(hub, &model).await?;
    print(&format!("{}\n", one_line(&installed.path.display().to_string())));
    if !stores::is_of_family(&installed.path) {
        return Err(HubError::OtherFamily { id: model.id.to_string() });
    }
    Ok(())
}

/// Fetches a model and tells of it on standard error.
///
/// # Errors
/// As [`Hub::pull`].
pub async fn fetch(hub: &Hub, model: &ModelRef) -> Result<Installed, HubError> {
    let reporter = progress::reporter(&model.to_string());
    let result = hub.pull(model, &reporter).await;
    progress::end();
    result
}
