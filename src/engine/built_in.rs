//! The demo model, which is part of the program: its files under a folder name that no file system has.
//!
//! It is what makes the first command work with nothing downloaded. `assets/demo/recipe` says how it is made.

use std::path::Path;

/// What `--model demo` stands for. The control character keeps it apart from every name a person could type.
pub const DIR: &str = "\u{1}built-in demo model";
/// How people call it.
pub const NAME: &str = "demo";

/// For those who named no model.
pub const NOTE: &str = "No model was named, so this is Loquat's built-in demo model: it explains Loquat and sees simple pictures, and \
                        knows little else. For a real one, pass --model DIR or OWNER/NAME (`loquat models fit` says which would fit), or type /model in a chat.";

/// Weights are read as words, so the file begins at a multiple of every word's size.
#[repr(C, align(64))]
struct Aligned<T: ?Sized>(T);

static WEIGHTS: &Aligned<[u8]> = &Aligned(*include_bytes!("../../assets/demo/model/model.safetensors"));

const FILES: [(&str, &[u8]); 7] = [
    ("config.json", include_bytes!("../../assets/demo/model/config.json")),
    ("tokenizer.json", include_bytes!("../../assets/demo/model/tokenizer.json")),
    ("tokenizer_config.json", include_bytes!("../../assets/demo/model/tokenizer_config.json")),
    ("chat_template.jinja", include_bytes!("../../assets/demo/model/chat_template.jinja")),
    ("generation_config.json", include_bytes!("../../assets/demo/model/generation_config.json")),
    ("preprocessor_config.json", include_bytes!("../../assets/demo/model/preprocessor_config.json")),
    (
        "video_preprocessor_config.json",
        include_bytes!("../../assets/demo/model/video_preprocessor_config.json"),
    ),
];

pub fn is_built_in(path: &Path) -> bool {
    path.starts_with(DIR)
}

/// The content of a built-in file.
pub fn file(path: &Path) -> Option<&'static [u8]> {
    let name = path.strip_prefix(DIR).ok()?.to_str()?;
    if name == "model.safetensors" {
        return Some(&WEIGHTS.0);
    }
    FILES.iter().find(|(file, _)| *file == name).map(|(_, bytes)| *bytes)
}
