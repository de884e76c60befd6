//! Which models there are: those on this machine, those that could be, and whether they would fit.
//!
//! Between the Hub, which knows nothing of models' insides, and the engine, which knows nothing of networks.

pub mod fit;
pub mod here;
pub mod resolve;

use crate::hub::options::HubOptions;
use crate::hub::{Hub, HubError};

/// The Hub as the environment says.
///
/// # Errors
/// If its variables make no sense.
pub fn hub() -> Result<Hub, HubError> {
    Hub::new(HubOptions::from_environment()?)
}
