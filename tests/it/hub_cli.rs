//! Models of the Hub on the command line: what is printed, exit codes, and what a killed process leaves behind.
#![allow(clippy::print_stdout)] // which tests were skipped, and figures of those that ran

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::support::{FakeHub, TOKEN, copy_repo, noise, write_repo};

const MIB: usize = 1 << 20;

fn golden(case: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(case)
}

struct Home(TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn hub(&self) -> PathBuf {
        self.0.path().join("hub")
    }

    fn loquat(&self, fake: &FakeHub, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_loquat"));
        command.args(args).env("HF_ENDPOINT", &fake.endpoint).env("HF_TOKEN", TOKEN);
        command.env("HOME", self.0.path()).env("HF_HUB_CACHE", self.hub());
        command.env("XDG_CACHE_HOME", self.0.path().join("cache")).env("OLLAMA_MODELS", "/nowhere");
        command.env("LOQUAT_DEVICE", "cpu").env("LOQUAT_SAVED_STATES", "off").env("RUST_LOG", "trace");
        for name in ["LOQUAT_MODEL", "LOQUAT_CONTEXT", "HF_HUB_OFFLINE", "HTTP_PROXY", "http_proxy"] {
            command.env_remove(name);
        }
        command
    }

    fn run(&self, fake: &FakeHub, args: &[&str]) -> Ran {
        let output = self.loquat(fake, args).stdin(Stdio::null()).output().unwrap();
        let ran = Ran::new(output);
        assert!(!format!("{}{}", ran.stdout, ran.stderr).contains(TOKEN), "the token was told: {args:?}");
        ran
    }
}

struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ran {
    fn new(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}{}", self.stdout, self.stderr))
    }
}

const BRIEF: [&str; 6] = ["--think", "off", "--temperature", "0", "--max-tokens", "4"];

#[test]
fn a_model_is_found_fetched_used_checked_and_removed() {
    let fake = FakeHub::start(&[], |root| {
        copy_repo(&golden("dense-a/model"), root, "Qwen/Qwen3.5-0.8B");
    });
    let home = Home::new();
    let name = "Qwen/Qwen3.5-0.8B";
    let ask = [&["run", "hello", "--model", name][..], &BRIEF].concat();

    let missing = home.run(&fake, &ask);
    assert_eq!(missing.code, Some(5));
    assert!(missing.stderr.contains(&format!("`loquat models pull {name}`")), "{}", missing.stderr);
    assert!(fake.log().is_empty(), "nobody asked for a download");

    let info = home.run(&fake, &["models", "info", name, "--json"]).json();
    assert_eq!((&info["format"], &info["installed"]), (&"safetensors".into(), &Value::Null));
    let fit = home.run(&fake, &["models", "fit", name, "--json"]).json();
    assert_eq!(fit["models"][0]["fits"], true);
    assert!(fake.sent() < 256 * 1024, "only headers were fetched");

    let pulled = [&ask[..], &["--pull"]].concat();
    let answer = home.run(&fake, &pulled);
    assert_eq!(answer.code, Some(0), "{}", answer.stderr);
    let again = home.run(&fake, &[&ask[..], &["--offline"]].concat());
    assert_eq!((again.code, &again.stdout), (Some(0), &answer.stdout));

    // What is here has its verdict without a connection, by whatever name.
    let list = home.run(&fake, &["models", "list", "--json"]).json();
    assert_eq!(list["models"][0]["name"], name);
    assert_eq!(list["models"][0]["commit"], info["commit"]);
    let pinned = format!("{name}@{}", info["commit"].as_str().unwrap());
    let fit = home.run(&fake, &["models", "fit", &pinned, "--json", "--offline"]).json();
    assert_eq!(fit["models"][0]["download_bytes"], 0);

    assert_eq!(home.run(&fake, &["models", "verify"]).code, Some(0));
    let weights =
        fs::canonicalize(Path::new(list["models"][0]["path"].as_str().unwrap()).join("model.safetensors"));
    let weights = weights.unwrap();
    let mut bytes = fs::read(&weights).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&weights, bytes).unwrap();
    let checked = home.run(&fake, &["models", "verify", name, "--repair"]);
    assert_eq!(checked.code, Some(5));
    assert!(checked.stdout.contains("model.safetensors is damaged"), "{}", checked.stdout);
    assert_eq!(home.run(&fake, &["models", "pull", name]).code, Some(0));
    assert_eq!(home.run(&fake, &["models", "verify"]).code, Some(0));

    assert_eq!(home.run(&fake, &["models", "rm", name]).code, Some(0));
    assert_eq!(home.run(&fake, &["models", "rm", name]).code, Some(5));
    let offline = home.run(&fake, &[&pulled[..], &["--offline"]].concat());
    assert_eq!(offline.code, Some(5));
    assert!(offline.stderr.contains("offline"), "{}", offline.stderr);
    fake.assert_discreet();
}

