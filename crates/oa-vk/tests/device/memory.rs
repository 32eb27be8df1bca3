//! Buffers: their contents, their way to the device and back, their end.

use crate::lab::{LONG, bytes, open, open_with, read, request, words, zeros};
use oa_vk::{DeviceRequest, Error, MemoryClass};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The device as it is, and the same with staging where its memory is unified.
fn both() -> [DeviceRequest; 2] {
    [request(), DeviceRequest { split_memory: true, ..request() }]
}

#[test]
fn device_buffers_start_as_zeros() {
    for request in both() {
        let gpu = open_with(request);
        for _ in 0..3 {
            // The second turn gets the memory that the first one soiled.
            let slice = zeros(&gpu, 5000, "clean");
            assert!(read(&gpu, &slice).iter().all(|word| *word == 0));
            gpu.upload(&slice, &bytes(&[u32::MAX; 5000])).expect("an upload");
        }
        let odd = gpu.buffer(MemoryClass::Device, 7, "seven bytes").expect("a small buffer");
        let mut found = [1; 7];
        gpu.download(&odd.whole(), &mut found, LONG).expect("a download");
        assert_eq!(found, [0; 7]);
    }
}

#[test]
fn bytes_arrive_and_come_back() {
    for request in both() {
        let gpu = open_with(request);
        // The last one passes through the 16 MiB of staging more than once.
        for len in [1, 3, 4, 1000, (1 << 20) + 3, (20 << 20) + 5] {
            let sent: Vec<u8> = (0..len).map(|at: usize| (at * 7 + at / 251) as u8).collect();
            let buffer = gpu.buffer(MemoryClass::Device, len as u64 + 16, "there and back");
            let slice = buffer.expect("room").slice(12, len as u64);
            gpu.upload(&slice, &sent).expect("an upload");
            let mut back = vec![0; len];
            gpu.download(&slice, &mut back, LONG).expect("a download");
            assert!(back == sent, "{len} B");
        }
        let none = zeros(&gpu, 1, "nothing").sub(4, 0);
        gpu.upload(&none, &[]).expect("nothing to do");
        gpu.download(&none, &mut [], LONG).expect("nothing to do");
    }
}

#[test]
fn uploads_are_ordered_behind_what_was_submitted() {
    for request in both() {
        let gpu = open_with(request);
        let (source, target) = (zeros(&gpu, 256, "source"), zeros(&gpu, 256, "target"));
        let mut recorder = gpu.recorder("copy").expect("a recorder");
        recorder.copy(&source, &target);
        let copy = recorder.finish().expect("a recording");
        for turn in 1..20 {
            gpu.upload(&source, &bytes(&[turn; 256])).expect("an upload");
            gpu.submit(&copy).expect("a submission");
            gpu.upload(&source, &bytes(&[0; 256])).expect("an upload");
            assert_eq!(read(&gpu, &target), [turn; 256]);
        }
    }
}

#[test]
fn mapped_classes_are_read_and_written_in_place() {
    let gpu = open();
    let upload = gpu.buffer(MemoryClass::Upload, 64, "up").expect("a small buffer").whole();
    let readback = gpu.buffer(MemoryClass::Readback, 64, "down").expect("a small buffer").whole();
    assert!(upload.is_mapped() && readback.is_mapped());
    assert_eq!(zeros(&gpu, 1, "x").is_mapped(), gpu.capabilities().unified_memory);
    let middle = words(&gpu, &[0; 16], "middle");
    let mut recorder = gpu.recorder("through").expect("a recorder");
    recorder.copy(&upload, &middle);
    recorder.barrier(oa_vk::sync::Stages::TRANSFER, oa_vk::sync::Stages::TRANSFER);
    recorder.copy(&middle, &readback);
    let through = recorder.finish().expect("a recording");
    for turn in 0..5u8 {
        upload.write(&[turn; 64]);
        gpu.submit(&through).expect("a submission").wait(LONG).expect("it finishes");
        let mut back = [99; 64];
        readback.read(&mut back);
        assert_eq!(back, [turn; 64]);
    }
}

