//! The models of the family that Loquat offers by itself: `assets/models.toml`, which is part of the program.

use std::sync::LazyLock;

use serde::Deserialize;

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Known {
    pub id: String,
    pub parameters: u64,
    /// Of its weights as published.
    pub bytes: u64,
    pub modes: Vec<String>,
    pub context: u64,
    pub licence: String,
    pub formats: Vec<String>,
}

#[derive(Deserialize)]
struct Table {
    model: Vec<Known>,
}

static TABLE: LazyLock<Vec<Known>> = LazyLock::new(|| {
    let table: Table =
        toml::from_str(include_str!("../../assets/models.toml")).expect("a test reads this table");
    table.model
});

/// All of them, the smallest first.
pub fn known() -> &'static [Known] {
    &TABLE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::names::ModelRef;

    #[test]
    fn the_table_can_be_read_and_is_in_order() {
        assert!(known().len() > 10);
        assert!(known().is_sorted_by_key(|model| model.bytes));
        for model in known() {
            assert!(ModelRef::parse(&model.id).is_some(), "{}", model.id);
            // Two bytes for each number, and a little more where some are stored as four.
            let bytes_per_parameter = model.bytes as f64 / model.parameters as f64;
            assert!((1.99..2.01).contains(&bytes_per_parameter), "{}", model.id);
        }
    }
}