#[test]
fn one_gguf_file_of_several_is_fetched_and_judged() {
    let fake = FakeHub::start(&[], |root| {
        let folder = root.join("some/model-GGUF");
        fs::create_dir_all(&folder).unwrap();
        for name in ["dense-a-q8_0.gguf", "dense-a-bf16.gguf"] {
            fs::copy(golden("gguf").join(name), folder.join(name)).unwrap();
        }
    });
    let home = Home::new();
    let fit = home.run(&fake, &["models", "fit", "some/model-GGUF:BF16", "--json"]).json();
    assert_eq!(fit["models"][0]["fits"], true, "{fit}");
    let wrong = home.run(&fake, &["models", "pull", "some/model-GGUF:Q2_K"]);
    assert!(wrong.stderr.contains("no GGUF file Q2_K; it has bf16, q8_0"), "{}", wrong.stderr);
    let pulled = home.run(&fake, &["models", "pull", "some/model-GGUF:q8_0"]);
    assert!(pulled.stdout.trim_end().ends_with("dense-a-q8_0.gguf"), "{}{}", pulled.stdout, pulled.stderr);
    let ask = [&["run", "hello", "--model", "some/model-GGUF:q8_0"][..], &BRIEF].concat();
    assert_eq!(home.run(&fake, &ask).code, Some(0));
}

#[test]
fn a_model_of_ollama_is_read_where_it_is() {
    let fake = FakeHub::start(&[], |_| {});
    let home = Home::new();
    let store = home.0.path().join("ollama");
    let bytes = fs::read(golden("gguf/dense-a-q8_0.gguf")).unwrap();
    let digest: String = Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
    crate::support::write(&store.join(format!("blobs/sha256-{digest}")), &bytes);
    let manifest = serde_json::json!({"layers": [
        {"mediaType": "application/vnd.ollama.image.model", "digest": format!("sha256:{digest}")},
    ]});
    let place = store.join("manifests/registry.ollama.ai/library/qwen3.5/tiny");
    crate::support::write(&place, manifest.to_string().as_bytes());
    let run = |args: &[&str]| {
        let output = home.loquat(&fake, args).env("OLLAMA_MODELS", &store).stdin(Stdio::null()).output();
        Ran::new(output.unwrap())
    };
    let list = run(&["models", "list", "--json"]).json();
    assert_eq!(list["models"][0]["name"], "ollama:qwen3.5:tiny");
    let answer = run(&[&["run", "hello", "--model", "ollama:qwen3.5:tiny"][..], &BRIEF].concat());
    assert_eq!(answer.code, Some(0), "{}", answer.stderr);
    let wrong = run(&["run", "hello", "--model", "ollama:other"]);
    assert_eq!(wrong.code, Some(5));
}

/// What has arrived of all unfinished files, as their files of counts say.
fn arrived(hub: &Path) -> u64 {
    let repos = fs::read_dir(hub).into_iter().flatten().flatten();
    let blobs =
        repos.flat_map(|repo| fs::read_dir(repo.path().join("blobs")).into_iter().flatten().flatten());
    let counts = blobs.filter(|blob| blob.file_name().to_string_lossy().ends_with(".progress"));
    let of_file = |blob: fs::DirEntry| {
        let bytes = fs::read(blob.path()).unwrap_or_default();
        let counts = bytes.get(24..).unwrap_or_default().chunks_exact(4);
        counts.map(|b| u64::from(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))).sum::<u64>()
    };
    counts.map(of_file).sum()
}