#[test]
fn fills_cover_what_they_say_and_no_more() {
    let gpu = open();
    let slice = words(&gpu, &[7; 64], "fill");
    let odd = gpu.buffer(MemoryClass::Device, 10, "odd").expect("a small buffer").whole();
    let mut recorder = gpu.recorder("fill").expect("a recorder");
    recorder.fill_zero(&slice.sub(16, 32));
    recorder.fill_zero(&odd);
    let recorded = recorder.finish().expect("a recording");
    gpu.submit(&recorded).expect("a submission");
    let found = read(&gpu, &slice);
    assert!((0..64).all(|at| found[at] == if (4..12).contains(&at) { 0 } else { 7 }));
}

#[test]
fn over_a_limit_and_out_of_memory_are_different_errors() {
    let mut clamp = open().capabilities().limits.clone();
    clamp.allocation_bytes = 16 << 20;
    let small = open_with(DeviceRequest { clamp: Some(clamp), ..request() });
    let error = small.buffer(MemoryClass::Device, 17 << 20, "weights").expect_err("a limit");
    assert_eq!(
        error.to_string(),
        "\"weights\" needs 17825792 B in one buffer, the device allows 16777216"
    );
    small.buffer(MemoryClass::Device, 16 << 20, "weights").expect("the limit itself");

    let gpu = open();
    let most = gpu.capabilities().limits.allocation_bytes.min(4 << 30) / 2;
    // A software device's memory is the host's: upload buffers, which are not zeroed, cost it no
    // page. A card's memory is filled for real.
    let software = gpu.capabilities().software;
    let class = if software { MemoryClass::Upload } else { MemoryClass::Device };
    let mut held = Vec::new();
    let error = (0..1000).find_map(|_| match gpu.buffer(class, most, "hoard") {
        Ok(buffer) => {
            held.push(buffer);
            None
        }
        Err(error) => Some(error),
    });
    match error {
        Some(Error::OutOfMemory { requested, available, class: of, label }) => {
            assert_eq!((requested, of, &*label), (most, class, "hoard"));
            assert!(available < requested, "{available} B are left for {requested} B");
        }
        other => panic!("{other:?} after {} buffers", held.len()),
    }
    held.clear();
    gpu.buffer(class, most, "after").expect("memory came back");
}

#[test]
fn memory_comes_back_when_handles_are_dropped() {
    for request in both() {
        let gpu = open_with(request);
        let before = gpu.memory();
        let buffers: Vec<_> = (0..10).map(|_| zeros(&gpu, 100_000, "held")).collect();
        let during = gpu.memory();
        assert_eq!(during.buffers, before.buffers + 10);
        assert!(during.allocated_bytes >= before.allocated_bytes + 4_000_000);
        assert!(during.reserved_bytes >= during.allocated_bytes);
        assert!(during.budget_bytes > 0);
        drop(buffers);
        gpu.wait_idle(LONG).expect("it finishes");
        let after = gpu.memory();
        let counts = |report: oa_vk::MemoryReport| (report.buffers, report.allocated_bytes);
        assert_eq!(counts(after), counts(before));
    }
}

#[test]
fn a_slice_never_leaves_its_buffer() {
    let gpu = open();
    let buffer = gpu.buffer(MemoryClass::Device, 64, "sixty-four").expect("a small buffer");
    assert_eq!(buffer.slice(64, 0).len_bytes(), 0);
    let inner = buffer.slice(16, 32);
    assert_eq!(inner, buffer.whole().sub(8, 48).sub(8, 32));
    assert_ne!(inner, buffer.slice(16, 31));
    for (offset, len) in [(0, 65), (64, 1), (65, 0), (u64::MAX, 2), (2, u64::MAX)] {
        let outside = catch_unwind(AssertUnwindSafe(|| buffer.slice(offset, len)));
        assert!(outside.is_err(), "{len} B at {offset}");
    }
    let beyond = catch_unwind(AssertUnwindSafe(|| inner.sub(16, 17)));
    assert!(beyond.is_err(), "a slice of a slice stays inside it");
}
