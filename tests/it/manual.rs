//! The manual page and completions, as a packager or a shell gets them.

use std::process::Command;

fn printed(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_loquat")).args(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_shell_gets_completions_of_commands_and_flags() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = printed(&["completions", shell]);
        for word in ["batch", "models", "temperature"] {
            assert!(script.contains(word), "{word} in {shell}");
        }
    }
}

#[test]
fn the_manual_has_a_page_for_each_command() {
    let page = printed(&["man"]);
    assert!(page.contains(".TH loquat 1") && page.contains("temperature"), "{page}");
    let folder = tempfile::tempdir().unwrap();
    printed(&["man", "--out", folder.path().to_str().unwrap()]);
    for name in ["loquat.1", "loquat-run.1", "loquat-models-pull.1"] {
        assert!(folder.path().join(name).is_file(), "{name}");
    }
    assert!(!folder.path().join("loquat-dev.1").exists(), "what is hidden has no page");
}
