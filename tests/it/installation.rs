//! Updating and removing a program that `install.sh` has put below a prefix, and the doctor's report.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::support::write;

/// Serves the files of a release, whose list is made of them.
struct Releases {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Releases {
    fn start(files: Vec<(String, Vec<u8>)>) -> Self {
        let sums = files.iter().map(|(name, bytes)| format!("{}  ./{name}\n", hash(bytes)));
        let sums = sums.collect::<String>().into_bytes();
        let files = [files, vec![("SHA256SUMS".into(), sums)]].concat();
        Self::serve(files)
    }

    fn serve(files: Vec<(String, Vec<u8>)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/download", listener.local_addr().unwrap());
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = asked.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                answer(stream, &files, &log);
            }
        });
        Self { url, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn answer(mut stream: TcpStream, files: &[(String, Vec<u8>)], log: &Mutex<Vec<String>>) {
    let lines: Vec<String> =
        BufReader::new(&stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
    let Some(path) = lines.first().and_then(|line| line.split(' ').nth(1)) else { return };
    log.lock().unwrap().push(path.to_owned());
    let found = files.iter().find(|(name, _)| path == format!("/download/{name}"));
    let (status, body) = found.map_or(("404 Not Found", &[][..]), |(_, bytes)| ("200 OK", bytes));
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    // Whoever has read enough may hang up.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

const SYSTEM: &str = if cfg!(target_os = "macos") {
    "macos-universal"
} else if cfg!(target_arch = "aarch64") {
    "linux-aarch64"
} else {
    "linux-x86_64"
};

/// An archive as `packaging/build.sh` makes it, of a program that only tells its version.
fn archive(folder: &Path, version: &str, extra: Option<&str>) -> (String, Vec<u8>) {
    let name = format!("loquat-{version}-{SYSTEM}");
    let tree = folder.join(&name);
    let program = format!("#!/bin/sh\necho \"loquat {version}\"\n");
    write(&tree.join("files/bin/loquat"), program.as_bytes());
    write(&tree.join("files/share/doc/loquat/README.md"), b"Read me.\n");
    if let Some(extra) = extra {
        write(&tree.join("files").join(extra), b"only here\n");
    }
    let installer = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/install.sh");
    fs::copy(installer, tree.join("install.sh")).unwrap();
    let script = "find files -type f | sort | xargs sha256sum > SHA256SUMS";
    assert!(Command::new("sh").args(["-c", script]).current_dir(&tree).status().unwrap().success());
    let file = format!("{name}.tar.xz");
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(folder).arg("-cJf").arg(folder.join(&file)).arg(&name);
    assert!(tar.status().unwrap().success());
    (file.clone(), fs::read(folder.join(file)).unwrap())
}

/// A home with Loquat in `~/.local`, conversations, settings, and a file of somebody else beside the program.
struct Home(TempDir);

const STRANGER: &str = ".local/bin/other";
const KEPT: [&str; 2] = ["data/history/history.db", "config/config.toml"];

impl Home {
    fn new() -> Self {
        // Below the target folder, so that the program is linked, not copied.
        let home = Self(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap());
        let old = tempfile::tempdir().unwrap();
        archive(old.path(), "0.0.1", Some("share/doc/loquat/OLD.md"));
        let tree = old.path().join(format!("loquat-0.0.1-{SYSTEM}"));
        let mut install = Command::new("sh");
        install.arg(tree.join("install.sh")).arg("--prefix").arg(home.prefix()).stdout(Stdio::null());
        assert!(install.status().unwrap().success());
        fs::remove_file(home.program()).unwrap();
        let built = env!("CARGO_BIN_EXE_loquat");
        fs::hard_link(built, home.program()).or_else(|_| fs::copy(built, home.program()).map(drop)).unwrap();
        for file in KEPT.iter().chain([&STRANGER]) {
            write(&home.path(file), b"");
        }
        write(&home.path("cache/loquat/kernels"), b"can be made again");
        home
    }

    fn path(&self, below: &str) -> PathBuf {
        self.0.path().join(below)
    }

    fn prefix(&self) -> PathBuf {
        self.path(".local")
    }

    fn program(&self) -> PathBuf {
        self.path(".local/bin/loquat")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.program());
        command.args(args).stdin(Stdio::null()).current_dir(self.0.path());
        command.env("HOME", self.0.path()).env("XDG_CACHE_HOME", self.path("cache"));
        command.env("LOQUAT_DATA_DIR", self.path("data")).env("LOQUAT_CONFIG_DIR", self.path("config"));
        command.env("OLLAMA_MODELS", "/nowhere").env("LOQUAT_DEVICE", "cpu").env("LANG", "C.UTF-8");
        for name in [
            "LOQUAT_MODEL",
            "LOQUAT_ENGINE",
            "LOQUAT_THEME",
            "LOQUAT_CONTEXT",
            "HF_HOME",
            "HF_HUB_CACHE",
            "HF_HUB_OFFLINE",
            "HF_ENDPOINT",
            "HTTP_PROXY",
            "http_proxy",
            "ALL_PROXY",
        ] {
            command.env_remove(name);
        }
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn assert_nothing_lost(&self) {
        for file in KEPT.iter().chain([&STRANGER]) {
            assert!(self.path(file).is_file(), "{file} is gone");
        }
    }
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn refusal(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn a_newer_release_takes_the_place_of_this_one() {
    let (home, folder) = (Home::new(), tempfile::tempdir().unwrap());
    let releases = Releases::start(vec![archive(folder.path(), "99.0.0", Some("share/doc/loquat/NEW.md"))]);
    let from = ["--from", releases.url.as_str()];
    let said = stdout(&home.run(&["update", "--check", from[0], from[1]]));
    assert!(said.contains("Loquat 99.0.0 is there"), "{said}");
    assert!(stdout(&home.run(&["--version"])).starts_with("loquat 0."), "a check changes nothing");

    let said = stdout(&home.run(&["update", from[0], from[1]]));
    assert!(said.contains("Downloading loquat-99.0.0-"), "{said}");
    assert_eq!(stdout(&home.run(&["--version"])), "loquat 99.0.0\n");
    let doc = |name: &str| home.path(".local/share/doc/loquat").join(name).exists();
    assert!(doc("NEW.md") && !doc("OLD.md"), "what only the old release had is gone");
    assert!(!home.path("cache/loquat/update").exists(), "what was downloaded is gone");
    assert!(home.path("cache/loquat/kernels").exists());
    home.assert_nothing_lost();
}

#[test]
fn what_is_not_newer_is_not_fetched() {
    let (home, folder) = (Home::new(), tempfile::tempdir().unwrap());
    let releases = Releases::start(vec![
        archive(folder.path(), env!("CARGO_PKG_VERSION"), None),
        ("loquat-99.0.0-other-system.tar.xz".into(), b"for another system".to_vec()),
    ]);
    let said = stdout(&home.run(&["update", "--from", &releases.url]));
    assert!(said.contains("is the newest release"), "{said}");
    assert_eq!(releases.asked(), ["/download/SHA256SUMS"]);
}

#[test]
fn a_damaged_or_missing_release_changes_nothing() {
    let (home, folder) = (Home::new(), tempfile::tempdir().unwrap());
    let (name, mut bytes) = archive(folder.path(), "99.0.0", None);
    let list = format!("{}  ./{name}\n", hash(&bytes)).into_bytes();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let damaged = Releases::serve(vec![("SHA256SUMS".into(), list.clone()), (name.clone(), bytes)]);
    let missing = Releases::serve(vec![("SHA256SUMS".into(), list)]);
    // Its list was made of what it is: only its own installer can see that it isn't whole.
    let broken = Releases::start(vec![(name, b"no archive at all".to_vec())]);
    let other = Releases::start(vec![("loquat-99.0.0-plan9.tar.xz".into(), b"x".to_vec())]);
    let empty = Releases::serve(Vec::new());
    for (releases, why) in [
        (&damaged, "is damaged"),
        (&missing, "404"),
        (&broken, "tar failed"),
        (&other, "has no release for this machine"),
        (&empty, "404"),
    ] {
        let refused = refusal(&home.run(&["update", "--from", &releases.url]));
        assert!(refused.contains(why), "{refused}");
        assert!(stdout(&home.run(&["--version"])).starts_with("loquat 0."), "{why}");
        assert!(!home.path("cache/loquat/update").exists(), "{why}");
    }
    home.assert_nothing_lost();
}

#[test]
fn no_update_without_a_connection_or_over_an_unsafe_one() {
    let (home, folder) = (Home::new(), tempfile::tempdir().unwrap());
    let releases = Releases::start(vec![archive(folder.path(), "99.0.0", None)]);
    let refused = refusal(&home.run(&["update", "--offline", "--from", &releases.url]));
    assert!(refused.contains("needs a connection"), "{refused}");
    assert!(releases.asked().is_empty());
    let refused = refusal(&home.run(&["update", "--from", "http://example.org/releases"]));
    assert!(refused.contains("must begin with https://"), "{refused}");
    // Nobody listens at the port of a listener that is gone.
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let refused = refusal(&home.run(&["update", "--from", &format!("http://{gone}")]));
    assert!(refused.contains("the download failed"), "{refused}");
}

#[test]
fn who_was_installed_otherwise_is_told_how() {
    let dir = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_loquat"));
        command.args(args).env("HOME", dir.path()).env("XDG_CACHE_HOME", dir.path().join("cache"));
        stdout(&command.env("LOQUAT_CONFIG_DIR", dir.path()).output().unwrap())
    };
    assert!(run(&["update"]).contains("cargo install"));
    let said = run(&["uninstall", "--yes"]);
    assert!(said.contains("nothing") && said.contains("this removes it: deleting the file"), "{said}");
    assert!(Path::new(env!("CARGO_BIN_EXE_loquat")).is_file());
}

#[test]
fn removing_lists_asks_and_keeps_what_is_the_persons() {
    let home = Home::new();
    let model = home.path("cache/huggingface/hub/models--Qwen--Qwen3.5-0.8B");
    write(
        &model.join("snapshots/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/config.json"),
        br#"{"model_type": "qwen3_5"}"#,
    );
    write(&model.join("snapshots/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/model.safetensors"), b"weights");
    write(&model.join("snapshots/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/tokenizer.json"), b"{}");
    let others = home.path("cache/huggingface/hub/models--bert--base/refs/main");
    write(&others, b"not ours");

    // Nobody to ask: listed, and nothing else.
    let asked = home.run(&["uninstall"]);
    assert!(refusal(&asked).contains("nothing was deleted"));
    let listed = String::from_utf8(asked.stdout).unwrap();
    for expected in
        ["bin/loquat", "share/doc/loquat/README.md", "conversations", "settings", "--purge-models"]
    {
        assert!(listed.contains(expected), "{expected} in {listed}");
    }
    assert!(home.program().exists() && home.path("cache/loquat/kernels").exists());

    let said = stdout(&home.run(&["uninstall", "--yes"]));
    assert!(said.ends_with("Done.\n"), "{said}");
    assert!(!home.program().exists() && !home.path("cache/loquat").exists());
    assert!(!home.path(".local/share/loquat").exists() && !home.path(".local/share/doc/loquat").exists());
    assert!(model.exists() && others.exists());
    home.assert_nothing_lost();

    let home = Home(home.0);
    fs::hard_link(env!("CARGO_BIN_EXE_loquat"), home.program()).unwrap();
    let said = stdout(&home.run(&["uninstall", "--purge-models", "--yes"]));
    assert!(said.contains("the model Qwen/Qwen3.5-0.8B"), "{said}");
    assert!(!model.exists() && others.exists(), "models of other families are somebody else's");
    assert!(home.program().exists(), "without a list nobody knows what belongs to the program");
}

#[test]
fn a_list_that_names_others_files_removes_nothing() {
    let home = Home::new();
    write(&home.path(".local/share/loquat/installed"), b"bin/loquat\n../data/history/history.db\n");
    assert!(refusal(&home.run(&["uninstall", "--yes"])).contains("install.sh never wrote"));
    assert!(home.program().exists());
    home.assert_nothing_lost();
}

/// The states of the checks with this name.
fn states<'a>(report: &'a Value, name: &str) -> Vec<&'a str> {
    let checks = report["checks"].as_array().unwrap().iter();
    checks.filter(|check| check["name"] == name).map(|check| check["state"].as_str().unwrap()).collect()
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn the_doctor_finds_nothing_wrong_where_nothing_is() {
    let home = Home::new();
    fs::remove_file(home.path(KEPT[0])).unwrap();
    fs::set_permissions(home.path("data/history"), fs::Permissions::from_mode(0o700)).unwrap();
    let output = home.run(&["doctor", "--json"]);
    let found = report(&output);
    assert_eq!((output.status.code(), &found["well"]), (Some(0), &Value::Bool(true)), "{found:#}");
    assert_eq!(found["version"], 1);
    for name in
        ["version", "GPU", "used", "processor", "memory", "connected", "settings", "built in", "database"]
    {
        assert!(!states(&found, name).is_empty(), "{name} in {found:#}");
    }
    let checks = found["checks"].as_array().unwrap();
    let installed = checks.iter().find(|check| check["name"] == "installed by").unwrap();
    assert_eq!(installed["found"], "install.sh: ~/.local/bin/loquat", "no report says whose home it is");
    let text = stdout(&home.run(&["doctor"]));
    assert!(text.starts_with("Program\n") && text.contains("\nDevice\n") && !text.contains('\x1b'), "{text}");
}

#[test]
fn the_doctor_names_everything_that_is_broken() {
    let home = Home::new();
    write(&home.path("config/config.toml"), b"[sampling]\ntemprature = 1\n");
    write(&home.path("config/keymap.toml"), b"[[[");
    write(&home.path("config/themes/mine.toml"), b"nonsense = ");
    write(&home.path(".loquat.toml"), b"model = '/x'\n");
    write(&home.path("data/history/history.db"), &[7; 5000]);
    write(&home.path("cache/huggingface/hub/models--Qwen--Qwen3.5-4B/blobs/0.loquat.part"), b"half");
    write(&home.path("not-a-folder"), b"");
    let mut command = home.command(&["doctor", "--json"]);
    command.env("LOQUAT_CONTEXT", "many").env("TERM", "dumb").env("LOQUAT_DEVICE", "gpu:77");
    command.env("HF_ENDPOINT", "nowhere").env("LOQUAT_ENGINE", "unknown").env("LOQUAT_THEME", "nihgt");
    let output = command.output().unwrap();
    let found = report(&output);
    assert_eq!((output.status.code(), &found["well"]), (Some(1), &Value::Bool(false)), "{found:#}");
    assert_eq!(states(&found, "file"), ["bad", "bad"], "{found:#}");
    for name in ["keys", "variable", "server", "Hub", "database", "used"] {
        assert_eq!(states(&found, name), ["bad"], "{name} in {found:#}");
    }
    assert_eq!(states(&found, "theme"), ["warn", "bad"], "{found:#}");
    assert_eq!((states(&found, "TERM"), states(&found, "unfinished")), (vec!["warn"], vec!["warn"]));
    for check in found["checks"].as_array().unwrap().iter().filter(|check| check["state"] != "ok") {
        assert!(check["advice"].as_str().is_some_and(|advice| !advice.is_empty()), "{check}");
    }
    let mut command = home.command(&["doctor", "--json", "--config", "/nowhere.toml"]);
    command.env("LOQUAT_DATA_DIR", home.path("not-a-folder/x"));
    let found = report(&command.output().unwrap());
    assert_eq!(states(&found, "conversations"), ["bad"], "{found:#}");
    assert_eq!(states(&found, "file"), ["bad", "bad", "bad"], "{found:#}");
}
