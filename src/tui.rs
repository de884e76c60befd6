//! The terminal interface (being written).
