//! Seeing: a picture's file -> pixels of the right size -> patches -> features that stand among the tokens.
//!
//! `file` reads it; `preprocess` decodes it within limits; `resize` says which size it gets, and makes it;
//! `clip` takes the frames of a moving picture; `encoder` is the vision tower; `features` remembers what was
//! encoded. `eyes` puts them together for the engine.

pub mod clip;
pub mod encoder;
pub mod eyes;
pub mod features;
pub mod file;
pub mod preprocess;
pub mod processor_config;
pub mod resize;
