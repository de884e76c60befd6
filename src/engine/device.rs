//! Where tensors live: the CPU (Burn's `flex`) or a GPU (`wgpu`), chosen when the program runs.
//!
//! `auto` takes a real GPU if there is one and it starts, else the CPU, and says why. A software renderer
//! counts as a GPU only when asked for by name: it is slower than the CPU backend on the same cores.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::{LazyLock, Mutex, PoisonError};

use burn::tensor::wgpu::WgpuBackend;
use burn::tensor::wgpu::wgpu::{self, DeviceType as AdapterType};
use burn::tensor::{Device, DeviceKind};

/// What `--device` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceChoice {
    #[default]
    Auto,
    Cpu,
    /// A GPU: the best one, or the n-th that the system lists.
    Gpu(Option<usize>),
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None => match text {
                "auto" => Ok(Self::Auto),
                "cpu" => Ok(Self::Cpu),
                "gpu" | "wgpu" => Ok(Self::Gpu(None)),
                _ => Err("expected auto, cpu, gpu or gpu:NUMBER".into()),
            },
            Some(("gpu" | "wgpu", number)) => match number.parse() {
                Ok(index) => Ok(Self::Gpu(Some(index))),
                Err(_) => Err(format!("{number:?} is not a GPU number; the first GPU is gpu:0")),
            },
            Some(_) => Err("expected auto, cpu, gpu or gpu:NUMBER".into()),
        }
    }
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum DeviceError {
    #[error("no GPU was found; install its Vulkan driver, or use --device cpu")]
    NoGpu,
    #[error("there is no gpu:{index}; this machine has {count} (the first is gpu:0)")]
    NoSuchGpu { index: usize, count: usize },
    #[error("the GPU did not start ({why}); use --device cpu")]
    DidNotStart { why: String },
}

/// A device that is ready for tensors.
#[derive(Debug, Clone)]
pub struct OpenDevice {
    pub tensors: Device,
    /// For people: `CPU`, or `GPU` with the adapter's name.
    pub name: String,
    /// Why this is not the device that was hoped for.
    pub note: Option<String>,
    pub is_gpu: bool,
    /// Whether its memory is the machine's own, as that of the CPU and of GPUs beside it is.
    pub shares_ram: bool,
    /// The largest buffer that a kernel can read; unlimited on the CPU.
    pub max_buffer_bytes: usize,
}

/// Opens what `choice` asks for.
///
/// # Errors
/// [`DeviceError`], but never for `Auto` and `Cpu`.
pub fn open_device(choice: DeviceChoice) -> Result<OpenDevice, DeviceError> {
    match choose(choice)? {
        Chosen::Cpu(note) => Ok(cpu(note)),
        Chosen::Gpu(adapter) => match (gpu(&adapter), choice) {
            (Err(error), DeviceChoice::Auto) => Ok(cpu(Some(format!("Using the CPU: {error}")))),
            (opened, _) => opened,
        },
    }
}

/// What is known of a device before it is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prospect {
    pub is_gpu: bool,
    /// As in [`OpenDevice`].
    pub shares_ram: bool,
}

/// What [`open_device`] will open if nothing goes wrong, in a moment: starting a GPU takes longer.
///
/// # Errors
/// As there, but for a GPU that doesn't start.
pub fn find_device(choice: DeviceChoice) -> Result<Prospect, DeviceError> {
    Ok(match choose(choice)? {
        Chosen::Cpu(_) => Prospect { is_gpu: false, shares_ram: true },
        Chosen::Gpu(adapter) => Prospect { is_gpu: true, shares_ram: adapter.shares_ram() },
    })
}

enum Chosen {
    /// With the reason, where it isn't what was hoped for.
    Cpu(Option<String>),
    Gpu(Adapter),
}

fn choose(choice: DeviceChoice) -> Result<Chosen, DeviceError> {
    if choice == DeviceChoice::Cpu {
        return Ok(Chosen::Cpu(None));
    }
    let adapters = adapters();
    let hardware = adapters.iter().find(|adapter| adapter.kind != DeviceKind::Cpu);
    let adapter = match choice {
        DeviceChoice::Gpu(None) => hardware.or(adapters.first()).ok_or(DeviceError::NoGpu)?,
        DeviceChoice::Gpu(Some(index)) => {
            let count = adapters.len();
            adapters.get(index).ok_or(DeviceError::NoSuchGpu { index, count })?
        }
        DeviceChoice::Auto | DeviceChoice::Cpu => match hardware {
            Some(adapter) => adapter,
            None => {
                let why = match adapters.is_empty() {
                    true => "Using the CPU: no GPU was found",
                    false => "Using the CPU: the only GPU driver is a software renderer",
                };
                return Ok(Chosen::Cpu(Some(why.into())));
            }
        },
    };
    Ok(Chosen::Gpu(adapter.clone()))
}

fn cpu(note: Option<String>) -> OpenDevice {
    OpenDevice {
        tensors: Device::flex(),
        name: "CPU".into(),
        note,
        is_gpu: false,
        shares_ram: true,
        max_buffer_bytes: usize::MAX,
    }
}

/// An adapter as the system lists it, and the graphics API that reaches it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Adapter {
    kind: DeviceKind,
    api: WgpuBackend,
}

impl Adapter {
    fn shares_ram(&self) -> bool {
        matches!(self.kind, DeviceKind::Cpu | DeviceKind::IntegratedGpu(_))
    }
}

