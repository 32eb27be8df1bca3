//! An open device for one test, and the kernels that the tests run.

use oa_vk::{DeviceRequest, Error, Gpu, MemoryClass, Pipeline, PipelineRequest, Slice, Validation};
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use std::{env, fs, process, thread};

/// Longer than any test needs on any driver.
pub const LONG: Duration = Duration::from_secs(120);

/// A device whose validation messages are asserted to be none when it is dropped.
pub struct Lab {
    gpu: Gpu,
    /// True when the validation layer checks synchronization.
    pub checks_sync: bool,
    folder: PathBuf,
}

impl Deref for Lab {
    type Target = Gpu;

    fn deref(&self) -> &Gpu {
        &self.gpu
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let idle = self.gpu.wait_idle(LONG);
        let messages = self.gpu.validation_messages();
        let _absent = fs::remove_dir_all(&self.folder);
        if !thread::panicking() {
            idle.expect("the device finishes");
            assert!(messages.is_empty(), "validation: {messages:#?}");
        }
    }
}

/// What the tests ask for: the environment's device, synchronization validation.
pub fn request() -> DeviceRequest {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let mut request = DeviceRequest::from_env();
    if env::var_os("OA_VALIDATION").is_none() {
        request.validation = Validation::Sync;
    }
    let folder = env::temp_dir().join(format!("oa-vk-device-{}-{number}", process::id()));
    DeviceRequest { cache_dir: Some(folder), ..request }
}

/// Opens what is asked for, without validation only where the layer is not installed.
pub fn open_with(request: DeviceRequest) -> Lab {
    let folder = request.cache_dir.clone().expect("the lab names a folder");
    let mut checks_sync = matches!(request.validation, Validation::Sync | Validation::Gpu);
    let gpu = match Gpu::open(&request) {
        Err(Error::NoValidationLayer) if env::var_os("OA_VALIDATION").is_none() => {
            checks_sync = false;
            eprintln!("the validation layer is not installed: this run does not validate");
            Gpu::open(&DeviceRequest { validation: Validation::Off, ..request })
        }
        opened => opened,
    };
    Lab { gpu: gpu.expect("a Vulkan device to test on"), checks_sync, folder }
}

/// Opens the device of the environment.
pub fn open() -> Lab {
    open_with(request())
}

/// `sum[i] = a[i] + word * b[i]` for `i < count`; push: count, word.
pub const ADD: PipelineRequest = PipelineRequest {
    label: "add",
    spirv: include_bytes!("../../testdata/add.spv"),
    hash: "add",
    buffers: 3,
    push_bytes: 8,
    spec: &[],
    subgroup_size: None,
};

/// Runs a loop of `word` turns in one invocation; push: nothing, word.
pub const SPIN: PipelineRequest = PipelineRequest {
    label: "spin",
    spirv: include_bytes!("../../testdata/spin.spv"),
    hash: "spin",
    buffers: 1,
    push_bytes: 8,
    spec: &[],
    subgroup_size: None,
};

/// Writes specialisation constant 0 (4 unless it is given) to `count` words; push: count.
pub const CONSTANT: PipelineRequest = PipelineRequest {
    label: "constant",
    spirv: include_bytes!("../../testdata/constant.spv"),
    hash: "constant",
    buffers: 1,
    push_bytes: 8,
    spec: &[],
    subgroup_size: None,
};

/// The workgroups of 64 that cover `count` words.
pub fn groups(count: u32) -> [u32; 3] {
    [count.div_ceil(64), 1, 1]
}

/// A device buffer with these words.
pub fn words(gpu: &Gpu, words: &[u32], label: &str) -> Slice {
    let slice = zeros(gpu, words.len(), label);
    gpu.upload(&slice, &bytes(words)).expect("an upload");
    slice
}

/// A device buffer of `count` zero words.
pub fn zeros(gpu: &Gpu, count: usize, label: &str) -> Slice {
    gpu.buffer(MemoryClass::Device, 4 * count as u64, label).expect("a small buffer").whole()
}

/// The words of a slice.
pub fn read(gpu: &Gpu, slice: &Slice) -> Vec<u32> {
    let mut bytes = vec![0; slice.len_bytes() as usize];
    gpu.download(slice, &mut bytes, LONG).expect("a download");
    let word = |chunk: &[u8]| u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
    bytes.chunks_exact(4).map(word).collect()
}

/// Words as bytes.
pub fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A pipeline of the requests above.
pub fn pipeline(gpu: &Gpu, request: &PipelineRequest) -> Pipeline {
    gpu.pipeline(request).expect("a kernel of the required profile")
}
