//! Renders a template that nobody vouches for in a process of its own.
//!
//! The template engine counts steps, but a template can still make it fill the memory in a few steps,
//! and an allocation that fails ends the process. So that process is not ours: the parent starts this
//! same program with `__template`, writes one JSON job to its standard input, reads one JSON answer, and
//! kills it when it takes too long. On Unix the child also limits itself before it reads anything; on
//! other systems fuel and the parent's clock are the limits.

use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::PromptError;
use super::jinja::{self, RenderError};

/// The hidden argument that makes Loquat call [`main`].
pub const ARGUMENT: &str = "__template";

const WALL_LIMIT: Duration = Duration::from_secs(5);
const CPU_LIMIT_SECONDS: u64 = 2;
/// Over what the program occupies when it starts.
const MEMORY_LIMIT_BYTES: u64 = 512 << 20;
/// A full context of 262 144 tokens has about 1 MB of text.
const OUTPUT_LIMIT_BYTES: u64 = 16 << 20;
const INPUT_LIMIT_BYTES: u64 = 64 << 20;

#[derive(Deserialize)]
struct Job {
    template: String,
    context: serde_json::Value,
}

#[derive(Serialize)]
struct JobRef<'a> {
    template: &'a str,
    context: &'a serde_json::Value,
}

type Answer = Result<String, RenderError>;

/// The child's whole program: one job from standard input, one answer to standard output.
pub fn main() -> ExitCode {
    match answer_job() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn answer_job() -> io::Result<()> {
    limits::set(MEMORY_LIMIT_BYTES, CPU_LIMIT_SECONDS)?;
    let mut input = Vec::new();
    io::stdin().lock().take(INPUT_LIMIT_BYTES).read_to_end(&mut input)?;
    let job: Job = serde_json::from_slice(&input)?;
    drop(input);
    let answer: Answer = jinja::render(&job.template, &job.context);
    let mut stdout = io::stdout().lock();
    serde_json::to_writer(&mut stdout, &answer)?;
    stdout.flush()
}

/// Renders `template` in a child of `exe`.
///
/// # Errors
/// `Raised` and `Failed` as in the same process; `Stopped` if a limit was reached; `Renderer` if `exe`
/// can't be started.
pub(super) fn render(exe: &Path, template: &str, context: &serde_json::Value) -> Result<String, PromptError> {
    let job = serde_json::to_vec(&JobRef { template, context })
        .map_err(|e| PromptError::Failed(format!("the conversation cannot be handed to it: {e}")))?;
    let child = Command::new(exe)
        .arg(ARGUMENT)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|reason| PromptError::Renderer { exe: exe.to_owned(), reason })?;
    let (output, status) = converse(child, job);

    let Some(output) = output else { return Err(PromptError::Stopped("it took more than five seconds")) };
    if output.len() as u64 > OUTPUT_LIMIT_BYTES {
        return Err(PromptError::Stopped("it wrote more than 16 MiB"));
    }
    match serde_json::from_slice::<Answer>(&output) {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(PromptError::Stopped(why_it_ended(status))),
    }
}

/// Hands over the job and takes the output, `None` if the child was too slow. The child is gone
/// afterwards, whatever it did.
fn converse(mut child: Child, job: Vec<u8>) -> (Option<Vec<u8>>, Option<ExitStatus>) {
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    // Two threads, because a child may stop reading, stop writing, or do both at once.
    let writer = thread::spawn(move || {
        // A child that died early says so by its status, not by this broken pipe.
        stdin.map(|mut stdin| stdin.write_all(&job))
    });
    let (sender, receiver) = mpsc::sync_channel(1);
    let reader = thread::spawn(move || {
        let mut output = Vec::new();
        // Half an answer does not parse, which is all that the caller needs to know.
        let _ = stdout.map(|stdout| stdout.take(OUTPUT_LIMIT_BYTES + 1).read_to_end(&mut output));
        let _ = sender.send(output);
    });
    let output = receiver.recv_timeout(WALL_LIMIT).ok();
    // No answer, or the whole answer: either way there is nothing left for it to do. Killing a child that
    // has ended keeps the status it ended with.
    let _ = child.kill();
    let status = child.wait().ok();
    let _ = (writer.join(), reader.join());
    (output, status)
}

#[cfg(unix)]
fn why_it_ended(status: Option<ExitStatus>) -> &'static str {
    use std::os::unix::process::ExitStatusExt;
    match status.and_then(|status| status.signal()) {
        Some(libc::SIGXCPU) => "it used more than two seconds of processor time",
        Some(libc::SIGABRT | libc::SIGSEGV | libc::SIGBUS | libc::SIGKILL) => "it needed too much memory",
        _ => "it ended without an answer",
    }
}

#[cfg(not(unix))]
fn why_it_ended(_: Option<ExitStatus>) -> &'static str {
    "it ended without an answer"
}

#[cfg(unix)]
mod limits {
    use std::io;

    /// Limits this process for good.
    pub(super) fn set(memory_bytes: u64, cpu_seconds: u64) -> io::Result<()> {
        limit(libc::RLIMIT_CORE, 0, 0)?;
        // The soft limit sends a signal that says what happened; only the hard one, a second later, kills.
        limit(libc::RLIMIT_CPU, cpu_seconds, cpu_seconds + 1)?;
        // Only where the start size is known: a limit below it would forbid every allocation.
        match mapped_bytes() {
            Some(mapped) => limit(libc::RLIMIT_AS, mapped + memory_bytes, mapped + memory_bytes),
            None => Ok(()),
        }
    }

    /// What this process has mapped, its own code included. Linux only.
    fn mapped_bytes() -> Option<u64> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmSize:"))?;
        let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kilobytes * 1024)
    }

    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    type Resource = libc::__rlimit_resource_t;
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    type Resource = libc::c_int;

    fn limit(resource: Resource, soft: u64, hard: u64) -> io::Result<()> {
        let value = libc::rlimit { rlim_cur: soft as libc::rlim_t, rlim_max: hard as libc::rlim_t };
        // SAFETY: `value` is a valid rlimit that outlives the call, which only reads it.
        match unsafe { libc::setrlimit(resource, &value) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(not(unix))]
mod limits {
    pub(super) fn set(_memory_bytes: u64, _cpu_seconds: u64) -> std::io::Result<()> {
        Ok(())
    }
}
