//! A Hub for tests: `support/fake_hub.py` on this machine, which breaks on request and notes what it was asked.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// Every request of a test carries it, so that it can be looked for where it must not be.
pub const TOKEN: &str = "hf_TESTTOKENthatNobodyMaySee";

pub struct FakeHub {
    child: Child,
    pub endpoint: String,
    /// The repositories that it serves.
    pub root: TempDir,
}

impl FakeHub {
    /// Serves folders `owner/name` below a new root, filled by `fill`.
    pub fn start(options: &[&str], fill: impl FnOnce(&Path)) -> Self {
        let root = tempfile::tempdir().unwrap();
        fill(root.path());
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/fake_hub.py");
        let mut command = Command::new("python3");
        command.arg(script).arg("serve").arg("--root").arg(root.path()).args(options);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the tests need python3");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let endpoint = line.trim().strip_prefix("HF_ENDPOINT=").expect("it says where it is").to_owned();
        Self { child, endpoint, root }
    }

    /// Replaces the faults; each is `key=value,…` as its head describes.
    pub fn set_faults(&self, faults: &[&str]) {
        self.ask("POST", "/_fake/faults", &serde_json::to_string(faults).unwrap());
    }

    /// Forgets faults and requests.
    pub fn reset(&self) {
        self.ask("POST", "/_fake/reset", "");
    }

    /// All requests so far.
    pub fn log(&self) -> Vec<Value> {
        serde_json::from_str(&self.ask("GET", "/_fake/log", "")).unwrap()
    }

    /// Bytes of content that were sent.
    pub fn sent(&self) -> u64 {
        let content = self.log().into_iter().filter(|request| request["origin"] == "cdn");
        content.map(|request| request["sent"].as_u64().unwrap()).sum()
    }

    /// The token went to the Hub only, and nobody reported anything.
    pub fn assert_discreet(&self) {
        for request in self.log() {
            assert!(request.get("TOKEN_LEAK").is_none(), "{request}");
            assert_ne!(request["route"], "telemetry", "{request}");
        }
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> String {
        let address = self.endpoint.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        let length = body.len();
        write!(stream, "{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()
    }
}

impl Drop for FakeHub {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Repeatable bytes without any pattern that a wrong offset could hide in.
pub fn noise(n: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(n + 8);
    while bytes.len() < n {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(n);
    bytes
}

pub fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// A repository that has the form of a model, with weights that mean nothing.
pub fn write_repo(root: &Path, id: &str, shards: &[(&str, Vec<u8>)]) {
    let folder = root.join(id);
    write(&folder.join("config.json"), br#"{"model_type": "qwen3_5"}"#);
    write(&folder.join("tokenizer.json"), br#"{"version": "1.0"}"#);
    write(&folder.join("README.md"), b"# not needed\n");
    write(&folder.join("pytorch_model.bin"), b"not needed");
    for (name, bytes) in shards {
        write(&folder.join(name), bytes);
    }
    if shards.len() > 1 {
        let map: serde_json::Map<String, Value> =
            shards.iter().enumerate().map(|(i, (name, _))| (format!("w{i}"), (*name).into())).collect();
        let index = serde_json::json!({"metadata": {"total_size": 0}, "weight_map": map});
        write(&folder.join("model.safetensors.index.json"), index.to_string().as_bytes());
    }
}

/// A copy of a folder as a repository.
pub fn copy_repo(from: &Path, root: &Path, id: &str) -> PathBuf {
    let to = root.join(id);
    fs::create_dir_all(&to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
        }
    }
    to
}