fn kill(mut child: Child) {
    // SIGKILL: nothing of the program runs after it.
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn twenty_kills_cost_hardly_a_byte_twice() {
    const KILLS: u64 = 20;
    const SIZE: usize = 40 * MIB;
    let fake = FakeHub::start(&["--slow", "6000000"], |root| {
        write_repo(root, "Qwen/big", &[("model.safetensors", noise(SIZE, 9))]);
    });
    let home = Home::new();
    let mut points: Vec<u64> = noise(8 * KILLS as usize, std::process::id().into())
        .chunks_exact(8)
        .map(|b| u64::from_le_bytes(b.try_into().unwrap()) % (SIZE as u64 * 9 / 10))
        .collect();
    points.sort_unstable();
    println!("killed at {points:?}");
    for point in points {
        let mut command = home.loquat(&fake, &["models", "pull", "Qwen/big"]);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        while arrived(&home.hub()) <= point {
            assert!(child.try_wait().unwrap().is_none(), "it ended before it could be killed");
            std::thread::yield_now();
        }
        kill(child);
    }
    let done = home.run(&fake, &["models", "pull", "Qwen/big"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let fetched = fs::read(Path::new(done.stdout.trim_end()).join("model.safetensors")).unwrap();
    assert!(fetched == noise(SIZE, 9), "the file is wrong");
    // Each kill loses what is on the wire: at most one range, and in truth what the sockets hold.
    let sent = fake.sent();
    println!("{sent} bytes were sent for {SIZE}");
    assert!(sent <= SIZE as u64 + KILLS * 16 * MIB as u64, "{sent}");
    fake.assert_discreet();
}

#[test]
fn a_full_disk_is_told_and_gone_on_from_when_there_is_room() {
    let fake = FakeHub::start(&["--slow", "3000000"], |root| {
        write_repo(root, "Qwen/big", &[("model.safetensors", noise(24 * MIB, 11))]);
    });
    let home = Home::new();
    let script = r#"
        mount -t tmpfs -o size=28m none "$1" || exit 77
        export HF_HUB_CACHE="$1/hub"
        "$0" models pull Qwen/big &
        while ! ls "$1"/hub/models--Qwen--big/blobs/*.part >/dev/null 2>&1; do kill -0 $! || exit 1; done
        cat /dev/zero > "$1/filler" 2>/dev/null
        wait $!; echo "full: $?"
        "$0" models pull Qwen/big; echo "still full: $?"
        rm "$1/filler"
        sha256sum "$("$0" models pull Qwen/big)/model.safetensors"
    "#;
    let template = home.loquat(&fake, &[]);
    let disk = home.0.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let mut command = Command::new("unshare");
    command.args([
        "--user",
        "--map-root-user",
        "--mount",
        "bash",
        "-c",
        script,
        env!("CARGO_BIN_EXE_loquat"),
    ]);
    command.arg(&disk).stdin(Stdio::null());
    for (name, value) in template.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let ran = match command.output() {
        Ok(output) => Ran::new(output),
        Err(error) => return println!("SKIPPED: no unshare here: {error}"),
    };
    if ran.code == Some(77) || ran.stderr.contains("unshare failed") {
        return println!("SKIPPED: no file system may be mounted here: {}", ran.stderr);
    }
    let expected: String = Sha256::digest(noise(24 * MIB, 11)).iter().map(|b| format!("{b:02x}")).collect();
    let said = format!("{}\n{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("full: 5") && ran.stdout.contains("still full: 5"), "{said}");
    assert_eq!(ran.stderr.matches("not enough room in").count(), 2, "{said}");
    assert!(ran.stdout.contains(&expected), "{said}");
    assert!(fake.sent() < 2 * 24 * MIB as u64, "it went on where it was");
}

/// Python's client as the reader and the writer of the same cache, where it is installed.
#[test]
fn pythons_client_reads_what_we_wrote_and_we_what_it_wrote() {
    let python = std::env::var("LOQUAT_TEST_PYTHON").unwrap_or_else(|_| "python3".into());
    let has_it = Command::new(&python).args(["-c", "import huggingface_hub"]).stderr(Stdio::null()).status();
    if !has_it.is_ok_and(|status| status.success()) {
        return println!(
            "SKIPPED: {python} has no huggingface_hub; LOQUAT_TEST_PYTHON may name one that has"
        );
    }
    let fake = FakeHub::start(&[], |root| {
        copy_repo(&golden("dense-a/model"), root, "Qwen/Qwen3.5-0.8B");
    });
    let ask = |home: &Home, offline: &str| {
        let code = "import sys, huggingface_hub as h; \
                    print(h.snapshot_download('Qwen/Qwen3.5-0.8B', allow_patterns=['*.json', '*.safetensors', '*.jinja'])); \
                    sys.exit(len(h.scan_cache_dir().warnings))";
        let mut command = Command::new(&python);
        command.args(["-c", code]).env("HF_HUB_CACHE", home.hub()).env("HF_ENDPOINT", &fake.endpoint);
        command.env("HF_HUB_OFFLINE", offline).env("HF_HUB_DISABLE_TELEMETRY", "1");
        Ran::new(command.output().unwrap())
    };
    let ours = Home::new();
    let pulled = ours.run(&fake, &["models", "pull", "Qwen/Qwen3.5-0.8B"]);
    let read = ask(&ours, "1");
    assert_eq!((read.code, &read.stdout), (Some(0), &pulled.stdout), "{}", read.stderr);

    let theirs = Home::new();
    let written = ask(&theirs, "0");
    assert_eq!(written.code, Some(0), "{}", written.stderr);
    fake.reset();
    let list = theirs.run(&fake, &["models", "list", "--json"]).json();
    assert_eq!(list["models"][0]["path"], written.stdout.trim_end());
    let run = [&["run", "hello", "--model", "Qwen/Qwen3.5-0.8B"][..], &BRIEF].concat();
    assert_eq!(theirs.run(&fake, &run).code, Some(0));
    assert!(fake.log().is_empty());
}
