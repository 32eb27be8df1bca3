//! What this process has used so far, as the system counts it.
//!
//! A software driver computes on threads of this process, so its work is in these figures. Where a
//! system does not tell, the answer is that it is unknown.

use std::time::Duration;

/// Processor time of all threads of this process.
#[cfg(unix)]
pub fn processor_time() -> Option<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let (seconds, nanoseconds) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Some(Duration::new(seconds.ok()?, nanoseconds.ok()?))
}

/// Processor time of all threads of this process.
#[cfg(not(unix))]
pub fn processor_time() -> Option<Duration> {
    None
}

/// The most physical memory that this process has held.
pub fn peak_resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_system_tells_what_was_used() {
        let before = processor_time().unwrap();
        let words: Vec<u64> = (0..1 << 20).collect();
        assert_eq!(std::hint::black_box(&words).iter().max(), Some(&((1 << 20) - 1)));
        assert!(processor_time().unwrap() > before);
        assert!(peak_resident_bytes().unwrap() > 8 << 20);
    }
}
