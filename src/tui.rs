//! The terminal interface (being written).
use crate::session::Session;
pub struct TuiSettings {
    pub defaults: crate::msg::TurnOptions,
    pub system: Option<String>,
}
pub enum Exit {
    Quit,
}
impl Exit {
    pub fn code(self) -> u8 {
        0
    }
}
pub async fn run(_: Session, _: TuiSettings) -> std::io::Result<Exit> {
    Ok(Exit::Quit)
}