/// The graphics APIs to try, best first. OpenGL is not among them: it lacks compute on most machines where
/// it is all there is, and its loader writes to standard error where no display is open.
const APIS: &[(WgpuBackend, wgpu::Backend)] = if cfg!(target_vendor = "apple") {
    &[(WgpuBackend::Metal, wgpu::Backend::Metal)]
} else if cfg!(windows) {
    &[(WgpuBackend::Vulkan, wgpu::Backend::Vulkan), (WgpuBackend::Dx12, wgpu::Backend::Dx12)]
} else {
    &[(WgpuBackend::Vulkan, wgpu::Backend::Vulkan)]
};

/// Every adapter of the first API that has a real GPU; failing that, of the first that has any.
fn adapters() -> Vec<Adapter> {
    let lists = APIS.iter().map(|(api, backend)| adapters_of(*api, *backend));
    best(lists, |adapter| adapter.kind != DeviceKind::Cpu)
}

fn best<T: Clone>(lists: impl Iterator<Item = Vec<T>>, is_hardware: impl Fn(&T) -> bool) -> Vec<T> {
    let lists: Vec<Vec<T>> = lists.collect();
    let with_hardware = lists.iter().find(|list| list.iter().any(&is_hardware));
    with_hardware.or_else(|| lists.iter().find(|list| !list.is_empty())).cloned().unwrap_or_default()
}

fn enumerate(backend: wgpu::Backend) -> Vec<wgpu::Adapter> {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
        backends: backend.into(),
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    });
    cubecl::future::block_on(instance.enumerate_adapters(backend.into()))
}

/// What the system says of an adapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub name: String,
    /// The graphics API and the driver.
    pub reached_by: String,
    pub is_software: bool,
}

/// Every adapter, in the order of `gpu:NUMBER`.
pub fn listed() -> Vec<Listed> {
    let listed = |adapter: &wgpu::Adapter| {
        let info = adapter.get_info();
        let driver = [info.driver.as_str(), info.driver_info.as_str()].join(" ");
        Listed {
            name: info.name,
            reached_by: format!("{:?} {}", info.backend, driver.trim()).trim_end().to_owned(),
            is_software: info.device_type == AdapterType::Cpu,
        }
    };
    best(
        APIS.iter().map(|(_, backend)| {
            let found = enumerate(*backend);
            found
                .iter()
                .filter(|adapter| adapter.get_info().device_type != AdapterType::Other)
                .map(listed)
                .collect()
        }),
        |adapter: &Listed| !adapter.is_software,
    )
}

fn adapters_of(api: WgpuBackend, backend: wgpu::Backend) -> Vec<Adapter> {
    let found = enumerate(backend);
    // Each kind counts from zero, and the runtime finds an adapter again by its kind and number.
    let mut counts = [0; 3];
    let mut next = |kind: usize| {
        counts[kind] += 1;
        counts[kind] - 1
    };
    let kind = |adapter: &wgpu::Adapter| match adapter.get_info().device_type {
        AdapterType::DiscreteGpu => Some(DeviceKind::DiscreteGpu(next(0))),
        AdapterType::IntegratedGpu => Some(DeviceKind::IntegratedGpu(next(1))),
        AdapterType::VirtualGpu => Some(DeviceKind::VirtualGpu(next(2))),
        AdapterType::Cpu => Some(DeviceKind::Cpu),
        AdapterType::Other => None,
    };
    found.iter().filter_map(kind).map(|kind| Adapter { kind, api }).collect()
}

/// Opens an adapter once per process: wgpu's runtime refuses to be set up twice.
fn gpu(adapter: &Adapter) -> Result<OpenDevice, DeviceError> {
    type Opened = HashMap<Adapter, Result<OpenDevice, DeviceError>>;
    static OPENED: LazyLock<Mutex<Opened>> = LazyLock::new(Mutex::default);
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    opened.entry(adapter.clone()).or_insert_with(|| start_gpu(adapter)).clone()
}

fn start_gpu(adapter: &Adapter) -> Result<OpenDevice, DeviceError> {
    let (device, setup) = Device::wgpu_options()
        .device_kind(adapter.kind.clone())
        .graphics_api(adapter.api)
        .init_with_setup()
        .map_err(|error| DeviceError::DidNotStart { why: error.to_string() })?;
    let info = setup.adapter.get_info();
    let limits = setup.device.limits();
    let software = if info.device_type == AdapterType::Cpu { ", software" } else { "" };
    Ok(OpenDevice {
        tensors: device,
        name: format!("GPU ({}{software})", info.name),
        note: None,
        is_gpu: true,
        shares_ram: adapter.shares_ram(),
        max_buffer_bytes: usize::try_from(limits.max_storage_buffer_binding_size.min(limits.max_buffer_size))
            .unwrap_or(usize::MAX),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_names_are_read_as_documented() {
        assert_eq!("auto".parse(), Ok(DeviceChoice::Auto));
        assert_eq!("cpu".parse(), Ok(DeviceChoice::Cpu));
        assert_eq!("gpu".parse(), Ok(DeviceChoice::Gpu(None)));
        assert_eq!("gpu:2".parse(), Ok(DeviceChoice::Gpu(Some(2))));
        for wrong in ["", "cuda", "gpu:", "gpu:-1", "cpu:0"] {
            assert!(wrong.parse::<DeviceChoice>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_gpu_that_is_not_there_is_refused_with_the_count() {
        let error = open_device(DeviceChoice::Gpu(Some(99))).unwrap_err().to_string();
        assert!(error.starts_with("there is no gpu:99; this machine has "), "{error}");
    }

    #[test]
    fn auto_always_gives_a_device_and_says_why_it_is_the_cpu() {
        let device = open_device(DeviceChoice::Auto).unwrap();
        assert!(device.is_gpu || device.note.is_some_and(|note| note.starts_with("Using the CPU: ")));
    }
}
