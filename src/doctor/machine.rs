//! Processor, memory, disk, system, and the GPU if there is one.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use sysinfo::{CpuRefreshKind, System};

use super::{Report, State};
use crate::engine::device::{self, DeviceChoice};
use crate::engine::ram;
use crate::hub::options;
use crate::hub::space;
use crate::paths;
use crate::units::ByteSize;

/// Drivers have been seen to wait for a GPU that is gone.
const PATIENCE: Duration = Duration::from_secs(20);

/// Less is too little for any model but the built-in one.
const LITTLE_MEMORY: u64 = 2 << 30;
const LITTLE_DISK: u64 = 4 << 30;
/// Conversations and saved states want some.
const NO_DISK: u64 = 64 << 20;

const DRIVER: &str = if cfg!(windows) {
    "install the graphics driver of its maker"
} else {
    "install its Vulkan driver (on Debian: mesa-vulkan-drivers, or the driver of NVIDIA)"
};

/// In time, and whatever a driver does.
fn guarded<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, &'static str> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(PATIENCE).map_err(|error| match error {
        mpsc::RecvTimeoutError::Timeout => "the driver did not answer",
        mpsc::RecvTimeoutError::Disconnected => "the driver crashed",
    })
}

pub fn device(report: &mut Report, choice: Option<DeviceChoice>) {
    match guarded(device::listed) {
        Err(why) => report.bad("GPU", why, "use --device cpu, and install the newest driver"),
        Ok(listed) if listed.is_empty() => {
            report.warn(
                "GPU",
                "none was found: models run on the processor",
                format!("if there is one, {DRIVER}"),
            );
        }
        Ok(listed) => {
            let only_software = listed.iter().all(|gpu| gpu.is_software);
            for (index, gpu) in listed.iter().enumerate() {
                let found = format!("gpu:{index} is {} ({})", gpu.name, gpu.reached_by);
                match (gpu.is_software, only_software) {
                    (true, true) => report.warn(
                        "GPU",
                        format!("{found}, a software driver"),
                        format!("models run on the processor, which is faster; if there is a GPU, {DRIVER}"),
                    ),
                    (true, false) => report.ok("GPU", format!("{found}, a software driver")),
                    (false, _) => report.ok("GPU", found),
                }
            }
        }
    }
    let choice = choice.unwrap_or_default();
    match guarded(move || device::open_device(choice)) {
        Ok(Ok(opened)) => match opened.note {
            Some(note) if note.contains("did not start") => report.bad("used", note, DRIVER),
            _ => report.ok("used", opened.name),
        },
        Ok(Err(error)) => report.bad("used", error.to_string(), "choose another one with --device, or none"),
        Err(why) => report.bad("used", why, "use --device cpu, and install the newest driver"),
    }
}

pub fn machine(report: &mut Report) {
    system(report);
    processor(report);
    memory(report);
    for (name, folder) in [("disk of models", options::cache()), ("disk of history", paths::data())] {
        if let Some(folder) = folder {
            disk(report, name, &folder);
        }
    }
}

fn system(report: &mut Report) {
    let name = System::long_os_version().unwrap_or_else(|_| std::env::consts::OS.into());
    let kernel = System::kernel_version().map(|version| format!(", kernel {version}")).unwrap_or_default();
    report.ok("system", format!("{name}{kernel}, {}", std::env::consts::ARCH));
    if cfg!(all(target_os = "linux", target_env = "gnu")) {
        // A program of the library itself, as everything else would be a guess.
        let said = Command::new("getconf").arg("GNU_LIBC_VERSION").stdin(Stdio::null()).output();
        let version = said.ok().filter(|said| said.status.success());
        let version = version.map(|said| String::from_utf8_lossy(&said.stdout).trim().to_owned());
        report.ok("C library", version.unwrap_or_else(|| "glibc, of unknown version".into()));
    }
}

fn processor(report: &mut Report) {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let brand = System::new().ok().and_then(|mut system| {
        system.refresh_cpu_list(CpuRefreshKind::nothing());
        Some(system.cpus().first()?.brand().trim().to_owned())
    });
    let brand = brand.filter(|brand| !brand.is_empty()).unwrap_or_else(|| "unknown".into());
    report.ok("processor", format!("{brand}, {threads} threads"));
    let (features, is_fast) = features();
    let found = if features.is_empty() { "none that speed up models".into() } else { features.join(" ") };
    match is_fast {
        true => report.ok("instructions", found),
        false => {
            report.warn("instructions", found, "without AVX2 models are several times slower; a GPU helps")
        }
    }
}

/// The sets of instructions that kernels make use of, and whether the fast ones are among them.
#[cfg(target_arch = "x86_64")]
fn features() -> (Vec<&'static str>, bool) {
    let has_avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    let all = [
        ("avx2", is_x86_feature_detected!("avx2")),
        ("fma", is_x86_feature_detected!("fma")),
        ("f16c", is_x86_feature_detected!("f16c")),
        ("avxvnni", is_x86_feature_detected!("avxvnni")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
        ("avx512bw", is_x86_feature_detected!("avx512bw")),
        ("avx512vnni", is_x86_feature_detected!("avx512vnni")),
    ];
    (all.iter().filter(|(_, is_there)| *is_there).map(|(name, _)| *name).collect(), has_avx2)
}

#[cfg(not(target_arch = "x86_64"))]
fn features() -> (Vec<&'static str>, bool) {
    (vec![if cfg!(target_arch = "aarch64") { "neon" } else { "portable" }], true)
}

fn memory(report: &mut Report) {
    let Some(available) = ram::available() else {
        report.ok("memory", "the system doesn't say how much there is");
        return;
    };
    let total = ram::total().map(|total| format!(" of {}", ByteSize(total))).unwrap_or_default();
    let found = format!("{} free{total}", ByteSize(available));
    match available < LITTLE_MEMORY {
        true => report.warn("memory", found, "only small models fit; `loquat models fit` tells which"),
        false => report.ok("memory", found),
    }
}

fn disk(report: &mut Report, name: &'static str, folder: &Path) {
    let Some(free) = space::free(folder) else { return };
    let state = match free {
        ..NO_DISK => State::Bad,
        NO_DISK..LITTLE_DISK => State::Warn,
        _ => State::Ok,
    };
    let advice = "`loquat models list` shows what models take, `loquat models rm` removes one";
    let advice = (state != State::Ok).then(|| advice.to_owned());
    report.add(name, state, format!("{} free", ByteSize(free)), advice);
}
