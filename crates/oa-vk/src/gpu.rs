//! The device and its objects.
use crate::caps::Capabilities;
use crate::choose::{DeviceInfo, DeviceReport};
use crate::error::{Error, Result};
use crate::memory::{MemoryClass, MemoryReport};
use crate::request::DeviceRequest;
use crate::sync::Stages;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug)]
enum Never {}

/// An open device.
#[derive(Clone, Debug)]
pub struct Gpu(Arc<Never>);

/// Every device there is.
///
/// # Errors
///
/// When there is no loader.
pub fn devices(_request: &DeviceRequest) -> Result<Vec<DeviceReport>> {
    Err(Error::NoDevice { rejected: [].into() })
}

impl Gpu {
    /// Opens the device that the request names.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn open(_request: &DeviceRequest) -> Result<Gpu> {
        Err(Error::NoDevice { rejected: [].into() })
    }
    /// What the device can do.
    pub fn capabilities(&self) -> &Capabilities {
        match *self.0 {}
    }
    /// What the driver says of the device.
    pub fn info(&self) -> &DeviceInfo {
        match *self.0 {}
    }
    /// A new buffer; Device contents are zeroed.
    pub fn buffer(&self, _class: MemoryClass, _len_bytes: u64, _label: &str) -> Result<Buffer> {
        match *self.0 {}
    }
    /// Copies host bytes to a slice, ordered after everything submitted before.
    pub fn upload(&self, _slice: &Slice, _bytes: &[u8]) -> Result<()> {
        match *self.0 {}
    }
    /// Copies a slice to the host, ordered after everything submitted before.
    pub fn download(&self, _slice: &Slice, _bytes: &mut [u8], _timeout: Duration) -> Result<()> {
        match *self.0 {}
    }
    /// A pipeline.
    pub fn pipeline(&self, _request: &PipelineRequest) -> Result<Pipeline> {
        match *self.0 {}
    }
    /// Pipelines, built in parallel.
    pub fn pipelines(&self, _requests: &[PipelineRequest]) -> Result<Vec<Pipeline>> {
        match *self.0 {}
    }
    /// A new recording.
    pub fn recorder(&self, _label: &str) -> Result<Recorder> {
        match *self.0 {}
    }
    /// Submits a recording.
    pub fn submit(&self, _recorded: &Recorded) -> Result<Event> {
        match *self.0 {}
    }
    /// Waits for everything submitted.
    pub fn wait_idle(&self, _timeout: Duration) -> Result<()> {
        match *self.0 {}
    }
    /// Drains the validation messages.
    pub fn validation_messages(&self) -> Vec<String> {
        match *self.0 {}
    }
    /// Memory in use.
    pub fn memory(&self) -> MemoryReport {
        match *self.0 {}
    }
}

/// A buffer.
#[derive(Clone, Debug)]
pub struct Buffer(Arc<Never>);

impl Buffer {
    /// The whole buffer.
    pub fn whole(&self) -> Slice {
        match *self.0 {}
    }
    /// A range; asserts that it lies inside.
    pub fn slice(&self, _offset: u64, _len: u64) -> Slice {
        match *self.0 {}
    }
}

/// A range of a buffer.
#[derive(Clone, Debug)]
pub struct Slice(Arc<Never>);

impl PartialEq for Slice {
    fn eq(&self, _other: &Slice) -> bool {
        match *self.0 {}
    }
}
impl Eq for Slice {}
impl Hash for Slice {
    fn hash<H: Hasher>(&self, _state: &mut H) {
        match *self.0 {}
    }
}

impl Slice {
    /// A part of this slice.
    pub fn sub(&self, _offset: u64, _len: u64) -> Slice {
        match *self.0 {}
    }
    /// Number of the buffer.
    pub fn buffer_id(&self) -> u64 {
        match *self.0 {}
    }
    /// Offset in the buffer.
    pub fn offset_bytes(&self) -> u64 {
        match *self.0 {}
    }
    /// Length.
    pub fn len_bytes(&self) -> u64 {
        match *self.0 {}
    }
    /// True when the host can read and write it.
    pub fn is_mapped(&self) -> bool {
        match *self.0 {}
    }
    /// Writes mapped memory.
    pub fn write(&self, _bytes: &[u8]) {
        match *self.0 {}
    }
    /// Reads mapped memory.
    pub fn read(&self, _bytes: &mut [u8]) {
        match *self.0 {}
    }
}

/// What a pipeline is made of.
#[derive(Clone, Copy, Debug)]
pub struct PipelineRequest<'a> {
    /// Name.
    pub label: &'a str,
    /// Module.
    pub spirv: &'a [u8],
    /// Hash of the module.
    pub hash: &'a str,
    /// Storage buffers in set 0.
    pub buffers: u32,
    /// Push constants, bytes.
    pub push_bytes: u32,
    /// Specialisation constants.
    pub spec: &'a [(u32, u32)],
    /// Required subgroup size.
    pub subgroup_size: Option<u32>,
}

/// A pipeline.
#[derive(Clone, Debug)]
pub struct Pipeline(Arc<Never>);

/// A recording in progress.
#[derive(Debug)]
pub struct Recorder(Arc<Never>);

impl Recorder {
    /// Records a dispatch.
    pub fn dispatch(
        &mut self,
        _pipeline: &Pipeline,
        _slices: &[Slice],
        _push: &[u32],
        _groups: [u32; 3],
        _label: &str,
    ) -> Result<()> {
        match *self.0 {}
    }
    /// Records a copy.
    pub fn copy(&mut self, _from: &Slice, _to: &Slice) {
        match *self.0 {}
    }
    /// Records a fill with zero.
    pub fn fill_zero(&mut self, _slice: &Slice) {
        match *self.0 {}
    }
    /// Records a global barrier.
    pub fn barrier(&mut self, _from: Stages, _to: Stages) {
        match *self.0 {}
    }
    /// Records a timestamp; returns its number.
    pub fn timestamp(&mut self) -> u32 {
        match *self.0 {}
    }
    /// Ends the recording.
    pub fn finish(self) -> Result<Recorded> {
        match *self.0 {}
    }
}

/// A finished recording.
#[derive(Clone, Debug)]
pub struct Recorded(Arc<Never>);

impl Recorded {
    /// Timestamps in ns since the first.
    pub fn timestamps_ns(&self) -> Result<Vec<f64>> {
        match *self.0 {}
    }
}

/// A submission.
#[derive(Clone, Debug)]
pub struct Event(Arc<Never>);

impl Event {
    /// Waits.
    pub fn wait(&self, _timeout: Duration) -> Result<()> {
        match *self.0 {}
    }
    /// True when finished.
    pub fn is_done(&self) -> Result<bool> {
        match *self.0 {}
    }
    /// Number on the queue.
    pub fn tick(&self) -> u64 {
        match *self.0 {}
    }
}
