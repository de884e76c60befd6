//! Where tensors live: the CPU (Burn's `flex`) or a GPU (`wgpu`), chosen when the program runs.
//!
//! `auto` takes a real GPU if there is one and it starts, else the CPU, and says why. A software renderer
//! counts as a GPU only when asked for by name: it is slower than the CPU backend on the same cores.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::{LazyLock, Mutex, PoisonError};

use burn::backend::DispatchDevice;
use burn::tensor::wgpu::wgpu::DeviceType as AdapterType;
use burn::tensor::{Device, DeviceKind, DeviceType};
use cubecl::wgpu::WgpuDeviceKind;

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
    /// The largest buffer that a kernel can read; unlimited on the CPU.
    pub max_buffer_bytes: usize,
}

/// Opens what `choice` asks for.
///
/// # Errors
/// [`DeviceError`], but never for `Auto` and `Cpu`.
pub fn open_device(choice: DeviceChoice) -> Result<OpenDevice, DeviceError> {
    match choice {
        DeviceChoice::Cpu => Ok(cpu(None)),
        DeviceChoice::Gpu(None) => {
            let kinds = adapters();
            let hardware = kinds.iter().find(|kind| **kind != DeviceKind::Cpu);
            gpu(hardware.or(kinds.first()).ok_or(DeviceError::NoGpu)?)
        }
        DeviceChoice::Gpu(Some(index)) => {
            let kinds = adapters();
            let count = kinds.len();
            gpu(kinds.get(index).ok_or(DeviceError::NoSuchGpu { index, count })?)
        }
        DeviceChoice::Auto => {
            let kinds = adapters();
            match kinds.iter().find(|kind| **kind != DeviceKind::Cpu) {
                Some(kind) => gpu(kind).or_else(|error| Ok(cpu(Some(format!("Using the CPU: {error}"))))),
                None if kinds.is_empty() => Ok(cpu(Some("Using the CPU: no GPU was found".into()))),
                None => Ok(cpu(Some("Using the CPU: the only Vulkan device is a software renderer".into()))),
            }
        }
    }
}

fn cpu(note: Option<String>) -> OpenDevice {
    OpenDevice {
        tensors: Device::flex(),
        name: "CPU".into(),
        note,
        is_gpu: false,
        max_buffer_bytes: usize::MAX,
    }
}

/// Every adapter of the graphics API that wgpu prefers here, in the system's order.
fn adapters() -> Vec<DeviceKind> {
    Device::enumerate(DeviceType::Wgpu)
        .into_vec()
        .iter()
        .filter_map(|device| match device.as_dispatch() {
            DispatchDevice::Cube(cubecl::Device::Wgpu(device)) => match device.kind {
                WgpuDeviceKind::DiscreteGpu(i) => Some(DeviceKind::DiscreteGpu(i)),
                WgpuDeviceKind::IntegratedGpu(i) => Some(DeviceKind::IntegratedGpu(i)),
                WgpuDeviceKind::VirtualGpu(i) => Some(DeviceKind::VirtualGpu(i)),
                WgpuDeviceKind::Cpu => Some(DeviceKind::Cpu),
                _ => None,
            },
            _ => None,
        })
        .collect()
}

/// Opens an adapter once per process: wgpu's runtime refuses to be set up twice.
fn gpu(kind: &DeviceKind) -> Result<OpenDevice, DeviceError> {
    type Opened = HashMap<DeviceKind, Result<OpenDevice, DeviceError>>;
    static OPENED: LazyLock<Mutex<Opened>> = LazyLock::new(Mutex::default);
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    opened.entry(kind.clone()).or_insert_with(|| start_gpu(kind)).clone()
}

fn start_gpu(kind: &DeviceKind) -> Result<OpenDevice, DeviceError> {
    let (device, setup) = Device::wgpu_options()
        .device_kind(kind.clone())
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
