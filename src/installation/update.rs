//! `loquat update`: the newest release in the place of this one, if `install.sh` put it here.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use reqwest::{Client, Response, Url};
use sha2::{Digest, Sha256};

use super::{Source, find};
use crate::cli::UpdateArgs;
use crate::hub::USER_AGENT;
use crate::hub::options::is_offline;
use crate::paths;
use crate::private;
use crate::sanitize::one_line;
use crate::units::{ByteSize, hex};

/// Where releases are published; the builder of a release says it.
const RELEASES: Option<&str> = option_env!("LOQUAT_RELEASES");
const THIS: &str = env!("CARGO_PKG_VERSION");
const LIST: &str = "SHA256SUMS";
/// No list of a release and no archive is larger.
const MAX_LIST_BYTES: u64 = 1 << 20;
const MAX_ARCHIVE_BYTES: u64 = 1 << 30;
/// Without a byte for so long, a connection is given up.
const STALL: Duration = Duration::from_secs(30);

type Version = (u64, u64, u64);

/// An archive for this machine.
#[derive(Debug, PartialEq, Eq)]
struct Archive {
    version: Version,
    name: String,
    hash: String,
}

/// # Errors
/// A sentence.
pub fn update(args: &UpdateArgs) -> Result<(), String> {
    let (program, source) = find();
    let Source::Archive(prefix) = &source else {
        let program = one_line(&program.display().to_string());
        say(&format!("{program} was installed by {}, so this updates it:", source.name()));
        say(&format!("    {}", source.updated_by()));
        return Ok(());
    };
    let from = args.from.as_deref().or(RELEASES).filter(|from| !from.is_empty());
    let from = from.ok_or("this build doesn't know where its releases are; --from URL tells it")?;
    let base = address(from)?;
    if is_offline() {
        return Err("an update needs a connection, and HF_HUB_OFFLINE or --offline forbids one".into());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start the runtime: {error}"))?;
    runtime.block_on(async {
        let client = Client::builder().user_agent(USER_AGENT);
        let client = client.connect_timeout(STALL).read_timeout(STALL).build().map_err(plain)?;
        let list = list(get(&client, &base, LIST).await?).await?;
        let system = if cfg!(target_os = "macos") { "macos-universal" } else { SYSTEM };
        let newest = newest(&list, system)
            .ok_or_else(|| format!("{from} has no release for this machine ({system})"))?;
        let (major, minor, patch) = newest.version;
        if Some(newest.version) <= version(THIS) {
            say(&format!("Loquat {THIS} is the newest release."));
            return Ok(());
        }
        say(&format!("Loquat {major}.{minor}.{patch} is there; this is {THIS}."));
        if args.check {
            return Ok(());
        }
        let folder = paths::cache().ok_or("there is no home folder to download into")?.join("update");
        let result = install(&client, &base, &newest, &folder, prefix).await;
        let _ = fs::remove_dir_all(&folder);
        result
    })
}

#[cfg(target_arch = "aarch64")]
const SYSTEM: &str = "linux-aarch64";
#[cfg(not(target_arch = "aarch64"))]
const SYSTEM: &str = "linux-x86_64";

/// What is fetched is run: nobody on the way may change it.
fn address(text: &str) -> Result<Url, String> {
    let url = Url::parse(&format!("{}/", text.trim_end_matches('/')))
        .map_err(|_| format!("{} is no address", one_line(text)))?;
    let is_here = matches!(url.host_str(), Some("127.0.0.1" | "localhost" | "[::1]"));
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_here => Ok(url),
        _ => Err(format!("{} is not safe to update from; it must begin with https://", one_line(text))),
    }
}

async fn install(
    client: &Client,
    base: &Url,
    archive: &Archive,
    folder: &Path,
    prefix: &Path,
) -> Result<(), String> {
    let failed = |error: io::Error| format!("cannot write to {}: {error}", folder.display());
    // What an interrupted update has left.
    let _ = fs::remove_dir_all(folder);
    private::create_folder(folder).map_err(failed)?;
    let file = folder.join(&archive.name);
    let response = get(client, base, &archive.name).await?;
    if let Some(bytes) = response.content_length() {
        say(&format!("Downloading {} ({})", archive.name, ByteSize(bytes)));
    }
    let hash = download(response, &file).await?;
    if hash != archive.hash {
        return Err(format!(
            "{} is damaged: its hash is not the one in {LIST}; try again later",
            archive.name
        ));
    }
    run(Command::new("tar").arg("-xf").arg(&file).arg("-C").arg(folder))?;
    let tree: PathBuf = folder.join(archive.name.trim_end_matches(".tar.xz"));
    run(Command::new("sh").arg(tree.join("install.sh")).arg("--prefix").arg(prefix))
}

fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    match command.stdin(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(format!("{program} failed; nothing else was changed")),
        Err(error) => Err(format!("cannot start {program}: {error}")),
    }
}

async fn get(client: &Client, base: &Url, name: &str) -> Result<Response, String> {
    let url = base.join(name).map_err(|_| format!("{name} is no file of a release"))?;
    let response = client.get(url).send().await.map_err(plain)?;
    match response.status() {
        status if status.is_success() => Ok(response),
        status => Err(format!("the server has no {name} ({status})")),
    }
}

async fn list(mut response: Response) -> Result<String, String> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(plain)? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() as u64 > MAX_LIST_BYTES {
            return Err(format!("{LIST} is too large to be a list"));
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

async fn download(mut response: Response, file: &Path) -> Result<String, String> {
    let failed = |error: io::Error| format!("cannot write {}: {error}", file.display());
    let mut out = File::create(file).map_err(failed)?;
    let (mut hash, mut n_bytes) = (Sha256::new(), 0);
    while let Some(chunk) = response.chunk().await.map_err(plain)? {
        n_bytes += chunk.len() as u64;
        if n_bytes > MAX_ARCHIVE_BYTES {
            return Err("the archive is too large to be Loquat".into());
        }
        hash.update(&chunk);
        out.write_all(&chunk).map_err(failed)?;
    }
    Ok(hex(&hash.finalize()))
}

/// Without the address, whose query may be a signature.
fn plain(error: reqwest::Error) -> String {
    let error = error.without_url();
    let cause = std::iter::successors(std::error::Error::source(&error), |error| error.source()).last();
    format!("the download failed: {}", one_line(&cause.map_or(error.to_string(), ToString::to_string)))
}

/// The newest archive of a list for `system`. Pre-releases are none.
fn newest(list: &str, system: &str) -> Option<Archive> {
    let archives = list.lines().filter_map(|line| {
        let (hash, name) = line.split_once(char::is_whitespace)?;
        let name = name.trim_start().trim_start_matches(['*', ' ']).trim_start_matches("./");
        let number = name.strip_prefix("loquat-")?.strip_suffix(".tar.xz")?.strip_suffix(system)?;
        let is_hash =
            hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'a'..=b'f'));
        let version = version(number.strip_suffix('-')?).filter(|_| is_hash)?;
        Some(Archive { version, name: name.into(), hash: hash.into() })
    });
    archives.max_by_key(|archive| archive.version)
}

fn version(text: &str) -> Option<Version> {
    let mut numbers = text.split('.').map(|part| part.parse().ok());
    let version = (numbers.next()??, numbers.next()??, numbers.next()??);
    numbers.next().is_none().then_some(version)
}

fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_archive_for_this_system_is_found_in_a_list() {
        let (a, b) = ("a".repeat(64), "b".repeat(64));
        let list = format!(
            "{a}  ./loquat-0.9.0-linux-x86_64.tar.xz\n{b}  ./loquat-0.10.0-linux-x86_64.tar.xz\n\
             {a}  ./loquat-2.0.0-linux-aarch64.tar.xz\n{a}  loquat-3.0.0-rc1-linux-x86_64.tar.xz\n\
             {a}  loquat_9.0.0_amd64.deb\nshort  ./loquat-4.0.0-linux-x86_64.tar.xz\n\
             {a}  ./loquat-5.0.0/../x-linux-x86_64.tar.xz\nnonsense\n"
        );
        let found = newest(&list, "linux-x86_64").unwrap();
        let expected =
            Archive { version: (0, 10, 0), name: "loquat-0.10.0-linux-x86_64.tar.xz".into(), hash: b };
        assert_eq!(found, expected);
        assert_eq!(newest(&list, "macos-universal"), None);
        assert!(version(THIS).is_some(), "this version can be compared");
    }

    #[test]
    fn updates_come_over_https_or_from_this_machine() {
        assert_eq!(address("https://example.org/a/").unwrap().join(LIST).unwrap().path(), "/a/SHA256SUMS");
        assert!(address("http://127.0.0.1:8000").is_ok());
        for wrong in ["http://example.org", "file:///tmp", "ftp://example.org", "x", ""] {
            assert!(address(wrong).is_err(), "{wrong:?}");
        }
    }
}
